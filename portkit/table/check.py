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
        problems += [*_ambiguous(table, tables.layouts), *_wrong_heads(table, tables)]
        for task in table.tasks.values():
            columns = {n: _column(table, tables.storages[n], task) for n in tables.layouts if n in task.classes}
            problems += [p for name, column in columns.items() for p in _wrong(table, task, tables, name, column)]
            models += len(columns)
            slots += sum(len(c) for c in columns.values())
    if problems or not slots:
        raise TableError("the mapping tables are wrong", problems or [Problem("", "nothing to check")])
    return Looked(len(tables.families), models, slots)


def _ambiguous(table: Table, layouts: tuple[str, ...]) -> Iterator[Problem]:
    """Words of a config that mean two things."""
    for layout in layouts:
        fields = Counter(n for f in table.config.values() if (n := f.name_in(layout)))
        yield from _twice(fields, f"{table.source} [config]", f"two fields are called {{}} in {layout}")
        for field, values in table.values.items():
            spellings = Counter(s for words in values.values() for s in words.get(layout, ()))
            yield from _twice(spellings, f"{table.source} [values.{field}]", f"two values are spelled {{}} in {layout}")


def _wrong_heads(table: Table, tables: Tables) -> Iterator[Problem]:
    """Heads that cannot be what the table says of them."""
    for style, family in table.restyle.items():
        styles = sorted({t.head_style for t in tables.families[family].tasks.values() if t.head_style})
        if style not in styles:
            what = f"{family} has no head of this style"
            yield Problem(f"{table.source} [restyle] {style}", what, f"a family with {style} heads", " ".join(styles))
    for task in table.tasks.values():
        where, rows = f"{table.source} [task.{task.name}]", Counter(r.name for r in table.rows_of(task.groups))
        yield from _twice(rows, f"{where} rows", "two rows are called {}")
        if task.pooler in ("read", "head") and "pooler" not in rows:
            what = f"{task.pooler!r} without a pooler"
            yield Problem(f"{where} pooler", what, "a row called pooler", ", ".join(task.groups), "add its rows")


def _twice(names: Counter[str], where: str, what: str) -> Iterator[Problem]:
    yield from (Problem(where, what.format(repr(n)), "each once", f"{c} times") for n, c in names.items() if c > 1)


def _column(table: Table, storage: Storage, task: Task) -> dict[str, Slot]:
    prefix = "" if task.bare else table.layouts[storage.name].prefix
    pooler = task.pooler == "optional"
    return expand(table, storage, task, layers=_SMALL["num_hidden_layers"], prefix=prefix, pooler=pooler)


def _wrong(table: Table, task: Task, tables: Tables, layout: str, column: Mapping[str, Slot]) -> Iterator[Problem]:
    where = f"{table.source} [task.{task.name}] {layout}"
    names = Counter(n for s in column.values() for n in s.spellings)
    yield from (Problem(where, f"two tensors are stored as {n!r}") for n, count in names.items() if count > 1)
    try:
        sizes = sizes_of(table.axes, _small(table))
    except TableError as e:
        yield from (Problem(where, p.what, p.expected, p.found) for p in e.problems)
        return
    for logical, slot in column.items():
        yield from _wrong_slot(where, logical, slot, column, tables, sizes)


def _small(table: Table) -> dict[str, object]:
    """A small config; a family's own sizes differ from all others."""
    own = {name: field.default or 67 + i for i, (name, field) in enumerate(table.config.items())}
    return {**own, **_SMALL}


def _wrong_slot(
    where: str, logical: str, slot: Slot, column: Mapping[str, Slot], tables: Tables, sizes: Mapping[str, int]
) -> Iterator[Problem]:
    if not (slot.name or slot.place.absent or slot.place.tied):
        yield Problem(where, f"{logical} has neither a place nor a reason why not")
    tied = column.get(slot.place.tied)
    if slot.place.tied and not tied:
        yield Problem(where, f"{logical} is tied to {slot.place.tied!r}, which is no tensor of the model")
    if tied and sorted(tied.shape(sizes)) != sorted(slot.shape(sizes)):
        what = f"{logical} is tied to {tied.logical!r}, which has another shape"
        yield Problem(where, what, str(slot.shape(sizes)), str(tied.shape(sizes)))
    into = slot.place.absorbed_by
    if into and (into not in column or column[into].place.absent):
        yield Problem(where, f"{logical} is absorbed by {into!r}, which is no stored tensor of the model")
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
