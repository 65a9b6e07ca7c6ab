"""Plan a conversion from names, shapes and policies alone: every source and target tensor is accounted for.

Nothing is written here, and no tensor is moved; a few are read to judge ties and the pooler.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from portkit.accounting import UNEXPLAINED, Kept, account
from portkit.casts import cast_notes
from portkit.checkpoint import Checkpoint, facts_of, reserved_positions
from portkit.config import Config, spelled
from portkit.errors import Problem, RefusedError, UsageError
from portkit.layouts.base import Model
from portkit.layouts.registry import layout_of
from portkit.moves import POSITIONS, Move, Options, make_moves
from portkit.pooler import Pooler, target_pooler
from portkit.table.load import suggestion
from portkit.table.slots import expand, sizes_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from portkit.table.schema import Dialect, Table, Task


@dataclass(frozen=True)
class Plan:
    """All that a conversion will do. Every stored name of the source is in exactly one of the fields."""

    source: Checkpoint
    layout: str
    model: Model
    form: str
    moves: tuple[Move, ...]
    tied: Mapping[str, str]  # stored name -> the name whose numbers it shares
    kept: tuple[Kept, ...]
    carried: tuple[Kept, ...]  # from an earlier residue, kept on
    restored: tuple[str, ...]  # from an earlier residue, back in the layout that they came from
    dropped: Mapping[str, str]  # stored name -> reason
    pooler: Pooler
    sizes: Mapping[str, int]
    warnings: tuple[str, ...]


def make_plan(source: Checkpoint, options: Options) -> Plan:
    """Decide everything that a conversion will do.

    Raises UsageError for options that make no sense together, RefusedError listing whatever would be lost or invented.
    """
    table, task, style_notes = _restyled(source, options)
    dialect = _dialect(table, task, options)
    pooler = target_pooler(source, table, task, options.to, dialect, options.pooler)
    config = _target_config(source, table, task)
    notes = (*style_notes, *_function_changes(source, table, config, dialect, options))
    slots = expand(
        table,
        source.tables.storages[options.to],
        task,
        layers=source.anatomy.layers,
        prefix="" if task.bare else table.layouts[options.to].prefix,
        pooler=pooler.present,
        dialect=dialect,
    )
    sizes = sizes_of({k: v for k, v in table.axes.items() if k in source.sizes}, config.values)
    form = _form(options)
    moves = make_moves(source, slots, config, sizes, options, pooler)
    moves = sorted(moves, key=lambda m: m.target.name)
    notes += cast_notes(
        (source.folder.container.tensors[m.source].spec.dtype, m.target.dtype) for m in moves if m.source
    )
    used = [(m.source, m.logical, m.cut) for m in moves]
    accounts = account(source, used, slots, options.drop, keep=options.residue, no_pooler=pooler.evidence)
    facts = facts_of(table, task, config.values, has_pooler=pooler.present and pooler.home == "backbone")
    growth = slots[POSITIONS].growth(config.values) if POSITIONS in slots else (0, 0)
    model = Model(table, task, dialect, config, facts, _widest(moves), growth, _carried(source, options.to))
    return Plan(
        source,
        options.to,
        model,
        form,
        tuple(moves),
        accounts.tied,
        accounts.kept,
        *_earlier(source, options.to),
        accounts.dropped,
        pooler,
        sizes,
        notes,
    )


def _restyled(source: Checkpoint, options: Options) -> tuple[Table, Task, tuple[str, ...]]:
    """The table and task to write with: another family's where the head is to have another style."""
    anatomy = source.anatomy
    if options.head_style in ("keep", anatomy.task.head_style):
        return anatomy.table, anatomy.task, ()
    where, style = f"--head-style {options.head_style}", options.head_style
    family = anatomy.table.restyle.get(style)
    task = source.tables.families[family].tasks.get(anatomy.task.name) if family else None
    if anatomy.task.head_style is None or family is None or task is None or task.head_style != style:
        why = f"a {anatomy.task.name} head has no {style} style in {family or anatomy.table.family}"
        raise RefusedError(
            "the head cannot be rewritten exactly",
            [Problem(where, why, hint="exact for sequence classification with a tanh head")],
        )
    table = source.tables.families[family]
    note = f"head style {anatomy.task.head_style} -> {style}: written as {family}"
    return table, task, (f"{note}; equal for right-padded input without the pad id inside",)


def _dialect(table: Table, task: Task, options: Options) -> Dialect | None:
    if options.to not in task.classes:
        raise RefusedError(
            "the target cannot hold the model",
            [Problem(f"--to {options.to}", f"has no class for {task.name}")],
        )
    if options.dialect is None:
        return None
    dialect = table.dialects.get(options.dialect)
    known = [n for n, d in table.dialects.items() if d.layout == options.to]
    if dialect is None or dialect.layout != options.to:
        raise UsageError(
            "unknown dialect",
            [
                Problem(
                    "--dialect",
                    f"{options.to} has no dialect {options.dialect!r}",
                    hint=suggestion(options.dialect, known) if known else "",
                )
            ],
        )
    if dialect.tasks and task.name not in dialect.tasks:
        raise RefusedError(
            "the dialect cannot hold the model",
            [
                Problem(
                    f"--dialect {dialect.name}",
                    f"has no {task.name}",
                    ", ".join(dialect.tasks),
                    dialect.about,
                )
            ],
        )
    return dialect


def _target_config(source: Checkpoint, table: Table, task: Task) -> Config:
    """The same config in the target family's words: only the reserved position rows differ."""
    values = dict(source.config.values)
    rows = (
        values["max_position_embeddings"] - reserved_positions(source.anatomy.table, values)
        if "max_position_embeddings" in values
        else 0
    )
    if table.family != source.anatomy.table.family and rows:
        values["max_position_embeddings"] = rows + reserved_positions(table, values)
    return replace(source.config, values=values)


def _function_changes(
    source: Checkpoint, table: Table, config: Config, dialect: Dialect | None, options: Options
) -> tuple[str, ...]:
    """Facts that the target fixes otherwise, or cannot express at all."""
    notes, problems = [], []
    for name, values in table.values.items():
        said = str(config[name])
        if said not in values:
            if options.to != source.anatomy.layout:
                problems.append(
                    Problem(f"config.json {name}", f"{options.to} cannot compute {said!r}", ", ".join(values))
                )
        elif spelled(table, name, options.to, said) is None:
            problems.append(Problem(f"config.json {name}", f"{options.to} has no word for {said!r}"))
    for name, value in (dialect.fixed if dialect else {}).items():
        if config[name] != value:
            text = f"{options.dialect} always computes {name} {value}, the source has {config[name]}: another function"
            notes.append(text)
            problems += (
                [Problem(f"--dialect {options.dialect}", text, hint="without --strict this is a warning")]
                if options.strict
                else []
            )
    if problems:
        raise RefusedError("the target computes another function", problems)
    return tuple(notes)


def _form(options: Options) -> str:
    forms = layout_of(options.to).formats
    if options.form is not None and options.form not in forms:
        raise UsageError(
            "unknown format",
            [
                Problem(
                    "--format",
                    f"{options.to} cannot be written as {options.form!r}",
                    hint=suggestion(options.form, forms),
                )
            ],
        )
    return options.form or forms[0]


def _widest(moves: list[Move]) -> str:
    order = ("F64", "F32", "BF16", "F16")
    return min((m.target.dtype for m in moves), key=order.index)


def _carried(source: Checkpoint, layout: str) -> Mapping[str, object]:
    """The config.json that this layout had before, here or in an earlier conversion."""
    if source.anatomy.layout == layout:
        return source.folder.config
    configs = source.folder.record.get("configs", {})
    found = configs.get(layout, {}) if isinstance(configs, dict) else {}
    return found if isinstance(found, dict) else {}


def _earlier(source: Checkpoint, layout: str) -> tuple[tuple[Kept, ...], tuple[str, ...]]:
    """What an earlier conversion kept: carried on, or restored where the target is the layout that it came from."""
    if source.folder.residue is None:
        return (), ()
    said = source.folder.record.get("kept", [])
    known = {str(k.get("name")): k for k in said if isinstance(k, dict)} if isinstance(said, list) else {}
    homes = {n: str(known.get(n, {}).get("layout", "")) for n in source.folder.residue.tensors}
    # What a row explains, such as a pooler, is carried on: written back, it would contradict the model's own config.
    whole = {n for n in homes if known.get(n, {}).get("reason") == UNEXPLAINED}
    restored = tuple(n for n, home in homes.items() if home == layout and n in whole)
    reasons = {n: str(known.get(n, {}).get("reason", "kept by an earlier conversion")) for n in homes}
    carried = tuple(Kept(n, reasons[n], layout=home) for n, home in homes.items() if n not in restored)
    return carried, restored
