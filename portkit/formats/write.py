"""The streaming core of the writers: places are known first, then arrays come one at a time and go there."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from portkit.errors import PortkitError, Problem
from portkit.tensors import NUMPY_DTYPES, Array, TensorSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

BLOCK_BYTES = 8 << 20  # an array that is not dense is made so in pieces of this size, never as a whole


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A new file that takes `path`'s place when the block ends well; else `path` is as it was before.

    Raises PortkitError when the system cannot write it.
    """
    part = path.with_name(f"{path.name}.part")
    try:
        with part.open("wb") as file:
            yield file
        part.replace(path)
    except OSError as error:
        raise PortkitError(f"cannot write {path.name}", [Problem(str(path), str(error))]) from error
    finally:
        with suppress(OSError):
            part.unlink()


def write_at_offsets(
    file: BinaryIO,
    start: int,
    specs: Sequence[TensorSpec],
    arrays: Iterable[Array],
    offsets: Sequence[int] | None = None,
) -> None:
    """Write the arrays, which come in the order of `specs`, each at `start` plus its offset.

    Without `offsets` they lie one right after the other. No more than one array is held at a time: each is
    let go before the next is asked for. Raises PortkitError when an array is not what its spec says, or when
    there are fewer or more arrays than specs.
    """
    pending = iter(arrays)
    at = start
    for index, spec in enumerate(specs):
        array = next(pending, None)
        _check(spec, array)
        file.seek(at if offsets is None else start + offsets[index])
        if array is not None:
            _write_dense(file, array)
        at += spec.nbytes
        del array
    if next(pending, None) is not None:
        raise mismatch("", f"more arrays than the {len(specs)} that were announced")


def check_unique(specs: Sequence[TensorSpec]) -> None:
    """Raise PortkitError when two specs have one name."""
    seen: set[str] = set()
    for spec in specs:
        if spec.name in seen:
            raise mismatch(spec.name, "is announced twice")
        seen.add(spec.name)


def mismatch(where: str, what: str, *, expected: str = "", found: str = "") -> PortkitError:
    """The error of a caller that breaks the writers' contract: a fault in the program, not in a file."""
    return PortkitError("cannot write the tensors", [Problem(where, what, expected, found)])


def _check(spec: TensorSpec, array: Array | None) -> None:
    if array is None:
        raise mismatch(spec.name, "no array came for this tensor", expected=str(spec))
    if array.shape != spec.shape or array.dtype.newbyteorder("<") != NUMPY_DTYPES[spec.dtype]:
        found = f"{array.shape} {array.dtype}"
        raise mismatch(spec.name, "the array is not what was announced", expected=str(spec), found=found)


def _write_dense(file: BinaryIO, array: Array) -> None:
    """Write row-major, little-endian: every format here wants that."""
    if array.ndim == 0 or array.flags.c_contiguous:
        _write_block(file, array)
    elif array.size:
        rows = max(1, BLOCK_BYTES // (array.nbytes // len(array)))
        for first in range(0, len(array), rows):
            _write_block(file, array[first : first + rows])


def _write_block(file: BinaryIO, array: Array) -> None:
    dense = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    if dense.size:
        file.write(dense.reshape(-1).view(np.uint8).data)
