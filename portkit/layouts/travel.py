"""The small files that go with a model: its tokenizer's, its card, those of sentence-transformers.

Hugging Face and Burn folders name them alike, and they travel unchanged. KerasHub has files of its own, one of them
under the name of Hugging Face's tokenizer.json: they are made, and the originals lie in a folder beside them until the
way back.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from portkit.layouts.files import travelling
from portkit.tokenizers.convert import hf_tokenizer_files, keras_tokenizer_files

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from portkit.layouts.base import Model

KEPT = "portkit.files"  # where a preset keeps the files of the folder that it came from
_PRESET = ("tokenizer.json", "preprocessor.json", "assets", KEPT)
_READ = ("metadata.json", "task.json")  # of a preset, besides its config and weights
_CARD = ("README.md", "LICENSE")
_NO_TOKENIZER = "no tokenizer goes along: it is read from a preset's folder, not from bare weights or a .keras archive"
_MOST = 10_000  # files below a folder of a preset


@dataclass(frozen=True)
class Travel:
    """`copied`: name in the output -> where it comes from. `made`: name -> bytes. `notes` are warnings.

    `preprocessor` is the object that KerasHub's task.json wants.
    """

    copied: Mapping[str, Path] = field(default_factory=dict)
    made: Mapping[str, bytes] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    preprocessor: Mapping[str, Any] | None = None

    def put(self, folder: Path) -> tuple[str, ...]:
        """Write all of it into a folder; the names of what was copied."""
        for name, source in self.copied.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, folder / name)
        for name, data in self.made.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
        return tuple(self.copied)


def travel(home: Path, layout: str, target: str, model: Model) -> Travel:
    """What goes from a folder of one layout into a folder of another.

    Raises UnreadableError for a tokenizer's files that are broken.
    """
    plain = {name: home / name for name in travelling(home)}
    if layout == target == "keras":
        return Travel(_of_preset(home))
    if target == "keras":
        return _into_preset(home, plain, model)
    return _out_of_preset(home) if layout == "keras" else Travel(plain)


def seen(home: Path, layout: str) -> set[str]:
    """The names, below a folder, of what is read or travels."""
    return {*_of_preset(home), *_READ} if layout == "keras" else set(travelling(home))


def _into_preset(home: Path, plain: Mapping[str, Path], model: Model) -> Travel:
    copied = {name if name in _CARD else f"{KEPT}/{name}": path for name, path in plain.items()}
    if not any("token" in name or "vocab" in name or name.endswith(".model") for name in plain):
        return Travel(copied)
    kind, facts = model.task.classes["keras"], model.facts
    files = keras_tokenizer_files(home, kind, vocab_size=facts.vocab_size, max_length=facts.usable_length)
    return Travel(copied, files.files, _of_tokenizer(files.notes), files.preprocessor)


def _out_of_preset(home: Path) -> Travel:
    card = {name: home / name for name in _CARD if (home / name).is_file()}
    kept = {name.removeprefix(f"{KEPT}/"): p for name, p in _of_preset(home).items() if name.startswith(f"{KEPT}/")}
    if kept:
        return Travel({**card, **kept})
    if not (home / "tokenizer.json").is_file():
        return Travel(card, notes=(_NO_TOKENIZER,))
    files = hf_tokenizer_files(home)
    return Travel(card, files.files, _of_tokenizer(files.notes))


def _of_preset(home: Path) -> dict[str, Path]:
    """Every file of a preset that is no model, by its name below the folder. Links to folders are not followed."""
    found = {name: home / name for name in _CARD if (home / name).is_file()}
    for top in (home / name for name in _PRESET):
        inside = sorted(top.rglob("*"))[:_MOST] if top.is_dir() and not top.is_symlink() else [top]
        found |= {p.relative_to(home).as_posix(): p for p in inside if p.is_file()}
    return found


def _of_tokenizer(notes: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(f"tokenizer: {note.removeprefix('no tokenizer: ')}" for note in notes)
