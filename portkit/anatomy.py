"""Say what a checkpoint is: layout, family, task, prefix. Names decide first, the config second."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from portkit.errors import Problem, UnknownModelError
from portkit.names import Unwrapped, unwrap
from portkit.table.load import suggestion
from portkit.table.slots import Slot, expand

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from portkit.table.schema import Dialect, Storage, Table, Tables, Task

_SHOWN = 12  # how many names a message lists


@dataclass(frozen=True)
class Wanted:
    """What the user fixed in advance; None leaves it to the names."""

    layout: str | None = None
    family: str | None = None
    task: str | None = None
    strip_prefix: str | None = None


@dataclass(frozen=True)
class Anatomy:
    """What a checkpoint is, as its names say.

    `slots` are those of all tensors that the task has here, `stored` gives the stored name that fills each logical
    tensor, `twins` what else is stored for the same tensor under another name, `has_pooler` whether the pooler's
    tensors are there, `unexplained` the stored names that no row explains.
    """

    layout: str
    table: Table
    task: Task
    dialect: Dialect | None
    layers: int
    prefix: str
    slots: Mapping[str, Slot]
    stored: Mapping[str, str]
    twins: Mapping[str, tuple[str, ...]]
    has_pooler: bool
    ignored: Mapping[str, str]
    unexplained: tuple[str, ...]
    removed: tuple[str, ...]
    evidence: tuple[str, ...]


@dataclass(frozen=True)
class _Candidate:
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


def identify(
    names: tuple[str, ...], config: Mapping[str, Any], formats: str, tables: Tables, wanted: Wanted
) -> Anatomy:
    """Find the one layout, family and task that explain the stored names.

    `formats` is the format of the file. Raises UnknownModelError: nothing fits, two things fit, or the config names
    another model than the names show.
    """
    layouts = [n for n in tables.layouts if formats in tables.storages[n].formats]
    families, evidence = _families(config, layouts, tables, wanted)
    candidates = list(_candidates(names, layouts, families, tables, wanted))
    fitting = [c for c in candidates if not c.missing and wanted.layout in (None, c.storage.name)]
    if not fitting:
        raise _nothing_fits(names, config, candidates, layouts, tables, wanted)
    best = max(c.rank for c in fitting)
    finalists = [c for c in fitting if c.rank == best]
    chosen, why = _decide(finalists, config)
    _check_architecture(chosen, candidates, config, wanted)
    return _anatomy(chosen, (*evidence, *why))


def _families(
    config: Mapping[str, Any], layouts: list[str], tables: Tables, wanted: Wanted
) -> tuple[list[Table], tuple[str, ...]]:
    known = tables.families
    if wanted.family:
        if wanted.family not in known:
            raise UnknownModelError(
                "unknown family",
                [Problem("--family", f"{wanted.family!r} has no table", hint=suggestion(wanted.family, known))],
            )
        return [known[wanted.family]], (f"family {wanted.family}: given",)
    if model_type := config.get("model_type"):
        named = [t for t in known.values() if any(t.layouts[n].model_type == model_type for n in layouts)]
        if not named:
            hint = f"families with a table: {', '.join(sorted(known))}; --family reads it as one of them"
            raise UnknownModelError(
                "unknown family",
                [Problem("config.json model_type", f"{model_type!r} has no table", hint=hint)],
            )
        return named, (f"family {named[0].family}: model_type in config.json",)
    classes = set(config.get("architectures") or ())
    named = [t for t in known.values() if any(c in classes for k in t.tasks.values() for c in k.classes.values())]
    if named:
        return named, (f"family {named[0].family}: architectures in config.json",)
    return list(known.values()), ()


def _candidates(
    names: tuple[str, ...], layouts: list[str], families: list[Table], tables: Tables, wanted: Wanted
) -> Iterator[_Candidate]:
    refused = []
    for layout in layouts:
        storage = tables.storages[layout]
        anchors = {_anchor(t, layout) for t in tables.families.values()}
        prefixes = {t.layouts[layout].prefix for t in tables.families.values()} - {""}
        try:
            found = unwrap(names, storage.wrappers, anchors, prefixes, wanted.strip_prefix)
        except UnknownModelError as e:  # names of one layout need not make sense in another
            refused.append(e)
            continue
        for table in families:
            yield from _of_family(table, storage, found, wanted)
    if len(refused) == len(layouts):
        raise refused[0]


def _of_family(table: Table, storage: Storage, found: Unwrapped, wanted: Wanted) -> Iterator[_Candidate]:
    layers = _count_layers(table, storage.name, found)
    dialects = [
        None,
        *(d for d in table.dialects.values() if d.layout == storage.name and "pooler" in d.columns),
    ]
    for task in table.tasks.values():
        if storage.name in task.classes and wanted.task in (None, task.name):
            yield from (_candidate(table, storage, task, d, found, layers) for d in dialects)


def _candidate(
    table: Table, storage: Storage, task: Task, dialect: Dialect | None, found: Unwrapped, layers: int
) -> _Candidate:
    spare = task.pooler in ("optional", "unread")
    slots = expand(table, storage, task, layers=layers, prefix=found.prefix, pooler=spare, dialect=dialect)
    filled = {k: n for k, s in slots.items() if (n := next((x for x in s.spellings if x in found.clean), None))}
    spares = {k for k, s in slots.items() if s.row.group == "pooler"} if spare else set()
    has_pooler = bool(spares & set(filled)) if spare else task.pooler == "read"
    if not has_pooler:
        slots = {k: s for k, s in slots.items() if k not in spares}
    missing = [s.name for k, s in slots.items() if k not in filled and s.name and s.place.tied not in filled]
    wrong = found.prefix not in ("", table.layouts[storage.name].prefix)
    if wrong:
        missing = [table.layouts[storage.name].prefix, *missing]
    return _Candidate(storage, table, task, dialect, found, layers, slots, filled, tuple(missing), has_pooler)


def _anchor(table: Table, layout: str) -> str:
    first = table.rows[0]
    return next(iter(first.places[layout].values())).name


def _count_layers(table: Table, layout: str, found: Unwrapped) -> int:
    """One more than the highest layer number among the names."""
    row = next((r for r in table.rows if "{i}" in r.name), None)
    if row is None:
        return 0
    template = next(iter(row.places[layout].values())).name.partition("{i}")[0]
    pattern = re.compile(re.escape(found.prefix + template) + r"(\d{1,5})\.")
    return max((int(m[1]) + 1 for n in found.clean if (m := pattern.match(n))), default=0)


def _decide(finalists: list[_Candidate], config: Mapping[str, Any]) -> tuple[_Candidate, tuple[str, ...]]:
    """Choose among candidates that explain the names equally well."""
    classes = set(config.get("architectures") or ())
    by_class = [c for c in finalists if classes & set(c.task.classes.values())]
    finalists = by_class or finalists
    families = {c.table.family for c in finalists}
    why: tuple[str, ...] = ("task: architectures in config.json, among those that the names allow",) if by_class else ()
    if len(families) > 1:
        finalists, evidence = _by_looks(finalists, config)
        why += evidence
    chosen = finalists[0]
    others = sorted({c.task.name for c in finalists[1:]} - {chosen.task.name})
    if others and not by_class:
        why += (f"task {chosen.task.name}: the names would fit {' and '.join(others)} too; --task decides",)
    return chosen, why or (f"task {chosen.task.name}: the only one that the names fit",)


def _by_looks(finalists: list[_Candidate], config: Mapping[str, Any]) -> tuple[list[_Candidate], tuple[str, ...]]:
    """Tell families with the same names apart: by the prefix, else by what their configs usually say."""
    prefixed = [c for c in finalists if c.names.prefix and c.names.prefix == c.table.layouts[c.storage.name].prefix]
    named = prefixed or [c for c in finalists if _looks_like(c.table, config)]
    families = list(dict.fromkeys(c.table.family for c in named))
    if not families or (len(families) > 1 and not prefixed):
        names = ", ".join(sorted({c.table.family for c in finalists}))
        hint = "say which with --family, or put model_type into config.json"
        raise UnknownModelError(
            "the family cannot be told",
            [Problem("config.json", "no model_type, and the names fit several families", found=names, hint=hint)],
        )
    how = (
        f"prefix {prefixed[0].names.prefix!r}"
        if prefixed
        else "no model_type; what the config says of " + ", ".join(named[0].table.looks_like)
    )
    return [c for c in named if c.table.family == families[0]], (f"family {families[0]}: {how}",)


def _looks_like(table: Table, config: Mapping[str, Any]) -> bool:
    said = {k: config[k] for k in table.looks_like if config.get(k) is not None}
    return bool(said) and table.looks_like == {**table.looks_like, **said}


def _check_architecture(
    chosen: _Candidate, candidates: list[_Candidate], config: Mapping[str, Any], wanted: Wanted
) -> None:
    """Refuse a head that config.json names and the file lacks, unless it is a bare model or the user said so."""
    classes = set(config.get("architectures") or ())
    if wanted.task or chosen.task.bare or not classes or classes & set(chosen.task.classes.values()):
        return
    named = [
        c
        for c in candidates
        if classes & set(c.task.classes.values()) and c.storage is chosen.storage and not c.dialect
    ]
    if named:
        raise UnknownModelError(
            "config.json and weights name different models",
            [
                Problem(
                    f"architectures {', '.join(classes)}",
                    f"tensor {n!r} is not in the file",
                    hint=f"the names fit {chosen.task.name}: --task {chosen.task.name} reads it so",
                )
                for n in named[0].missing[:_SHOWN]
            ],
        )


def _nothing_fits(
    names: tuple[str, ...],
    config: Mapping[str, Any],
    candidates: list[_Candidate],
    layouts: list[str],
    tables: Tables,
    wanted: Wanted,
) -> UnknownModelError:
    other = [c for c in candidates if not c.missing]
    if other:
        found = f"these are the names of layout {other[0].storage.name!r}"
        return UnknownModelError(
            "the folder is of another layout",
            [
                Problem(
                    "--from",
                    f"no model of layout {wanted.layout!r}",
                    found=found,
                    hint="already converted? leave --from out",
                )
            ],
        )
    strangers = [
        c
        for c in _candidates(
            names, layouts, list(tables.families.values()), tables, Wanted(strip_prefix=wanted.strip_prefix)
        )
        if not c.missing
    ]
    best = max(candidates, key=lambda c: (len(c.filled) - len(c.missing), c.rank))  # not the one that asks for least
    problems = [Problem(n, "missing", hint="") for n in best.missing[:_SHOWN]]
    if strangers and wanted.task is None:
        s = max(strangers, key=lambda c: c.rank)
        hint = f"--family {s.table.family} reads it as one"
        told = wanted.family or config.get("model_type")
        problems = [
            Problem(
                "config.json model_type",
                f"says {told!r}, the weights are another family's",
                found=f"names of {s.table.family}, task {s.task.name}",
                hint=hint,
            )
        ]
    elif len(best.missing) > _SHOWN:
        problems.append(Problem("", f"and {len(best.missing) - _SHOWN} more"))
    return UnknownModelError(
        f"no model fits the names; nearest is {best.table.family}, task {best.task.name}", problems
    )


def _anatomy(c: _Candidate, evidence: tuple[str, ...]) -> Anatomy:
    ignore = c.table.layouts[c.storage.name].ignore
    ignored = {
        c.names.clean[c.names.prefix + n]: why for n, why in ignore.items() if c.names.prefix + n in c.names.clean
    }
    explained = {n for s in c.slots.values() for n in s.spellings}
    unknown = [s for n, s in c.names.clean.items() if n not in explained and s not in ignored]
    stored = {k: c.names.clean[n] for k, n in c.filled.items() if k in c.slots}
    twins = {
        k: tuple(c.names.clean[n] for n in s.spellings if n in c.names.clean and n != c.filled[k])
        for k, s in c.slots.items()
        if k in c.filled
    }
    return Anatomy(
        layout=c.storage.name,
        table=c.table,
        task=c.task,
        dialect=c.dialect,
        layers=c.layers,
        prefix=c.names.prefix,
        slots=c.slots,
        stored=stored,
        twins={k: names for k, names in twins.items() if names},
        has_pooler=c.has_pooler,
        ignored={**c.names.ignored, **ignored},
        unexplained=tuple(sorted([*unknown, *c.names.foreign])),
        removed=c.names.removed,
        evidence=evidence,
    )
