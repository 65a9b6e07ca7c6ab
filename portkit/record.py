"""The record: `portkit.json` in the output folder says where everything came from, what was lost, what was proved."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import portkit
from portkit.axes import spell
from portkit.checks import buffer_notes
from portkit.config import TIES
from portkit.pooler import inspect_pooler
from portkit.ties import contradictions, one_bias

if TYPE_CHECKING:
    from portkit.accounting import Kept
    from portkit.checkpoint import Checkpoint
    from portkit.layouts.files import OutputFile
    from portkit.moves import Move
    from portkit.plan import Plan
    from portkit.proofs.pair import Verification

VERSION = 1  # of the record's own form
_LISTED, _SHOWN = 1000, 12  # how many names the record and a warning have


def describe(checkpoint: Checkpoint) -> dict[str, Any]:
    """What a checkpoint is: layout, format, family, task, pooler, head, facts, and what was seen on the way."""
    anatomy, facts = checkpoint.anatomy, checkpoint.facts
    return {
        "path": checkpoint.folder.path.absolute().name,
        "weights": checkpoint.folder.weights.name,
        "layout": anatomy.layout,
        "format": checkpoint.folder.container.format,
        "family": anatomy.table.family,
        "task": anatomy.task.name,
        "class": anatomy.task.classes.get(anatomy.layout, ""),
        "dialect": anatomy.dialect.name if anatomy.dialect else None,
        "evidence": list(anatomy.evidence),
        "removed": list(anatomy.removed),
        "pooler": asdict(inspect_pooler(checkpoint)),
        "head": {
            "task": anatomy.task.name,
            "style": facts.head_style,
            "activation": facts.pooler_act if facts.head_style else None,
            "labels": facts.num_labels,
            "pooler": anatomy.task.pooler,
        },
        "facts": {
            **asdict(facts),
            "first_position": facts.first_position,
            "usable_length": facts.usable_length,
        },
        "defaulted": list(checkpoint.config.defaulted),
        "tensors": len(checkpoint.folder.container.tensors),
        "unexplained": list(anatomy.unexplained),
        "warnings": list(warnings_of(checkpoint)),
    }


def warnings_of(checkpoint: Checkpoint) -> tuple[str, ...]:
    """What a reader should know before trusting the checkpoint."""
    config, facts = checkpoint.config, checkpoint.facts
    found = [*checkpoint.folder.notes, *config.notes]
    functional = [n for n in config.defaulted if checkpoint.anatomy.table.config[n].use == "function"]
    if not any(slot.place.tied for slot in checkpoint.anatomy.slots.values()):
        functional = [n for n in functional if n != TIES]  # it decides nothing
    found += [
        f"{n} is not in the config; the default of the family's class, {config[n]!r}, is assumed" for n in functional
    ]
    if facts.num_labels and config.labels is not None and len(config.labels) != facts.num_labels:
        counts = f"the config names {len(config.labels)} labels, the classifier has {facts.num_labels}"
        found.append(f"{counts}: the names are not used")
    found += [*contradictions(checkpoint), *one_bias(checkpoint)]
    found += buffer_notes(checkpoint.folder.container, checkpoint.anatomy)
    return (*found, *(f"{name}: {why}" for name, why in checkpoint.dead.items()))


def behind_note(names: tuple[str, ...]) -> tuple[str, ...]:
    """The warning that some files of the source were not copied; nothing where there are none."""
    return (f"not copied: {', '.join(_bounded(names, _SHOWN))}",) if names else ()


def _bounded(names: tuple[str, ...], most: int) -> list[str]:
    return [*names[:most], *([f"… and {len(names) - most} more"] if len(names) > most else [])]


def describe_move(plan: Plan, step: Move) -> dict[str, Any]:
    """One tensor of the target: its names, and how dtype, axes and rows change on the way."""
    from_file = step.how not in ("zeros", "restored")
    stored = plan.source.folder.container.tensors[step.source].spec if from_file else step.target
    axes = plan.source.axes(step.logical) if from_file else step.slot.axes
    return {
        "logical": step.logical,
        "source": step.source,
        "target": step.target.name,
        "how": step.how,
        "shape": list(step.target.shape),
        "dtype": step.target.dtype,
        "source_dtype": stored.dtype,
        "axes": spell(step.slot.axes),
        "source_axes": spell(axes),
        "rows_cut": list(step.cut),
        "rows_added": list(step.grow),
        "rows_in_front": step.front,
        "absorbs": step.absorbs,
    }


def make_record(
    plan: Plan,
    verdict: Verification | None,
    files: tuple[OutputFile, ...],
    behind: tuple[str, ...],
    warnings: tuple[str, ...],
) -> dict[str, Any]:
    """The record of one conversion.

    `verdict` holds the proofs, `files` all of the output but the record itself, `behind` what the source's folder
    has besides and is in no output.
    """
    source = plan.source
    configs = source.folder.record.get("configs")
    return {
        "portkit": portkit.__version__,
        "record": VERSION,
        "source": describe(source),
        "target": _target(plan),
        "tensors": [describe_move(plan, m) for m in plan.moves],
        "tied": dict(plan.tied),
        "kept": [_kept(k, source.anatomy.layout) for k in (*plan.kept, *plan.carried)],
        "restored": list(plan.restored),
        "changes": {n: asdict(c) for n, c in plan.changes.items()},
        "original": {n: v for n, v in plan.original.items() if n in plan.model.table.config},
        "labels": list(plan.model.config.labels or ()),
        "head": source.anatomy.whole.task.name if source.anatomy.whole else source.spare.task,
        "dropped": dict(plan.dropped),
        "files": [asdict(f) for f in files],
        "left_behind": _bounded(behind, _LISTED),
        "warnings": list(warnings),
        "proofs": verdict.proofs() if verdict else {},
        "failed": [name for name, result in verdict.results.items() if result == "fail"] if verdict else [],
        "configs": {
            **(configs if isinstance(configs, dict) else {}),
            source.anatomy.layout: dict(source.folder.config),
        },
    }


def _target(plan: Plan) -> dict[str, Any]:
    model = plan.model
    return {
        "layout": plan.layout,
        "format": plan.form,
        "family": model.table.family,
        "task": model.task.name,
        "class": model.task.classes[plan.layout],
        "dialect": model.dialect.name if model.dialect else None,
        "head_style": model.facts.head_style,
        "pooler": asdict(plan.pooler),
        "facts": asdict(model.facts),
    }


def _kept(kept: Kept, layout: str) -> dict[str, Any]:
    """One tensor of the residue; `layout` is the source's."""
    return {
        "name": kept.name,
        "source": kept.source,
        "layout": kept.layout or layout,
        "logical": bool(kept.logical),
        "reason": kept.reason,
    }
