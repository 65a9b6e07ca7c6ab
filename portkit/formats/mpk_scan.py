"""The structure of a MessagePack file, without its payloads: what is large stays in the file.

Only what Burn's records use is taken: nil, bool, numbers, text, bin, arrays, and maps whose keys are field
names.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field
from itertools import islice
from reprlib import repr as brief
from typing import BinaryIO, TypeAlias

import msgpack  # type: ignore[import-untyped]

from portkit.errors import UnreadableError, unreadable
from portkit.formats.source import Source, system_errors

MAX_DEPTH = 64  # real records are about ten deep
MAX_NODES = 200_000  # real records have thousands; each costs some 200 bytes here, and one in the file
MAX_TEXT = 1 << 16
MAX_PATHS = 16 << 20  # characters of all paths together: one long key stands in the path of all below it
MAX_SHOWN = 500  # characters of a path in a message
_CHUNK = 4096
_CONSTANTS = {0xC0: None, 0xC2: False, 0xC3: True}
_NUMBERS = {0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q"}
_NUMBERS |= {0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q"}
_NUMERIC = {*range(0x80), *range(0xE0, 0x100), *_NUMBERS, 0xC2, 0xC3}  # first bytes of numbers and bools
_SIZED = {0xC4: ("bin", 1), 0xC5: ("bin", 2), 0xC6: ("bin", 4), 0xD9: ("text", 1), 0xDA: ("text", 2)}
_SIZED |= {0xDB: ("text", 4), 0xDC: ("array", 2), 0xDD: ("array", 4), 0xDE: ("map", 2), 0xDF: ("map", 4)}


@dataclass(frozen=True)
class Blob:
    """A `bin`: where its bytes lie."""

    offset: int
    size: int


@dataclass(frozen=True)
class Numbers:
    """The elements of an array of numbers under the key `value`: how Burn up to 0.13 stored a tensor."""

    offset: int
    size: int  # in bytes
    count: int
    kind: type  # float, int or bool


Leaf: TypeAlias = Blob | Numbers | str | int | float | bool | None
Node: TypeAlias = Leaf | list["Node"] | dict[str, "Node"]


def scan(source: Source) -> Node:
    """The one value that the file holds. Raises UnreadableError with the place inside the record."""
    with system_errors(source.path), source.opened() as file:
        file.seek(0)
        scanner = _Scanner(file, source)
        node = scanner.value()
        if scanner.at != source.size:
            raise scanner.error("bytes follow the record", "nothing", f"{source.size - scanner.at} bytes")
        return node


@dataclass
class _Scanner:
    file: BinaryIO
    source: Source
    at: int = 0
    nodes: int = 0
    paths: int = 0
    trail: list[str] = field(default_factory=list)

    def value(self) -> Node:
        self._count()
        first = self._take(1)[0]
        if first in _CONSTANTS:
            return _CONSTANTS[first]
        if first in _NUMBERS:
            kind = _NUMBERS[first]
            (number,) = struct.unpack(kind, self._take(struct.calcsize(kind)))
            return number  # type: ignore[no-any-return]
        if first <= 0x7F or first >= 0xE0:
            return first if first <= 0x7F else first - 256
        return self._sized(*self._size(first))

    def _count(self) -> None:
        self.nodes += 1
        self.paths += sum(map(len, self.trail))
        if self.nodes > MAX_NODES:
            raise self.error("the record has too many parts", f"at most {MAX_NODES}", "more")
        if self.paths > MAX_PATHS:
            raise self.error("the names in the record are too long", f"at most {MAX_PATHS} characters", "more")

    def error(self, what: str, expected: str = "", found: str = "") -> UnreadableError:
        path = ".".join(self.trail)
        path = path if len(path) <= MAX_SHOWN else f"{path[:MAX_SHOWN]}…"
        where = f"{self.source.name}: {path}" if path else self.source.name
        return unreadable(f"{where} (byte {self.at})", what, expected=expected, found=found)

    def _size(self, first: int) -> tuple[str, int]:
        if first <= 0xBF:
            kind = "map" if first <= 0x8F else "array" if first <= 0x9F else "text"
            return kind, first & (0x1F if kind == "text" else 0x0F)
        if first not in _SIZED:
            raise self.error("not a record: this kind of value is never written", found=f"byte 0x{first:02x}")
        kind, width = _SIZED[first]
        return kind, int.from_bytes(self._take(width), "big")

    def _sized(self, kind: str, size: int) -> Node:
        needed = 2 * size if kind == "map" else size
        if needed > self.source.size - self.at:
            remain = f"{self.source.size - self.at} bytes remain"
            raise self.error("the file ends before its data", f"{kind} of {size}", remain)
        if kind == "text":
            return self._text(size)
        if kind == "bin":
            return self._blob(size)
        if len(self.trail) >= MAX_DEPTH:
            raise self.error("the record is nested too deeply", f"at most {MAX_DEPTH} levels", "more")
        return self._map(size) if kind == "map" else self._array(size)

    def _text(self, size: int) -> str:
        if size > MAX_TEXT:
            raise self.error("a text is too long", f"at most {MAX_TEXT} bytes", str(size))
        try:
            return self._take(size).decode()
        except UnicodeDecodeError as error:
            raise self.error("a text is not UTF-8", found=str(error)) from error

    def _blob(self, size: int) -> Blob:
        self._skip_to(self.at + size)
        return Blob(self.at - size, size)

    def _map(self, size: int) -> dict[str, Node]:
        node: dict[str, Node] = {}
        for _ in range(size):
            key = self._key()
            if key in node:
                raise self.error("a key stands twice in one map", found=brief(key))
            self.trail.append(key)
            node[key] = self._legacy() if key == "value" else self.value()
            self.trail.pop()
        return node

    def _key(self) -> str:
        key = self.value()
        if not isinstance(key, str):
            raise self.error("a key of a map is not text", found=f"{type(key).__name__}")
        if not key or "." in key or re.fullmatch("[0-9]+", key):
            raise self.error("a key of a map is no field name", "a name without dots", brief(key))
        return key

    def _array(self, size: int) -> list[Node]:
        node: list[Node] = []
        for index in range(size):
            self.trail.append(str(index))
            node.append(self.value())
            self.trail.pop()
        return node

    def _legacy(self) -> Node:
        """What stands under `value`: the numbers of an old parameter, or a field that just has this name."""
        start = self.at
        first = self._take(1)[0]
        is_array = 0x90 <= first <= 0x9F or first in (0xDC, 0xDD)
        size = self._size(first)[1] if is_array else 0
        element = self.file.read(1) if size else b""
        self._skip_to(self.at)
        if element and element[0] in _NUMERIC:
            return self._numbers(size)
        self._skip_to(start)
        return self.value()

    def _numbers(self, count: int) -> Numbers:
        numbers, start, left = number_stream(self.file), self.at, count
        kinds: set[type] = set()
        try:
            while left and (chunk := list(islice(numbers, min(left, _CHUNK)))):
                left -= len(chunk)
                kinds.update(map(type, chunk))
        except (ValueError, msgpack.UnpackException) as error:
            raise self.error("the numbers of a parameter are broken", found=str(error)) from error
        size = numbers.tell()
        if left or start + size > self.source.size:
            raise self.error("the file ends before its data", f"{count} numbers", f"{count - left}")
        if len(kinds) != 1 or (kinds == {float} and size not in (5 * count, 9 * count)):
            found = ", ".join(sorted(kind.__name__ for kind in kinds))
            raise self.error("the numbers of a parameter are not of one kind", "f32, f64 or integers", found)
        self._skip_to(start + size)
        return Numbers(start, size, count, kinds.pop())

    def _skip_to(self, at: int) -> None:
        self.file.seek(at)
        self.at = at

    def _take(self, count: int) -> bytes:
        data = self.file.read(count)
        self.at += len(data)
        if len(data) != count:
            raise self.error("the file ends before its data", f"{count} bytes", f"{len(data)}")
        return data


def number_stream(file: BinaryIO) -> msgpack.Unpacker:
    """The numbers from the file's position on, one by one; anything larger than a number is a ValueError."""
    none = {f"max_{kind}_len": 0 for kind in ("str", "bin", "array", "map", "ext")}
    return msgpack.Unpacker(file, read_size=1 << 16, max_buffer_size=1 << 17, **none)
