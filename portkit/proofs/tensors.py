"""The tensor proof: undo both layouts, and compare every logical tensor of two checkpoints bit for bit."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from portkit.accounting import backbone_words, changes_function
from portkit.casts import cast
from portkit.common import in_common
from portkit.tensors import bits, equal_bits, same_bits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from portkit.checkpoint import Checkpoint
    from portkit.plan import Plan
    from portkit.tensors import Array, LazyTensor

_SHOWN = 5  # names in one line
_POOLER = ("pooler.kernel", "pooler.bias")
_POOLER_UNREAD = ("optional", "unread")


@dataclass(frozen=True)
class TensorVerdict:
    """How many logical tensors were compared, of how many, and which differ. Each mapping is from name to reason."""

    compared: int
    differing: Mapping[str, str]
    missing: Mapping[str, str]
    """Needed, and on one side only: each fails the proof."""
    rest: Mapping[str, str]
    """What has no counterpart and needs none: a pooler that no head reads, reserved rows, buffers."""
    casts: Mapping[str, int]
    """How many tensors are equal only after a cast, by cast: "F32 -> F16"."""

    @property
    def expected(self) -> int:
        """How many had to be compared."""
        return self.compared + len(self.missing)

    @property
    def equal(self) -> bool:
        """Everything was compared, something was there, and nothing differs."""
        return self.compared == self.expected > 0 and not self.differing

    def __str__(self) -> str:
        looked = f"compared {self.compared} of {self.expected} tensors"
        if self.equal:
            casts = [f"{count} of them after the cast {cast}" for cast, count in self.casts.items()]
            return f"{looked}: equal, {', '.join(casts) if casts else 'bit for bit'}"
        wrong = {"differ": self.differing, "are on one side only": self.missing}
        parts = [f"{len(names)} {what} ({_few(names)})" for what, names in wrong.items() if names]
        return f"{looked}: {', '.join(parts) or 'nothing to compare'}"

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return {
            "equal": self.equal,
            "compared": self.compared,
            "expected": self.expected,
            "differing": dict(self.differing),
            "missing": dict(self.missing),
            "rest": dict(self.rest),
            "casts": dict(self.casts),
        }


def prove_tensors(source: Checkpoint, target: Checkpoint, plan: Plan | None = None) -> TensorVerdict:
    """Compare two checkpoints of any layouts, in logical words; one pair of tensors is in memory at a time.

    The target must have every tensor and every row of the source, in the source's numbers or those rounded to its own
    dtype. Rows and poolers that no token or head reads may be on one side only; they are named. With the `plan` that
    made the target, all that was moved must be there, and what was made must be zeros. Raises what reading raises.
    """
    made = {m.logical for m in plan.moves if m.how == "zeros"} if plan else set()
    common = in_common(source, target)
    pairs = {n: pair for n, pair in common.pairs.items() if n not in made}
    differing, casts = {}, Counter[str]()
    rest = {**_unread(source, "source"), **_unread(target, "target"), **common.rest}
    for name, (mine, other) in pairs.items():
        rows = _rows(mine, other)
        rest |= _rows_left(other, rows)
        how = _difference(mine, other, rows)
        if how:
            differing[name] = how
        elif mine.spec.dtype != other.spec.dtype:
            casts[f"{mine.spec.dtype} -> {other.spec.dtype}"] += 1
    differing |= {n: "made as zeros, and is not zero" for n in made if _has_numbers(target, n)}
    alone, missing = _one_sided(source, target, {n: s for n, s in common.alone.items() if n not in made}, plan)
    rest |= alone | dict.fromkeys(sorted(made), "zeros, made because the target has a place for it")
    return TensorVerdict(len(pairs), differing, missing | _strangers(source, target, plan), rest, dict(casts))


def _rows(mine: LazyTensor, other: LazyTensor) -> int | None:
    """How many rows of the target's table are compared: those that the source has; None for what is no table.

    A target with fewer is compared as it is: the shapes then differ, as they must.
    """
    return min(mine.spec.shape[0], other.spec.shape[0]) if mine.name.endswith(".table") else None


def _rows_left(other: LazyTensor, rows: int | None) -> dict[str, str]:
    """Rows that only the target has, and why no counterpart is needed."""
    if rows is None or rows == other.spec.shape[0]:
        return {}
    return {f"{other.name} rows {rows}:{other.spec.shape[0]} (target)": "the source has no such rows"}


def _difference(mine: LazyTensor, other: LazyTensor, rows: int | None) -> str:
    """How two tensors differ, in words; nothing where they are equal after the cast to the other's dtype."""
    if same_bits(mine, other):
        return ""
    source, target = mine.read(), other.read()[:rows]
    if source.shape != target.shape:
        return f"shape {source.shape} in the source, {target.shape} in the target"
    rounded = cast(source, other.spec.dtype)
    if equal_bits(rounded, target):
        return ""
    if source.ndim == 2 and source.shape[0] == source.shape[1] and equal_bits(rounded.T, target):
        return "transposed"
    if equal_bits(source, cast(target, mine.spec.dtype)):
        return f"equal only after the cast {other.spec.dtype} -> {mine.spec.dtype}: the target has more digits"
    return _distance(rounded, target)


def _distance(source: Array, target: Array) -> str:
    with np.errstate(invalid="ignore", over="ignore"):
        apart = np.abs(source.astype(np.float64) - target.astype(np.float64))
    count = int(np.count_nonzero(bits(source) != bits(target)))
    return f"{count} of {source.size} numbers differ, by {apart.max(initial=0.0):.3g} at most"


def _has_numbers(checkpoint: Checkpoint, name: str) -> bool:
    return bool(checkpoint.logical()[name].read().any())


def _one_sided(
    source: Checkpoint, target: Checkpoint, alone: Mapping[str, str], plan: Plan | None
) -> tuple[dict[str, str], dict[str, str]]:
    """Tensors that one side lacks: those that need no counterpart, and those that do, with the reason."""
    moved = {m.logical for m in plan.moves} if plan else set()
    unread = {source.anatomy.task.pooler, target.anatomy.task.pooler} <= {*_POOLER_UNREAD}
    excused, missing = {}, {}
    for name, side in sorted(alone.items()):
        where = f"only in the {side}"
        holder = source if side == "source" else target
        if name not in holder.anatomy.stored and name not in holder.borrowed:
            excused[name] = f"{where}, where it is tied to {holder.anatomy.slots[name].place.tied}"
        elif name in _POOLER and unread and name not in moved:
            excused[name] = f"{where}; no head reads it, only the pooled output depends on it"
        else:
            missing[name] = where
    return excused, missing


def _strangers(source: Checkpoint, target: Checkpoint, plan: Plan | None) -> dict[str, str]:
    """Stored tensors inside the encoder that no row explains. A plan has accounted for the source's."""
    sides = {"target": target} if plan else {"source": source, "target": target}
    return {
        f"{name} ({side})": "inside the encoder, and no row of the table explains it"
        for side, checkpoint in sides.items()
        for name in checkpoint.anatomy.unexplained
        if changes_function(checkpoint, name, backbone_words(checkpoint))
    }


def _unread(checkpoint: Checkpoint, side: str) -> dict[str, str]:
    """Stored tensors that are no part of the model."""
    anatomy = checkpoint.anatomy
    inner = backbone_words(checkpoint)
    heads = [n for n in anatomy.unexplained if not changes_function(checkpoint, n, inner)]
    reasons = {**anatomy.ignored, **checkpoint.dead, **dict.fromkeys(heads, "no row of the table explains it")}
    return {f"{name} ({side})": reason for name, reason in reasons.items()}


def _few(names: Mapping[str, str]) -> str:
    first = list(names)[:_SHOWN]
    return ", ".join(first) + (", …" if len(names) > _SHOWN else "")
