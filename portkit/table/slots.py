"""Expand a table for one model: every logical tensor and its slot in one layout. Pure; no file is looked at."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from portkit.axes import Axes, Sizes, parse_pattern, shape_of
from portkit.table.expr import evaluate
from portkit.table.rows import holes
from portkit.table.schema import Dialect, Place, Row, Storage, Table, Task

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@dataclass(frozen=True)
class Slot:
    """Where one logical tensor lives in one layout, or the reason why it is absent."""

    logical: str
    axes: Axes
    row: Row
    place: Place  # with all holes filled and the prefix in front

    @property
    def name(self) -> str:
        """The name it is written under; empty when the layout has no place for it."""
        return self.place.name

    @property
    def spellings(self) -> tuple[str, ...]:
        """Every name under which a file may hold it, the one that wins first."""
        return tuple(n for n in (self.place.overruled_by, self.place.name, *self.place.also) if n)

    def growth(self, config: Mapping[str, object]) -> tuple[int, int]:
        """Rows that this layout puts in front of and behind the logical ones; below 0 where it stores fewer."""
        if self.place.from_row:
            return -evaluate(self.place.from_row, config), 0
        if not self.place.grow:
            return 0, 0
        rows = int(str(config["max_position_embeddings"]))
        for rule in self.place.grow:
            if rule.applies(rows):
                front = evaluate(rule.front, config) if rule.front else 0
                return front, max((rule.to or 0) - rows - front, 0)
        return 0, 0

    def shape(self, sizes: Sizes, growth: tuple[int, int] = (0, 0)) -> tuple[int, ...]:
        """The stored shape, with the rows that the layout adds."""
        first, *rest = shape_of(self.axes, sizes)
        return (first + sum(growth), *rest)


def sizes_of(axes: Mapping[str, str], config: Mapping[str, object]) -> dict[str, int]:
    """The size of every letter, given as an expression of config fields. Raises TableError where a value is missing."""
    return {letter: evaluate(expression, config) for letter, expression in axes.items()}


def expand(
    table: Table,
    storage: Storage,
    task: Task,
    *,
    layers: int,
    prefix: str = "",
    pooler: bool = False,
    dialect: Dialect | None = None,
) -> dict[str, Slot]:
    """Logical name -> slot in one layout.

    `pooler` adds the pooler's rows to a task whose own groups lack them. `prefix` stands before the names of the
    table's prefixed groups. `layers` is the model's depth.
    """
    groups = (*task.groups, "pooler") if pooler and "pooler" not in task.groups else task.groups
    slots: dict[str, Slot] = {}
    for row in table.rows_of(groups):
        columns = dialect.columns.get(row.name, row.places) if dialect else row.places
        places = columns.get(storage.name, {})
        front = prefix if row.group in table.prefixed else ""
        for filled in _fillings(table, row.name, layers):
            slots.update(_slots(row, storage, places, filled, front))
    return slots


def logical_axes(slot: Slot, hub: Storage) -> Axes:
    """The canonical axes of a slot's tensor: kernels `(in) (out)`, tables `rows columns`."""
    part = slot.logical.rpartition(".")[2]
    return parse_pattern(hub.parts[slot.row.kind][part][1], slot.row.signature)


def _slots(
    row: Row, storage: Storage, places: Mapping[str, Place], filled: Mapping[str, object], prefix: str
) -> dict[str, Slot]:
    slots = {}
    for part, (leaf, pattern) in storage.parts[row.kind].items():
        place = places.get(part, Place(absent=f"the table has no {storage.name} column for it"))
        axes = parse_pattern(pattern, row.signature)
        if storage.name == "logical":
            place = Place(name=f"{row.name}.{leaf}")
        logical = f"{row.name}.{part}".format(**filled)
        slots[logical] = Slot(logical, axes, row, _fill(place, filled, _numbered(filled, storage), prefix))
    return slots


def _numbered(filled: Mapping[str, object], storage: Storage) -> dict[str, object]:
    return {hole: storage.number(value) if isinstance(value, int) else value for hole, value in filled.items()}


def _fill(place: Place, filled: Mapping[str, object], numbered: Mapping[str, object], prefix: str) -> Place:
    def full(name: str) -> str:
        return prefix + name.format(**numbered) if name else ""

    return Place(
        name=full(place.name),
        also=tuple(full(n) for n in place.also),
        tied=place.tied.format(**filled),
        overruled_by=full(place.overruled_by),
        absent=place.absent,
        absorbed_by=place.absorbed_by,
        from_row=place.from_row,
        grow=place.grow,
    )


def _fillings(table: Table, name: str, layers: int) -> Iterator[dict[str, object]]:
    used = [hole for hole in table.repeat if hole in holes(name)]
    ranges = [range(layers) if isinstance(table.repeat[h], str) else table.repeat[h] for h in used]
    for values in itertools.product(*ranges):
        yield dict(zip(used, values, strict=True))
