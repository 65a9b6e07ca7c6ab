"""Do two runs agree? The limit is derived from measured noise, per output, never a constant.

With `exact` the float64 reference on the same weights and inputs, over real tokens:

    noise       rms(source - exact), and at least rms(exact) / 2^25
    difference  rms(target - exact)
    agrees      difference <= 8 * noise

The noise is that of the dtype in which the target computes. Where the source computed in another one, the
reference in the target's dtype is the measure instead of the source; 2^25 is float32's, see ROUNDING.
An output of few numbers can come out right by luck, so its noise is at least the one of more rows, see `floors`.

Why 8: of 540 honest pairs none is above 3.4 times the noise, visible faults start at 90 times; bench/calibrate.py.
Why rms and not the largest difference: it varies less between honest runs; the largest is reported beside it.
Why a floor: a source that is exact by luck (a saturated tanh: 1.0) must not forbid its neighbour in float32.
The floor is what rounding `exact` itself costs. Where `exact` is 0 throughout (a pooler filled with zeros) it
is 0 too, as is the noise of an honest source: the target must be exactly 0, and is, if its zeros arrived.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from portkit.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from numpy.typing import NDArray

    from portkit.proofs.coverage import Coverage
    from portkit.runtimes.outputs import FloatArray, Outputs

LIMIT = 8.0
ROUNDING = {"float64": 2.0**-54, "float32": 2.0**-25, "float16": 2.0**-12, "bfloat16": 2.0**-9}
"""Half a unit in the last place, relative to the largest number of the same exponent."""


@dataclass(frozen=True)
class Agreement:
    """How far one output of the target lies from the exact one, beside how far the source's does."""

    output: str
    difference: float
    noise: float
    limit: float
    ratio: float
    """difference / noise; 0 where both are 0, infinite where only the noise is."""
    max_abs: float
    """Largest difference between target and source, for the reader; it decides nothing."""
    agrees: bool
    compared: int
    """Number of elements."""


@dataclass(frozen=True)
class Distance:
    """How far an output of the target lies from the source's: nothing is judged by it."""

    output: str
    rms: float
    relative: float
    """rms over the rms of the source's output."""
    max_abs: float


@dataclass(frozen=True)
class Run:
    """How one side was run: the framework or what stood in for it, the dtype that it computed in, and where."""

    runtime: str
    dtype: str = "float32"
    device: str = "cpu"
    stood_in: bool = False
    """Whether the reference ran in the framework's place."""

    def __str__(self) -> str:
        return f"{self.runtime} ({self.dtype}, {self.device})"


@dataclass(frozen=True)
class ForwardVerdict:
    """What was run and compared, and whether source and target compute the same function."""

    agreements: tuple[Agreement, ...]
    problems: tuple[Problem, ...]
    """Outputs that could not be compared or are not finite; any of them fails the proof."""
    coverage: Coverage
    source: Run
    target: Run
    reference: str
    dropped: tuple[str, ...] = ()
    """Outputs that one side lacks by design; they were not compared."""
    announced: tuple[str, ...] = ()
    """Facts in which the target was said to be another function: it was measured against that function."""
    changes: tuple[Distance, ...] = ()
    """How far the target then lies from the source as it is."""

    @property
    def runs(self) -> tuple[Run, Run]:
        """Source and target."""
        return self.source, self.target

    @property
    def compared(self) -> int:
        """Elements compared, over all outputs."""
        return sum(agreement.compared for agreement in self.agreements)

    @property
    def agrees(self) -> bool:
        """True when something was compared, all of it agrees, and nothing was in the way."""
        return self.compared > 0 and not self.problems and all(item.agrees for item in self.agreements)

    @property
    def first_divergence(self) -> str | None:
        """The first output, in the order of computation, that does not agree."""
        return next((item.output for item in self.agreements if not item.agrees), None)

    @property
    def worst(self) -> Agreement | None:
        """The agreement of the largest ratio; one that is not a number counts as the largest."""
        return max(self.agreements, key=lambda item: (not item.agrees, item.ratio), default=None)

    def __str__(self) -> str:
        looked = f"compared {self.compared} values of {len(self.agreements)} outputs"
        if self.agrees and self.worst:
            return f"{looked}: agree, at most {self.worst.ratio:.2f} times the noise ({self.worst.output})"
        parting = next((item for item in self.agreements if not item.agrees), None)
        if parting is None:
            return f"{looked}: not proved ({len(self.problems)} found wrong)"
        times = f"{parting.ratio:.3g} times the noise, limit {LIMIT:g}"
        return f"{looked}: parts at {parting.output}, {describe(parting.output)}: {times}"

    def as_dict(self) -> dict[str, object]:
        """All of it for JSON, where a number that is not finite is null."""
        return {
            "agrees": self.agrees,
            "first_divergence": self.first_divergence,
            "source": asdict(self.source),
            "target": asdict(self.target),
            "reference": self.reference,
            "limit": LIMIT,
            "compared": self.compared,
            "coverage": self.coverage.as_dict(),
            "dropped": list(self.dropped),
            "announced": list(self.announced),
            "changes": [finite_or_none(asdict(change)) for change in self.changes],
            "problems": [asdict(problem) for problem in self.problems],
            "agreements": [finite_or_none(asdict(item)) for item in self.agreements],
        }


def describe(output: str) -> str:
    """Which part of the model an output comes from."""
    kind, _, index = output.partition(".")
    if kind == "hidden_states":
        return "the output of the embeddings" if index == "0" else f"the output of layer {int(index) - 1}"
    return "the output of the pooler" if kind == "pooled_output" else "the output of the head"


def compare_outputs(
    exact: Outputs,
    source: Outputs,
    target: Outputs,
    valid: NDArray[np.bool_],
    *,
    dtype: str = "float32",
    dropped: Collection[str] = (),
    measure: Outputs | None = None,
    floors: Mapping[str, float] = {},
) -> tuple[tuple[Agreement, ...], tuple[Problem, ...]]:
    """Compare every output of the reference, in its order, at the real tokens that `valid` [B, S] marks.

    `dtype` is the one that the target computed in, `measure` the run whose distance from `exact` is the noise, the
    source's unless given, `floors` the least noise of some outputs. Outputs in `dropped` are left out. Any other that
    one of the three lacks, or that has another shape, is a problem; so are no outputs at all and values that are not
    finite.
    """
    wanted = [name for name in exact if name not in dropped]
    sides = {"source": source, "target": target}
    problems = [problem for side, outputs in sides.items() for problem in _absences(exact, outputs, side, dropped)]
    broken = {problem.where for problem in problems}
    whole = [name for name in wanted if name not in broken]
    for side, outputs in {"reference": exact, **sides}.items():
        problems += [problem for name in whole for problem in _not_finite(name, outputs[name], valid, side)]
    if not whole:
        problems.append(Problem("", "no output was compared", hint="a proof that looked at nothing proves nothing"))
    noisy = source if measure is None else measure
    agreements = [
        _compare(
            name,
            exact[name],
            noisy[name],
            source[name],
            target[name],
            valid=valid,
            rounding=ROUNDING[dtype],
            floor=floors.get(name, 0.0),
        )
        for name in whole
    ]
    return tuple(agreements), tuple(sorted(set(problems)))


def distances(source: Outputs, target: Outputs, valid: NDArray[np.bool_]) -> tuple[Distance, ...]:
    """How far each output of the target lies from the source's, at the real tokens that `valid` marks."""
    found = []
    for name in (n for n in source if n in target and source[n].shape == target[n].shape):
        rms, _, largest = _rms(target[name], source[name], valid)
        scale = _rms(source[name], np.zeros((), source[name].dtype), valid)[0]
        found.append(Distance(name, rms, rms / scale if scale else math.inf, largest))
    return tuple(found)


def _absences(exact: Outputs, outputs: Outputs, side: str, dropped: Collection[str]) -> Iterator[Problem]:
    for name in [*exact, *(outputs.keys() - exact.keys())]:
        if name in dropped:
            continue
        expected = str(exact[name].shape) if name in exact else "no such output: the reference has none"
        found = str(outputs[name].shape) if name in outputs else "no such output"
        if expected != found:
            yield Problem(name, f"the {side} gives another output", expected, found)


def _not_finite(name: str, array: FloatArray, valid: NDArray[np.bool_], side: str) -> Iterator[Problem]:
    count = sum(int(np.count_nonzero(~np.isfinite(part))) for part in _parts(array, valid))
    if count:
        yield Problem(name, f"the {side} gives {count} values that are not finite")


def _compare(
    name: str,
    exact: FloatArray,
    noisy: FloatArray,
    source: FloatArray,
    target: FloatArray,
    *,
    valid: NDArray[np.bool_],
    rounding: float,
    floor: float,
) -> Agreement:
    with np.errstate(over="ignore", invalid="ignore"):  # not finite: reported as such, and it agrees with nothing
        scale, compared, _ = _rms(exact, np.zeros((), exact.dtype), valid)
        least = max(rounding * scale, floor)
        noise = float(np.maximum(_rms(noisy, exact, valid)[0], least))  # np.maximum keeps NaN
        difference = _rms(target, exact, valid)[0]
        max_abs = _rms(target, source, valid)[2]
    limit = LIMIT * noise
    agrees = compared > 0 and math.isfinite(limit) and difference <= limit
    return Agreement(name, difference, noise, limit, ratio_of(difference, noise), max_abs, agrees, compared)


def noise_of(rounded: FloatArray, exact: FloatArray) -> float:
    """rms(rounded - exact) of an output that has one vector for each row of the batch."""
    return _rms(rounded, exact, np.ones((len(exact), 1), np.bool_))[0]


def ratio_of(difference: float, noise: float) -> float:
    """difference / noise; 0 where both are 0, infinite where only the noise is."""
    if noise == 0:
        return 0.0 if difference == 0 else math.inf
    return difference / noise


def _rms(left: FloatArray, right: FloatArray, valid: NDArray[np.bool_]) -> tuple[float, int, float]:
    """Root mean square of left - right, how many elements, and the largest absolute difference."""
    total, count, largest = 0.0, 0, 0.0
    for a, b in zip(_parts(left, valid), _parts(np.broadcast_to(right, left.shape), valid), strict=True):
        apart = np.abs(a.astype(np.float64) - b.astype(np.float64))
        total += float(np.square(apart).sum())
        count += apart.size
        largest = float(np.maximum(largest, apart.max(initial=0.0)))
    return (math.sqrt(total / count) if count else 0.0), count, largest


def _parts(array: FloatArray, valid: NDArray[np.bool_]) -> Iterator[FloatArray]:
    """One row of the batch at a time, without its padding: copies stay small."""
    for row, keep in zip(array, valid, strict=True):
        yield row[keep] if array.ndim == 3 else row


def finite_or_none(fields: dict[str, object]) -> dict[str, object]:
    """The same with None for numbers that are not finite, which JSON does not have."""
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in fields.items()}
