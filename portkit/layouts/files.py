"""Files that every layout has: JSON, label names, and the tokenizer's, which travel unchanged."""

from __future__ import annotations

import hashlib
import json
from codecs import BOM_UTF8
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from portkit.config import numbered
from portkit.errors import unreadable
from portkit.formats.source import file_source, system_errors
from portkit.formats.strict_json import parse_object

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from pathlib import Path

    from portkit.layouts.base import Model

MAX_JSON = 64 << 20
TRAVEL = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.txt",
    "vocab.json",
    "merges.txt", "sentencepiece.bpe.model", "spiece.model", "modules.json", "sentence_bert_config.json",
    "config_sentence_transformers.json", "1_Pooling/config.json", "README.md", "LICENSE",
)  # fmt: skip


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file of bounded size. Raises UnreadableError."""
    source = file_source(path)
    if source.size > MAX_JSON:
        found = f"{source.size} bytes"
        raise unreadable(path, "too large for a config", expected=f"at most {MAX_JSON} bytes", found=found)
    return parse_object(source.read(0, source.size).removeprefix(BOM_UTF8), path, "the file")


@dataclass(frozen=True)
class OutputFile:
    """A file of an output folder: `size` in bytes, `how` is "written", or "copied" from the source."""

    name: str
    how: str
    size: int
    sha256: str


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write as transformers does: two spaces, sorted keys, one newline at the end.

    Half a surrogate pair, which JSON can name and UTF-8 cannot hold, stays the escape that it was.
    """
    text = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    path.write_text(text, encoding="utf-8", errors="backslashreplace")


def label_fields(model: Model) -> dict[str, Any]:
    """`id2label` and `label2id` for a model with classes; names that the source lacks are LABEL_0, LABEL_1, …"""
    count = model.facts.num_labels
    if count is None:
        return {}
    labels = model.config.labels
    names = labels if labels and len(labels) == count else numbered(count)
    return {
        "id2label": {str(i): n for i, n in enumerate(names)},
        "label2id": {n: i for i, n in enumerate(names)},
    }


def travelling(source: Path) -> tuple[str, ...]:
    """The names of what travels unchanged, of that which is there."""
    with system_errors(source):
        return tuple(name for name in TRAVEL if (source / name).is_file())


def left_behind(folder: Path, used: Collection[str], *, inside: str = "") -> tuple[str, ...]:
    """The names of what lies in a folder and is not among `used`, hidden files too.

    A folder is one name, with a slash at its end, unless a file inside is used.
    """
    names: list[str] = []
    for path in sorted(folder.iterdir()):
        name = inside + path.name
        if not path.is_dir():
            names += [] if name in used else [name]
        elif any(n.startswith(f"{name}/") for n in used):
            names += left_behind(path, used, inside=f"{name}/")
        else:
            names.append(f"{name}/")
    return tuple(names)


def output_files(folder: Path, copied: Collection[str], digests: Mapping[str, str]) -> tuple[OutputFile, ...]:
    """Every file in an output folder, by name; those without a SHA-256 in `digests` are read for it."""
    names = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
    how = {name: "copied" if name in copied else "written" for name in names}
    return tuple(
        OutputFile(name, how[name], (folder / name).stat().st_size, digests[name])
        if name in digests
        else replace(hashed(folder / name, how[name]), name=name)
        for name in names
    )


def hashed(path: Path, how: str) -> OutputFile:
    """One file, read for its hash."""
    with system_errors(path), path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return OutputFile(path.name, how, file.tell(), digest)
