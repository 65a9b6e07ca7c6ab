"""What the target of a conversion computes: its task, its config, and the facts that its framework changes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from portkit.checkpoint import reserved_positions
from portkit.config import TIES, Config, config_in, spelled
from portkit.errors import Problem, RefusedError
from portkit.labels import target_names
from portkit.memory import overruled

if TYPE_CHECKING:
    from collections.abc import Mapping

    from portkit.checkpoint import Checkpoint
    from portkit.moves import Options
    from portkit.table.schema import Dialect, Table, Task


@dataclass(frozen=True)
class Change:
    """A fact that decides the function, as the source has it and as the target's framework has it."""

    source: object
    target: object


def task_with_head(source: Checkpoint, table: Table, task: Task, layout: str) -> tuple[Task, tuple[str, ...]]:
    """The task of the target: one with a head from the residue, where an earlier conversion kept a whole one there."""
    wanted = table.tasks.get(source.spare.task)
    less = wanted is not None and {*task.groups} < {*wanted.groups, "pooler"} and task is not wanted
    if wanted is None or not less or layout not in wanted.classes:
        return task, ()
    places = {f"{row.name}.{part}": p for row in table.rows_of(wanted.groups) for part, p in row.places[layout].items()}
    own = [n for n, p in places.items() if "{" not in n and p.name and not p.tied and n not in source.anatomy.slots]
    if not own or not all(n in source.spare.whole for n in own):
        return task, ()
    return wanted, (f"the head of {wanted.name} comes back from the residue",)


def target_config(
    source: Checkpoint, table: Table, task: Task, dialect: Dialect | None, options: Options
) -> tuple[Config, dict[str, Change], dict[str, Any], tuple[str, ...]]:
    """The target's config, the facts that change, those that its framework fixes as they were, and what is to be said.

    Facts that the source's own framework fixes are those of the original again, where the weights are still the ones
    that were recorded with them. Raises RefusedError for a value that the target cannot express, and with
    `options.strict` for every change.
    """
    original = overruled(source.folder, source.anatomy.table, source.anatomy.layout)
    wanted = {**source.config.values, **_labels_again(source, task), **original}
    wanted |= _rows(source, table, wanted)
    values = config_in(table, options.to, wanted)
    fields = [f for f in table.config.values() if f.use == "function" and (not f.head or f.head in task.groups)]
    fields = [f for f in fields if f.name != TIES]  # no function: numbers that differ are moved or refused as tensors
    changes = {f.name: Change(wanted[f.name], values[f.name]) for f in fields if wanted[f.name] != values[f.name]}
    changes |= _smaller(table, options.to, wanted)
    for name, value in (dialect.fixed if dialect else {}).items():
        if values[name] != value:
            changes[name] = Change(values[name], value)
    whose = f"dialect {dialect.name}" if dialect and dialect.fixed else options.to
    texts = {n: f"{whose} always has {n} {c.target}, the source has {c.source}" for n, c in changes.items()}
    problems = _inexpressible(source, table, task, values, options.to)
    hint = "without --strict this is a warning, and the size of the difference is measured"
    problems += [Problem(f"--strict {n}", text, hint=hint) for n, text in texts.items() if options.strict]
    if problems:
        raise RefusedError("the target computes another function", problems)
    names = target_names(source, options.labels, values.get("num_labels"))
    config = replace(source.config, values=values, labels=names)
    fixed = {n: wanted[n] for n in table.layouts[options.to].fixed if n in table.config and n in wanted}
    notes = (*_original_notes(source, task, original), *(f"{t}: another function" for t in texts.values()))
    return config, changes, fixed, notes


def _smaller(table: Table, layout: str, wanted: Mapping[str, Any]) -> dict[str, Change]:
    """Sizes that the layout fixes below the source's: it has no token type but the first."""
    fixed = table.layouts[layout].fixed
    sizes = [f.name for f in table.config.values() if f.use == "size" and f.name in fixed]
    return {n: Change(wanted[n], fixed[n]) for n in sizes if wanted[n] > fixed[n]}


def carried_config(source: Checkpoint, layout: str) -> Mapping[str, Any]:
    """The config.json that this layout had before, here or in an earlier conversion."""
    if source.anatomy.layout == layout:
        return source.folder.config
    configs = source.folder.record.get("configs", {})
    found = configs.get(layout, {}) if isinstance(configs, dict) else {}
    return found if isinstance(found, dict) else {}


def _labels_again(source: Checkpoint, task: Task) -> dict[str, Any]:
    """The number of labels of a head that comes back from the residue, where it is a matter of the head."""
    letters = [letter for letter, field in source.anatomy.table.axes.items() if field == "num_labels"]
    rows = source.anatomy.table.rows_of(task.groups)
    heads = [f"{r.name}.kernel" for r in rows if set(r.signature.outputs) & set(letters)]
    kernels = [source.spare.whole[n] for n in heads if n in source.spare.whole]
    return {"num_labels": kernels[0].spec.shape[-1]} if kernels and source.anatomy.task is not task else {}


def _rows(source: Checkpoint, table: Table, values: Mapping[str, Any]) -> dict[str, Any]:
    """Another family reserves other rows of the position table; the usable ones stay."""
    name = "max_position_embeddings"
    if table.family == source.anatomy.table.family or name not in values:
        return {}
    return {name: values[name] - reserved_positions(source.anatomy.table, values) + reserved_positions(table, values)}


def _inexpressible(
    source: Checkpoint, table: Table, task: Task, values: Mapping[str, Any], layout: str
) -> list[Problem]:
    problems = []
    for name, known in table.values.items():
        entry, said = table.config[name], str(values[name])
        elsewhere = entry.head and entry.head not in task.groups
        if name in table.layouts[layout].fixed or not entry.name_in(layout) or elsewhere:
            continue
        if said not in known:
            if layout != source.anatomy.layout:
                problems.append(Problem(f"config.json {name}", f"{layout} cannot compute {said!r}", ", ".join(known)))
        elif spelled(table, name, layout, said) is None:
            problems.append(Problem(f"config.json {name}", f"{layout} has no word for {said!r}"))
    return problems


def _original_notes(source: Checkpoint, task: Task, original: Mapping[str, Any]) -> tuple[str, ...]:
    heads = {name: field.head for name, field in source.anatomy.table.config.items()}
    there = {n: v for n, v in original.items() if not heads[n] or heads[n] in task.groups}
    changed = [f"{n} {v}" for n, v in there.items() if source.config[n] != v]
    if not changed:
        return ()
    return (f"{source.anatomy.layout} fixes what the original had otherwise; the record restores {', '.join(changed)}",)
