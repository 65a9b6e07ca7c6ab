"""How far do honest runs and faults lie from the limit? `python bench/calibrate.py [MODELS]` writes calibration.json.

For each of MODELS random models (families, tasks, depths 2 to 12, lengths, gains, activations, dtypes; all from one
seed) the source is transformers with eager attention. Honest candidates: transformers with sdpa attention, Burn, the
reference, and the same function with its heads and inner units in another order. Every third model is run on the inputs
that portkit chooses, the others on one sentence or a few, where few numbers come out. Faults of every fourth model are
computed by the reference. The ratio of a candidate is the largest over its outputs; the limit is 8.
"""

from __future__ import annotations

import json
import sys
import tempfile
import tomllib
from collections import defaultdict
from dataclasses import dataclass, replace
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from faults import FAULTS, permuted
from random_models import TABLES, Recipe, write_model

import portkit
from portkit.checkpoint import Checkpoint, open_checkpoint
from portkit.runtimes.burn_runtime import run_burn
from portkit.runtimes.outputs import Inputs, Outputs
from portkit.runtimes.reference import run_reference
from portkit.runtimes.transformers_runtime import run_transformers
from portkit.verify.agreement import LIMIT, Agreement, ForwardVerdict, Run
from portkit.verify.coverage import coverage_of
from portkit.verify.forward import Side, compare_runs
from portkit.verify.inputs import choose_inputs
from portkit.verify.models import How, side_of

if TYPE_CHECKING:
    from collections.abc import Iterator

RESULT = Path(__file__).with_name("calibration.json")
GAINS = (0.5, 1.0, 1.0, 1.0, 1.5)
DTYPES = ("float32", "float32", "float32", "bfloat16", "float16")


@dataclass(frozen=True)
class Case:
    """One model with its source, against which every candidate is judged."""

    recipe: Recipe
    checkpoint: Checkpoint
    inputs: Inputs
    source: Side

    def judge(self, candidate: Outputs, dtype: str) -> ForwardVerdict:
        """The verdict on a candidate that computed in `dtype`."""
        target = Side(Run("candidate", dtype), lambda: candidate, self.source.reference)
        return compare_runs(self.inputs, self.source, target, coverage_of(self.checkpoint.facts, self.inputs))


def recipes(count: int) -> Iterator[Recipe]:
    """The same random recipes on every run, with every task of every family in turn."""
    models = [(f, t) for f, table in TABLES.families.items() for t in table.tasks]
    rng = np.random.default_rng(2026)
    for i in range(count):
        family, task = models[i % len(models)]
        yield Recipe(
            family,
            task,
            layers=int(rng.integers(2, 13)),
            heads=int(rng.choice([2, 3, 4, 6])),
            head_size=int(rng.choice([8, 16, 24])),
            inner=int(rng.choice([40, 72, 200])),
            rows=int(rng.choice([12, 37, 80, 150])),
            gain=float(rng.choice(GAINS)),
            activation=str(rng.choice(["gelu", "gelu", "gelu_new", "relu"])),
            dtype=str(rng.choice(DTYPES)),
            seed=i,
        )


def inputs_of(recipe: Recipe, checkpoint: Checkpoint) -> Inputs:
    """Those that portkit chooses, one sentence, or three."""
    facts, rows = checkpoint.facts, (0, 1, 3)[recipe.seed % 3]
    if not rows:
        return choose_inputs(facts, seed=recipe.seed)
    rng = np.random.default_rng(recipe.seed)
    lengths = sorted(rng.integers(1, facts.usable_length + 1, rows), reverse=True)
    mask = (np.arange(lengths[0]) < np.array(lengths)[:, None]).astype(np.int64)
    ids = rng.integers(2, facts.vocab_size, mask.shape)
    return Inputs(ids, mask, rng.integers(0, 2, mask.shape) * mask)


def prepare(recipe: Recipe, folder: Path) -> Case:
    """Write the model and run what all candidates are measured by."""
    checkpoint = open_checkpoint(write_model(recipe, folder / "hf"))
    inputs = inputs_of(recipe, checkpoint)
    side = side_of(checkpoint, inputs, How(precision=recipe.dtype))
    eager = in_transformers(checkpoint, inputs, recipe, "eager")
    source = replace(side, run=lambda: eager, reference=cache(side.reference))
    return Case(recipe, checkpoint, inputs, source)


def in_transformers(checkpoint: Checkpoint, inputs: Inputs, recipe: Recipe, attention: str) -> Outputs:
    """A run of the folder as it lies there."""
    return run_transformers(
        checkpoint.folder.path,
        inputs,
        task=recipe.task,
        class_name=checkpoint.anatomy.task.classes["hf"],
        has_pooler=checkpoint.facts.has_pooler,
        attention=attention,
        dtype=recipe.dtype,
    )


def honest(case: Case, folder: Path) -> Iterator[tuple[str, Outputs, str]]:
    """Runs of the same function by other sums, and the dtype of each. Burn computes in float32 alone."""
    recipe, facts, logical = case.recipe, case.checkpoint.facts, case.checkpoint.logical()
    yield "transformers, sdpa", in_transformers(case.checkpoint, case.inputs, recipe, "sdpa"), recipe.dtype
    yield "reference", case.source.reference(recipe.dtype), recipe.dtype
    reordered = permuted(facts, logical, np.random.default_rng(recipe.seed))
    yield "reference, permuted", run_reference(facts, reordered, case.inputs, recipe.dtype), recipe.dtype
    portkit.convert(case.checkpoint.folder.path, folder / "burn", to="burn", verify="none")
    yield "Burn", run_burn(folder / "burn", case.inputs), "float32"


def kind_of(item: Agreement, case: Case) -> str:
    """The kind of an output: hidden states, the pooled output, logits per token or per row."""
    name = item.output.partition(".")[0]
    if name != "logits":
        return name
    return "logits per token" if case.source.reference("float64")["logits"].ndim == 3 else "logits per row"


def figures(ratios: list[float]) -> dict[str, float]:
    """Number, median, 99th percentile and largest."""
    values = np.array(ratios)
    return {
        "runs": len(values),
        "median": round(float(np.median(values)), 3),
        "p99": round(float(np.quantile(values, 0.99)), 3),
        "max": round(float(values.max()), 3),
    }


def calibrate(count: int) -> dict[str, object]:
    """All figures, as they are written."""
    by_kind, by_candidate, faults = defaultdict(list), defaultdict(list), defaultdict(lambda: defaultdict(list))
    pairs, alarms = 0, []
    for recipe in recipes(count):
        with tempfile.TemporaryDirectory() as temporary:
            case = prepare(recipe, Path(temporary))
            for name, outputs, dtype in honest(case, Path(temporary)):
                verdict = case.judge(outputs, dtype)
                for item in verdict.agreements:
                    by_kind[kind_of(item, case)].append(item.ratio)
                pairs += 1
                by_candidate[f"{name}, {dtype}"].append(max(a.ratio for a in verdict.agreements))
                alarms += [] if verdict.agrees else [f"{name}: {recipe}"]
            for name, ratio in faulty(case) if recipe.seed % 4 == 0 else ():
                faults[name][f"{recipe.dtype}, gain {recipe.gain:g}"].append(ratio)
        print(f"{recipe.seed + 1} of {count}: {pairs} honest pairs, {len(alarms)} false alarms", file=sys.stderr)
    return {
        "versions": {name: metadata.version(name) for name in ("torch", "transformers", "numpy")} | {"burn": burn()},
        "models": count,
        "limit": LIMIT,
        "honest pairs": pairs,
        "false alarms": alarms,
        "honest, by kind of output": {kind: figures(ratios) for kind, ratios in sorted(by_kind.items())},
        "honest, by candidate": {name: figures(ratios) for name, ratios in sorted(by_candidate.items())},
        "faults": {name: {k: least(v) for k, v in sorted(found.items())} for name, found in sorted(faults.items())},
    }


def burn() -> str:
    """The version of Burn that the program is built with."""
    lock = tomllib.loads((RESULT.parent.parent / "burn" / "Cargo.lock").read_text(encoding="utf-8"))
    return next(package["version"] for package in lock["package"] if package["name"] == "burn")


def faulty(case: Case) -> Iterator[tuple[str, float]]:
    """Every fault that this model can have, with its ratio, on inputs that portkit chooses."""
    facts, logical = case.checkpoint.facts, case.checkpoint.logical()
    chosen = replace(case, inputs=choose_inputs(facts))
    side = side_of(case.checkpoint, chosen.inputs, How(precision=case.recipe.dtype, runtime="reference"))
    chosen = replace(chosen, source=replace(side, reference=cache(side.reference)))
    for name, fault in FAULTS.items():
        damaged = fault(facts, logical)
        if damaged is not None:
            outputs = run_reference(*damaged, chosen.inputs, case.recipe.dtype)
            yield name, max(item.ratio for item in chosen.judge(outputs, case.recipe.dtype).agreements)


def least(ratios: list[float]) -> dict[str, float]:
    """How many, the smallest, and how many stay below the limit."""
    return {"runs": len(ratios), "min": float(f"{min(ratios):.3g}"), "unseen": sum(r <= LIMIT for r in ratios)}


def main() -> None:
    """Write the figures beside this script."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 160
    result = calibrate(count)
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps({k: v for k, v in result.items() if k != "faults"}, indent=1))


if __name__ == "__main__":
    main()
