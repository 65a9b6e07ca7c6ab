"""Walk over two arrays of one shape in blocks that stay in the cache, so that no check takes memory of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from portkit.tensors import NUMPY_DTYPES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from portkit.tensors import Array, LazyTensor

BLOCK = 1 << 16  # elements
CHUNK = 1 << 20  # bytes


def blocks(a: Array, b: Array) -> Iterator[tuple[int, Array, Array]]:
    """Consecutive rows of both arrays, with the index of the first. Shapes must be equal; strides may be any."""
    if a.ndim == 0:
        a, b = a.reshape(1), b.reshape(1)
    rows = max(1, BLOCK * a.shape[0] // max(a.size, 1))
    for start in range(0, a.shape[0] if a.size else 0, rows):
        yield start, a[start : start + rows], b[start : start + rows]


def bits(array: Array) -> Array:
    """The same memory as unsigned integers."""
    return array.view(f"u{array.dtype.itemsize}")


def equal_bits(a: Array, b: Array) -> bool:
    """Whether shape, dtype and every bit are the same; NaN equals itself, and 0 is not -0."""
    if (a.shape, a.dtype) != (b.shape, b.dtype):
        return False
    return all(bool((bits(x) == bits(y)).all()) for _, x, y in blocks(a, b))


def equal_bytes(a: LazyTensor, b: LazyTensor) -> bool:
    """Whether two stored tensors have one shape, one dtype and the same bytes, read in chunks where possible."""
    if (a.spec.shape, a.spec.dtype) != (b.spec.shape, b.spec.dtype):
        return False
    one, other = a.part, b.part
    if not (one and other and a.at and b.at):
        return equal_bits(a.read(), b.read())
    size = a.at[1] - a.at[0]
    spans = ((start, min(CHUNK, size - start)) for start in range(0, size, CHUNK))
    return size == b.at[1] - b.at[0] and all(one(*span) == other(*span) for span in spans)


def equal_values(a: Array, b: Array) -> bool:
    """Whether every number is the same, whatever the dtypes of floats."""
    return a.shape == b.shape and all(
        bool((x.astype(np.float64) == y.astype(np.float64)).all()) for _, x, y in blocks(a, b)
    )


def narrower(a: str, b: str) -> str:
    """Of two dtypes, the one that takes fewer bytes; `b` where both take the same."""
    return a if NUMPY_DTYPES[a].itemsize < NUMPY_DTYPES[b].itemsize else b
