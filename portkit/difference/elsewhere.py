"""Find tensors that lie in another place: two exchanged, one copied, layers in another order.

Each side is read once more and hashed; equal hashes are then equal tensors, so nothing is compared with everything.
"""

from __future__ import annotations

from dataclasses import replace
from functools import reduce
from hashlib import sha256
from typing import TYPE_CHECKING

from portkit.casts import cast
from portkit.difference.blocks import narrower
from portkit.difference.result import Finding, TensorDiff
from portkit.tensors import FLOATS, bits

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from portkit.difference.sides import Item
    from portkit.tensors import Array, LazyTensor

Hashes = dict[str, str]  # name -> digest


def look_elsewhere(items: Sequence[Item], tensors: Sequence[TensorDiff]) -> tuple[TensorDiff, ...]:
    """The same results, with a finding for each tensor whose numbers lie under another name on the other side."""
    wanted = {t.name for t in tensors if t.different}
    if not wanted:
        return tuple(tensors)
    sides = {i.name: i.a for i in items if i.a}, {i.name: i.b for i in items if i.b}
    dtype = _narrowest(t.spec.dtype for side in sides for t in side.values())
    hashes = [_hashes(_candidates(side, wanted, other), dtype) for side, other in zip(sides, sides[::-1], strict=True)]
    found = {name: finding for name in wanted if (finding := _elsewhere(name, hashes[0], hashes[1]))}
    return tuple(_told(t, found[t.name]) if t.name in found else t for t in tensors)


def _told(tensor: TensorDiff, finding: Finding) -> TensorDiff:
    """Beside what is certain now, evidence says nothing."""
    return replace(tensor, findings=(finding, *(f for f in tensor.findings if f.certain)))


def _candidates(side: Mapping[str, LazyTensor], wanted: set[str], other: Mapping[str, LazyTensor]) -> list[LazyTensor]:
    """What differs on this side, and what could be what differs on the other."""
    shapes = {other[n].spec.shape for n in wanted if n in other}
    return [t.renamed(n) for n, t in side.items() if n in wanted or t.spec.shape in shapes]


def _hashes(tensors: Iterable[LazyTensor], dtype: str) -> Hashes:
    return {t.name: digest for t in tensors if t.spec.dtype in FLOATS and (digest := _digest(t.read(), dtype))}


def _digest(array: Array, dtype: str) -> str:
    """Of shape and numbers; nothing for a constant, which lies anywhere without meaning anything."""
    numbers = cast(array, dtype).reshape(-1)
    if numbers.size < 2 or bool((numbers[:2] == numbers[0]).all() and (numbers == numbers[0]).all()):
        return ""
    return f"{array.shape} {sha256(bits(numbers).data).hexdigest()}"


def _elsewhere(name: str, a: Hashes, b: Hashes) -> Finding | None:
    """Where A has what B has under this name; for a name that B lacks, where B has what A has."""
    one, other, words = (b, a, "B has here what A has at") if name in b else (a, b, "B has it at")
    homes = [n for n, digest in other.items() if digest == one.get(name) and n != name]
    if not homes:
        return None
    swapped = [n for n in homes if a.get(name) and a.get(name) == b.get(n)]
    if swapped:
        return Finding("exchanged", f"exchanged with {swapped[0]}", certain=True, explained=1.0, other=swapped[0])
    return Finding("elsewhere", f"{words} {homes[0]}", certain=True, explained=1.0, other=homes[0])


def _narrowest(dtypes: Iterable[str]) -> str:
    return reduce(narrower, (d for d in dtypes if d in FLOATS), "F64")
