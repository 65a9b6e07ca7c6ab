"""Two checkpoints in the same words: which tensors both hold, brought to the same rows and the same foldings."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from portkit.checkpoint import Checkpoint, reserved_positions
from portkit.fold import absorbed, fold, folded_dtype
from portkit.tensors import LazyTensor

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

POSITIONS = "embeddings.position.table"


def in_order(names: Iterable[str]) -> list[str]:
    """Names in the order in which a forward pass meets them: tables name a layer's rows one after the other."""
    unique = list(dict.fromkeys(names))
    layers = {n: int(match[0]) for n in unique if (match := re.search(r"(?<=\.)\d{1,9}(?=\.)", n))}
    first = next((i for i, n in enumerate(unique) if n in layers), len(unique))
    place = {n: (1, layers[n]) if n in layers else (2 if i > first else 0, 0) for i, n in enumerate(unique)}
    return sorted(unique, key=place.__getitem__)


@dataclass(frozen=True)
class Common:
    """`pairs`: logical name -> the tensor on either side, of equal numbers where the models are equal.

    `alone` are the logical names that just one side holds, and which side. `rest` is what was left out to make tensors
    comparable, and why it needs no counterpart: rows that one side does not store, tables that it has folded.
    """

    pairs: Mapping[str, tuple[LazyTensor, LazyTensor]]
    alone: Mapping[str, str]
    rest: Mapping[str, str]


def in_common(first: Checkpoint, second: Checkpoint, sides: tuple[str, str] = ("source", "target")) -> Common:
    """Pair the tensors of two checkpoints by logical name. Nothing is read.

    Where one layout stores a table folded into another, the other side is folded too. Position rows that only one side
    stores, since its family or layout reserves more in front of those that tokens read, are left out. `sides` are what
    the reasons call the two.
    """
    ours, folds = _folded(first, second)
    theirs, more = _folded(second, first)
    pairs = {n: (ours[n], theirs[n]) for n in ours if n in theirs}
    rest = {**folds, **more}
    if POSITIONS in pairs and _front(first) != _front(second):
        a, b = _skipped(first, second), _skipped(second, first)
        pairs[POSITIONS] = (_without(ours[POSITIONS], a), _without(theirs[POSITIONS], b))
        reserved = "reserved: no token reads them"
        rest |= {f"{POSITIONS} rows 0:{n} ({side})": reserved for n, side in zip((a, b), sides, strict=True) if n}
    alone = {n: sides[0] for n in ours if n not in theirs} | {n: sides[1] for n in theirs if n not in ours}
    return Common(pairs, alone, rest)


def _folded(side: Checkpoint, other: Checkpoint) -> tuple[dict[str, LazyTensor], dict[str, str]]:
    """A side's tensors, with those tables folded that the other side has folded."""
    tensors, rest = side.logical(), {}
    for table, row in absorbed(other.anatomy.slots.values()).items():
        if table in tensors and row in tensors:
            tensors[table] = _fold_of(tensors[table], tensors.pop(row))
            rest[row] = f"compared folded into {table}, as the other side stores it"
    return tensors, rest


def _fold_of(table: LazyTensor, row: LazyTensor) -> LazyTensor:
    spec = replace(table.spec, dtype=folded_dtype(table.spec.dtype))
    return LazyTensor(spec, lambda: fold(table.read(), row.read()[0]))


def _front(side: Checkpoint) -> tuple[int, int]:
    """Rows before the first that a token reads, and how many of them the layout stores."""
    reserved = reserved_positions(side.anatomy.table, side.config.values)
    missing = max(-side.growth(POSITIONS)[0], 0) if POSITIONS in side.anatomy.slots else 0
    return reserved, reserved - missing


def _skipped(side: Checkpoint, other: Checkpoint) -> int:
    """How many reserved rows of a side are not stored by both."""
    (reserved, stored), (_, theirs) = _front(side), _front(other)
    return reserved - min(stored, theirs)


def _without(table: LazyTensor, rows: int) -> LazyTensor:
    spec = replace(table.spec, shape=(table.spec.shape[0] - rows, *table.spec.shape[1:]))
    return LazyTensor(spec, lambda: table.read()[rows:])
