"""How far two arrays lie apart, in one pass."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING

import numpy as np

from portkit.difference.blocks import blocks
from portkit.difference.result import Numbers
from portkit.errors import Problem, UsageError
from portkit.tensors import bits

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from portkit.tensors import Array

Floats = "NDArray[np.float64]"
_NONE = (-1.0, -1)  # of the largest difference and its place, where there is none


@dataclass(frozen=True)
class Tolerance:
    """Elements may differ by `atol + rtol * |b|`, as in numpy's `allclose`; with both 0, only equal bits pass."""

    atol: float = 0.0
    rtol: float = 0.0

    def __post_init__(self) -> None:
        problems = [
            Problem(f"--{name}", "is no tolerance", "a finite number, 0 or above", repr(value))
            for name, value in (("atol", self.atol), ("rtol", self.rtol))
            if not (math.isfinite(value) and value >= 0)
        ]
        if problems:
            raise UsageError("the tolerance makes no sense", problems)

    @property
    def given(self) -> bool:
        """Whether anything but equal bits passes."""
        return self.atol > 0 or self.rtol > 0


@dataclass(frozen=True)
class _Part:
    """What one block says; two of them add up."""

    count: int = 0
    differing: int = 0
    not_finite: int = 0
    beyond: int = 0
    ulp: int = 0
    largest: tuple[float, int] = _NONE  # |a - b| and its flat index
    sums: tuple[float, ...] = (0.0,) * 6  # of a, b, aa, bb, ab, (a - b)^2

    def __add__(self, other: _Part) -> _Part:
        return _Part(
            self.count + other.count,
            self.differing + other.differing,
            self.not_finite + other.not_finite,
            self.beyond + other.beyond,
            max(self.ulp, other.ulp),
            max(self.largest, other.largest, key=lambda place: place[0]),
            tuple(x + y for x, y in zip(self.sums, other.sums, strict=True)),
        )


def measure(a: Array, b: Array, tolerance: Tolerance = Tolerance()) -> Numbers:
    """Compare two arrays of the same shape and dtype. NaN on one side counts as the largest difference there is."""
    width = math.prod(a.shape[1:])
    parts = (_shifted(_part(x, y, tolerance), start * width) for start, x, y in blocks(a, b))
    with np.errstate(over="ignore"):  # squares of large numbers become infinite, and are said to be
        total = reduce(lambda x, y: x + y, parts, _Part())
    flat = max(total.largest[1], 0)
    at = tuple(int(i) for i in np.unravel_index(flat, a.shape)) if a.size else ()
    left, right = (float(x.reshape(-1)[flat]) if x.size else 0.0 for x in (a, b))
    finite = [s if math.isfinite(s) else math.inf for s in total.sums]
    return Numbers(
        count=total.count,
        differing=total.differing,
        not_finite=total.not_finite,
        beyond=total.beyond,
        max_abs=max(total.largest[0], 0.0),
        relative=_ratio(math.sqrt(finite[5]), math.sqrt(finite[2])),
        ulp=total.ulp if _is_float(a) else None,
        at=at,
        left=left,
        right=right,
        correlation=_correlation(total.count - total.not_finite, total.sums),
        squares=finite[5],
        std=(_std(total.count, *finite[0:3:2]), _std(total.count, *finite[1:4:2])),
    )


def _part(a: Array, b: Array, tolerance: Tolerance) -> _Part:
    x, y = a.astype(np.float64), b.astype(np.float64)
    other = bits(a) != bits(b)
    odd = ~(np.isfinite(x) & np.isfinite(y))
    x, y = np.where(odd, 0.0, x), np.where(odd, 0.0, y)
    apart = np.abs(x - y)
    broken = odd & other
    outside = other & (broken | (apart > tolerance.atol + tolerance.rtol * np.abs(y)))
    apart[broken] = np.inf
    flat = int(apart.argmax())
    largest = (float(apart.flat[flat]), flat) if other.any() else _NONE
    apart[broken] = 0.0
    dots = (x.sum(), y.sum(), (x * x).sum(), (y * y).sum(), (x * y).sum(), (apart * apart).sum())  # no BLAS: no threads
    return _Part(
        count=x.size,
        differing=int(other.sum()),
        not_finite=int(broken.sum()),
        beyond=int(outside.sum()),
        ulp=_ulp(a, b, odd) if _is_float(a) else 0,
        largest=largest,
        sums=tuple(float(d) for d in dots),
    )


def _shifted(part: _Part, by: int) -> _Part:
    size, place = part.largest
    return replace(part, largest=(size, place + by if place >= 0 else place))


def _is_float(array: Array) -> bool:
    return array.dtype.kind not in "iub"


def _ulp(a: Array, b: Array, odd: NDArray[np.bool_]) -> int:
    """Largest distance of two floats on the line of all floats of their dtype, but where one is not finite."""
    x, y = _ranks(a), _ranks(b)
    if odd.any():
        x, y = x[~odd], y[~odd]
    unsigned = f"u{x.dtype.itemsize}"  # wraps where signed numbers would overflow
    apart = np.maximum(x, y).view(unsigned) - np.minimum(x, y).view(unsigned)
    return int(apart.max(initial=0))


def _ranks(array: Array) -> NDArray[np.signedinteger]:
    """Floats as integers in the same order: a set sign bit counts downward."""
    size = array.dtype.itemsize
    patterns: NDArray[np.signedinteger] = array.view(f"i{size}")
    return patterns ^ ((patterns >> (8 * size - 1)) & np.iinfo(patterns.dtype).max)


def _ratio(above: float, below: float) -> float:
    if below == 0:
        return 0.0 if above == 0 else math.inf
    return above / below


def _std(count: int, total: float, squares: float) -> float:
    return math.sqrt(max(squares / count - (total / count) ** 2, 0.0)) if count else 0.0


def _correlation(count: int, sums: tuple[float, ...]) -> float | None:
    a, b, aa, bb, ab, _ = sums
    if count < 2:
        return None
    scale = (aa - a * a / count) * (bb - b * b / count)
    if not scale > 0 or not math.isfinite(scale):
        return None
    return max(-1.0, min(1.0, (ab - a * b / count) / math.sqrt(scale)))
