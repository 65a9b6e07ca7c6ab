"""Candidates: every family, task and dialect of a layout, with what it explains of some stored names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from portkit.errors import UnknownModelError
from portkit.names import Unwrapped, unwrap
from portkit.table.slots import Slot, expand

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from portkit.table.schema import Dialect, Storage, Table, Tables, Task


BACKBONE = "backbone"  # the base model, also of a file that has a head


@dataclass(frozen=True)
class Wanted:
    """What the user fixed in advance; None leaves it to the names."""

    layout: str | None = None
    family: str | None = None
    task: str | None = None
    strip_prefix: str | None = None


@dataclass(frozen=True)
class Candidate:
    """One way to read the names: what it fills, and what it lacks."""

    storage: Storage
    table: Table
    task: Task
    dialect: Dialect | None
    names: Unwrapped
    layers: int
    slots: Mapping[str, Slot]
    filled: Mapping[str, str]
    missing: tuple[str, ...]
    has_pooler: bool

    @property
    def rank(self) -> tuple[int, int, bool]:
        """Better candidates are larger: nothing missing, most explained, no dialect."""
        return (-len(self.missing), len(self.filled), self.dialect is None)


def candidates_for(
    names: tuple[str, ...], layouts: list[str], families: list[Table], tables: Tables, wanted: Wanted
) -> tuple[list[Candidate], list[UnknownModelError]]:
    """All candidates of some layouts and families, and why the other layouts have none.

    Raises UnknownModelError when the names unwrap in no layout.
    """
    candidates: list[Candidate] = []
    refused: list[UnknownModelError] = []
    for layout in layouts:
        storage = tables.storages[layout]
        anchors = {anchor(t, storage) for t in tables.families.values()} - {""}
        prefixes = {t.layouts[layout].prefix for t in tables.families.values()} - {""}
        try:
            found = unwrap(names, storage.wrappers, anchors, prefixes, wanted.strip_prefix, storage.separator)
        except UnknownModelError as e:  # names of one layout need not make sense in another
            refused.append(e)
            continue
        candidates += (c for table in families for c in _of_family(table, storage, found, wanted))
    if len(refused) == len(layouts):
        raise refused[0]
    return candidates, refused


def _of_family(table: Table, storage: Storage, found: Unwrapped, wanted: Wanted) -> Iterator[Candidate]:
    layers = _count_layers(table, storage, found)
    dialects = [
        None,
        *(d for d in table.dialects.values() if d.layout == storage.name and "pooler" in d.columns),
    ]
    for task in table.tasks.values():
        asked = wanted.task in (None, task.name) or (wanted.task == BACKBONE and task.bare)
        if storage.name in task.classes and asked:
            yield from (_candidate(table, storage, task, d, found, layers) for d in dialects)


def _candidate(
    table: Table, storage: Storage, task: Task, dialect: Dialect | None, found: Unwrapped, layers: int
) -> Candidate:
    spare = task.pooler in ("optional", "unread")
    always = table.layouts[storage.name].needs_pooler
    slots = expand(table, storage, task, layers=layers, prefix=found.prefix, pooler=spare, dialect=dialect)
    filled = {k: n for k, s in slots.items() if (n := next((x for x in s.spellings if x in found.clean), None))}
    spares = {k for k, s in slots.items() if s.row.group == "pooler"} if spare else set()
    has_pooler = (always or bool(spares & set(filled))) if spare else task.pooler == "read"
    if not has_pooler:
        slots = {k: s for k, s in slots.items() if k not in spares}
    missing = [s.name for k, s in slots.items() if k not in filled and s.name and s.place.tied not in filled]
    optional = () if storage.always_prefixed and not task.bare else ("",)
    wrong = found.prefix not in (*optional, table.layouts[storage.name].prefix)
    if wrong:
        missing = [table.layouts[storage.name].prefix, *missing]
    return Candidate(storage, table, task, dialect, found, layers, slots, filled, tuple(missing), has_pooler)


def anchor(table: Table, storage: Storage) -> str:
    """The stored name that begins a backbone in a layout; nothing where the table has no such column."""
    places = table.rows[0].places.get(storage.name, {})
    return next((p.name for p in places.values()), "")


def _count_layers(table: Table, storage: Storage, found: Unwrapped) -> int:
    """One more than the highest layer number among the names.

    A number far beyond the layers that are there is no layer: nothing is built for it, and no row explains it.
    """
    row = next((r for r in table.rows if "{i}" in r.name and storage.name in r.places), None)
    if row is None:
        return 0
    template = next(iter(row.places[storage.name].values())).name.partition("{i}")[0]
    number = re.escape(storage.numbering).replace(r"\{i\}", "([0-9]{1,3})")
    number = f"(?:{number})?" if number else "([0-9]{1,3})"
    pattern = re.compile(re.escape(found.prefix + template) + number + re.escape(storage.separator))
    numbers = {int(m[1] or 0) for n in found.clean if (m := pattern.match(n))}
    return min(max(numbers, default=-1) + 1, 2 * len(numbers))
