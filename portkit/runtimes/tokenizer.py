"""Cuts sentences into the ids of a checkpoint's own tokenizer. Nothing is looked up on the network."""

from __future__ import annotations

from importlib import util
from typing import TYPE_CHECKING

from portkit.errors import MissingRuntimeError, Problem, unreadable

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_FAST = "tokenizer.json"
_SLOW = ("vocab.txt", "vocab.json", "sentencepiece.bpe.model", "spiece.model")

Encoded = tuple[tuple[int, ...], tuple[int, ...]]  # ids and token types of one sentence, special tokens included


def encode(folder: Path, sentences: Sequence[str]) -> list[Encoded]:
    """Every sentence's ids and token types, neither padded nor cut.

    Takes tokenizer.json through the library `tokenizers`, other tokenizer files through transformers.
    Raises UnreadableError for a folder without a tokenizer or with a broken one, MissingRuntimeError without a library.
    """
    if (folder / _FAST).is_file():
        return _with_tokenizers(folder / _FAST, sentences)
    if not any((folder / name).is_file() for name in _SLOW):
        names = ", ".join((_FAST, *_SLOW))
        hint = "copy the tokenizer's files there, or give ids with --inputs"
        raise unreadable(folder, "holds no tokenizer", expected=f"one of {names}", hint=hint)
    return _with_transformers(folder, sentences)


def _with_tokenizers(path: Path, sentences: Sequence[str]) -> list[Encoded]:
    _require("tokenizers")
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(path))
        tokenizer.no_padding()  # files carry the settings of their last use
        tokenizer.no_truncation()
        return [(tuple(e.ids), tuple(e.type_ids)) for e in tokenizer.encode_batch(list(sentences))]
    except Exception as error:
        if type(error) is not Exception:  # the library is written in Rust, and raises the bare class for all it refuses
            raise
        raise unreadable(path, "the library tokenizers cannot use it", found=str(error)) from error


def _with_transformers(folder: Path, sentences: Sequence[str]) -> list[Encoded]:
    from portkit.runtimes.torch_settings import explained, silent_torch

    with silent_torch(), explained(f"transformers has no tokenizer for {folder}"):
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
        given = tokenizer(list(sentences), truncation=False, padding=False)
        types = given.get("token_type_ids") or [[0] * len(ids) for ids in given["input_ids"]]
        return [(tuple(ids), tuple(kinds)) for ids, kinds in zip(given["input_ids"], types, strict=True)]


def _require(package: str) -> None:
    if util.find_spec(package) is None:
        problem = Problem(package, "not installed", hint=f"pip install {package}, or give ids with --inputs")
        raise MissingRuntimeError("cannot cut sentences into tokens", [problem])
