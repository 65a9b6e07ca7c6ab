"""The three kinds of tokenizer that the family has, whichever files they came from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True)
class WordPiece:
    """BERT's: text is cleaned and cut into words, a word into the longest pieces that the vocabulary has."""

    tokens: tuple[str, ...]
    """In the order of their ids, from 0."""
    whole: tuple[str, ...]
    """Tokens that are found in a text as they are, before anything is done to it."""
    lowercase: bool
    strip_accents: bool
    suffix: str = "##"
    """What marks a piece that continues a word."""
    unknown: str = "[UNK]"


@dataclass(frozen=True)
class BytePairs:
    """RoBERTa's: pairs of bytes are merged in the order of a list."""

    ids: Mapping[str, int]
    merges: tuple[str, ...]
    """"left right", the first to merge first."""
    whole: tuple[str, ...]
    """Tokens that are found in a text as they are."""
    add_prefix_space: bool


@dataclass(frozen=True)
class Pieces:
    """XLM-RoBERTa's: a SentencePiece model, whose ids move by one as fairseq's do."""

    model: bytes
    """The file, as it is."""


Kind = WordPiece | BytePairs | Pieces


@dataclass(frozen=True)
class Found:
    """A tokenizer read from files: none, with the reason in `notes`, where the kind wanted is not there."""

    kind: Kind | None
    notes: tuple[str, ...] = ()
    max_length: int | None = None
    """Tokens per text that the files allow, where they say."""


@dataclass(frozen=True)
class Files:
    """Files to write, by their path in the folder, and what a reader of the record should know.

    Without files `notes` says why. For KerasHub, `tokenizer` and `preprocessor` are the objects that two of the files
    hold, since task.json repeats them.
    """

    files: Mapping[str, bytes]
    notes: tuple[str, ...]
    tokenizer: Mapping[str, Any] | None = None
    preprocessor: Mapping[str, Any] | None = None


BERT_TOKENS = {
    "unk_token": "[UNK]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
    "cls_token": "[CLS]",
    "mask_token": "[MASK]",
}
ROBERTA_TOKENS = {
    "bos_token": "<s>",
    "eos_token": "</s>",
    "sep_token": "</s>",
    "cls_token": "<s>",
    "unk_token": "<unk>",
    "pad_token": "<pad>",
    "mask_token": "<mask>",
}
"""The tokens of each role. KerasHub knows no others, and has no role for the unknown token of RoBERTa."""


def differences(kind: Kind) -> tuple[str, ...]:
    """Where KerasHub 0.32 and transformers 5 give other ids for the same files; each was seen in a run."""
    if isinstance(kind, Pieces):
        return ("special tokens inside a text: transformers finds them, KerasHub splits them",)
    if isinstance(kind, BytePairs):
        return ("runs of spaces and some apostrophes: KerasHub does not cut text into words before it merges",)
    notes = [
        "zero-width and control characters: transformers removes them, KerasHub cuts the word there",
        "spaces beyond ASCII: transformers cuts words there, KerasHub does not",
        "words of more than 100 bytes are unknown to KerasHub; transformers allows 100 characters",
    ]
    if kind.lowercase:
        notes.append("letters are lower-cased by transformers; KerasHub folds text as NFKC does (ß to ss, … to ...)")
    if kind.lowercase and kind.strip_accents:
        notes.append("Korean syllables: transformers leaves them in parts, KerasHub composes them again")
    return tuple(notes)
