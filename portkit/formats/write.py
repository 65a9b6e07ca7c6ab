"""The streaming core of the writers: places are known first, then arrays come one at a time and go there."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from itertools import accumulate
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from portkit.dense import pieces
from portkit.errors import PortkitError, Problem, UnwritableError
from portkit.tensors import NUMPY_DTYPES, Array, TensorSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path


@contextmanager
def replacing(path: Path, *, parents: bool = False) -> Iterator[BinaryIO]:
    """A new file that takes `path`'s place when the block ends well; else `path` is as it was before.

    `parents` makes the folders around it too.

    Raises UnwritableError when the system cannot write it.
    """
    part = path.with_name(f"{path.name}.part")
    try:
        if parents:
            path.parent.mkdir(parents=True, exist_ok=True)
        with part.open("wb") as file:
            yield file
        part.replace(path)
    except OSError as error:
        raise UnwritableError(path, error) from error
    finally:
        with suppress(OSError):
            part.unlink()


def write_at_offsets(
    file: BinaryIO,
    start: int,
    specs: Sequence[TensorSpec],
    arrays: Iterable[Array],
    offsets: Mapping[str, int],
    reached: Callable[[int], None] = lambda end: None,
) -> None:
    """Write the arrays, which come in the order of `specs`, each at `start` plus the offset of its name, in bytes.

    No more than one array is held at a time: each is let go before the next is asked for. `reached` is told up to where
    the file will not change any more. Raises PortkitError when an array is not what its spec says, or when there are
    fewer or more arrays than specs.
    """
    pending = iter(arrays)
    places = [start + offsets[spec.name] for spec in specs]
    lowest = [*accumulate(reversed(places), min)][::-1]  # of all that is still to be written
    for spec, place, final in zip(specs, places, lowest, strict=True):
        file.flush()
        reached(final)
        array = _checked(spec, next(pending, None))
        file.seek(place)
        _write(file, array)
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


def _checked(spec: TensorSpec, array: Array | None) -> Array:
    if array is None:
        raise mismatch(spec.name, "no array came for this tensor", expected=str(spec))
    if array.shape != spec.shape or array.dtype.newbyteorder("<") != NUMPY_DTYPES[spec.dtype]:
        found = f"{array.shape} {array.dtype}"
        raise mismatch(spec.name, "the array is not what was announced", expected=str(spec), found=found)
    return array


def _write(file: BinaryIO, array: Array) -> None:
    """Write row-major, little-endian: every format here wants that."""
    for piece in pieces(array):
        little = piece.astype(piece.dtype.newbyteorder("<"), copy=False)
        file.write(little.reshape(-1).view(np.uint8).data)
