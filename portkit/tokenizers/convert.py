"""From the tokenizer of a Hugging Face folder to the files of a KerasHub preset, and back. Pure: nothing is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from portkit.errors import Problem, UsageError
from portkit.tokenizers.hf_read import read_hf
from portkit.tokenizers.hf_write import write_hf
from portkit.tokenizers.keras_objects import family_of
from portkit.tokenizers.keras_read import read_keras
from portkit.tokenizers.keras_write import write_keras
from portkit.tokenizers.kinds import Files, differences

if TYPE_CHECKING:
    from pathlib import Path


def keras_tokenizer_files(folder: Path, class_name: str, *, vocab_size: int, max_length: int) -> Files:
    """What a preset of the KerasHub class `class_name` needs beside its weights, from a Hugging Face folder.

    `vocab_size` counts the rows of the model's word table, `max_length` the tokens that it takes. Without a tokenizer
    that KerasHub has the like of there are no files, and the notes say why. A backbone gets the preprocessor of
    a text classifier.
    Raises UsageError for a class of another architecture, UnreadableError for files that are broken.
    """
    family = family_of(class_name)
    if family is None:
        raise UsageError("cannot write the tokenizer", [Problem(class_name, "no class whose tokenizer is known")])
    found = read_hf(folder, family.kind, vocab_size)
    if found.kind is None:
        return Files({}, tuple(f"no tokenizer: {note}" for note in found.notes))
    written = write_keras(found.kind, family, class_name, min(max_length, found.max_length or max_length))
    notes = (*found.notes, *written.notes, *differences(found.kind))
    return Files(written.files, notes, written.tokenizer, written.preprocessor)


def hf_tokenizer_files(preset: Path) -> Files:
    """The tokenizer of a KerasHub preset as the files of a Hugging Face folder: old ones, and a tokenizer.json.

    Without a tokenizer that portkit knows there are no files, and the notes say why. Raises UnreadableError for files
    that are broken.
    """
    found = read_keras(preset)
    if found.kind is None:
        return Files({}, tuple(f"no tokenizer: {note}" for note in found.notes))
    written = write_hf(found.kind, found.max_length)
    return Files(written.files, (*found.notes, *written.notes, *differences(found.kind)))
