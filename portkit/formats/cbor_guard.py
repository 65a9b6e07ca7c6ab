"""Looks over CBOR before it is decoded: only what Burn writes gets through, so that decoding cannot run away.

Burn writes definite lengths, text keys and no tags. Everything else is refused here: a count or length that
the bytes cannot hold, deep nesting, tags (which make decoders build other objects), a key twice, bytes left
over.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from reprlib import repr as brief

from portkit.errors import UnreadableError, unreadable

MAX_DEPTH = 128  # Burn's own limit
MAX_ITEMS = 2_000_000  # 100 000 tensors, Burn's limit, have 1.5 million items
_BYTES, _TEXT, _ARRAY, _MAP, _TAG, _SIMPLE = 2, 3, 4, 5, 6, 7
_INDEFINITE = 31
_CONSTANTS = (20, 21, 22)  # false, true, null


@dataclass
class _Level:
    left: int
    keys: set[bytes] | None = None  # of a map: the keys seen so far

    def expects_key(self) -> bool:
        return self.keys is not None and self.left % 2 == 0


@dataclass
class _Guard:
    data: bytes
    where: str
    at: int = 0
    items: int = 0
    levels: list[_Level] = field(default_factory=lambda: [_Level(1)])

    def run(self) -> None:
        while self.levels:
            if self.levels[-1].left:
                self._item(self.levels[-1])
            else:
                self.levels.pop()
        if self.at != len(self.data):
            raise self._error("bytes follow the CBOR value", "nothing", f"{len(self.data) - self.at} bytes")

    def _item(self, level: _Level) -> None:
        is_key = level.expects_key()
        level.left -= 1
        self.items += 1
        if self.items > MAX_ITEMS:
            raise self._error("the CBOR has too many items", f"at most {MAX_ITEMS}", "more")
        major, info = divmod(self._take(1)[0], 32)
        if is_key and major != _TEXT:
            raise self._error("a key of a CBOR map is not text", "text", f"major type {major}")
        argument = self._argument(major, info)
        if major in (_BYTES, _TEXT):
            self._string(argument, level if is_key else None)
        elif major in (_ARRAY, _MAP):
            self._open(major, argument)

    def _argument(self, major: int, info: int) -> int:
        if info == _INDEFINITE:
            raise self._error("the CBOR has an indefinite length", "definite lengths, as Burn writes")
        if major == _TAG or (major == _SIMPLE and info not in (*_CONSTANTS, 25, 26, 27)) or info > 27:
            raise self._error("the CBOR has an item that Burn never writes", "", f"major {major}, info {info}")
        return info if info < 24 else int.from_bytes(self._take(1 << (info - 24)), "big")

    def _string(self, length: int, key_of: _Level | None) -> None:
        text = self._take(length)
        if key_of is None or key_of.keys is None:
            return
        if text in key_of.keys:
            raise self._error("a CBOR map has a key twice", "", brief(text.decode("utf-8", "replace")))
        key_of.keys.add(text)

    def _open(self, major: int, count: int) -> None:
        left = 2 * count if major == _MAP else count
        if left > len(self.data) - self.at:
            remain = f"{len(self.data) - self.at} bytes remain"
            raise self._error("the CBOR announces more items than bytes", remain, f"{left} items")
        if len(self.levels) > MAX_DEPTH:
            raise self._error("the CBOR is nested too deeply", f"at most {MAX_DEPTH} levels", "more")
        self.levels.append(_Level(left, set() if major == _MAP else None))

    def _take(self, count: int) -> bytes:
        if count > len(self.data) - self.at:
            remain = f"{len(self.data) - self.at} bytes remain"
            raise self._error("the CBOR ends inside an item", remain, f"{count} bytes announced")
        self.at += count
        return self.data[self.at - count : self.at]

    def _error(self, what: str, expected: str = "", found: str = "") -> UnreadableError:
        return unreadable(f"{self.where}, byte {self.at} of the CBOR", what, expected=expected, found=found)


def check_cbor(data: bytes, where: str) -> None:
    """Return when `data` is one CBOR value of the kind Burn writes; else raise UnreadableError.

    Allocates no more than the keys of the maps that are open. What passes decodes to text, bytes, ints,
    floats, bools, None, lists and dicts with text keys, and no key is lost to a later one.
    """
    _Guard(data, where).run()
