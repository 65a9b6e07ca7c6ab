"""The SHA-256 of a file: of one that is there, or computed while it is written.

Hashing takes as long as all the rest of a conversion, so that a thread does it beside the writing.
"""

from __future__ import annotations

from contextlib import contextmanager
from hashlib import file_digest, sha256
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, BinaryIO

from portkit.formats.source import system_errors

if TYPE_CHECKING:
    from collections.abc import Iterator

_CHUNK = 1 << 18
_TO_THE_END = 1 << 62


def sha256_of(path: Path) -> str:
    """Of a file that is there, in hexadecimal digits. Raises UnreadableError when it cannot be read."""
    with system_errors(path), path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


class Follower:
    """Reads a growing file in a thread of its own, up to where it is known to be final."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._hash = sha256()
        self._ends: SimpleQueue[int | None] = SimpleQueue()
        self._error: OSError | MemoryError | None = None
        self._thread = Thread(target=self._follow, daemon=True)
        self._thread.start()

    def reached(self, end: int) -> None:
        """All bytes before `end` are in the file and stay as they are."""
        self._ends.put(end)

    def stop(self) -> None:
        """Hash nothing more than what was reached."""
        self._ends.put(None)
        self._thread.join()

    @property
    def sha256(self) -> str:
        """Of all that was reached, once it is stopped. Raises the OSError or MemoryError that kept it from reading."""
        if self._error:
            raise self._error
        return self._hash.hexdigest()

    def _follow(self) -> None:
        try:
            with self._path.open("rb", buffering=0) as file:
                at, memory = 0, memoryview(bytearray(_CHUNK))
                for end in iter(self._ends.get, None):
                    while at < end and (count := file.readinto(memory[: end - at])):
                        self._hash.update(memory[:count])
                        at += count
        except (OSError, MemoryError) as error:  # a part of a file has a hash too: it must not pass for the whole's
            self._error = error


@contextmanager
def hashing(file: BinaryIO) -> Iterator[Follower]:
    """Follow a file that is open for writing; at the end of the block it is read to its end."""
    follower = Follower(Path(file.name))
    try:
        yield follower
        file.flush()
        follower.reached(_TO_THE_END)
    finally:
        follower.stop()
