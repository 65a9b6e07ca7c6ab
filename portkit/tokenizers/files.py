"""Reads the small files of a tokenizer: bounded, in UTF-8, and with errors that name the file."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from portkit.errors import unreadable
from portkit.formats.source import read_small
from portkit.formats.strict_json import parse_object

if TYPE_CHECKING:
    from pathlib import Path

MAX_BYTES = 256 << 20  # the largest vocabularies of the family take 20 MB


def read_bytes(path: Path) -> bytes:
    """The whole file. Raises UnreadableError when it cannot be read or is larger than any tokenizer's."""
    return read_small(path, MAX_BYTES, "a tokenizer's file")


def read_object(path: Path) -> dict[str, object]:
    """A JSON object; an empty one when there is no such file. Raises UnreadableError."""
    return parse_object(read_bytes(path), path, "the file") if path.exists() else {}


def read_lines(path: Path) -> list[str]:
    """Lines without their ends, which may be those of any system. Raises UnreadableError."""
    try:
        text = read_bytes(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise unreadable(path, "not a text in UTF-8", found=str(error)) from error
    return [line.removesuffix("\n") for line in io.StringIO(text, newline=None)]
