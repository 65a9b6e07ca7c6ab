"""Reads what a SentencePiece model says of its pieces: the few fields of its protocol buffer that ids depend on.

The fields are those of sentencepiece_model.proto in google/sentencepiece.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from portkit.errors import unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FIRST = ("<unk>", "<s>", "</s>")
"""What fairseq, and so every XLM-RoBERTa, takes the first three pieces to be."""

_UNIGRAM = 1
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_SIZES = {_FIXED64: 8, _FIXED32: 4}


@dataclass(frozen=True)
class SentencePiece:
    """Pieces with their scores, in the order of their ids, and the table by which text is normalised."""

    pieces: tuple[tuple[str, float], ...]
    charsmap: bytes
    unigram: bool

    @property
    def names(self) -> tuple[str, ...]:
        """The pieces alone."""
        return tuple(name for name, _ in self.pieces)


def parse_sentencepiece(data: bytes, where: Path) -> SentencePiece:
    """The model in `data`. Raises UnreadableError when it is none."""
    try:
        fields = list(_fields(memoryview(data)))
        pieces = tuple(_piece(value) for number, value in fields if number == 1 and isinstance(value, memoryview))
        trainer = _last(fields, 2)
        normaliser = _last(fields, 3)
    except (ValueError, IndexError, struct.error) as error:
        raise unreadable(where, "no SentencePiece model", found=str(error)) from error
    if not pieces:
        raise unreadable(where, "no SentencePiece model", expected="pieces", found="none")
    charsmap = normaliser.get(2, b"")
    model_type = trainer.get(3, _UNIGRAM)
    return SentencePiece(pieces, bytes(charsmap) if isinstance(charsmap, memoryview) else b"", model_type == _UNIGRAM)


def _piece(message: memoryview) -> tuple[str, float]:
    fields = dict(_fields(message))
    name, score = fields.get(1, memoryview(b"")), fields.get(2, 0.0)
    if isinstance(name, memoryview) and isinstance(score, float):
        return bytes(name).decode("utf-8"), score
    raise ValueError("a piece has fields of other types")


def _last(fields: list[tuple[int, int | float | memoryview]], wanted: int) -> dict[int, int | float | memoryview]:
    messages = [value for number, value in fields if number == wanted and isinstance(value, memoryview)]
    return dict(_fields(messages[-1])) if messages else {}


def _fields(message: memoryview) -> Iterator[tuple[int, int | float | memoryview]]:
    """Number and value of each field; no copy is made. Raises ValueError or IndexError when it is no message."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, at = _varint(message, at)
            yield number, value
            continue
        if wire == _BYTES:
            size, at = _varint(message, at)
        elif wire in _SIZES:
            size = _SIZES[wire]
        else:
            raise ValueError(f"a field of the unknown kind {wire}")
        if size > len(message) - at:
            raise ValueError("a field is longer than the file")
        part = message[at : at + size]
        yield number, struct.unpack("<f", part)[0] if wire == _FIXED32 else part
        at += size


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("a number without an end")
