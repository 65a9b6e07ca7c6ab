"""What the files of a Hugging Face tokenizer say, before it is judged.

The class in tokenizer_config.json decides what transformers 5 believes. A model's own class, which is also taken
where none is named, builds its pipeline from tokenizer_config.json and takes no more than vocabulary, added tokens
and special tokens from tokenizer.json; the general class takes the pipeline from there too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from portkit.errors import unreadable
from portkit.tokenizers.files import read_lines, read_object

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

CONFIG, BUILT = "tokenizer_config.json", "tokenizer.json"

_GENERAL_CLASSES = ("PreTrainedTokenizerFast", "TokenizersBackend")
_NO_LIMIT = 1_000_000  # what is above is transformers' word for no limit


@dataclass(frozen=True)
class Source:
    """`config` is tokenizer_config.json over special_tokens_map.json, `built` is tokenizer.json; empty if not there."""

    folder: Path
    config: Mapping[str, Any]
    built: Mapping[str, Any]

    @property
    def general(self) -> bool:
        """Whether transformers takes the pipeline from tokenizer.json."""
        return self.config.get("tokenizer_class") in _GENERAL_CLASSES

    @property
    def model(self) -> Mapping[str, Any]:
        """The model in tokenizer.json."""
        return mapping(self.built.get("model"))

    @property
    def max_length(self) -> int | None:
        """Tokens per text, where the files set a limit."""
        value = self.config.get("model_max_length")
        return value if type(value) is int and 0 < value < _NO_LIMIT else None

    def steps(self, kind: str, inner: str) -> list[Mapping[str, Any]]:
        """The steps of a part of the pipeline, such as "normalizer", whose sequences call them `inner`."""
        part = mapping(self.built.get(kind))
        return [mapping(step) for step in listed(part.get(inner))] if part.get("type") == "Sequence" else [part]

    def token(self, role: str, default: str) -> str:
        """The token of a role: a word, or an object with its content."""
        value = self.config.get(role)
        content = value.get("content") if isinstance(value, dict) else value
        return content if isinstance(content, str) else default

    def added(self) -> dict[str, int]:
        """The tokens that are found in a text as they are, whether the vocabulary has them or not."""
        if not self.built:
            path = self.folder / "added_tokens.json"
            return dict(_ids(read_object(path), path))
        found = [mapping(token) for token in listed(self.built.get("added_tokens"))]
        if not all(isinstance(token.get("content"), str) for token in found):
            raise unreadable(self.folder / BUILT, "an added token without its content")
        return dict(_ids({token["content"]: token.get("id") for token in found}, self.folder / BUILT))

    def vocabulary(self, file: str) -> Mapping[str, int] | None:
        """Every token with its id, from tokenizer.json or else from `file`; None when there is neither."""
        if self.built:
            return {**_ids(self.model.get("vocab"), self.folder / BUILT), **self.added()}
        path = self.folder / file
        if not path.exists():
            return None
        stored = read_object(path) if path.suffix == ".json" else {t: i for i, t in enumerate(read_lines(path))}
        return {**_ids(stored, path), **self.added()}

    def merges(self) -> tuple[str, ...]:
        """The merges of byte pairs, "left right", the first to merge first."""
        if self.built:
            found = listed(self.model.get("merges"))
            return tuple(" ".join(map(str, merge)) if isinstance(merge, list) else str(merge) for merge in found)
        path = self.folder / "merges.txt"
        lines = read_lines(path) if path.exists() else []
        return tuple(line for line in lines if line and not line.startswith("#version"))


def read_source(folder: Path) -> Source:
    """Read what is there. Raises UnreadableError when a file is no JSON object, or is KerasHub's."""
    config = {**read_object(folder / "special_tokens_map.json"), **read_object(folder / CONFIG)}
    source = Source(folder, config, read_object(folder / BUILT))
    if "registered_name" in source.built:
        raise unreadable(folder / BUILT, "KerasHub's, not Hugging Face's: both call theirs by this name")
    return source


def mapping(value: object) -> Mapping[str, Any]:
    """The object, or an empty one."""
    return value if isinstance(value, dict) else {}


def listed(value: object) -> list[Any]:
    """The list, or an empty one."""
    return value if isinstance(value, list) else []


def _ids(value: object, where: Path) -> Mapping[str, int]:
    strange = [token for token, number in mapping(value).items() if type(number) is not int or number < 0]
    if strange or not isinstance(value, dict):
        found = repr(strange[0]) if strange else type(value).__name__
        raise unreadable(where, "no vocabulary", expected="tokens with whole numbers", found=found)
    return value
