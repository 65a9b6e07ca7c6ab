"""The forward proof: source and target on the same inputs, measured against the source's exact function."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from portkit.errors import MissingRuntimeError, Problem
from portkit.proofs.agreement import LIMIT, ForwardVerdict, Run, compare_outputs, describe, distances, noise_of
from portkit.proofs.inputs import FEW
from portkit.runtimes.outputs import device_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from portkit.proofs.coverage import Coverage
    from portkit.runtimes.outputs import Inputs, Outputs

REFERENCE = "numpy float64"
_WIDE = ("float32", "float64")


@dataclass(frozen=True)
class Side:
    """One of the two models: how its own framework runs it, and how the reference does."""

    own: Run
    """What the framework is called, what it computes in, and where."""
    run: Callable[[], Outputs] | None
    """Runs the framework; raises MissingRuntimeError when it is not installed. None: the reference is wanted."""
    reference: Callable[[str], Outputs]
    """Runs the reference on this side's tensors and facts, in the dtype of that name."""
    many: Callable[[str], Outputs] | None = None
    """The same on many short rows: on them the noise of an output is measured that has few numbers in the batch."""
    stand_in: bool = True
    """Whether the reference takes the place of a framework that is not installed."""


def compare_runs(
    inputs: Inputs,
    source: Side,
    target: Side,
    coverage: Coverage,
    *,
    dropped: Collection[str] = (),
    announced: Mapping[str, str] = {},
    promised: Callable[[str], Outputs] | None = None,
) -> ForwardVerdict:
    """Run both sides and the source's reference, and judge the target.

    A framework that is not installed is replaced by the reference in its dtype on the same side's tensors; the
    verdict's runtime then reads "reference, not Burn". `dropped` names outputs that one side lacks by design.
    A source that is itself too far from its reference is a problem: its facts are not its function.
    Where the target is `announced` to compute another function (fact: what differs), it is measured against that
    one: `promised` is the reference on the source's tensors with the target's facts.
    Raises what the frameworks' runtimes raise when they fail.
    """
    exact = source.reference("float64")
    ours, source_run = run_side(source)
    theirs, target_run = run_side(target)
    goal = promised or source.reference
    alike = promised is None and source_run.dtype == target_run.dtype
    rounded = None if alike else goal(target_run.dtype)
    agreements, problems = compare_outputs(
        goal("float64") if promised else exact,
        rounded if promised and rounded else ours,
        theirs,
        inputs.valid,
        dtype=target_run.dtype,
        dropped=dropped,
        measure=rounded,
        floors=_floors(source, exact, target_run.dtype),
    )
    if not source_run.stood_in:
        problems += _strays(exact, source, ours, inputs, dropped)
    return ForwardVerdict(
        agreements,
        problems,
        coverage,
        source_run,
        target_run,
        REFERENCE,
        tuple(sorted(dropped)),
        tuple(f"{fact}: {what}" for fact, what in announced.items()),
        distances(ours, theirs, inputs.valid) if promised else (),
    )


def run_side(side: Side) -> tuple[Outputs, Run]:
    """The outputs of a side's framework, or of its reference where that is missing, and which of them ran where."""
    try:
        if side.run is not None:
            outputs = side.run()
            return outputs, replace(side.own, device=device_of(outputs) or side.own.device)
    except MissingRuntimeError:
        if not side.stand_in:
            raise
    run = replace(side.own, runtime=f"reference, not {side.own.runtime}", device="cpu", stood_in=True)
    return side.reference(run.dtype), run


def _floors(source: Side, exact: Outputs, dtype: str) -> dict[str, float]:
    """The least noise of outputs with a vector per row that have so few numbers that all may be right by luck.

    For normal errors an honest run of one number is more than 8 times another in 1 of 13 cases (an F-test with 1 and 1
    degrees of freedom), one of four numbers in 1 of 1 400.
    """
    few = [name for name, array in exact.items() if array.ndim == 2 and array.size < FEW]
    if source.many is None or not few:
        return {}
    truth, rounded = source.many("float64"), source.many(dtype)
    return {name: noise_of(rounded[name], truth[name]) for name in few if name in truth}


def _strays(
    exact: Outputs, source: Side, ours: Outputs, inputs: Inputs, dropped: Collection[str]
) -> tuple[Problem, ...]:
    """The source's own distance is the measure of the target, so it must be noise, not another function.

    It is judged as a target is, by the noise of the reference; the first output too far is named. A source in
    float64 is judged by float32's: in float64 the reference is `exact` itself, and has no noise.
    """
    dtype = "float32" if source.own.dtype in _WIDE else source.own.dtype
    agreements, _ = compare_outputs(
        exact,
        source.reference(dtype),
        ours,
        inputs.valid,
        dtype=dtype,
        dropped=dropped,
        floors=_floors(source, exact, dtype),
    )
    far = next((item for item in agreements if not item.agrees), None)
    if far is None:
        return ()
    what = f"the source does not compute what its facts say: {describe(far.output)} is too far off"
    expected = f"at most {LIMIT:g} times the noise of the reference"
    hint = "the activation, epsilon or positions read from its config differ from what its framework uses"
    return (Problem(far.output, what, expected, f"{far.ratio:.3g} times", hint),)
