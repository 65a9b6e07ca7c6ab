"""KerasHub's words for tokenizers and preprocessors: class names, modules, files, and the objects in its JSON.

The objects are those that KerasHub 0.32 writes, field by field.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from portkit.keras_json import dtype_policy, hub_object, snake_case
from portkit.tokenizers.kinds import BytePairs, Kind, Pieces, WordPiece

TOKENIZER, PREPROCESSOR, ASSETS = "tokenizer.json", "preprocessor.json", "assets/tokenizer"
VOCABULARY_TXT, VOCABULARY_JSON, MERGES, PROTO = "vocabulary.txt", "vocabulary.json", "merges.txt", "vocabulary.spm"

_MASKING = {"mask_selection_rate": 0.15, "mask_selection_length": 96, "mask_token_rate": 0.8, "random_token_rate": 0.1}


@dataclass(frozen=True)
class Family:
    """One architecture in KerasHub: the first word of its classes, their package, and the kind of its tokenizer."""

    word: str
    package: str
    kind: type[Kind]


FAMILIES = (
    Family("Bert", "bert", WordPiece),
    Family("Roberta", "roberta", BytePairs),
    Family("XLMRoberta", "xlm_roberta", Pieces),
)
_CLASS = re.compile(r"([A-Za-z]+?)(Backbone|TextClassifier|MaskedLM|Tokenizer)")


def family_of(class_name: str) -> Family | None:
    """The architecture of a class such as BertTextClassifier or BertTokenizer; None for one that is not known."""
    match = _CLASS.fullmatch(class_name)
    return next((family for family in FAMILIES if match and family.word == match[1]), None)


def tokenizer_object(family: Family, kind: Kind) -> dict[str, Any]:
    """The content of tokenizer.json; the vocabulary itself lies in the assets."""
    shared = {"config_file": TOKENIZER}
    fields: dict[str, Any]
    if isinstance(kind, WordPiece):
        fields = {**shared, "vocabulary": None, "sequence_length": None, **_word_piece_fields(kind)}
    elif isinstance(kind, BytePairs):
        space = {"add_prefix_space": kind.add_prefix_space}
        fields = {**shared, "sequence_length": None, **space, "unsplittable_tokens": list(kind.whole)}
    else:
        fields = {**shared, "proto": None, "sequence_length": None, "add_bos": False, "add_eos": False}
    return _object(family, "Tokenizer", "int32", fields)


def preprocessor_object(
    family: Family, class_name: str, tokenizer: dict[str, Any], sequence_length: int
) -> dict[str, Any]:
    """The content of preprocessor.json, with `tokenizer` inside. A backbone has a text classifier's."""
    masking = class_name.endswith("MaskedLM")
    fields = {
        "tokenizer": tokenizer,
        "config_file": PREPROCESSOR,
        "sequence_length": sequence_length,
        "truncate": "round_robin",
        **(_MASKING if masking else {}),
    }
    return _object(family, "MaskedLMPreprocessor" if masking else "TextClassifierPreprocessor", "float32", fields)


def _word_piece_fields(kind: WordPiece) -> dict[str, Any]:
    known = {"[CLS]", "[SEP]", "[PAD]", "[MASK]"}  # KerasHub adds these itself
    return {
        "lowercase": kind.lowercase,
        "strip_accents": kind.strip_accents,
        "split": True,
        "suffix_indicator": kind.suffix,
        "oov_token": kind.unknown,
        "special_tokens": [token for token in kind.whole if token not in known] or None,
        "special_tokens_in_strings": bool(kind.whole),
    }


def _object(family: Family, kind: str, dtype: str, fields: dict[str, Any]) -> dict[str, Any]:
    class_name = f"{family.word}{kind}"
    config = {"name": snake_case(class_name), "trainable": True, "dtype": dtype_policy(dtype), **fields}
    return hub_object(family.package, class_name, config)
