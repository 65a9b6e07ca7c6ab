"""What would the usual checks have said? `python bench/thresholds.py` prints the table of docs/verification.md.

On all-MiniLM-L6-v2 each fault is judged six ways: the cosine of the embeddings of three sentences (at least 0.99), the
largest difference of these embeddings and of the last hidden states (at most 1e-3), and portkit's three proofs.
Faulty outputs are computed by the reference in float32, the source's by transformers.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from faults import FAULTS

from portkit.checkpoint import Checkpoint, open_checkpoint
from portkit.proofs.agreement import compare_outputs
from portkit.proofs.facts import compare_facts
from portkit.proofs.given import read_text
from portkit.proofs.inputs import choose_inputs
from portkit.proofs.tensors import prove_tensors
from portkit.runtimes.reference import run_reference
from portkit.runtimes.transformers_runtime import run_transformers
from portkit.tensors import LazyTensor, in_memory

sys.path.insert(0, str(Path(__file__).parent.parent / "scripts"))
from checkpoints import checkpoint as fetch  # a script beside, not a package

if TYPE_CHECKING:
    from portkit.facts import Facts
    from portkit.runtimes.outputs import Inputs, Outputs

Change = Callable[["Facts", Mapping[str, LazyTensor]], "tuple[Facts, Mapping[str, LazyTensor]] | None"]
SENTENCES = (
    "A man is eating food.",
    "The girl carries a baby.",
    "Two men pushed carts through the woods, and nobody saw them.",
)
WORDS = "embeddings.word.table"


@dataclass(frozen=True)
class Fault:
    """A fault of the folder, or one of the `program` alone: the folder is then right."""

    name: str
    change: Change
    program: bool = False


def unread_row(facts: Facts, tensors: Mapping[str, LazyTensor]) -> tuple[Facts, Mapping[str, LazyTensor]]:
    """One row of the word table set to zero, one that neither batch reads."""
    table = tensors[WORDS].read().copy()
    table[facts.vocab_size // 2 + 1] = 0
    return facts, {**tensors, WORDS: in_memory(WORDS, table)}


FOUND = (
    Fault("one key bias dropped", FAULTS["key bias dropped"]),
    Fault("one word's row lost", unread_row),
    Fault("every weight through float16", FAULTS["every weight through float16"]),
    Fault("one query bias dropped", FAULTS["query bias dropped"]),
    Fault("the pooler transposed", FAULTS["pooler transposed"]),
    Fault("epsilon 1e-5 for 1e-12", FAULTS["epsilon 1e-12 for 1e-5, or back"]),
    Fault("a program that computes tanh GELU", FAULTS["tanh for erf GELU, or back"], program=True),
    Fault("a program without token types", FAULTS["token types dropped"], program=True),
)


def broken(checkpoint: Checkpoint, facts: Facts, tensors: Mapping[str, LazyTensor]) -> Checkpoint:
    """The checkpoint as if its folder held these facts and tensors."""
    stored = dict(checkpoint.folder.container.tensors)
    for logical, name in checkpoint.anatomy.stored.items():
        array = tensors[logical].read()
        turned = array.T if logical.endswith(".kernel") else array  # transformers stores [out, in]
        stored[name] = in_memory(name, turned)
    container = replace(checkpoint.folder.container, tensors=stored)
    return replace(checkpoint, facts=facts, folder=replace(checkpoint.folder, container=container))


@dataclass(frozen=True)
class Batch:
    """Inputs with the exact outputs and those of the source's framework."""

    inputs: Inputs
    exact: Outputs
    source: Outputs


def measured(checkpoint: Checkpoint, inputs: Inputs) -> Batch:
    """Run the source twice, exactly and in transformers."""
    exact = run_reference(checkpoint.facts, checkpoint.logical(), inputs)
    source = run_transformers(checkpoint.folder.path, inputs, task="model", class_name="BertModel")
    return Batch(inputs, exact, source)


def embeddings(outputs: Outputs, inputs: Inputs, last: str) -> np.ndarray:
    """The mean of the last hidden states over real tokens, at length 1."""
    weights = inputs.attention_mask[..., None]
    mean = (outputs[last] * weights).sum(axis=1) / weights.sum(axis=1)
    return mean / np.linalg.norm(mean, axis=1, keepdims=True)


def usual(batch: Batch, target: Outputs, last: str) -> tuple[float, float, float]:
    """The smallest cosine of a sentence's two embeddings, and the largest differences of embeddings and last states."""
    ours, theirs = (embeddings(outputs, batch.inputs, last) for outputs in (batch.source, target))
    apart = np.abs(batch.source[last] - target[last])[batch.inputs.valid]
    return float((ours * theirs).sum(axis=1).min()), float(np.abs(ours - theirs).max()), float(apart.max())


def row(fault: Fault, checkpoint: Checkpoint, text: Batch, chosen: Batch) -> str:
    """One line of the table."""
    last = f"hidden_states.{checkpoint.facts.num_hidden_layers}"
    damaged = fault.change(checkpoint.facts, checkpoint.logical())
    if damaged is None:
        raise SystemExit(f"{fault.name}: this model cannot have it")
    target = checkpoint if fault.program else broken(checkpoint, *damaged)
    cosine, *apart = usual(text, run_reference(*damaged, text.inputs, "float32"), last)
    agreements, problems = compare_outputs(
        chosen.exact, chosen.source, run_reference(*damaged, chosen.inputs, "float32"), chosen.inputs.valid
    )
    ratio = max(item.ratio for item in agreements)
    verdicts = (
        (cosine >= 0.99, f" {cosine:.6f}"),
        *((size <= 1e-3, f" {size:.1e}") for size in apart),
        (prove_tensors(checkpoint, target).equal, ""),
        (compare_facts(checkpoint, target).agrees, ""),
        (not problems and all(item.agrees for item in agreements), f" {ratio:.3g}x"),
    )
    cells = [f"{'passes' if passes else '**fails**'}{figure}" for passes, figure in verdicts]
    return f"| {fault.name} | {' | '.join(cells)} |"


def main() -> None:
    """Print the table."""
    folder = fetch("minilm")
    checkpoint = open_checkpoint(folder)
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(temporary, "sentences")
        path.write_text("\n".join(SENTENCES), encoding="utf-8")
        text = measured(checkpoint, read_text(path, folder))
    chosen = measured(checkpoint, choose_inputs(checkpoint.facts))
    print("| fault | cosine >= 0.99 | embeddings, atol 1e-3 | last states, atol 1e-3 | tensors | facts | forward, 8x |")
    print("|---|---|---|---|---|---|---|")
    honest = Fault("none", lambda facts, tensors: (facts, tensors))
    for line in map(partial(row, checkpoint=checkpoint, text=text, chosen=chosen), (honest, *FOUND)):
        print(line, flush=True)


if __name__ == "__main__":
    main()
