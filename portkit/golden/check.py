"""Check a golden: run a checkpoint of any layout on the golden's inputs, and compare what is to be compared.

With `exact` the float64 reference on this checkpoint's weights and the golden's inputs,

    noise       rms(reference in float32 - exact), at least rms(exact) / 2^25
    excess_i    max(0, |found_i - expected_i| - half a unit of the last printed digit of expected_i)
    reproduced  rms(excess) <= 8 * noise

The two terms of the limit are thus what the golden's digits leave open, for each number by itself, and what rounding
in float32 does, which is measured. 8 is the forward proof's: see `proofs/agreement.py`. The noise of single values
is also measured over their own channels, at all real tokens, and the larger counts: a few channels of a trained
model can be far larger than the rest. That of a sketch is the one over the whole output.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from portkit.checkpoint import Checkpoint, open_checkpoint
from portkit.errors import Problem, UsageError
from portkit.golden.facts import facts_said
from portkit.golden.form import Expected, Golden, Run, parsed
from portkit.golden.reading import read_golden
from portkit.golden.sketch import sketch_of
from portkit.golden.verdict import FactsVerdict, GoldenVerdict, Reproduction
from portkit.golden.weights import compare_weights
from portkit.proofs.agreement import LIMIT, Agreement, compare_outputs
from portkit.proofs.coverage import HeadWatch, coverage_of
from portkit.proofs.forward import REFERENCE, run_side
from portkit.proofs.models import How, side_of
from portkit.runtimes.outputs import require_fit

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from portkit.runtimes.outputs import FloatArray, Inputs, Outputs


def golden_check(
    golden: Path | str | Golden,
    path: Path | str,
    *,
    device: str = "cpu",
    **opening: Any,  # noqa: ANN401 - those of open_checkpoint
) -> GoldenVerdict:
    """Whether a checkpoint, in whatever layout, is and computes what a golden says.

    A framework that is not installed is replaced by the reference in float32, and the verdict's runtime then reads
    "reference, not Burn". Raises PortkitError when golden or checkpoint cannot be read or the framework fails.
    """
    golden = golden if isinstance(golden, Golden) else read_golden(Path(golden))
    checkpoint = open_checkpoint(path, **opening)
    anatomy = checkpoint.anatomy
    what = f"{checkpoint.folder.path.name}: {anatomy.layout}, {anatomy.table.family}, {anatomy.task.name}"
    verdict = GoldenVerdict(
        golden.about,
        golden.source,
        what,
        device,
        facts=_compare_facts(golden, checkpoint) if golden.facts else None,
        weights=compare_weights(golden.weights, checkpoint.logical()) if golden.weights else None,
    )
    return _with_outputs(verdict, golden, checkpoint) if golden.outputs else verdict


def _compare_facts(golden: Golden, checkpoint: Checkpoint) -> FactsVerdict:
    """Names of classes are compared where both sides have some."""
    found = facts_said(checkpoint)
    compared = {name: said for name, said in golden.facts.items() if name in found}
    differing = tuple((name, said, found[name]) for name, said in compared.items() if found[name] != said)
    return FactsVerdict(len(compared), differing)


@dataclass(frozen=True)
class _Runs:
    """The outputs that a golden names, from the checkpoint's framework and from its reference, and their noise."""

    inputs: Inputs
    own: Outputs
    exact: Outputs
    rounded: Outputs
    noise: Mapping[str, float]


def _with_outputs(verdict: GoldenVerdict, golden: Golden, checkpoint: Checkpoint) -> GoldenVerdict:
    inputs = golden.inputs(checkpoint.facts.pad_token_id)
    try:
        require_fit(checkpoint.facts, inputs)
    except UsageError as error:  # another model than the golden's: a difference, and its weights were compared
        return replace(verdict, problems=error.problems)
    watch = HeadWatch()
    side = side_of(checkpoint, inputs, How(verdict.device), watch=watch)
    found, run = run_side(side)
    own, exact, rounded = (
        {name: outputs[name] for name in golden.outputs if name in outputs}
        for outputs in (found, side.reference("float64"), side.reference("float32"))
    )
    agreements, problems = compare_outputs(exact, rounded, own, inputs.valid)
    runs = _Runs(inputs, own, exact, rounded, {item.output: item.noise for item in agreements})
    outputs, more = _judge_all(golden, runs)
    return replace(
        verdict,
        runtime=run.runtime,
        reference=REFERENCE,
        coverage=coverage_of(checkpoint.facts, inputs, watch.heads),
        outputs=outputs,
        problems=tuple(sorted({*problems, *more})),
        note="" if all(item.reproduced for item in outputs) else _note(agreements, run.runtime, stood_in=run.stood_in),
    )


def _judge_all(golden: Golden, runs: _Runs) -> tuple[tuple[Reproduction, ...], list[Problem]]:
    outputs: list[Reproduction] = []
    problems = [Problem(n, "the checkpoint gives no such output") for n in golden.outputs if n not in runs.exact]
    for name in runs.noise:
        expected = golden.outputs[name]
        misplaced = [p for values in expected.values if (p := _misplaced(name, values, runs))]
        problems += misplaced
        outputs += [_judge_values(name, expected, runs)] if expected.values and not misplaced else []
        outputs += [_judge_sketch(name, expected, runs)] if expected.sketch else []
    return tuple(outputs), problems


def _judge_values(name: str, expected: Expected, runs: _Runs) -> Reproduction:
    found = np.concatenate([_at(runs.own[name], values) for values in expected.values])
    numbers = [number for values in expected.values for number in values.numbers]
    channels = sorted({v.at[-1] + i for v in expected.values for i in range(len(v.numbers))})
    exact, rounded = (_real(side[name][..., channels], runs.inputs) for side in (runs.exact, runs.rounded))
    return reproduction(name, "values", found, numbers, max(runs.noise[name], _rms(rounded - exact)))


def _judge_sketch(name: str, expected: Expected, runs: _Runs) -> Reproduction:
    found = sketch_of(name, runs.own[name], runs.inputs.valid, len(expected.sketch))
    return reproduction(name, "sketch", found, expected.sketch, runs.noise[name])


def _misplaced(name: str, values: Run, runs: _Runs) -> Problem | None:
    """Values that the golden expects where the output has none, or only padding."""
    shape = runs.own[name].shape
    last = (*values.at[:-1], values.at[-1] + len(values.numbers) - 1) if values.at else ()
    inside = len(last) == len(shape) and all(i < size for i, size in zip(last, shape, strict=True))
    if inside and (len(shape) < 3 or values.at[1] < runs.inputs.lengths[values.at[0]]):
        return None
    expected = f"inside {list(shape)}, at a real token"
    return Problem(name, "the golden's values have no place here", expected, f"{list(values.at)} to {list(last)}")


def reproduction(name: str, kind: str, found: FloatArray, numbers: Sequence[str], noise: float) -> Reproduction:
    """Judge some numbers of an output, given as they were printed, against what was found; `noise` is measured."""
    expected, half = parsed(numbers)
    deviation = np.abs(found.astype(np.float64) - expected)
    excess = np.maximum(deviation - half, 0)  # np.maximum keeps NaN, which agrees with nothing
    difference, limit = _rms(excess), LIMIT * noise
    reproduced = bool(numbers) and math.isfinite(limit) and difference <= limit
    largest = float(deviation.max(initial=0)), float(half.max(initial=0))
    return Reproduction(name, kind, len(numbers), difference, largest[1], noise, limit, largest[0], reproduced)


def _at(array: FloatArray, values: Run) -> FloatArray:
    first = values.at[-1]
    found: FloatArray = array[values.at[:-1]][first : first + len(values.numbers)]
    return found


def _real(array: FloatArray, inputs: Inputs) -> FloatArray:
    real: FloatArray = array[inputs.valid] if array.ndim == 3 else array
    return real


def _rms(values: FloatArray) -> float:
    return float(np.sqrt(np.square(values).mean())) if values.size else 0.0


def _note(own: tuple[Agreement, ...], runtime: str, *, stood_in: bool) -> str:
    """Whose fault it may be, as far as the reference can tell: nothing where it stood in for the framework."""
    if stood_in:
        return "no framework ran that could be at fault: weights, facts or inputs are not the golden's"
    far = next((item for item in own if not item.agrees), None)
    if far is None:
        return (
            f"{runtime} computes what the reference does, from these weights and facts: one of them is not the golden's"
        )
    times = f"{far.ratio:.3g} times the noise at {far.output}"
    return f"{runtime} does not compute what the reference does from these weights and facts: {times}"
