"""Rows of one table added into another: how KerasHub's RoBERTa keeps its one token type, inside the positions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from portkit.tensors import NUMPY_DTYPES, dtype_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from portkit.table.slots import Slot
    from portkit.tensors import Array


def absorbed(slots: Iterable[Slot]) -> dict[str, str]:
    """Logical table -> the table whose first row is added to each of its rows, in one layout."""
    return {s.place.absorbed_by: s.logical for s in slots if s.place.absorbed_by}


def fold(table: Array, row: Array) -> Array:
    """`table` [rows, hidden] with `row` [hidden] added to each row, in the dtype that `folded_dtype` gives.

    A row of zeros changes nothing, not even the sign of a zero.
    """
    wide = NUMPY_DTYPES[folded_dtype(dtype_name(table.dtype))]
    parts = table.astype(wide, copy=False), row.astype(wide)
    folded: Array = np.add(*parts) if row.any() else parts[0]
    return folded


def folded_dtype(dtype: str) -> str:
    """The dtype of a sum of two rows in another: a sum of 16-bit floats needs float32.

    Rounded to 16 bits it would be off by some thousand times the rounding noise of a forward pass in float32.
    """
    return "F64" if dtype == "F64" else "F32"


def unfolded(slots: Mapping[str, Slot]) -> set[str]:
    """The logical tables that a layout does not store because another one has absorbed them."""
    return set(absorbed(slots.values()).values())
