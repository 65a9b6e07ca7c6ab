"""Plan a conversion from names, shapes and policies alone: every source and target tensor is accounted for.

Nothing is written here, and no tensor is moved; a few are read to judge ties and the pooler.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from portkit.accounting import Kept, Used, account
from portkit.casts import cast_notes
from portkit.checkpoint import Checkpoint, facts_of
from portkit.common import POSITIONS
from portkit.config import TIES
from portkit.errors import Problem, RefusedError, UsageError
from portkit.fold import absorbed
from portkit.layouts.base import Model
from portkit.layouts.registry import layout_of
from portkit.memory import changed_files
from portkit.moves import Move, Options, make_moves
from portkit.pooler import Pooler, target_pooler, was_synthesised
from portkit.table.load import suggestion
from portkit.table.slots import expand, sizes_of
from portkit.target import Change, carried_config, target_config, task_with_head

if TYPE_CHECKING:
    from collections.abc import Mapping

    from portkit.config import Config
    from portkit.facts import Facts
    from portkit.table.schema import Dialect, Table, Task
    from portkit.table.slots import Slot

_WITHOUT = "--task backbone converts what is below the head, and keeps the head in the residue"


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
    restored: tuple[str, ...]  # from an earlier residue, under their stored names, back in their own layout
    dropped: Mapping[str, str]  # stored name -> reason
    pooler: Pooler
    sizes: Mapping[str, int]
    changes: Mapping[str, Change]  # facts that the target's framework computes otherwise
    original: Mapping[str, Any]  # config fields of the first checkpoint on the way, also those that the target fixes
    warnings: tuple[str, ...]


def make_plan(source: Checkpoint, options: Options) -> Plan:
    """Decide everything that a conversion will do.

    Raises UsageError for options that make no sense together, RefusedError listing whatever would be lost or invented.
    """
    table, task, style_notes = _restyled(source, options)
    task, head_notes = task_with_head(source, table, task, options.to)
    _require_class(table, task, options.to)
    dialect = _dialect(table, task, options)
    pooler = target_pooler(source, table, task, options.to, dialect, options.pooler)
    config, changes, fixed, notes = target_config(source, table, task, dialect, options)
    slots = _slots(source, table, task, dialect, options.to, has_pooler=pooler.present)
    sizes = _sizes(table, slots, config)
    form = _form(options)
    moves = sorted(make_moves(source, slots, config, sizes, options, pooler), key=lambda m: m.target.name)
    config = _said_tied(config, slots, moves)
    from_file = [m for m in moves if m.how not in ("zeros", "restored")]
    notes += cast_notes((source.folder.container.tensors[m.source].spec.dtype, m.target.dtype) for m in from_file)
    used = [Used(m.source, m.logical, m.cut[0], m.absorbs) for m in from_file]
    needless = _needless(source, pooler, moves)
    accounts = account(
        source, used, slots, options.drop, keep=options.residue, needless=needless, no_pooler=pooler.evidence
    )
    growth = slots[POSITIONS].growth(config.values) if POSITIONS in slots else (0, 0)
    facts = _facts(table, task, config, options.to, pooler)
    model = Model(
        table,
        task,
        dialect,
        config,
        facts,
        dtype=_widest(moves),
        growth=growth,
        carried=carried_config(source, options.to),
        parameters=sum(m.target.count for m in moves if m.slot.row.group in table.prefixed),
    )
    carried, restored = _earlier(source, options.to, moves, accounts.kept)
    return Plan(
        source=source,
        layout=options.to,
        model=model,
        form=form,
        moves=tuple(moves),
        tied=accounts.tied,
        kept=accounts.kept,
        carried=carried,
        restored=restored,
        dropped=accounts.dropped,
        pooler=pooler,
        sizes=sizes,
        changes=changes,
        original=_original(config, changes, fixed),
        warnings=(*style_notes, *head_notes, *notes, *_made_notes(moves, growth[0]), *_stale_notes(source, moves)),
    )


def _slots(
    source: Checkpoint, table: Table, task: Task, dialect: Dialect | None, layout: str, *, has_pooler: bool
) -> dict[str, Slot]:
    """The places of the target, by logical name."""
    return expand(
        table,
        source.tables.storages[layout],
        task,
        layers=source.anatomy.layers,
        prefix="" if task.bare else table.layouts[layout].prefix,
        pooler=has_pooler,
        dialect=dialect,
    )


def _facts(table: Table, task: Task, config: Config, layout: str, pooler: Pooler) -> Facts:
    """What the target's framework computes; a pooler that lies in the head is none of the backbone's."""
    in_backbone = pooler.present and pooler.home == "backbone"
    return facts_of(table, task, config.values, layout, has_pooler=in_backbone)


def _sizes(table: Table, slots: Mapping[str, Slot], config: Config) -> dict[str, int]:
    """The size of every letter that a tensor of the target has."""
    letters = {letter for s in slots.values() for letter in s.row.signature.letters()}
    return sizes_of({k: v for k, v in table.axes.items() if k in letters}, config.values)


def _original(config: Config, changes: Mapping[str, Change], fixed: Mapping[str, Any]) -> dict[str, Any]:
    """What the target's framework fixes, also for a head that only the residue holds, is as the source had it."""
    values = {**config.values, **fixed, **{name: change.source for name, change in changes.items()}}
    return {name: value for name, value in values.items() if name in config.values}


def _needless(source: Checkpoint, pooler: Pooler, moves: list[Move]) -> dict[str, str]:
    """What an earlier conversion made and this one undoes: a folded table whose parts are back, zeros for a pooler."""
    folds = [m.logical for m in moves if m.how == "restored" and source.stored(m.logical)]
    undone = dict.fromkeys(folds, "folded out of tables that came back from the residue")
    if pooler.present or not was_synthesised(source):
        return undone
    why = "zeros that stood for a pooler where there was none"
    return {**undone, "pooler.kernel": why, "pooler.bias": why}


def _said_tied(config: Config, slots: Mapping[str, Slot], moves: list[Move]) -> Config:
    """The config of a target says of what could be tied whether it is: every version of its framework reads that."""
    if not any(slot.place.tied for slot in slots.values()):
        return config
    own = any(move.slot.place.tied for move in moves)
    return replace(config, values={**config.values, TIES: not own})


def _made_notes(moves: list[Move], added: int) -> tuple[str, ...]:
    """What the target holds that no file said: zeros where another layout has no place, sums with more digits."""
    notes = [
        f"{m.logical} is made of zeros: the source has it folded into another table" for m in moves
        if m.how == "zeros" and not m.logical.startswith("pooler.")
    ]  # fmt: skip
    notes += [
        f"{m.logical}: its first {m.grow[0]} rows, which no token reads, are made of zeros" for m in moves
        if m.logical == POSITIONS and m.grow[0] > max(added, 0) and not m.front
    ]  # fmt: skip
    halves = {m.target.dtype for m in moves} & {"F16", "BF16"}
    notes += [
        f"{m.logical} is written in float32: {m.absorbs} is folded into it, and 16 bits would round the sum"
        for m in moves
        if m.absorbs and halves and m.target.dtype == "F32"
    ]
    return tuple(notes)


def _stale_notes(source: Checkpoint, moves: list[Move]) -> tuple[str, ...]:
    """A head or pooler that comes back belongs to the weights beside which it was kept. Reads them, if there is one.

    Folded tables are no matter: they come back only where they still are what is stored.
    """
    folded = {n for pair in absorbed(source.anatomy.slots.values()).items() for n in pair}
    back = sorted(m.logical for m in moves if m.how == "restored" and m.logical not in folded)
    changed = changed_files(source.folder) if back else ()
    if not changed:
        return ()
    names = back[0] if len(back) == 1 else f"{back[0]} and {len(set(back)) - 1} more"
    what = f"{names} come from the residue, but {', '.join(changed)} changed since it was kept"
    return (f"{what}: they may not belong to these weights",)


def _require_class(table: Table, task: Task, layout: str) -> None:
    """Raise RefusedError where the target's framework has no model of the task."""
    if layout not in task.classes:
        known = ", ".join(t.classes[layout] for t in table.tasks.values() if layout in t.classes) or "another family"
        problem = Problem(f"--to {layout}", f"has no class for {task.name}", known, hint=_WITHOUT)
        raise RefusedError("the target cannot hold the model", [problem])


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
    """The dialect that is asked for. Raises UsageError for an unknown one, RefusedError for one without the task."""
    if options.dialect is None:
        return None
    dialect = table.dialects.get(options.dialect)
    if dialect is None or dialect.layout != options.to:
        known = [n for n, d in table.dialects.items() if d.layout == options.to]
        what = f"{options.to} has no dialect {options.dialect!r}"
        raise UsageError("unknown dialect", [Problem("--dialect", what, hint=suggestion(options.dialect, known))])
    if dialect.tasks and task.name not in dialect.tasks:
        where, expected = f"--dialect {dialect.name}", ", ".join(dialect.tasks)
        problem = Problem(where, f"has no {task.name}", expected, dialect.about)
        raise RefusedError("the dialect cannot hold the model", [problem])
    return dialect


def _form(options: Options) -> str:
    forms = layout_of(options.to).formats
    if options.form is not None and options.form not in forms:
        what = f"{options.to} cannot be written as {options.form!r}"
        raise UsageError("unknown format", [Problem("--format", what, hint=suggestion(options.form, forms))])
    return options.form or forms[0]


def _widest(moves: list[Move]) -> str:
    order = ("F64", "F32", "BF16", "F16")
    return min((m.target.dtype for m in moves), key=order.index)


def _earlier(
    source: Checkpoint, layout: str, moves: list[Move], kept: tuple[Kept, ...]
) -> tuple[tuple[Kept, ...], tuple[str, ...]]:
    """What an earlier conversion kept: back in the model, back under its stored name, or carried on."""
    if source.folder.residue is None:
        return (), ()
    said = source.folder.record.get("kept", [])
    known = {str(k.get("name")): k for k in said if isinstance(k, dict)} if isinstance(said, list) else {}
    foreign = source.spare.foreign
    restored = tuple(n for n, home in foreign.items() if home == layout)
    back = {m.source for m in moves if m.how == "restored"} | {m.front for m in moves} | set(restored)
    again = {k.name for k in kept}
    carried = []
    for name in source.folder.residue.tensors:
        if name not in back and name not in again:
            entry = known.get(name, {})
            reason = str(entry.get("reason", "kept by an earlier conversion"))
            logical = "" if name in foreign else name
            carried.append(Kept(name, reason, layout=str(entry.get("layout", "")), logical=logical))
    return tuple(carried), restored
