"""The forward proof: source and target on the same inputs, measured against the source's exact function."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from portkit.errors import MissingRuntimeError, Problem
from portkit.runtimes.outputs import device_of
from portkit.verify.agreement import LIMIT, ForwardVerdict, compare_outputs, describe

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from portkit.runtimes.outputs import Inputs, Outputs
    from portkit.runtimes.reference import FloatType
    from portkit.verify.inputs import Coverage

REFERENCE = "numpy float64"


@dataclass(frozen=True)
class Side:
    """One of the two models: how its own framework runs it, and how the reference does."""

    runtime: str
    """The framework's name, as reports print it."""
    run: Callable[[], Outputs]
    """Runs the framework; raises MissingRuntimeError when it is not installed."""
    reference: Callable[[FloatType], Outputs]
    """Runs the reference on this side's tensors and facts, in the given numpy dtype."""


def compare_runs(
    inputs: Inputs,
    source: Side,
    target: Side,
    coverage: Coverage,
    *,
    device: str = "cpu",
    dtype: str = "float32",
    invented: Collection[str] = (),
    dropped: Collection[str] = (),
) -> ForwardVerdict:
    """Run both sides and the source's reference, and judge the target.

    A framework that is not installed is replaced by the reference in float32 on the same side's tensors; the
    verdict's runtime then reads "reference, not Burn". `invented` names outputs that the source's framework
    lacks by design and its reference has (a synthesised pooler), `dropped` those that the target so lacks.
    In float32 a source that is itself too far from its reference is a problem: its facts are not its function.
    Raises what the frameworks' runtimes raise when they fail.
    """
    exact = source.reference(np.float64)
    source_outputs, source_runtime = run_side(source)
    source_device = device_of(source_outputs)
    rounded = source.reference(np.float32) if dtype == "float32" or invented else {}
    lacking = {name: rounded[name] for name in invented if name not in source_outputs and name in rounded}
    source_outputs = {**source_outputs, **lacking}
    target_outputs, target_runtime = run_side(target)
    target_device = device_of(target_outputs)
    agreements, problems = compare_outputs(
        exact, source_outputs, target_outputs, inputs.valid, dtype=dtype, dropped=dropped
    )
    if dtype == "float32":  # the reference has no other narrow dtype to measure by
        problems += _strays(exact, rounded, source_outputs, inputs, dropped)
    return ForwardVerdict(
        agreements,
        problems,
        coverage,
        source_runtime,
        target_runtime,
        REFERENCE,
        device,
        dtype,
        tuple(sorted(invented)),
        tuple(sorted(dropped)),
        source_device,
        target_device,
    )


def run_side(side: Side) -> tuple[Outputs, str]:
    """The outputs of a side's framework, or of its reference in float32 where it is missing, and which of them ran."""
    try:
        return side.run(), side.runtime
    except MissingRuntimeError:
        return side.reference(np.float32), f"reference, not {side.runtime}"


def _strays(
    exact: Outputs, rounded: Outputs, source: Outputs, inputs: Inputs, dropped: Collection[str]
) -> tuple[Problem, ...]:
    """The source's own distance is the measure of the target, so it must be noise, not another function.

    It is judged as a target is, by the noise of the reference in float32; the first output too far is named.
    """
    agreements, _ = compare_outputs(exact, rounded, source, inputs.valid, dropped=dropped)
    far = next((item for item in agreements if not item.agrees), None)
    if far is None:
        return ()
    what = f"the source does not compute what its facts say: {describe(far.output)} is too far off"
    expected = f"at most {LIMIT:g} times the noise of the reference"
    hint = "the activation, epsilon or positions read from its config differ from what its framework uses"
    return (Problem(far.output, what, expected, f"{far.ratio:.3g} times", hint),)
