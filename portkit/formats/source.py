"""Positioned reads: a tensor is read when it is asked for, from its own bytes, into its own memory."""

from __future__ import annotations

import gzip
import math
import stat
import tempfile
import weakref
import zlib
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from portkit.dense import spans
from portkit.errors import UnreadableError, unreadable
from portkit.tensors import NUMPY_DTYPES, LazyTensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from portkit.tensors import Array, TensorSpec

GZIP_MAGIC = b"\x1f\x8b"
CHUNK_BYTES = 1 << 20
# Trained weights shrink by a tenth or so, constants by up to gzip's own limit of 1032 to 1.
GZIP_FREE_BYTES = 64 << 20
GZIP_MAX_RATIO = 100


@dataclass(frozen=True)
class Source:
    """The bytes of one file, plain or unpacked, and where they came from."""

    path: Path
    size: int
    opened: Callable[[], AbstractContextManager[BinaryIO]]

    @property
    def name(self) -> str:
        """The file's name, for messages."""
        return self.path.name

    def read(self, offset: int, size: int) -> bytes:
        """Exactly `size` bytes. Raises UnreadableError when the file ends before."""
        with system_errors(self.path), self.opened() as file:
            file.seek(offset)
            data = file.read(size)
        if len(data) != size:
            raise _ended(self.path, offset, size)
        return data

    def array(self, offset: int, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Array:
        """The C-contiguous array at `offset`. Raises UnreadableError when the file ends before it does."""
        out = np.empty(shape, dtype)
        if out.size:
            self._fill(out.reshape(-1).view(np.uint8).data, offset)
        return out

    def tensor(self, spec: TensorSpec, offset: int) -> LazyTensor:
        """What lies at `offset`, little-endian and row-major, unread."""
        where = (offset, spec.shape, NUMPY_DTYPES[spec.dtype])
        read, read_pieces = partial(self.array, *where), partial(self._pieces, *where)
        return LazyTensor(spec, read, (offset, offset + spec.nbytes), self.name, read_pieces)

    def _pieces(self, offset: int, shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> Iterator[Array]:
        if not shape:
            yield self.array(offset, shape, dtype)
        width = math.prod(shape[1:]) * dtype.itemsize
        for first, end in spans(shape, dtype.itemsize):
            yield self.array(offset + first * width, (end - first, *shape[1:]), dtype)

    def _fill(self, memory: memoryview, offset: int) -> None:
        rest = memory
        with system_errors(self.path), self.opened() as file:
            file.seek(offset)
            while rest.nbytes and (count := file.readinto(rest)):  # type: ignore[attr-defined]
                rest = rest[count:]
        if rest.nbytes:
            raise _ended(self.path, offset, memory.nbytes)


def check_regular(path: Path) -> None:
    """Raise UnreadableError for what has no bytes of its own: a folder, a pipe that would block, an endless device."""
    with system_errors(path):
        mode = path.stat().st_mode
    if not stat.S_ISREG(mode):
        found = "a folder" if stat.S_ISDIR(mode) else "a pipe or a device"
        raise unreadable(path, "not a file", expected="a regular file", found=found)


def file_source(path: Path) -> Source:
    """The bytes of a file as they are. Raises UnreadableError when it is not a file that can be opened."""
    check_regular(path)
    with system_errors(path), path.open("rb") as file:
        size = file.seek(0, 2)
    return Source(path, size, lambda: path.open("rb"))


def read_small(path: Path, most: int, kind: str) -> bytes:
    """All bytes of a file that is read at once; `kind` says in errors what it is: "a config".

    Raises UnreadableError when it cannot be read or holds more than `most` bytes.
    """
    source = file_source(path)
    if source.size > most:
        raise unreadable(path, f"too large for {kind}", expected=f"at most {most} bytes", found=f"{source.size} bytes")
    return source.read(0, source.size)


def unpacked(source: Source) -> Source:
    """The same, with gzip undone into a temporary file without a name, which goes when nothing refers to it.

    Raises UnreadableError when the gzip stream is broken, or unpacks to so much that it must be a trap.
    """
    if source.size < len(GZIP_MAGIC) or source.read(0, len(GZIP_MAGIC)) != GZIP_MAGIC:
        return source
    with ExitStack() as opening:
        file = opening.enter_context(tempfile.TemporaryFile())
        size = _unpack(source, file)
        opening.pop_all()  # it stays open, as long as the tensors live that are read from it
    lock = Lock()

    @contextmanager
    def opened() -> Iterator[BinaryIO]:
        with lock:
            yield file

    plain = Source(source.path, size, opened)
    weakref.finalize(plain, file.close)
    return plain


def _unpack(source: Source, target: BinaryIO) -> int:
    limit = max(GZIP_FREE_BYTES, GZIP_MAX_RATIO * source.size)
    size = 0
    try:
        with gzip.open(source.path) as stream:
            while chunk := stream.read(CHUNK_BYTES):
                size += len(chunk)
                if size > limit:
                    raise unreadable(
                        source.path,
                        "the gzip stream unpacks to far more than weights do",
                        expected=f"at most {limit} bytes from {source.size}",
                        found="more",
                        hint="if you trust the file, unpack it with gunzip and read the result",
                    )
                target.write(chunk)
    except (OSError, EOFError, zlib.error) as error:
        raise unreadable(source.path, "the gzip stream cannot be unpacked", found=str(error)) from error
    return size


@contextmanager
def system_errors(path: Path) -> Iterator[None]:
    """What the system says against reading `path`, as UnreadableError."""
    try:
        yield
    except OSError as error:
        raise unreadable(path, "the file cannot be read", found=error.strerror or str(error)) from error


def _ended(path: Path, offset: int, size: int) -> UnreadableError:
    return unreadable(
        path,
        "the file ends before its data",
        expected=f"{size} bytes at {offset}",
        hint="was it changed meanwhile?",
    )
