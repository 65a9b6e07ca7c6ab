"""Reads the tokenizer of a KerasHub preset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from portkit.errors import unreadable
from portkit.tokenizers.files import read_bytes, read_lines, read_object
from portkit.tokenizers.hf_source import listed, mapping
from portkit.tokenizers.keras_objects import (
    ASSETS,
    MERGES,
    PREPROCESSOR,
    PROTO,
    TOKENIZER,
    VOCABULARY_JSON,
    VOCABULARY_TXT,
    family_of,
)
from portkit.tokenizers.kinds import BERT_TOKENS, ROBERTA_TOKENS, BytePairs, Found, Kind, Pieces, WordPiece

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path


def read_keras(preset: Path) -> Found:
    """The tokenizer of the preset. Raises UnreadableError when its files are broken or do not belong together."""
    described = read_object(preset / TOKENIZER)
    if not described:
        return Found(None, (f"the preset has no {TOKENIZER}",))
    family = family_of(str(described.get("class_name")))
    if family is None:
        return Found(None, (f"the preset's tokenizer is {described.get('class_name')}, which portkit does not know",))
    config = mapping(described.get("config"))
    if config.get("split") is False:
        return Found(None, ("the preset's tokenizer takes words, not texts: transformers has none of that kind",))
    length = mapping(read_object(preset / PREPROCESSOR).get("config")).get("sequence_length")
    readers = {WordPiece: _word_piece, BytePairs: _byte_pairs, Pieces: _pieces}
    kind, notes = readers[family.kind](preset / ASSETS, config)
    return Found(kind, notes, length if type(length) is int and length > 0 else None)


def _word_piece(assets: Path, config: Mapping[str, Any]) -> tuple[Kind, tuple[str, ...]]:
    tokens = tuple(line.rstrip() for line in read_lines(assets / VOCABULARY_TXT))  # as KerasHub reads them
    unknown = str(config.get("oov_token", BERT_TOKENS["unk_token"]))
    needed = {**BERT_TOKENS, "unk_token": unknown}
    _require(assets / VOCABULARY_TXT, needed, tokens)
    whole = {*needed.values(), *map(str, listed(config.get("special_tokens")))}
    kind = WordPiece(
        tokens,
        tuple(token for token in dict.fromkeys(tokens) if token in whole),
        lowercase=bool(config.get("lowercase", False)),
        strip_accents=bool(config.get("strip_accents", False)),
        suffix=str(config.get("suffix_indicator", "##")),
        unknown=unknown,
    )
    found = config.get("special_tokens_in_strings", False)
    return kind, () if found else ("special tokens inside a text: the preset splits them, transformers finds them",)


def _byte_pairs(assets: Path, config: Mapping[str, Any]) -> tuple[Kind, tuple[str, ...]]:
    path = assets / VOCABULARY_JSON
    ids = read_object(path)
    numbers = {token: number for token, number in ids.items() if type(number) is int and number >= 0}
    if not numbers or len(numbers) != len(ids):
        raise unreadable(path, "no vocabulary", expected="tokens with whole numbers")
    _require(path, {role: token for role, token in ROBERTA_TOKENS.items() if role != "unk_token"}, numbers)
    merges = tuple(line for line in read_lines(assets / MERGES) if line and not line.startswith("#version"))
    for merge in merges:
        if " " not in merge or not {*merge.split(" ", 1)} <= numbers.keys():
            raise unreadable(assets / MERGES, "a merge of tokens that the vocabulary lacks", found=repr(merge))
    whole = {*ROBERTA_TOKENS.values(), *map(str, listed(config.get("unsplittable_tokens")))}
    found = tuple(sorted((t for t in whole if t in numbers), key=lambda token: (numbers[token], token)))
    return BytePairs(numbers, merges, found, bool(config.get("add_prefix_space", False))), ()


def _pieces(assets: Path, _config: Mapping[str, Any]) -> tuple[Kind, tuple[str, ...]]:
    return Pieces(read_bytes(assets / PROTO)), ()


def _require(path: Path, roles: Mapping[str, str], tokens: Iterable[str]) -> None:
    missing = sorted({*roles.values()} - {*tokens})
    if missing:
        raise unreadable(path, "special tokens are missing", expected=", ".join(missing))
