"""Say what a checkpoint is: layout, family, task, prefix. Names decide first, the config second."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from portkit.candidates import Candidate, Wanted, candidates_for
from portkit.errors import AmbiguousModelError, Problem, UnknownModelError
from portkit.names import check_form
from portkit.table.load import suggestion

if TYPE_CHECKING:
    from collections.abc import Mapping

    from portkit.table.schema import Dialect, Table, Tables, Task
    from portkit.table.slots import Slot

_SHOWN = 12  # how many names a message lists


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
    whole: Anatomy | None = None  # of all that is in the file, where less was asked for


def identify(names: tuple[str, ...], config: Mapping[str, Any], form: str, tables: Tables, wanted: Wanted) -> Anatomy:
    """Find the one layout, family and task that explain the stored names.

    `form` is the format of the file. Raises UnknownModelError: nothing fits, two things fit, or the config names
    another model than the names show.
    """
    layouts = [n for n in tables.layouts if form in tables.storages[n].formats]
    for layout in layouts:
        check_form(names, tables.storages[layout].wrappers.undo)
    families, evidence = _families(config, layouts, tables, wanted)
    candidates, refused = candidates_for(names, layouts, families, tables, wanted)
    if not candidates:
        raise _no_such_task(families, wanted)
    fitting = [c for c in candidates if not c.missing and wanted.layout in (None, c.storage.name)]
    if not fitting:
        ambiguous = (e for e in refused if isinstance(e, AmbiguousModelError))
        raise next(ambiguous, None) or _nothing_fits(names, config, candidates, layouts, tables, wanted)
    best = max(c.rank for c in fitting)
    finalists = [c for c in fitting if c.rank == best]
    chosen, why = _decide(finalists, config, wanted.task, told=bool(evidence))
    _check_architecture(chosen, candidates, config, wanted)
    anatomy = _anatomy(chosen, (*evidence, *why))
    if wanted.task is None or not anatomy.unexplained:
        return anatomy
    return replace(anatomy, whole=_whole(names, config, chosen, tables, replace(wanted, task=None)))


def _whole(
    names: tuple[str, ...], config: Mapping[str, Any], chosen: Candidate, tables: Tables, wanted: Wanted
) -> Anatomy | None:
    """The anatomy of everything, where the file has more of a head than was asked for."""
    every, _ = candidates_for(names, [chosen.storage.name], [chosen.table], tables, wanted)
    fitting = [c for c in every if not c.missing and len(c.filled) > len(chosen.filled) and not c.task.bare]
    best = max((c.rank for c in fitting), default=None)
    finalists = [c for c in fitting if c.rank == best]
    return _anatomy(_decide(finalists, config, None, told=True)[0], ()) if finalists else None


def _families(
    config: Mapping[str, Any], layouts: list[str], tables: Tables, wanted: Wanted
) -> tuple[list[Table], tuple[str, ...]]:
    known = tables.families
    if wanted.family is not None:
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
    classes = _classes(config)
    named = [t for t in known.values() if any(c in classes for k in t.tasks.values() for c in k.classes.values())]
    if named:
        return named, (f"family {named[0].family}: architectures in config.json",)
    return list(known.values()), ()


def _classes(config: Mapping[str, Any]) -> set[str]:
    """The classes that config.json names; it is a stranger's, so they may be anything."""
    named = config.get("architectures")
    return {c for c in (named if isinstance(named, list) else [named]) if isinstance(c, str)}


def _decide(
    finalists: list[Candidate], config: Mapping[str, Any], task: str | None, *, told: bool
) -> tuple[Candidate, tuple[str, ...]]:
    """Choose among candidates that explain the names equally well; `told` says that the family is known already."""
    classes = _classes(config)
    by_class = [c for c in finalists if classes & set(c.task.classes.values())]
    finalists = by_class or finalists
    why: tuple[str, ...] = ()
    if len({c.table.family for c in finalists}) > 1:
        finalists, why = _by_looks(finalists, config)
    elif not told:
        why = (f"family {finalists[0].table.family}: the only one that the names fit",)
    others = sorted({c.task.name for c in finalists[1:]} - {finalists[0].task.name})
    reason = "the only one that the names fit"
    if task:
        reason = "given"
    elif by_class:
        reason = "named by architectures in config.json, and the names fit"
    elif others:
        reason = f"the names would fit {' and '.join(others)} too; --task decides"
    return finalists[0], (*why, f"task {finalists[0].task.name}: {reason}")


def _by_looks(finalists: list[Candidate], config: Mapping[str, Any]) -> tuple[list[Candidate], tuple[str, ...]]:
    """Tell families with the same names apart: by the prefix, else by what their configs usually say."""
    prefixed = [c for c in finalists if c.names.prefix and c.names.prefix == c.table.layouts[c.storage.name].prefix]
    prefixed.sort(key=lambda c: c.names.prefix != f"{c.table.family}.")  # the one that gave the others its prefix
    named = prefixed or [c for c in finalists if _looks_like(c.table, config)]
    families = list(dict.fromkeys(c.table.family for c in named))
    if not families or (len(families) > 1 and not prefixed):
        names = ", ".join(sorted({c.table.family for c in finalists}))
        hint = "say which with --family, or put model_type into config.json"
        raise UnknownModelError(
            "the family cannot be told",
            [Problem("config.json", "no model_type, and the names fit several families", found=names, hint=hint)],
        )
    if prefixed:
        also = f", as {' and '.join(sorted(families[1:]))} have; --family decides" if families[1:] else ""
        how = f"names start with {prefixed[0].names.prefix!r}{also}"
    else:
        usual = ", ".join(f"{k} {v}" for k, v in _said(named[0].table, config).items())
        how = f"no model_type in config.json, but {usual} is usual for it"
    return [c for c in named if c.table.family == families[0]], (f"family {families[0]}: {how}",)


def _looks_like(table: Table, config: Mapping[str, Any]) -> bool:
    said = _said(table, config)
    return bool(said) and table.looks_like == {**table.looks_like, **said}


def _said(table: Table, config: Mapping[str, Any]) -> dict[str, Any]:
    return {k: config[k] for k in table.looks_like if config.get(k) is not None}


def _check_architecture(
    chosen: Candidate, candidates: list[Candidate], config: Mapping[str, Any], wanted: Wanted
) -> None:
    """Refuse a head that config.json names and the file lacks, unless the user said so.

    A bare model under a head's name is a common folder of transformers; a KerasHub task without its head is none.
    """
    classes = _classes(config)
    common = chosen.task.bare and not chosen.storage.always_prefixed
    if wanted.task or common or not classes or classes & set(chosen.task.classes.values()):
        return
    named = [
        c
        for c in candidates
        if classes & set(c.task.classes.values()) and c.storage is chosen.storage and not c.dialect
    ]
    if named:
        where = f"architectures {', '.join(sorted(classes))}"
        hint = f"the names fit {chosen.task.name}: --task {chosen.task.name} reads it so"
        absent = [Problem(where, f"tensor {n!r} is not in the file", hint=hint) for n in named[0].missing[:_SHOWN]]
        raise UnknownModelError("config.json and weights name different models", absent)


def _no_such_task(families: list[Table], wanted: Wanted) -> UnknownModelError:
    known = dict.fromkeys(name for table in families for name in table.tasks)
    names = ", ".join(sorted(table.family for table in families))
    problem = Problem("--task", f"{names} has no task {wanted.task!r}", hint=suggestion(str(wanted.task), known))
    return UnknownModelError("unknown task", [problem])


def _nothing_fits(
    names: tuple[str, ...],
    config: Mapping[str, Any],
    candidates: list[Candidate],
    layouts: list[str],
    tables: Tables,
    wanted: Wanted,
) -> UnknownModelError:
    other = [c for c in candidates if not c.missing]
    if other:
        found = f"these are the names of layout {other[0].storage.name!r}"
        what, hint = f"no model of layout {wanted.layout!r}", "already converted? leave --from out"
        problem = Problem("--from", what, found=found, hint=hint)
        return UnknownModelError("the folder is of another layout", [problem])
    anything = Wanted(strip_prefix=wanted.strip_prefix)
    every, _ = candidates_for(names, layouts, list(tables.families.values()), tables, anything)
    strangers = [c for c in every if not c.missing]
    best = max(candidates, key=lambda c: (len(c.filled), c.rank))  # not the one that asks for least
    problems = _missing(best)
    if strangers and wanted.task is None:
        told = wanted.family or config.get("model_type")
        problems = [_other_family(max(strangers, key=lambda c: c.rank), told)]
    return UnknownModelError(
        f"no model fits the names; nearest is {best.table.family}, task {best.task.name}", problems
    )


def _other_family(fitting: Candidate, told: object) -> Problem:
    family = fitting.table.family
    found, hint = f"names of {family}, task {fitting.task.name}", f"--family {family} reads it as one"
    return Problem("config.json model_type", f"says {told!r}, the weights are another family's", found=found, hint=hint)


def _missing(best: Candidate) -> list[Problem]:
    """What is missing, and what is there that no row explains: the same tensors under other names?"""
    more = len(best.missing) - _SHOWN
    there = _anatomy(best, ()).unexplained
    found = ", ".join((*there[:3], *(["…"] if there[3:] else [])))
    hint = (
        "the same under other names? --mapping FILE tells them" if there else "was it saved or downloaded to the end?"
    )
    return [
        *(Problem(n, "missing") for n in best.missing[:_SHOWN]),
        *([Problem(f"… and {more} more", "missing")] if more > 0 else []),
        Problem("the rest", f"{len(there)} tensors that no row explains", found=found, hint=hint),
    ]


def _anatomy(c: Candidate, evidence: tuple[str, ...]) -> Anatomy:
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
