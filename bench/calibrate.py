"""How far do honest runs and faults lie from the limit? `python bench/calibrate.py [MODELS]` writes calibration.json.

For each of MODELS random models (families, tasks, depths 2 to 12, lengths, gains, activations, dtypes; all from one
seed) the source is transformers with eager attention. Honest candidates: transformers with sdpa attention, Burn, the
reference, and the same function with its heads and inner units in another order. KerasHub runs presets of some of the
models, all in one process; its noise is that of the reference in float32, as its code may fix another activation.
The ratio of a candidate is the largest over its outputs of rms(candidate - exact) / noise; the limit is 8.
Some of the models are put to the self-test, which says how far each fault lies from the exact outputs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections import defaultdict
from dataclasses import dataclass
from importlib import metadata
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from random_models import TABLES, Recipe, permuted, write_model
from safetensors.numpy import load_file, save_file

import portkit
from portkit.checkpoint import Checkpoint, open_checkpoint
from portkit.faults.self_test import run_self_test
from portkit.proofs.agreement import LIMIT, Agreement, compare_outputs
from portkit.proofs.inputs import choose_inputs
from portkit.runtimes.burn_runtime import run_burn
from portkit.runtimes.keras_program import INPUTS, OUTPUTS
from portkit.runtimes.reference import run_reference
from portkit.runtimes.transformers_runtime import run_transformers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from portkit.runtimes.outputs import Inputs, Outputs

RESULT = Path(__file__).with_name("calibration.json")
GAINS = (0.5, 1.0, 1.0, 1.5, 2.0)
KERAS = 30  # presets that KerasHub runs
TESTED = 12  # models that are put to the self-test
KERAS_PROGRAM = """
import json, sys
from portkit.runtimes import keras_program
for words in json.load(sys.stdin):
    keras_program.main(words)
"""
DTYPES = ("float32", "float32", "float32", "bfloat16", "float16")


@dataclass(frozen=True)
class Case:
    """One model with its exact run and its source, against which every candidate is judged."""

    recipe: Recipe
    checkpoint: Checkpoint
    inputs: Inputs
    exact: Outputs
    source: Outputs

    @property
    def logits(self) -> int:
        """The dimensions of its logits, 0 without."""
        return self.exact["logits"].ndim if "logits" in self.exact else 0

    def judge(self, candidate: Outputs) -> tuple[Agreement, ...]:
        """The agreements of a candidate; one that misses an output is an error of this script."""
        agreements, problems = compare_outputs(
            self.exact, self.source, candidate, self.inputs.valid, dtype=self.recipe.dtype
        )
        if problems:
            raise SystemExit(f"{self.recipe}: {problems}")
        return agreements


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


def prepare(recipe: Recipe, folder: Path) -> Case:
    """Write the model and run what all candidates are measured by."""
    checkpoint = open_checkpoint(write_model(recipe, folder / "hf"))
    inputs = choose_inputs(checkpoint.facts, seed=recipe.seed)
    exact = run_reference(checkpoint.facts, checkpoint.logical(), inputs)
    return Case(recipe, checkpoint, inputs, exact, in_transformers(checkpoint, inputs, recipe, "eager"))


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


def honest(case: Case, folder: Path) -> Iterator[tuple[str, Outputs]]:
    """Runs of the same function by other sums. Burn computes in float32 alone."""
    recipe, facts, logical = case.recipe, case.checkpoint.facts, case.checkpoint.logical()
    yield "transformers, sdpa", in_transformers(case.checkpoint, case.inputs, recipe, "sdpa")
    yield "reference", run_reference(facts, logical, case.inputs, recipe.dtype)
    other = permuted(facts, logical, np.random.default_rng(recipe.seed))
    yield "reference, permuted", run_reference(facts, other, case.inputs, recipe.dtype)
    if recipe.dtype == "float32":
        portkit.convert(case.checkpoint.folder.path, folder / "burn", to="burn", verify="none")
        yield "Burn", run_burn(folder / "burn", case.inputs)


def kind_of(output: str, rows: int) -> str:
    """The kind of an output: hidden states, the pooled output, logits per token or per row."""
    name = output.partition(".")[0]
    return name if name != "logits" else "logits per token" if rows == 3 else "logits per row"


def figures(ratios: list[float]) -> dict[str, float]:
    """Number, median, 99th percentile and largest."""
    values = np.array(ratios)
    return {
        "runs": len(values),
        "median": round(float(np.median(values)), 3),
        "p99": round(float(np.quantile(values, 0.99)), 3),
        "max": round(float(values.max()), 3),
    }


class Tally:
    """What has been measured so far."""

    def __init__(self) -> None:
        self.by_kind: dict[str, list[float]] = defaultdict(list)
        self.by_candidate: dict[str, list[float]] = defaultdict(list)
        self.faults: dict[str, list[tuple[float, float]]] = defaultdict(list)  # (gain, ratio)
        self.alarms: list[str] = []

    def honest(self, name: str, recipe: Recipe, agreements: tuple[Agreement, ...], rows: int) -> None:
        """Add a candidate that computes the same; `rows` is the number of dimensions of its logits."""
        for item in agreements:
            self.by_kind[kind_of(item.output, rows)].append(item.ratio)
        self.by_candidate[f"{name}, {recipe.dtype}"].append(max(item.ratio for item in agreements))
        self.alarms += [] if all(item.agrees for item in agreements) else [f"{name}: {recipe}"]

    def faulty(self, checkpoint: Checkpoint, recipe: Recipe) -> None:
        """Add every fault that a forward pass can see."""
        for finding in run_self_test(checkpoint, checkpoint).findings:
            if "forward" in finding.expected:
                self.faults[finding.name].append((recipe.gain, finding.ratio))


def calibrate(count: int) -> dict[str, object]:
    """All figures, as they are written."""
    tally = Tally()
    in_keras(count, tally)
    plain = [r.seed for r in recipes(count) if r.dtype == "float32"][:TESTED]
    for recipe in recipes(count):
        with tempfile.TemporaryDirectory() as temporary:
            case = prepare(recipe, Path(temporary))
            for name, outputs in honest(case, Path(temporary)):
                tally.honest(name, recipe, case.judge(outputs), case.logits)
            if recipe.seed in plain:
                tally.faulty(case.checkpoint, recipe)
        pairs = sum(map(len, tally.by_candidate.values()))
        print(f"{recipe.seed + 1} of {count}: {pairs} pairs, {len(tally.alarms)} false alarms", file=sys.stderr)
    ratios = [ratio for found in tally.by_candidate.values() for ratio in found]
    return {
        "versions": {n: metadata.version(n) for n in ("torch", "transformers", "keras-hub", "numpy")}
        | {"burn": burn()},
        "models": count,
        "limit": LIMIT,
        "honest pairs": figures(ratios),
        "false alarms": tally.alarms,
        "honest, by kind of output": {kind: figures(r) for kind, r in sorted(tally.by_kind.items())},
        "honest, by candidate": {name: figures(r) for name, r in sorted(tally.by_candidate.items())},
        "models put to the self-test": len(plain),
        "visible faults, by gain": of_faults(tally.faults),
    }


def of_faults(faults: dict[str, list[tuple[float, float]]]) -> dict[str, object]:
    """For each gain how many were put in, how many were missed and in which models, and the five least visible."""
    found = {}
    for gain in sorted(set(GAINS)):
        ratios = {name: [r for g, r in measured if g == gain] for name, measured in faults.items()}
        least = sorted((min(r), name) for name, r in ratios.items() if r)
        missed = {name: sum(x <= LIMIT for x in r) for name, r in ratios.items() if any(x <= LIMIT for x in r)}
        found[f"{gain:g}"] = {
            "put in": sum(map(len, ratios.values())),
            "missed": missed,
            "least": {name: float(f"{ratio:.3g}") for ratio, name in least[:5]},
        }
    return found


def in_keras(count: int, tally: Tally) -> None:
    """Presets of some models, run by KerasHub in one process: its start takes longer than all the models."""
    with tempfile.TemporaryDirectory() as temporary:
        chosen = list(islice(presets(count, Path(temporary)), KERAS))
        run_presets([(checkpoint, inputs) for _, checkpoint, inputs in chosen])
        for recipe, checkpoint, inputs in chosen:
            facts, tensors = checkpoint.facts, checkpoint.forward_tensors()
            exact, ours = (run_reference(facts, tensors, inputs, dtype) for dtype in ("float64", "float32"))
            case = Case(recipe, checkpoint, inputs, exact, ours)
            theirs = load_file(checkpoint.folder.path.parent / OUTPUTS)
            tally.honest("KerasHub, torch", recipe, case.judge(theirs), case.logits)


def presets(count: int, folder: Path) -> Iterator[tuple[Recipe, Checkpoint, Inputs]]:
    """The models in float32 that KerasHub can hold, as presets, with the inputs for each."""
    for recipe in recipes(count):
        task = TABLES.families[recipe.family].tasks[recipe.task]
        if recipe.dtype == "float32" and "keras" in task.classes:
            home = folder / str(recipe.seed)
            kept = as_preset(write_model(recipe, home / "hf"), home / "keras")
            if kept:
                yield recipe, kept, choose_inputs(kept.facts, seed=recipe.seed)


def run_presets(cases: list[tuple[Checkpoint, Inputs]]) -> None:
    """Run every preset; its outputs lie beside it then."""
    words = []
    for checkpoint, inputs in cases:
        path = checkpoint.folder.path
        save_file(inputs.arrays(), path.parent / INPUTS)
        words.append([str(path), checkpoint.anatomy.task.classes["keras"], "cpu", str(path.parent)])
    chosen = {"KERAS_BACKEND": "torch", "CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "3"}
    command = [sys.executable, "-W", "ignore", "-c", KERAS_PROGRAM]
    subprocess.run(command, input=json.dumps(words), text=True, env={**os.environ, **chosen}, check=True)


def as_preset(source: Path, target: Path) -> Checkpoint | None:
    """A model as KerasHub holds it; None where it cannot, as ReLU."""
    try:
        portkit.convert(source, target, to="keras", verify="none")
    except portkit.PortkitError:
        return None
    return open_checkpoint(target)


def burn() -> str:
    """The version of Burn that the program is built with."""
    lock = tomllib.loads((RESULT.parent.parent / "burn" / "Cargo.lock").read_text(encoding="utf-8"))
    return next(package["version"] for package in lock["package"] if package["name"] == "burn")


def main() -> None:
    """Write the figures beside this script."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 140
    result = calibrate(count)
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
