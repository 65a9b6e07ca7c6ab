"""Hypotheses about the order of numbers: the same ones, in other places. See `hypotheses.py`."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from portkit.axes import size_of
from portkit.difference.guess import NEAR, Guess, Pair

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from portkit.tensors import Array


def transposed(pair: Pair) -> Iterator[Guess]:
    """The matrix lies the other way round; nothing but its numbers tells where it is square."""
    if pair.a.ndim == 2:
        yield Guess("B is A transposed", pair.a.T, pair.b)


def heads_exchanged(pair: Pair) -> Iterator[Guess]:
    """Units are grouped by their place in a head instead of by head, or the other way round."""
    for dim, group in enumerate(pair.axes):
        if len(group) != 2 or pair.a.shape != pair.b.shape:
            continue
        heads, size = (size_of(axis, pair.sides[0].sizes) for axis in group)
        for by_head, by_place, rows in (("A", "B", (heads, size)), ("B", "A", (size, heads))):
            text = f"{by_head} has {heads} heads of {size} one after the other, in {by_place} they are interleaved"
            left = _split(pair.a, dim, rows).swapaxes(dim, dim + 1)
            yield Guess(text, left, _split(pair.b, dim, rows[::-1]))


def shifted(pair: Pair) -> Iterator[Guess]:
    """Row i of one side is row i + k of the other, for another k than the facts of the two say."""
    left, right = pair.whole
    if pair.part != "table" or left.shape[1:] != right.shape[1:]:
        return
    said = pair.starts[1] - pair.starts[0]
    pads = {c.facts.pad_token_id + 1 for c in pair.sides}
    steps = {0, *(sign * n for n in (1, 2, abs(said), *pads) for sign in (1, -1))} - {said}
    for step in sorted(steps, key=abs):
        a, b = left[max(-step, 0) :], right[max(step, 0) :]
        rows = min(len(a), len(b))
        if rows > 0 and (step or said):
            text = f"rows are shifted: row i of A is row i{step:+d} of B" + (f", not i{said:+d}" if said else "")
            yield Guess(f"{text}; {rows} rows looked at", a[:rows], b[:rows])


def padded(pair: Pair) -> Iterator[Guess]:
    """A side has more along one dimension; as far as both go, they are equal."""
    if pair.numbers is not None or pair.a.ndim != pair.b.ndim:
        return
    common = tuple(min(x, y) for x, y in zip(pair.a.shape, pair.b.shape, strict=True))
    other = [i for i, (x, y) in enumerate(zip(pair.a.shape, pair.b.shape, strict=True)) if x != y]
    if len(other) == 1:
        dim = other[0]
        more = pair.a.shape[dim] - pair.b.shape[dim]
        large, small = ("A", "B") if more > 0 else ("B", "A")
        cut = tuple(slice(n) for n in common)
        text = f"{large} has {abs(more)} {_unit(pair, dim)} more, the first {common[dim]} are {small}'s"
        yield Guess(text, pair.a[cut], pair.b[cut])


def permuted(pair: Pair) -> Iterator[Guess]:
    """The same rows, columns or elements in another order."""
    if pair.a.shape != pair.b.shape:
        return
    for dim in range(min(pair.a.ndim, 2)):
        a, b = np.moveaxis(pair.a, dim, 0), np.moveaxis(pair.b, dim, 0)
        order = _order(a, b)
        if order is not None:
            moved = np.flatnonzero(order != np.arange(len(order)))
            starts = (0, 0) if dim else pair.starts
            first = f"the first is {moved[0] + starts[1]} of B, which is {order[moved[0]] + starts[0]} of A"
            text = f"{len(moved)} of {len(order)} {_unit(pair, dim)} are in another order: {first}"
            yield Guess(text, a, b, rows=order)


def _order(a: Array, b: Array) -> NDArray[np.intp] | None:
    """For each row of `b`, the row of `a` with the same bits, or its own number; None where most have none."""
    if not _alike_at_a_glance(a, b):
        return None
    homes: dict[bytes, list[int]] = {}
    for i in reversed(range(len(a))):
        homes.setdefault(_digest(a[i]), []).append(i)
    order, lost = np.arange(len(b)), 0
    for i in range(len(b)):
        found = homes.get(_digest(b[i]))
        lost += not found
        order[i] = found.pop() if found else i
    return order if lost <= (1 - NEAR) * len(b) and bool((order != np.arange(len(b))).any()) else None


def _alike_at_a_glance(a: Array, b: Array) -> bool:
    """Whether the first column of both holds mostly the same numbers: cheap, and rules most pairs out."""
    if not a.size:
        return False
    first, second = (np.ravel(x[:, :1] if x.ndim > 1 else x).astype(np.float64) for x in (a, b))
    known = np.sort(first)
    nearest = known[np.searchsorted(known, second).clip(max=len(known) - 1)]
    return float((nearest == second).mean()) >= NEAR


def _digest(row: Array) -> bytes:
    return blake2b(np.ascontiguousarray(row).tobytes(), digest_size=16).digest()


def _split(array: Array, dim: int, sizes: tuple[int, int]) -> Array:
    return array.reshape((*array.shape[:dim], *sizes, *array.shape[dim + 1 :]))


def _unit(pair: Pair, dim: int) -> str:
    return "elements" if pair.a.ndim == 1 else ("rows", "columns")[dim]
