"""What would the usual checks have said? `python bench/thresholds.py` prints the table of docs/verification.md.

On all-MiniLM-L6-v2 each fault is judged by the cosine of the embeddings of three sentences (at least 0.99), by the
largest difference of their last hidden states (at most 1e-3, at most 1e-5), and by portkit's three proofs. Faulty
outputs are computed by the reference in float32, the source's by transformers.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from portkit.checkpoint import open_checkpoint
from portkit.faults.catalogue import load_faults
from portkit.faults.inject import Faulty, inject
from portkit.faults.self_test import run_self_test
from portkit.proofs import PROOFS
from portkit.proofs.given import read_text
from portkit.runtimes.reference import run_reference
from portkit.runtimes.transformers_runtime import run_transformers

sys.path.insert(0, str(Path(__file__).parent.parent / "scripts"))
from checkpoints import checkpoint as fetch  # a script beside, not a package

if TYPE_CHECKING:
    from portkit.faults.self_test import Finding
    from portkit.runtimes.outputs import Inputs, Outputs

SENTENCES = (
    "A man is eating food.",
    "The girl carries a baby.",
    "Two men pushed carts through the woods, and nobody saw them.",
)
TELLING = (
    "key bias lost",
    "word table: a row that was not read is lost",
    "pooler matrix transposed",
    "every tensor rounded to F16",
    "another epsilon",
    "program: tanh GELU for erf GELU, or back",
    "attention.query bias lost",
    "attention.value bias lost",
    "attention.out matrix times 1.01",
    "program: every token of type 0",
)


def embeddings(outputs: Outputs, inputs: Inputs, last: str) -> np.ndarray:
    """The mean of the last hidden states over real tokens, at length 1."""
    weights = inputs.attention_mask[..., None]
    mean = (outputs[last] * weights).sum(axis=1) / weights.sum(axis=1)
    return mean / np.linalg.norm(mean, axis=1, keepdims=True)


def usual(source: Outputs, target: Outputs, inputs: Inputs, last: str) -> list[tuple[bool, str]]:
    """Whether each of the usual checks passes, and its number."""
    sides = [embeddings(outputs, inputs, last) for outputs in (source, target)]
    cosine = float((sides[0] * sides[1]).sum(axis=1).min())
    apart = float(np.abs(source[last] - target[last])[inputs.valid].max())
    return [(cosine >= 0.99, f"{cosine:.6f}"), (apart <= 1e-3, f"{apart:.1e}"), (apart <= 1e-5, f"{apart:.1e}")]


def proofs(finding: Finding) -> list[tuple[bool, str]]:
    """Whether each of the proofs passes, and the forward proof's ratio."""
    ratio = f"{finding.ratio:.3g}x"
    return [(proof not in finding.seen_by, ratio if proof == "forward" else "") for proof in PROOFS]


def sentences(folder: Path) -> Inputs:
    """The sentences through the model's own tokenizer."""
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary, "sentences")
        path.write_text("\n".join(SENTENCES), encoding="utf-8")
        return read_text(path, folder)


def main() -> None:
    """Print the table."""
    folder = fetch("minilm")
    checkpoint, inputs = open_checkpoint(folder), sentences(folder)
    last = f"hidden_states.{checkpoint.facts.num_hidden_layers}"
    source = run_transformers(folder, inputs, task="model", class_name="BertModel")
    faults = [fault for fault in load_faults() if fault.name in TELLING]
    result = run_self_test(checkpoint, checkpoint, tuple(faults))
    injected = {fault.name: inject(fault, checkpoint, inputs) for fault in faults}
    sound = Faulty(checkpoint, checkpoint.facts, inputs)
    print("| fault | cosine >= 0.99 | atol 1e-3 | atol 1e-5 | tensors | facts | forward, limit 8 |")
    print("|---|---|---|---|---|---|---|")
    for finding in (result.sound, *sorted(result.findings, key=lambda f: TELLING.index(f.name))):
        faulty = injected.get(finding.name) or sound  # none where these sentences do not come by it
        target = run_reference(faulty.facts, faulty.checkpoint.logical(), faulty.inputs, "float32")
        judged = [*usual(source, target, inputs, last), *proofs(finding)]
        cells = [f"{'passes' if passes else '**fails**'} {text}".rstrip() for passes, text in judged]
        print(f"| {finding.name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
