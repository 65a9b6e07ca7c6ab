"""Walk over two arrays of one shape in blocks that stay in the cache, so that no check takes memory of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from portkit.tensors import NUMPY_DTYPES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from portkit.tensors import Array

BLOCK = 1 << 16  # elements


def blocks(a: Array, b: Array) -> Iterator[tuple[int, Array, Array]]:
    """Consecutive rows of both arrays, with the index of the first. Shapes must be equal; strides may be any."""
    if a.ndim == 0:
        a, b = a.reshape(1), b.reshape(1)
    rows = max(1, BLOCK * a.shape[0] // max(a.size, 1))
    for start in range(0, a.shape[0] if a.size else 0, rows):
        yield start, a[start : start + rows], b[start : start + rows]


def equal_values(a: Array, b: Array) -> bool:
    """Whether every number is the same, whatever the dtypes of floats."""
    return a.shape == b.shape and all(
        bool((x.astype(np.float64) == y.astype(np.float64)).all()) for _, x, y in blocks(a, b)
    )


def narrower(a: str, b: str) -> str:
    """Of two dtypes, the one that takes fewer bytes; `b` where both take the same."""
    return a if NUMPY_DTYPES[a].itemsize < NUMPY_DTYPES[b].itemsize else b
