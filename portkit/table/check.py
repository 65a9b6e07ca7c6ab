"""The static check: every family and task expanded in every layout, and all that is wrong in one error."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from portkit.axes import Axes, shape_of
from portkit.errors import Problem, TableError
from portkit.table.slots import Slot, expand, logical_axes, sizes_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from portkit.table.schema import Storage, Table, Tables, Task

# Distinct sizes, so that an axis taken for another one is seen.
_SMALL = {
    "vocab_size": 61, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 40,
    "max_position_embeddings": 37, "type_vocab_size": 2, "num_labels": 5, "pad_token_id": 1,
}  # fmt: skip


@dataclass(frozen=True)
class Looked:
    """How much was checked."""

    tables: int
    models: int
    slots: int


def check_tables(tables: Tables) -> Looked:
    """Check all tables. Raises TableError with every problem; says how much it looked at otherwise."""
    problems: list[Problem] = []
    models = slots = 0
    for table in tables.families.values():
        for task in table.tasks.values():
            columns = {n: _column(table, tables.storages[n], task) for n in tables.layouts if n in task.classes}
            problems += [p for name, column in columns.items() for p in _wrong(table, task, tables, name, column)]
            models += len(columns)
            slots += sum(len(c) for c in columns.values())
    if problems or not slots:
        raise TableError("the mapping tables are wrong", problems or [Problem("", "nothing to check")])
    return Looked(len(tables.families), models, slots)


def _column(table: Table, storage: Storage, task: Task) -> dict[str, Slot]:
    prefix = "" if task.bare else table.layouts[storage.name].prefix
    pooler = task.pooler == "optional"
    return expand(table, storage, task, layers=_SMALL["num_hidden_layers"], prefix=prefix, pooler=pooler)


def _wrong(table: Table, task: Task, tables: Tables, layout: str, column: Mapping[str, Slot]) -> Iterator[Problem]:
    where = f"{table.source} [task.{task.name}] {layout}"
    names = Counter(n for s in column.values() for n in s.spellings)
    yield from (Problem(where, f"two tensors are stored as {n!r}") for n, count in names.items() if count > 1)
    try:
        sizes = sizes_of(table.axes, {**{k: f.default for k, f in table.config.items()}, **_SMALL})
    except TableError as e:
        yield from (Problem(where, p.what, p.expected, p.found) for p in e.problems)
        return
    for logical, slot in column.items():
        yield from _wrong_slot(where, logical, slot, column, tables, sizes)


def _wrong_slot(
    where: str, logical: str, slot: Slot, column: Mapping[str, Slot], tables: Tables, sizes: Mapping[str, int]
) -> Iterator[Problem]:
    if not (slot.name or slot.place.absent or slot.place.tied):
        yield Problem(where, f"{logical} has neither a place nor a reason why not")
    if slot.place.tied and slot.place.tied not in column:
        yield Problem(where, f"{logical} is tied to {slot.place.tied!r}, which is no tensor of the model")
    into = slot.place.absorbed_by
    if into and (into not in column or column[into].place.absent):
        yield Problem(where, f"{logical} is absorbed by {into!r}, which is no stored tensor of the model")
    unknown = slot.row.signature.letters() - set(sizes)
    if unknown:
        yield Problem(where, f"{slot.row.address} uses undeclared axes {', '.join(sorted(unknown))}")
        return
    hub = logical_axes(slot, tables.storages["logical"])
    if _atoms(hub) != _atoms(slot.axes):
        yield Problem(
            where,
            f"{logical} loses an axis on the way",
            str(shape_of(hub, sizes)),
            str(shape_of(slot.axes, sizes)),
        )


def _atoms(axes: Axes) -> list[tuple[str, str]]:
    return sorted(a for group in axes for a in group)
