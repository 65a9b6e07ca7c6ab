"""Two checkpoints side by side: which tensors there are, and where each side has them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from portkit.casts import cast
from portkit.common import POSITIONS, in_order
from portkit.difference.blocks import narrower
from portkit.difference.result import Side
from portkit.table.slots import expand, logical_axes
from portkit.tensors import FLOATS, dtype_name

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from portkit.axes import Axes
    from portkit.checkpoint import Checkpoint
    from portkit.tensors import Array, LazyTensor

UNEXPLAINED = "unexplained."  # before the stored name of what no row explains


@dataclass(frozen=True)
class Item:
    """One logical tensor of two checkpoints, unread.

    `a` and `b` are in canonical orientation, None where a side has none. `raw` are the stored tensors, where both
    files hold the same order of numbers, so that bytes can be compared without turning anything. `starts` are the
    rows from which each side's table is read; rows before them belong to no token.
    """

    name: str
    a: LazyTensor | None
    b: LazyTensor | None
    raw: tuple[LazyTensor, LazyTensor] | None = None
    starts: tuple[int, int] = (0, 0)
    axes: Axes = ()


def pair_up(a: Checkpoint, b: Checkpoint) -> tuple[Item, ...]:
    """Every tensor that at least one side stores, in the order of the model; what no row explains comes last."""
    ours, theirs = a.logical(), b.logical()
    names = [n for n in in_order((*ours, *theirs)) if n in a.anatomy.stored or n in b.anatomy.stored]
    found = [_item(n, ours.get(n), theirs.get(n), a, b) for n in names]
    extra_a, extra_b = _unexplained(a), _unexplained(b)
    for name in sorted({*extra_a, *extra_b}):
        found.append(Item(UNEXPLAINED + name, extra_a.get(name), extra_b.get(name)))
    return tuple(found)


def side_of(checkpoint: Checkpoint, compared: Collection[str]) -> Side:
    """What a reader should know of one side before the figures; `compared` names the logical tensors looked at."""
    anatomy, container = checkpoint.anatomy, checkpoint.folder.container
    absent = [n for n in checkpoint.logical() if n not in anatomy.stored and n not in compared]
    tied = {n: f"tied to {anatomy.slots[n].place.tied}" for n in absent}
    return Side(
        path=str(checkpoint.folder.path),
        layout=anatomy.layout,
        format=container.format,
        family=anatomy.table.family,
        task=anatomy.task.name,
        dtypes=tuple(sorted({container.tensors[n].spec.dtype for n in anatomy.stored.values()})),
        tensors=len(anatomy.stored) + len(_unexplained(checkpoint)),
        skipped={**tied, **anatomy.ignored, **checkpoint.dead},
    )


def ties_of(checkpoint: Checkpoint) -> Mapping[str, str]:
    """Which logical tensors a framework may tie to which: what the columns of any layout say."""
    anatomy, tables = checkpoint.anatomy, checkpoint.tables
    columns = [
        expand(anatomy.table, tables.storages[n], anatomy.task, layers=anatomy.layers, pooler=anatomy.has_pooler)
        for n in tables.layouts
    ]
    return {name: slot.place.tied for slots in columns for name, slot in slots.items() if slot.place.tied}


def alike(a: Array, b: Array) -> tuple[Array, Array]:
    """Both arrays in the narrower of their dtypes, or in float64 where one holds no floats."""
    names = dtype_name(a.dtype), dtype_name(b.dtype)
    floats = all(n in FLOATS for n in names)
    dtype = names[0] if names[0] == names[1] else narrower(*names) if floats else "F64"
    return cast(a, dtype), cast(b, dtype)


def _item(name: str, ours: LazyTensor | None, theirs: LazyTensor | None, a: Checkpoint, b: Checkpoint) -> Item:
    side = a if ours else b
    axes = logical_axes(side.anatomy.slots[name], side.tables.storages["logical"])
    if ours is None or theirs is None:
        return Item(name, ours, theirs, axes=axes)
    first = (a.facts.first_position, b.facts.first_position)
    starts = first if name == POSITIONS and first[0] != first[1] else (0, 0)
    raw = (a.stored(name), b.stored(name)) if not any(starts) and _stored_alike(name, a, b) else (None, None)
    return Item(name, ours, theirs, (raw[0], raw[1]) if raw[0] and raw[1] else None, starts, axes)


def _stored_alike(name: str, a: Checkpoint, b: Checkpoint) -> bool:
    """One layout, family and dialect store a tensor in one way."""
    ways = [
        (c.anatomy.layout, c.anatomy.table.family, c.anatomy.dialect, c.axes(name), c.growth(name), c.sizes)
        for c in (a, b)
    ]
    return ways[0] == ways[1]


def _unexplained(checkpoint: Checkpoint) -> dict[str, LazyTensor]:
    """What no row explains, in the file or kept beside it, under the stored names."""
    residue = checkpoint.folder.residue
    kept = dict(residue.tensors) if residue else {}
    return {**kept, **{n: checkpoint.folder.container.tensors[n] for n in checkpoint.anatomy.unexplained}}
