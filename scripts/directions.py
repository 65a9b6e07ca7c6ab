"""The README's table of directions, from what conversions of small random models do: `python scripts/directions.py`.

For every family, task and direction: is it refused, do the weights come over bit for bit, and by how much does the
function change where the target's framework fixes it otherwise. That figure is the rms of the difference over the rms
of the output, of the last output, both sides in float64 on the same inputs: it has no noise in it.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from hf_folders import small_model  # noqa: E402 - the tests' models, all sizes distinct, every number random

import portkit  # noqa: E402
from portkit.checkpoint import Checkpoint, open_checkpoint  # noqa: E402
from portkit.proofs.inputs import choose_inputs, shared_facts  # noqa: E402
from portkit.runtimes.reference import run_reference  # noqa: E402

LAYOUTS = ("hf", "keras", "burn")
DIRECTIONS = tuple((a, b) for a in LAYOUTS for b in LAYOUTS if a != b)
TASKS = {
    "base model": ("model",),
    "masked LM": ("masked_lm",),
    "sequence classification": ("sequence_classification",),
    "token classification, question answering, multiple choice": (
        "token_classification", "question_answering", "multiple_choice",
    ),
}  # fmt: skip
ONLY_BERT = {"next sentence, pre-training": ("next_sentence", "pre_training")}
BEGIN, END = "<!-- directions: python scripts/directions.py -->", "<!-- /directions -->"


def table() -> str:
    """The table, in Markdown."""
    head = "| | " + " | ".join(f"`{a}` → `{b}`" for a, b in DIRECTIONS) + " |"
    lines = [head, "|---" * (len(DIRECTIONS) + 1) + "|"]
    for family, name in (("bert", "BERT"), ("roberta", "RoBERTa, XLM-RoBERTa")):
        for label, tasks in (TASKS | ONLY_BERT if family == "bert" else TASKS).items():
            cells = ["; ".join(dict.fromkeys(cell(family, task, *d) for task in tasks)) for d in DIRECTIONS]
            lines.append(f"| {name}: {label} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def cell(family: str, task: str, source: str, target: str) -> str:
    """What one conversion does, in a few words."""
    with tempfile.TemporaryDirectory() as folder:
        at = Path(folder)
        try:
            types = 1 if family == "roberta" else 2  # as published
            start = native(small_model(at / "hf", family, task, type_vocab_size=types), at, source)
        except portkit.PortkitError:
            return "none"  # that framework has no such model
        try:
            result = portkit.convert(start, at / "out", to=target, verify="tensors")
        except portkit.PortkitError:
            return "refused"
        assert result.tensors is not None
        how = "tables folded" if any(m.absorbs for m in result.plan.moves) else "exact"
        how = "exact, reserved rows are zeros" if any("made of zeros" in w for w in result.warnings) else how
        if not result.plan.changes:
            return how
        return f"{how}; {', '.join(result.plan.changes)}: {change(open_checkpoint(start), open_checkpoint(at / 'out'))}"


def native(folder: Path, at: Path, layout: str) -> Path:
    """The same model as a framework itself would have saved it, without what portkit remembers."""
    if layout == "hf":
        return folder
    portkit.convert(folder, at / layout, to=layout, verify="none", residue=False)
    (at / layout / "portkit.json").unlink()
    return at / layout


def change(source: Checkpoint, target: Checkpoint) -> str:
    """By how much the function differs, of the last output."""
    inputs = choose_inputs(shared_facts(source.facts, target.facts))
    a, b = (run_reference(c.facts, c.forward_tensors(), inputs, "float64") for c in (source, target))
    last = "logits" if "logits" in a else [n for n in a if n.startswith("hidden_states")][-1]
    apart = np.sqrt(np.square(a[last] - b[last]).mean() / np.square(a[last]).mean())
    return f"{apart:.0e}"


def main() -> None:
    """Put the table into README.md."""
    readme = ROOT / "README.md"
    before, _, rest = readme.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    readme.write_text(f"{before}{BEGIN}\n\n{table()}\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
