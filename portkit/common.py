"""Two checkpoints in the same words: which tensors both hold, brought to the same rows and the same foldings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from portkit.checkpoint import Checkpoint, reserved_positions
from portkit.fold import absorbed, fold
from portkit.tensors import LazyTensor

if TYPE_CHECKING:
    from collections.abc import Mapping

POSITIONS = "embeddings.position.table"


@dataclass(frozen=True)
class Common:
    """`pairs`: logical name -> the tensor on either side, of equal numbers where the models are equal.

    `only_first` and `only_second` are the logical names that just one side holds, `notes` what was done to make tensors
    comparable: rows left out, tables folded.
    """

    pairs: Mapping[str, tuple[LazyTensor, LazyTensor]]
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]
    notes: tuple[str, ...]


def in_common(first: Checkpoint, second: Checkpoint) -> Common:
    """Pair the tensors of two checkpoints by logical name. Nothing is read.

    Where one layout stores a table folded into another, the other side is folded too. Position rows that only one side
    stores, since its family or layout reserves more in front of those that tokens read, are left out.
    """
    ours, folds = _folded(first, second)
    theirs, more = _folded(second, first)
    names = [n for n in ours if n in theirs]
    pairs = {n: (ours[n], theirs[n]) for n in names}
    rows = _row_notes(first, second) if POSITIONS in pairs else ()
    if rows:
        pairs[POSITIONS] = (_usable(first, second, ours[POSITIONS]), _usable(second, first, theirs[POSITIONS]))
    return Common(
        pairs,
        tuple(n for n in ours if n not in theirs),
        tuple(n for n in theirs if n not in ours),
        (*folds, *more, *rows),
    )


def _folded(side: Checkpoint, other: Checkpoint) -> tuple[dict[str, LazyTensor], tuple[str, ...]]:
    """A side's tensors, with those tables folded that the other side has folded."""
    tensors, notes = side.logical(), []
    for table, row in absorbed(other.anatomy.slots.values()).items():
        if table in tensors and row in tensors:
            tensors[table] = _fold_of(tensors[table], tensors.pop(row))
            notes.append(f"{row} is compared folded into {table}")
    return tensors, tuple(notes)


def _fold_of(table: LazyTensor, row: LazyTensor) -> LazyTensor:
    return replace(table, read=lambda: fold(table.read(), row.read()[0]), at=None)


def _front(side: Checkpoint) -> tuple[int, int]:
    """Rows before the first that a token reads, and how many of them the layout stores."""
    reserved = reserved_positions(side.anatomy.table, side.config.values)
    return reserved, reserved - max(-side.growth(POSITIONS)[0], 0)


def _usable(side: Checkpoint, other: Checkpoint, tensor: LazyTensor) -> LazyTensor:
    """The table without the reserved rows that not both sides store."""
    (reserved, stored), (_, theirs) = _front(side), _front(other)
    skip = reserved - min(stored, theirs)
    spec = replace(tensor.spec, shape=(tensor.spec.shape[0] - skip, *tensor.spec.shape[1:]))
    return LazyTensor(spec, lambda: tensor.read()[skip:])


def _row_notes(first: Checkpoint, second: Checkpoint) -> tuple[str, ...]:
    a, b = _front(first), _front(second)
    if a == b:
        return ()
    return (f"{POSITIONS} is compared from the first row on that a token reads",)
