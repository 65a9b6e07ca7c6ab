"""Facts, config, pooler, head style and labels of two checkpoints, field by field."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from portkit.config import class_names
from portkit.difference.result import FieldDiff
from portkit.pooler import inspect_pooler
from portkit.proofs.loading import loaded_otherwise

if TYPE_CHECKING:
    from collections.abc import Iterator

    from portkit.checkpoint import Checkpoint

_DERIVED = ("position_offset", "max_position_embeddings", "has_pooler")  # said by first_position, usable_length, pooler
_NOTES = {  # facts that may differ between two places of one function, and why
    "family": "names differ; the facts below decide the function",
    "head_style": "one tanh layer, in the backbone or in the head",
    "position_scheme": "the same positions for right-padded input without the pad id inside",
    "first_position": "position rows are compared from here on",
}
_COMMON = ("model_type", "architectures", "id2label", "label2id", "num_labels", "dtype", "torch_dtype", "portkit")


def compare_fields(a: Checkpoint, b: Checkpoint) -> tuple[FieldDiff, ...]:
    """Everything besides tensors that two checkpoints say of themselves. Reads the poolers' numbers."""
    return (*_facts(a, b), _labels(a, b), _pooler(a, b), *_config(a, b), *_loading(a, b), *_unread(a, b))


def _facts(a: Checkpoint, b: Checkpoint) -> Iterator[FieldDiff]:
    ours, theirs = (
        {
            **{k: v for k, v in asdict(c.facts).items() if k not in _DERIVED},
            "first_position": c.facts.first_position,
            "usable_length": c.facts.usable_length,
        }
        for c in (a, b)
    )
    masked = any("masked_lm" in c.anatomy.task.groups for c in (a, b))
    for name in ours:
        if masked or not name.startswith("lm_head_"):
            note = _NOTES.get(name, "") if _both(name, ours[name], theirs[name]) else ""
            yield _field(f"facts.{name}", ours[name], theirs[name], note, _defaulted(name, a, b))


def _both(name: str, a: object, b: object) -> bool:
    """A head style says where something is only where both sides have it."""
    return name != "head_style" or (a is not None and b is not None)


def _labels(a: Checkpoint, b: Checkpoint) -> FieldDiff:
    ours, theirs = (list(class_names(c.config, c.facts.num_labels or 0)) for c in (a, b))
    return _field("labels", ours, theirs)


def _pooler(a: Checkpoint, b: Checkpoint) -> FieldDiff:
    ours, theirs = (_pooler_words(c) for c in (a, b))
    return _field("pooler", ours, theirs, "its tensors are compared below" if ours != theirs else "")


def _pooler_words(checkpoint: Checkpoint) -> str:
    pooler = inspect_pooler(checkpoint)
    if not pooler.present:
        return "absent"
    return f"in the {pooler.home}, {'looks trained' if pooler.trained else 'looks never trained'}"


def _config(a: Checkpoint, b: Checkpoint) -> Iterator[FieldDiff]:
    """Logical fields that are no facts: for training, or said by the tensors."""
    said = asdict(a.facts).keys() | set(_DERIVED)
    for name in dict.fromkeys((*a.config.values, *b.config.values)):
        uses = {c.anatomy.table.config[name].use for c in (a, b) if name in c.anatomy.table.config}
        if name not in said and uses:
            note = "for training only" if uses == {"training"} else "its tensors are compared below"
            values = (a.config.values.get(name), b.config.values.get(name))
            yield _field(f"config.{name}", *values, note, _defaulted(name, a, b))


def _loading(a: Checkpoint, b: Checkpoint) -> Iterator[FieldDiff]:
    """Where a framework's own loader would make another model of a side's files than its tensors are."""
    ours, theirs = loaded_otherwise(a), loaded_otherwise(b)
    for part in dict.fromkeys((*ours, *theirs)):
        note = "its own loader makes another model of it than the tensors compared here"
        yield _field(f"loading.{part}", ours.get(part), theirs.get(part), note)


def _unread(a: Checkpoint, b: Checkpoint) -> Iterator[FieldDiff]:
    """Fields of two raw configs of one layout that no table names and that differ."""
    if a.anatomy.layout != b.anatomy.layout:
        return
    layout = a.anatomy.layout
    tables = [c.anatomy.table for c in (a, b)]
    read = {f.name_in(layout) for t in tables for f in t.config.values()} | {*_COMMON}
    read |= {name for t in tables for name in t.layouts[layout].require}
    ours, theirs = a.folder.config, b.folder.config
    for name in sorted((ours.keys() | theirs.keys()) - read):
        if ours.get(name) != theirs.get(name):
            yield _field(f"config.{name}", ours.get(name), theirs.get(name), "portkit does not read this field")


def _defaulted(name: str, a: Checkpoint, b: Checkpoint) -> str:
    sides = [side for side, c in (("A", a), ("B", b)) if name in c.config.defaulted]
    return f"the default of the family's class in {' and '.join(sides)}" if sides else ""


def _field(name: str, a: Any, b: Any, note: str = "", more: str = "") -> FieldDiff:  # noqa: ANN401 - JSON values
    if a == b:
        return FieldDiff(name, a, b, "equal", more)
    return FieldDiff(name, a, b, "noted" if note else "differs", "; ".join(n for n in (note, more) if n))
