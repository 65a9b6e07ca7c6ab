"""What may have happened to one tensor: one function for each hypothesis, in the order in which they are tried.

A function is given a `Pair` and yields guesses, which are then judged on all numbers, or findings of its own. It
should cost little where it does not apply. To add one, write it and put it into `HYPOTHESES`; its name is what reports
call it, and docs/diff.md explains it.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from portkit.casts import cast
from portkit.difference.blocks import BLOCK, blocks
from portkit.difference.guess import Guess, Pair
from portkit.difference.order import heads_exchanged, padded, permuted, shifted, transposed
from portkit.difference.result import Finding
from portkit.tensors import NUMPY_DTYPES, dtype_name, equal_bits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from portkit.tensors import Array

_FEW = 4  # units in the last place that another order of the same arithmetic may cost
_A_FEW = 0.01  # of all elements
_KIN = 0.9  # correlation of a tensor with itself after more training
_AS_INITIALISED = 0.05  # relative, beside what a sample of that size is off by chance
_NARROW = {"F16": "float16", "BF16": "bfloat16", "F32": "float32"}


def last_bits(pair: Pair) -> Iterator[Finding]:
    """No number is further off than a few units in the last place."""
    n = pair.numbers
    if n is None or n.ulp is None or n.not_finite or n.ulp > _FEW:
        return
    many = "one element differs" if n.differing == 1 else "only last bits differ"
    size = f"by {n.ulp} ulp{'' if n.differing == 1 else ' at most'}" if n.max_abs else "in the sign of zeros"
    yield Finding("last_bits", f"{many}, {size}", certain=True)


def constant(pair: Pair) -> Iterator[Finding]:
    """A side holds one number throughout: made up, or never loaded."""
    values = [(side, _only(array)) for side, array in (("A", pair.a), ("B", pair.b))]
    found = [f"{side} is {value:g} throughout" for side, value in values if value is not None]
    if found:
        yield Finding("constant", f"{' and '.join(found)}: made up or never loaded, not trained", certain=True)


def negated(pair: Pair) -> Iterator[Guess]:
    """The sign of every number is turned."""
    if pair.floats:
        yield Guess("B is A with the sign turned", pair.a, pair.b, np.negative)


def scaled(pair: Pair) -> Iterator[Guess]:
    """Every number is multiplied by one factor, or has one number added."""
    if pair.numbers is None or not pair.floats or not pair.a.size:
        return
    some = [x.reshape(-1)[:BLOCK].astype(np.float64) for x in (pair.a, pair.b)]
    place = int(np.abs(some[0]).argmax())
    a, b = float(some[0][place]), float(some[1][place])
    if not (math.isfinite(a) and math.isfinite(b)) or a in (0.0, b):
        return
    if b not in (0.0, -a):
        for factor in _near(b / a):
            yield Guess(f"B is A times {factor:.6g}", pair.a, pair.b, partial(_times, factor))
    for number in _near(b - a):
        yield Guess(f"B is A plus {number:.6g}", pair.a, pair.b, partial(_plus, number))


def rounded(pair: Pair) -> Iterator[Guess]:
    """A side went through a narrower dtype on its way and came back with fewer digits."""
    for dtype, name in _NARROW.items():
        for text, one, other in (("B is A", pair.a, pair.b), ("A is B", pair.b, pair.a)):
            if pair.floats and one.dtype.itemsize > NUMPY_DTYPES[dtype].itemsize:
                yield Guess(f"{text} rounded through {name}", one, other, partial(_through, dtype))


def untied(pair: Pair) -> Iterator[Finding]:
    """A tensor that may be tied to a table is the table on one side, and another on the other side."""
    other = pair.ties().get(pair.name)
    if not other:
        return
    sides = zip("AB", pair.sides, (pair.a, pair.b), strict=True)
    tied = "".join(side for side, c, array in sides if _is_tied(array, c.logical()[other].read()))
    if tied == "AB":
        yield Finding("untied", f"both sides tie it to {other}, and differ as that does", certain=True, other=other)
    elif tied:
        lone = {"A": "B", "B": "A"}[tied]
        yield Finding("untied", f"{tied} ties it to {other}; the tie is missing in {lone}", certain=True, other=other)


def initialised(pair: Pair) -> Iterator[Finding]:
    """A side looks like random numbers as a framework initialises a matrix, with nothing of the other side in it."""
    n = pair.numbers
    if n is None or pair.part not in ("kernel", "table") or _related(pair):
        return
    for side, checkpoint, std in zip("AB", pair.sides, n.std, strict=True):
        spread = float(checkpoint.config.values.get("initializer_range") or 0.02)
        if abs(std / spread - 1) < _AS_INITIALISED + 2 / math.sqrt(n.count):
            text = f"{side} looks freshly initialised: its standard deviation is initializer_range ({spread:g})"
            yield Finding("initialised", f"{text}, and nothing of the other side is in it", certain=False)


def changed(pair: Pair) -> Iterator[Finding]:
    """None of the above: how much of one side is in the other."""
    n = pair.numbers
    if n is None:
        return
    if n.not_finite:
        yield Finding("changed", "elements are NaN or infinite on one side", certain=True)
    elif n.differing == 1 or n.share < _A_FEW:
        many = "one element differs" if n.differing == 1 else "a few elements differ"
        yield Finding("changed", f"{many}, all others are equal bit for bit", certain=True)
    elif n.correlation is not None and n.correlation >= _KIN:
        yield Finding("changed", "the same tensor, trained further or perturbed", certain=False)
    elif _related(pair):
        yield Finding("changed", "partly the same, and nothing known explains the difference", certain=False)
    else:
        yield Finding("changed", "other numbers altogether: no correlation", certain=False)


HYPOTHESES: tuple[Callable[[Pair], Iterator[Guess | Finding]], ...] = (
    last_bits, constant, padded, untied, negated, rounded, scaled, transposed, heads_exchanged, shifted, permuted,
    initialised, changed,
)  # fmt: skip


def _only(array: Array) -> float | None:
    """The one number that an array holds throughout, or None."""
    if array.size < 2:
        return None
    first = float(array.flat[0]) + 0.0  # 0 for -0
    return first if all(bool((x == first).all()) for _, x, _ in blocks(array, array)) else None


def _near(value: float) -> tuple[float, ...]:
    """The single-precision numbers that may have been meant: a quotient of rounded numbers is off by one or so."""
    if not abs(value) < float(np.finfo(np.float32).max):
        return ()
    middle = np.float32(value)
    ends = np.float32(-np.inf), np.float32(np.inf)
    return (float(middle), *(float(np.nextafter(middle, end)) for end in ends))


def _times(factor: float, array: Array) -> Array:
    return (array.astype(np.float64) * factor).astype(array.dtype)


def _plus(number: float, array: Array) -> Array:
    return (array.astype(np.float64) + number).astype(array.dtype)


def _through(dtype: str, array: Array) -> Array:
    return cast(cast(array, dtype), dtype_name(array.dtype))


def _is_tied(array: Array, table: Array) -> bool:
    """Whether a decoder's kernel [in, out] is a table [out, in], in the kernel's dtype."""
    return equal_bits(array, cast(table, dtype_name(array.dtype)).T)


def _related(pair: Pair) -> bool:
    """Whether the sides correlate more than chance allows."""
    n = pair.numbers
    return n is not None and n.correlation is not None and abs(n.correlation) > 5 / math.sqrt(n.count)
