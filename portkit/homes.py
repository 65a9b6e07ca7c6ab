"""Where a logical tensor lives in each layout, and what is done to it on the way there. Headers and tables only."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from portkit.axes import described_move, spell
from portkit.fold import absorbed, unfolded
from portkit.table.slots import Slot, expand

if TYPE_CHECKING:
    from portkit.checkpoint import Checkpoint
    from portkit.table.schema import Dialect, Place

Columns = Mapping[str, Mapping[str, Slot]]  # layout -> logical name -> slot

_POOLER = "pooler"  # the row group that a file may have or lack


@dataclass(frozen=True)
class Home:
    """Where a logical tensor lives in one layout: its name, dimensions and shape, and how it gets there from here.

    `name` is empty where the layout has no place for it, and `note` then says why.
    """

    layout: str
    dialect: str | None = None
    name: str = ""
    dimensions: str = ""
    shape: tuple[int, ...] = ()
    moves: tuple[str, ...] = ()
    note: str = ""


def columns_of(checkpoint: Checkpoint) -> dict[str, dict[str, Slot]]:
    """The slots of the checkpoint's model in every layout that has a class for it, a spare pooler included."""
    anatomy = checkpoint.anatomy
    layouts = [n for n in checkpoint.tables.layouts if n in anatomy.task.classes]
    return {
        name: {**_expanded(checkpoint, name), **(dict(anatomy.slots) if name == anatomy.layout else {})}
        for name in layouts
    }


def homes_of(checkpoint: Checkpoint, logical: str, columns: Columns) -> Iterator[Home]:
    """Where a logical tensor lives in each layout, and in each dialect that has another place for it."""
    table, task = checkpoint.anatomy.table, checkpoint.anatomy.task
    for layout in checkpoint.tables.layouts:
        if layout not in columns:
            yield Home(layout, note=f"{layout} has no class for {task.name}")
            continue
        dialect = checkpoint.anatomy.dialect if layout == checkpoint.anatomy.layout else None
        slot = columns[layout][logical]
        yield _home(checkpoint, layout, slot, dialect, columns[layout])
        for other in table.dialects.values():
            if other.layout == layout and other is not dialect and _changes(other, slot, task.name):
                column = _expanded(checkpoint, layout, other)
                yield _home(checkpoint, layout, column[logical], other, column)


def _changes(dialect: Dialect, slot: Slot, task: str) -> bool:
    return slot.row.name in dialect.columns and (not dialect.tasks or task in dialect.tasks)


def _home(checkpoint: Checkpoint, layout: str, slot: Slot, dialect: Dialect | None, column: Mapping[str, Slot]) -> Home:
    name = dialect.name if dialect else None
    absent = slot.place.absent or _no_spare_pooler(checkpoint, layout, slot)
    if absent:
        return Home(layout, name, note=f"absent: {absent}")
    growth = slot.growth(checkpoint.config.values)
    shape = slot.shape(checkpoint.sizes, growth)
    moves = tuple(_moves(checkpoint, slot, growth, column))
    return Home(layout, name, slot.name, spell(slot.axes), shape, moves, "; ".join(_notes(slot.place)))


def _notes(place: Place) -> Iterator[str]:
    if place.tied:
        yield f"tied: written only where its numbers are not those of {place.tied}"
    if place.overruled_by:
        yield f"{place.overruled_by} wins where a file has it too"


def _no_spare_pooler(checkpoint: Checkpoint, layout: str, slot: Slot) -> str:
    """Why a model whose head never reads the pooler cannot have one in a layout; nothing where it can."""
    spare = checkpoint.anatomy.table.layouts[layout].spare_pooler
    unread = checkpoint.anatomy.task.pooler == "unread" and slot.row.group == _POOLER
    return spare if unread and isinstance(spare, str) else ""


def _moves(checkpoint: Checkpoint, slot: Slot, growth: tuple[int, int], column: Mapping[str, Slot]) -> Iterator[str]:
    """What is done to the stored array on the way to a layout, whose slots are `column`."""
    if slot.logical not in checkpoint.anatomy.slots or checkpoint.stored(slot.logical) is None:
        return
    (front, back), (first, last) = checkpoint.growth(slot.logical), growth
    ours, theirs = (unfolded(slots) for slots in (checkpoint.anatomy.slots, column))
    row = absorbed(column.values()).get(slot.logical, "")
    yield from _rows("take off", max(front - first, 0) if first < 0 else max(front, 0), back)
    yield from described_move(checkpoint.axes(slot.logical), slot.axes, checkpoint.sizes)
    yield from (f"add the first row of {row} to each",) if row in theirs - ours else ()
    yield from _rows("add", max(first - min(front, 0), 0), last)


def _rows(verb: str, front: int, behind: int) -> Iterator[str]:
    for count, where in ((front, "in front"), (behind, "behind")):
        if count:
            yield f"{verb} rows: {count} {where}"


def _expanded(checkpoint: Checkpoint, layout: str, dialect: Dialect | None = None) -> dict[str, Slot]:
    anatomy = checkpoint.anatomy
    own = anatomy.prefix if layout == anatomy.layout else anatomy.table.layouts[layout].prefix
    return expand(
        anatomy.table,
        checkpoint.tables.storages[layout],
        anatomy.task,
        layers=anatomy.layers,
        prefix="" if anatomy.task.bare and layout != anatomy.layout else own,
        pooler=anatomy.task.pooler in ("optional", "unread"),
        dialect=dialect or (anatomy.dialect if layout == anatomy.layout else None),
    )
