"""Open a folder of any layout: its one set of weights, its config, and what an earlier conversion left beside them."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from portkit.errors import Problem, UnreadableError, unreadable
from portkit.formats import open_container
from portkit.formats.hashing import sha256_of
from portkit.formats.sharded import NUMBERED
from portkit.formats.source import system_errors
from portkit.layouts.files import left_behind, read_json
from portkit.layouts.keras_folder import open_keras
from portkit.layouts.travel import seen

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from portkit.formats.container import Container
    from portkit.table.schema import Tables

RECORD = "portkit.json"
RESIDUE = "portkit.residue.safetensors"
_WEIGHT_SUFFIXES = (
    ".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".bpk", ".mpk", ".mpk.gz", ".weights.h5", ".keras", ".h5",
)  # fmt: skip
_INDEX_SUFFIXES = (".safetensors.index.json", ".bin.index.json", ".weights.json")
_NO_WEIGHTS = (  # of no use alone, or state of a training
    "task.weights.h5", "tf_model.h5", "adapter_model.safetensors", "adapter_model.bin", "training_args.bin",
    "optimizer.pt", "optimizer.bin", "scheduler.pt", "scheduler.bin", "scaler.pt", "rng_state*.pth",
)  # fmt: skip
_LOOKED_AT = 10_000  # files in folders below, where a folder has no weights
_PARTS = ("config.json", "task.json", "task.weights.h5")  # no one's whole checkpoint
_UNREAD = {
    "tf_model.h5": "TensorFlow's",
    "flax_model.msgpack": "Flax's",
    "model.onnx": "ONNX's",
    "rust_model.ot": "rust-bert's",
    "__0_0.distcp": "torch.distributed.checkpoint's",
    "saved_model.pb": "a SavedModel of TensorFlow",
    "adapter_model.safetensors": "an adapter, to be merged with merge_and_unload() of peft",
    "adapter_model.bin": "an adapter, to be merged with merge_and_unload() of peft",
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

    def weights_files(self) -> tuple[Path, ...]:
        """The files that hold the weights, a Keras task's own and shards among them."""
        names = {t.file for t in self.container.tensors.values() if t.file}
        return (self.weights, *(self.weights.parent / n for n in sorted(names - {self.weights.name})))

    @cached_property
    def digests(self) -> dict[str, str]:
        """Name -> SHA-256 of the weights' files, which are read once for it. Raises UnreadableError."""
        return {path.name: sha256_of(path) for path in self.weights_files()}

    @property
    def home(self) -> Path:
        """The folder that it lies in; the one around it where a weight file was named."""
        return self.path if self.path.is_dir() else self.path.parent

    def left_behind(self) -> tuple[str, ...]:
        """The names of all files and folders beside the weights that were not read and do not travel."""
        read = {self.weights.name, RECORD, RESIDUE, *(t.file for t in self.container.tensors.values())}
        with system_errors(self.home):
            own = [self.config_path.name] if self.config_path.parent.samefile(self.home) else []
            layout = "keras" if self.container.format == "hdf5" else ""
            return left_behind(self.home, {*read, *own, *seen(self.home, layout)})


def open_folder(path: Path, tables: Tables, config: Path | None = None) -> Folder:
    """Open a folder, or one weight file with what lies beside it.

    Raises UnreadableError: no such path, no weights, two sets of weights, no config, or anything unreadable.
    """
    with system_errors(path):
        if not path.exists():
            raise unreadable(path, "no such file or folder", hint=_download(path))
        if path.is_file() and path.name in _PARTS:
            raise unreadable(path, "only a part of a checkpoint", hint=f"name its folder: {path.parent}")
    folder = path if path.is_dir() else path.parent
    with system_errors(folder):
        weights = _find_weights(folder, tables) if path.is_dir() else _named(path)
    container = open_container(weights)
    config_path = config or folder / "config.json"
    container, raw = _with_config(weights, container, config, config_path, tables)
    residue = folder / RESIDUE
    record = read_json(folder / RECORD) if (folder / RECORD).exists() else {}
    return Folder(
        path=path,
        weights=weights,
        container=container,
        config=raw,
        config_path=config_path,
        record=record,
        residue=open_container(residue) if residue.exists() else None,
        notes=(*container.notes, *_not_read(folder), *_failed(record)),
    )


def _with_config(
    weights: Path, container: Container, named: Path | None, config: Path, tables: Tables
) -> tuple[Container, Mapping[str, Any]]:
    """The raw config. Keras' files may hold their own, or need none; their paths are brought to today's."""
    there = named is not None or os.path.lexists(config)
    if container.format == "hdf5":
        return open_keras(weights, container, config if there else None, tables.storages["keras"])
    if not there:
        hint = "--config FILE names one that lies elsewhere"
        raise unreadable(config, "no config.json beside the weights", hint=hint)
    return container, read_json(config)


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
        p
        for p in folder.iterdir()
        if p.is_file() and p.name.endswith(_WEIGHT_SUFFIXES)
        if not any(fnmatchcase(p.name, pattern) for pattern in (RESIDUE, *_NO_WEIGHTS))
    )
    indexes = sorted(p for p in folder.iterdir() if p.name.endswith(_INDEX_SUFFIXES))
    return indexes or files


def _no_index(folder: Path, shards: list[Path]) -> UnreadableError:
    suffix = shards[0].suffix
    hint = f"download *{suffix}.index.json too, or save the model again: it says which tensor lies in which file"
    found = ", ".join(p.name for p in shards[:2]) + (", …" if len(shards) > 2 else "")
    return unreadable(folder, "shards without their index", expected=f"*{suffix}.index.json", found=found, hint=hint)


def _no_weights(folder: Path, usual: tuple[str, ...]) -> UnreadableError:
    there = sorted(p.name for p in folder.iterdir())
    unread = (f"{n} is {kind}, which portkit does not read" for n, kind in _UNREAD.items() if n in there)
    inside = (f"weights lie further inside: name {place}" for place in _inside(folder, usual))
    hint = next(chain(unread, inside), "")
    found = ", ".join(there[:10]) if there else "an empty folder"
    return UnreadableError(
        "cannot read the checkpoint",
        [Problem(str(folder), "holds no weights", " or ".join(usual), found, hint)],
    )


def _inside(folder: Path, usual: tuple[str, ...]) -> list[Path]:
    """The folders up to two levels below that hold weights: a transformer of several modules, a cache's snapshot."""
    below = chain(islice(folder.glob("*/*"), _LOOKED_AT), islice(folder.glob("*/*/*"), _LOOKED_AT))
    return sorted({p.parent for p in below if p.name in usual})


def _download(path: Path) -> str:
    """What to do about a path that does not exist and looks like a name on the Hub."""
    if path.parent.exists() or not re.fullmatch(r"[\w-][\w.-]*/[\w-][\w.-]*", path.as_posix()):
        return ""
    return f"portkit reads folders: for a model of the Hub, first hf download {path} --local-dir {path.name}"


def _failed(record: Mapping[str, Any]) -> list[str]:
    """A warning for a folder that was kept although a proof failed when it was made."""
    return [f"{RECORD} says that this folder failed its proof: do not rely on it"] if record.get("failed") else []


def _not_read(folder: Path) -> list[str]:
    return [
        f"{name}, {kind}, lies beside the weights and was not looked at"
        for name, kind in _UNREAD.items()
        if (folder / name).exists()
    ]
