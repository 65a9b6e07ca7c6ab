"""Rows of one table added into another: how KerasHub's RoBERTa keeps its one token type, inside the positions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from portkit.table.slots import Slot
    from portkit.tensors import Array


def absorbed(slots: Iterable[Slot]) -> dict[str, str]:
    """Logical table -> the table whose first row is added to each of its rows, in one layout."""
    return {s.place.absorbed_by: s.logical for s in slots if s.place.absorbed_by}


def fold(table: Array, row: Array) -> Array:
    """`table` [rows, hidden] with `row` [hidden] added to each row, in the table's dtype.

    16-bit floats are added in float32 and rounded once. A row of zeros changes nothing, not even the sign of a zero.
    """
    if not row.any():
        return table
    wide = np.float64 if table.dtype.itemsize == 8 else np.float32
    folded: Array = np.add(table.astype(wide), row.astype(wide)).astype(table.dtype)
    return folded


def unfolded(slots: Mapping[str, Slot]) -> set[str]:
    """The logical tables that a layout does not store because another one has absorbed them."""
    return set(absorbed(slots.values()).values())
