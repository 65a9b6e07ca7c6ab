"""A sketch: a few sums over all values of an output, small enough to keep and yet touched by every value.

With x the N real values in row-major order (row, token, channel; padding left out) and s_k random signs,

    sketch_k = sum(s_k * x) / sqrt(N)

Two sketches of one output differ by numbers whose mean square is, in expectation over the signs, the mean square
of x - y over all N values. So the rms of 16 differences estimates the rms over the whole output, and is judged by the
same limit: it is more than twice too large once in ten million, less than half once in a thousand (chi-square with
16 degrees of freedom). After Alon, Matias and Szegedy, "The space complexity of approximating the frequency
moments" (1996).

The signs of number k of an output called `name` are the bits of SHAKE-256 over the text `name/k`, most significant
bit first, 1 for plus: any language can make them again.
"""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from portkit.runtimes.outputs import FloatArray

COUNT = 16
_BLOCK = 1 << 20  # values at a time, a multiple of 8


def sketch_of(name: str, array: FloatArray, valid: NDArray[np.bool_], count: int = COUNT) -> FloatArray:
    """`count` sums, float64, of an output [B, S, *] at the real tokens that `valid` [B, S] marks, or of [B, *]."""
    total = real_count(array, valid)
    signs = [hashlib.shake_256(f"{name}/{k}".encode()).digest(-(-total // 8)) for k in range(count)]
    sums, start = np.zeros(count), 0
    for block in _blocks(array, valid):
        bytes_of = slice(start // 8, start // 8 + -(-block.size // 8))
        for k, bits in enumerate(signs):
            plus = np.unpackbits(np.frombuffer(bits[bytes_of], np.uint8), count=block.size)
            sums[k] += 2 * (block @ plus.astype(np.float64)) - block.sum()
        start += block.size
    return sums / math.sqrt(max(total, 1))


def real_count(array: FloatArray, valid: NDArray[np.bool_]) -> int:
    """How many values of an output belong to real tokens."""
    return int(valid.sum()) * array.shape[2] if array.ndim == 3 else array.size


def _blocks(array: FloatArray, valid: NDArray[np.bool_]) -> Iterator[FloatArray]:
    """The real values as float64, in order, `_BLOCK` at a time; the last block is shorter."""
    rows = (row[keep] if array.ndim == 3 else row for row, keep in zip(array, valid, strict=True))
    rest = np.empty(0)
    for row in rows:
        rest = np.concatenate([rest, row.reshape(-1).astype(np.float64)])
        while rest.size >= _BLOCK:
            yield rest[:_BLOCK]
            rest = rest[_BLOCK:]
    if rest.size:
        yield rest
