"""Tensors as they are known before they are read: a name, a shape, a dtype, and a way to read them.

Dtypes are named as safetensors names them (`F32`, `BF16`, …): the one vocabulary for all formats.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from portkit.dense import dense, pieces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Array = NDArray[np.generic]

NUMPY_DTYPES: dict[str, np.dtype[np.generic]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16),
    "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "I16": np.dtype("<i2"),
    "I8": np.dtype("i1"),
    "U64": np.dtype("<u8"),
    "U32": np.dtype("<u4"),
    "U16": np.dtype("<u2"),
    "U8": np.dtype("u1"),
    "BOOL": np.dtype("?"),
}
FLOATS = ("F64", "F32", "F16", "BF16")  # of a weight; anything else is quantised or not a weight
FLOAT_NAMES = {NUMPY_DTYPES[name].name: name for name in FLOATS}  # as users and configs write it -> as files do
_NAMES = {dtype: name for name, dtype in NUMPY_DTYPES.items()}


def dtype_name(dtype: np.dtype[np.generic]) -> str:
    """The safetensors name of a numpy dtype; KeyError when it has none."""
    return _NAMES[dtype.newbyteorder("<") if dtype.byteorder == ">" else dtype]


@dataclass(frozen=True)
class TensorSpec:
    """What is known of a tensor without reading it."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def count(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Size in bytes when stored densely."""
        return self.count * NUMPY_DTYPES[self.dtype].itemsize

    def __str__(self) -> str:
        return f"{self.shape} {self.dtype}"


@dataclass(frozen=True)
class LazyTensor:
    """A spec and the function that reads it. `read()` returns a C-contiguous array of that shape and dtype.

    `at` is its byte range in its file, where the format has one, `file` the name of that, for messages. `read_pieces`
    gives what `pieces` does with less work than `read`. Other numbers are a new LazyTensor, never a `replace` of these:
    all the fields speak of the same.
    """

    spec: TensorSpec
    read: Callable[[], Array]
    at: tuple[int, int] | None = None
    file: str = ""
    read_pieces: Callable[[], Iterator[Array]] | None = None

    @property
    def name(self) -> str:
        """The name under which the file stores it."""
        return self.spec.name

    def renamed(self, name: str) -> LazyTensor:
        """The same tensor under another name."""
        return replace(self, spec=replace(self.spec, name=name))

    def pieces(self) -> Iterator[Array]:
        """Its rows in C-contiguous arrays of about a megabyte, in order: one cut for all of a shape and dtype."""
        return self.read_pieces() if self.read_pieces else pieces(self.read())


def in_memory(name: str, array: Array) -> LazyTensor:
    """A LazyTensor over an array that is already there."""
    stored = np.ascontiguousarray(array).reshape(array.shape)  # numpy makes one dimension of none
    return LazyTensor(TensorSpec(name, stored.shape, dtype_name(stored.dtype)), lambda: stored)


def turned(spec: TensorSpec, view: Callable[[], Array]) -> LazyTensor:
    """A LazyTensor over a function that returns a view of what it read, with any strides."""
    return LazyTensor(spec, lambda: dense(view()), read_pieces=lambda: pieces(view()))


def transposed(tensor: LazyTensor) -> LazyTensor:
    """A matrix [in, out] as [out, in]: a decoder's kernel as the rows of a table, and the other way round."""
    return turned(replace(tensor.spec, shape=tensor.spec.shape[::-1]), lambda: tensor.read().T)


def equal_bits(a: Array, b: Array) -> bool:
    """Whether two arrays have one shape, one dtype and the same bits: NaN equals itself, -0 does not equal 0."""
    return (a.shape, a.dtype) == (b.shape, b.dtype) and _all_equal(pieces(a), pieces(b))


def same_bits(a: LazyTensor, b: LazyTensor) -> bool:
    """Whether two tensors have one shape, one dtype and the same bits; reads on until they differ."""
    return (a.spec.shape, a.spec.dtype) == (b.spec.shape, b.spec.dtype) and _all_equal(a.pieces(), b.pieces())


def bits(array: Array) -> Array:
    """The same memory as unsigned integers of the same width, one for each number."""
    return array.view(f"u{array.itemsize}")


def _all_equal(ours: Iterator[Array], theirs: Iterator[Array]) -> bool:
    return all(np.array_equal(bits(a), bits(b)) for a, b in zip(ours, theirs, strict=True))
