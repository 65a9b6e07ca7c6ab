"""The forward proof: source and target on the same inputs, measured against the source's exact function."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from portkit.errors import MissingRuntimeError
from portkit.verify.agreement import ForwardVerdict, compare_outputs

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
    Raises what the frameworks' runtimes raise when they fail.
    """
    exact = source.reference(np.float64)
    source_outputs, source_runtime = _run(source)
    source_outputs = _complete(source_outputs, source, invented)
    target_outputs, target_runtime = _run(target)
    agreements, problems = compare_outputs(
        exact, source_outputs, target_outputs, inputs.valid, dtype=dtype, dropped=dropped
    )
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
    )


def _run(side: Side) -> tuple[Outputs, str]:
    try:
        return side.run(), side.runtime
    except MissingRuntimeError:
        return side.reference(np.float32), f"reference, not {side.runtime}"


def _complete(outputs: Outputs, side: Side, invented: Collection[str]) -> Outputs:
    """Add what the framework lacks by design from the reference in float32: its noise is the measure."""
    lacking = [name for name in invented if name not in outputs]
    if not lacking:
        return outputs
    rounded = side.reference(np.float32)
    return {**outputs, **{name: rounded[name] for name in lacking if name in rounded}}
