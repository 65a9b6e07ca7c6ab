"""Writes a tokenizer as the files of a Hugging Face folder, old and new: transformers 4 and 5 load either."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from portkit.tokenizers.hf_read import SENTENCEPIECE
from portkit.tokenizers.hf_source import BUILT, CONFIG
from portkit.tokenizers.kinds import BERT_TOKENS, ROBERTA_TOKENS, BytePairs, Files, Kind, Pieces, WordPiece
from portkit.tokenizers.sentencepiece import parse_sentencepiece

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_SPACE = "\u2581"  # SentencePiece's sign for a space
_FAIRSEQ = ("<s>", "<pad>", "</s>", "<unk>")  # what fairseq puts before the pieces, in place of their first three


def write_hf(kind: Kind, max_length: int | None) -> Files:
    """The files of `kind`; `max_length` is the number of tokens that the model takes, where it is known."""
    if isinstance(kind, WordPiece):
        return _word_piece(kind, max_length)
    if isinstance(kind, BytePairs):
        return _byte_pairs(kind, max_length)
    return _pieces(kind, max_length)


def _word_piece(kind: WordPiece, max_length: int | None) -> Files:
    ids = {token: number for number, token in enumerate(kind.tokens)}
    roles = {**BERT_TOKENS, "unk_token": kind.unknown}
    start, end = roles["cls_token"], roles["sep_token"]
    settings = {
        "do_lower_case": kind.lowercase,
        "strip_accents": kind.strip_accents,
        "tokenize_chinese_chars": True,
    }
    normaliser = {
        "type": "BertNormalizer",
        "clean_text": True,
        "handle_chinese_chars": True,
        "strip_accents": kind.strip_accents,
        "lowercase": kind.lowercase,
    }
    model = {
        "type": "WordPiece",
        "unk_token": kind.unknown,
        "continuing_subword_prefix": kind.suffix,
        "max_input_chars_per_word": 100,
        "vocab": ids,
    }
    built = {
        "added_tokens": _added(kind.whole, ids),
        "normalizer": normaliser,
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": _template([start, "A", end], [start, "A", end, "B", end], ids, second=1),
        "decoder": {"type": "WordPiece", "prefix": kind.suffix, "cleanup": True},
        "model": model,
    }
    vocabulary = "".join(f"{token}\n" for token in kind.tokens).encode()
    return _files({"vocab.txt": vocabulary}, built, "BertTokenizer", {**settings, **roles}, max_length)


def _byte_pairs(kind: BytePairs, max_length: int | None) -> Files:
    level = {"type": "ByteLevel", "add_prefix_space": kind.add_prefix_space, "trim_offsets": True, "use_regex": True}
    ends = {name: [token, kind.ids[token]] for name, token in (("sep", "</s>"), ("cls", "<s>"))}
    space = {"trim_offsets": True, "add_prefix_space": kind.add_prefix_space}
    model = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": "",
        "end_of_word_suffix": "",
        "fuse_unk": False,
        "byte_fallback": False,
        "vocab": dict(kind.ids),
        "merges": [merge.split(" ", 1) for merge in kind.merges],
    }
    built = {
        "added_tokens": _added(kind.whole, kind.ids),
        "normalizer": None,
        "pre_tokenizer": level,
        "post_processor": {"type": "RobertaProcessing", **ends, **space},
        "decoder": {**level, "add_prefix_space": True},
        "model": model,
    }
    merges = "".join(f"{line}\n" for line in ("#version: 0.2", *kind.merges)).encode()
    old = {"vocab.json": json.dumps(dict(kind.ids), ensure_ascii=False).encode(), "merges.txt": merges}
    return _files(old, built, "RobertaTokenizer", {**space, **ROBERTA_TOKENS}, max_length)


def _pieces(kind: Pieces, max_length: int | None) -> Files:
    parsed = parse_sentencepiece(kind.model, Path(SENTENCEPIECE))
    vocabulary = [(token, 0.0) for token in _FAIRSEQ] + [*parsed.pieces[3:], ("<mask>", 0.0)]
    ids = {token: number for number, (token, _) in enumerate(vocabulary)}
    metaspace = {"type": "Metaspace", "replacement": _SPACE, "prepend_scheme": "always", "split": True}
    charsmap = base64.b64encode(parsed.charsmap).decode()
    built = {
        "added_tokens": _added((*_FAIRSEQ, "<mask>"), ids),
        "normalizer": {"type": "Precompiled", "precompiled_charsmap": charsmap} if charsmap else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace]},
        "post_processor": _template(["<s>", "A", "</s>"], ["<s>", "A", "</s>", "</s>", "B", "</s>"], ids, second=0),
        "decoder": metaspace,
        "model": {"type": "Unigram", "unk_id": 3, "vocab": vocabulary, "byte_fallback": False},
    }
    old = {SENTENCEPIECE: kind.model}
    if parsed.unigram:
        return _files(old, built, "XLMRobertaTokenizer", dict(ROBERTA_TOKENS), max_length)
    files = _files(old, {}, "XLMRobertaTokenizer", dict(ROBERTA_TOKENS), max_length)
    return Files(files.files, (f"no {BUILT}: the SentencePiece model is not a unigram one",))


def _files(
    old: Mapping[str, bytes],
    built: Mapping[str, Any],
    class_name: str,
    settings: Mapping[str, Any],
    max_length: int | None,
) -> Files:
    limit = {"model_max_length": max_length} if max_length else {}
    files = {**old, CONFIG: _json({**settings, **limit, "tokenizer_class": class_name})}
    if built:
        files[BUILT] = _json({"version": "1.0", "truncation": None, "padding": None, **built})
    return Files(files, ())


def _added(tokens: Sequence[str], ids: Mapping[str, int]) -> list[dict[str, Any]]:
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return [{"id": ids[token], "content": token, **plain} for token in tokens]


def _template(single: list[str], pair: list[str], ids: Mapping[str, int], *, second: int) -> dict[str, Any]:
    """What stands around one text A and two texts A and B; `second` is the token type from B on."""
    ends = sorted({*single, *pair} - {"A", "B"})
    return {
        "type": "TemplateProcessing",
        "single": _steps(single, second),
        "pair": _steps(pair, second),
        "special_tokens": {token: {"id": token, "ids": [ids[token]], "tokens": [token]} for token in ends},
    }


def _steps(words: list[str], second: int) -> list[dict[str, Any]]:
    steps, kind = [], 0
    for word in words:
        kind = second if word == "B" else kind
        name = "Sequence" if word in ("A", "B") else "SpecialToken"
        steps.append({name: {"id": word, "type_id": kind}})
    return steps


def _json(value: Mapping[str, Any]) -> bytes:
    return (json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode()
