"""Open a folder of any layout: its one set of weights, its config, and what an earlier conversion left beside them."""

from __future__ import annotations

import os
from codecs import BOM_UTF8
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from portkit.errors import Problem, UnreadableError, unreadable
from portkit.formats import open_container
from portkit.formats.sharded import NUMBERED
from portkit.formats.source import file_source, system_errors
from portkit.formats.strict_json import parse_object
from portkit.layouts.files import left_behind, travelling

if TYPE_CHECKING:
    import re
    from collections.abc import Mapping
    from pathlib import Path

    from portkit.formats.container import Container
    from portkit.table.schema import Tables

RECORD = "portkit.json"
RESIDUE = "portkit.residue.safetensors"
_MAX_JSON = 64 << 20
_WEIGHT_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".bpk", ".mpk", ".mpk.gz")
_UNREAD = {
    "tf_model.h5": "TensorFlow",
    "flax_model.msgpack": "Flax",
    "model.onnx": "ONNX",
    "rust_model.ot": "rust-bert",
    "model.weights.h5": "Keras",
    "__0_0.distcp": "torch.distributed.checkpoint",
}


@dataclass(frozen=True)
class Folder:
    """A checkpoint as it lies on disk.

    `weights` is the file that was opened, `config` the raw config.json, `record` that of an earlier conversion or
    nothing, `residue` what it kept aside, `notes` what was seen and not used.
    """

    path: Path
    weights: Path
    container: Container
    config: Mapping[str, Any]
    config_path: Path
    record: Mapping[str, Any]
    residue: Container | None
    notes: tuple[str, ...]

    @property
    def home(self) -> Path:
        """The folder that it lies in; the one around it where a weight file was named."""
        return self.path if self.path.is_dir() else self.path.parent

    def left_behind(self) -> tuple[str, ...]:
        """The names of all files and folders beside the weights that were not read and do not travel."""
        read = {self.weights.name, RECORD, RESIDUE, *(t.file for t in self.container.tensors.values())}
        with system_errors(self.home):
            own = [self.config_path.name] if self.config_path.parent.samefile(self.home) else []
            return left_behind(self.home, {*read, *own, *travelling(self.home)})


def open_folder(path: Path, tables: Tables, config: Path | None = None) -> Folder:
    """Open a folder, or one weight file with what lies beside it.

    Raises UnreadableError: no such path, no weights, two sets of weights, no config, or anything unreadable.
    """
    with system_errors(path):
        if not path.exists():
            raise unreadable(path, "no such file or folder")
    folder = path if path.is_dir() else path.parent
    with system_errors(folder):
        weights = _find_weights(folder, tables) if path.is_dir() else _named(path)
    container = open_container(weights)
    config_path = config or folder / "config.json"
    if config is None and not os.path.lexists(config_path):
        raise unreadable(
            config_path,
            "no config.json beside the weights",
            hint="--config FILE names one that lies elsewhere",
        )
    residue = folder / RESIDUE
    return Folder(
        path=path,
        weights=weights,
        container=container,
        config=read_json(config_path),
        config_path=config_path,
        record=read_json(folder / RECORD) if (folder / RECORD).exists() else {},
        residue=open_container(residue) if residue.exists() else None,
        notes=(*container.notes, *_not_read(folder)),
    )


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file of bounded size. Raises UnreadableError."""
    source = file_source(path)
    if source.size > _MAX_JSON:
        found = f"{source.size} bytes"
        raise unreadable(path, "too large for a config", expected=f"at most {_MAX_JSON} bytes", found=found)
    return parse_object(source.read(0, source.size).removeprefix(BOM_UTF8), path, "the file")


def _named(path: Path) -> Path:
    """A weight file that was named. Raises UnreadableError for one of several shards, which is no model."""
    if shard := _of_several(path):
        hint = f"name the folder, or the index in it: {path.parent / (shard['stem'] + shard['suffix'] + '.index.json')}"
        raise unreadable(path, f"one of {int(shard['count'])} shards of a model", hint=hint)
    return path


def _of_several(path: Path) -> re.Match[str] | None:
    match = NUMBERED.fullmatch(path.name)
    return match if match and int(match["count"]) > 1 else None


def _find_weights(folder: Path, tables: Tables) -> Path:
    usual = dict.fromkeys(name for n in tables.layouts for name in tables.storages[n].weights)
    found = [folder / name for name in usual if os.path.lexists(folder / name)] or _unusual(folder)
    if shards := [p for p in found if _of_several(p)]:
        raise _no_index(folder, shards)
    if len(found) == 1:
        return found[0]
    if not found:
        raise _no_weights(folder, tuple(usual))
    names = ", ".join(p.name for p in found)
    hint = f"name the one to read, as in {found[0]}"
    raise UnreadableError(
        "cannot tell which weights to read",
        [Problem(str(folder), "holds more than one set of weights", "one", names, hint)],
    )


def _unusual(folder: Path) -> list[Path]:
    """Weight files under other names, taken only where nothing has a usual name: `epoch=3.ckpt`, `bert.bpk`."""
    files = sorted(
        p for p in folder.iterdir() if p.is_file() and p.name.endswith(_WEIGHT_SUFFIXES) and p.name != RESIDUE
    )
    indexes = sorted(p for p in folder.iterdir() if p.name.endswith((".safetensors.index.json", ".bin.index.json")))
    return indexes or files


def _no_index(folder: Path, shards: list[Path]) -> UnreadableError:
    suffix = shards[0].suffix
    hint = f"download *{suffix}.index.json too, or save the model again: it says which tensor lies in which file"
    found = ", ".join(p.name for p in shards[:2]) + (", …" if len(shards) > 2 else "")
    return unreadable(folder, "shards without their index", expected=f"*{suffix}.index.json", found=found, hint=hint)


def _no_weights(folder: Path, usual: tuple[str, ...]) -> UnreadableError:
    there = sorted(p.name for p in folder.iterdir())
    hint = next((f"{n} is {kind}'s, which portkit does not read" for n, kind in _UNREAD.items() if n in there), "")
    found = ", ".join(there[:10]) if there else "an empty folder"
    return UnreadableError(
        "cannot read the checkpoint",
        [Problem(str(folder), "holds no weights", " or ".join(usual), found, hint)],
    )


def _not_read(folder: Path) -> list[str]:
    return [
        f"{name} ({kind}) lies beside the weights and was not looked at"
        for name, kind in _UNREAD.items()
        if (folder / name).exists()
    ]
