"""Writes a tokenizer as the files of a KerasHub preset."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from portkit.tokenizers.keras_objects import (
    ASSETS,
    MERGES,
    PREPROCESSOR,
    PROTO,
    TOKENIZER,
    VOCABULARY_JSON,
    VOCABULARY_TXT,
    Family,
    preprocessor_object,
    tokenizer_object,
)
from portkit.tokenizers.kinds import BytePairs, Files, Kind, WordPiece

if TYPE_CHECKING:
    from collections.abc import Mapping


def write_keras(kind: Kind, family: Family, class_name: str, sequence_length: int) -> Files:
    """The files of `kind` for a preset of the class `class_name`, with texts of `sequence_length` tokens."""
    tokenizer = tokenizer_object(family, kind)
    preprocessor = preprocessor_object(family, class_name, tokenizer, sequence_length)
    files = {f"{ASSETS}/{name}": content for name, content in _assets(kind).items()}
    files |= {TOKENIZER: _json(tokenizer), PREPROCESSOR: _json(preprocessor)}
    return Files(files, (), tokenizer, preprocessor)


def _assets(kind: Kind) -> dict[str, bytes]:
    if isinstance(kind, WordPiece):
        return {VOCABULARY_TXT: _lines(kind.tokens)}
    if isinstance(kind, BytePairs):
        return {VOCABULARY_JSON: json.dumps(dict(kind.ids)).encode(), MERGES: _lines(kind.merges)}
    return {PROTO: kind.model}


def _lines(lines: tuple[str, ...]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, indent=4).encode()
