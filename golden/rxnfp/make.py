"""Make the golden of rxnfp from upstream's own words: portkit computes no number of it, it only writes the file.

    python golden/rxnfp/make.py            writes rxnfp.json beside this file

The wheel of the package, pinned and hashed, holds everything: its description (the README) shows the code that
embeds one reaction, and prints the first five values of the result; `tokenization.py` holds the regular expression
that cuts a reaction into tokens, `bert_ft/vocab.txt` their ids, and `transformer_fingerprints.py` says that the
result is the last hidden state at [CLS] of the BertModel in `bert_ft`. The wheel is read as a zip, never imported.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import sys
import tempfile
import zipfile
from pathlib import Path

from portkit.golden.form import Expected, Golden, Run, dump

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "scripts"))
from checkpoints import PACKAGES, download  # noqa: E402 - a script beside this one, not a package

PACKAGE = next(p for p in PACKAGES if "rxnfp-ft" in p.folders)
MODEL = PACKAGE.folders["rxnfp-ft"]
README = "rxnfp-0.1.0.dist-info/METADATA"
TOKENIZER = "rxnfp/tokenization.py"


def reaction_and_values(readme: str) -> tuple[str, tuple[str, ...]]:
    """The reaction that the README embeds, and the values that it prints, digit for digit."""
    (reaction,) = re.findall(r'^example_rxn = "(.+)"$', readme, re.MULTILINE)
    (printed,) = re.findall(r"^ {4}\[(-?\d+\.\d+(?:, -?\d+\.\d+){4})\]$", readme, re.MULTILINE)
    return reaction, tuple(printed.split(", "))


def tokens_of(reaction: str, source: str) -> list[str]:
    """A reaction as the package's tokenizer cuts it, with the special tokens of BERT around it."""
    (pattern,) = re.findall(r'^SMI_REGEX_PATTERN = +(r".+")$', source, re.MULTILINE)
    return ["[CLS]", *re.findall(ast.literal_eval(pattern), reaction), "[SEP]"]


def golden(wheel: Path) -> Golden:
    """What the file says. Raises ValueError where the wheel does not say what is looked for."""
    with zipfile.ZipFile(wheel) as archive:
        reaction, values = reaction_and_values(archive.read(README).decode())
        vocabulary = archive.read(f"{MODEL}/vocab.txt").decode().splitlines()
        tokens = tokens_of(reaction, archive.read(TOKENIZER).decode())
        ids = tuple(vocabulary.index(token) for token in tokens)
        layers = json.loads(archive.read(f"{MODEL}/config.json"))["num_hidden_layers"]
        weights = hashlib.sha256(archive.read(f"{MODEL}/pytorch_model.bin")).hexdigest()
    return Golden(
        about="the first values of the [CLS] vector of one reaction, as the README of rxnfp prints them",
        source={
            "package": PACKAGE.pin,
            "wheel sha256": PACKAGE.sha256,
            "values": f"{README}, the list printed below `print(fp[:5])`",
            "checkpoint": f"{MODEL}/pytorch_model.bin",
            "checkpoint sha256": weights,
            "preprocessing": f"[CLS], the tokens of SMI_REGEX_PATTERN in {TOKENIZER}, [SEP]; ids: lines of vocab.txt",
            "text": reaction,
            "made by": "golden/rxnfp/make.py",
        },
        input_ids=(ids,),
        outputs={f"hidden_states.{layers}": Expected((Run((0, 0, 0), values),))},
    )


def main() -> None:
    """Fetch the wheel and write the golden."""
    with tempfile.TemporaryDirectory() as folder:
        text = dump(golden(download(PACKAGE, Path(folder))))
    (HERE / "rxnfp.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
