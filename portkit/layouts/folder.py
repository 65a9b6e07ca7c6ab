"""Open a folder of any layout: its one set of weights, its config, and what an earlier conversion left beside them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from portkit.errors import Problem, UnreadableError, unreadable
from portkit.formats import open_container
from portkit.formats.sharded import NUMBERED
from portkit.layouts.files import left_behind, read_json, travelling
from portkit.layouts.keras_folder import open_keras

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
_NO_WEIGHTS = ("task.weights.h5", "tf_model.h5")  # of no use alone
_PARTS = ("config.json", "task.json", "task.weights.h5")  # no one's whole checkpoint
_UNREAD = {
    "tf_model.h5": "TensorFlow's",
    "flax_model.msgpack": "Flax's",
    "model.onnx": "ONNX's",
    "rust_model.ot": "rust-bert's",
    "saved_model.pb": "a SavedModel of TensorFlow",
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

    @property
    def home(self) -> Path:
        """The folder that it lies in; the one around it where a weight file was named."""
        return self.path if self.path.is_dir() else self.path.parent

    def left_behind(self) -> tuple[str, ...]:
        """The names of all files and folders beside the weights that were not read and do not travel."""
        read = {self.weights.name, RECORD, RESIDUE, *(t.file for t in self.container.tensors.values())}
        own = self.config_path.parent.samefile(self.home)
        return left_behind(self.home, {*read, *travelling(self.home), *([self.config_path.name] if own else [])})


def open_folder(path: Path, tables: Tables, config: Path | None = None) -> Folder:
    """Open a folder, or one weight file with what lies beside it.

    Raises UnreadableError: no such path, no weights, two sets of weights, no config, or anything unreadable.
    """
    if not path.exists():
        raise unreadable(path, "no such file or folder")
    if path.is_file() and path.name in _PARTS:
        raise unreadable(path, "only a part of a checkpoint", hint=f"name its folder: {path.parent}")
    folder = path if path.is_dir() else path.parent
    weights = path if path.is_file() else _find_weights(folder, tables)
    container = open_container(weights)
    config_path = config or folder / "config.json"
    container, raw = _with_config(weights, container, config_path, tables)
    residue = folder / RESIDUE
    return Folder(
        path=path,
        weights=weights,
        container=container,
        config=raw,
        config_path=config_path,
        record=read_json(folder / RECORD) if (folder / RECORD).exists() else {},
        residue=open_container(residue) if residue.exists() else None,
        notes=(*container.notes, *_not_read(folder)),
    )


def _with_config(
    weights: Path, container: Container, config: Path, tables: Tables
) -> tuple[Container, Mapping[str, Any]]:
    """The raw config. Keras' files may hold their own, or need none; their paths are brought to today's."""
    if container.format == "hdf5":
        return open_keras(weights, container, config if config.exists() else None, tables.storages["keras"])
    if not config.exists():
        hint = "--config FILE names one that lies elsewhere"
        raise unreadable(config, "no config.json beside the weights", hint=hint)
    return container, read_json(config)


def _find_weights(folder: Path, tables: Tables) -> Path:
    usual = dict.fromkeys(name for n in tables.layouts for name in tables.storages[n].weights)
    found = [folder / name for name in usual if (folder / name).exists()] or _unusual(folder)
    if len(found) == 1:
        return found[0]
    if not found:
        raise _no_weights(folder, tuple(usual))
    if all(NUMBERED.fullmatch(p.name) for p in found):
        raise _no_index(folder, found)
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
        if p.is_file() and p.name.endswith(_WEIGHT_SUFFIXES) and p.name not in (RESIDUE, *_NO_WEIGHTS)
    )
    indexes = sorted(p for p in folder.iterdir() if p.name.endswith(_INDEX_SUFFIXES))
    return indexes or files


def _no_index(folder: Path, shards: list[Path]) -> UnreadableError:
    suffix = shards[0].suffix
    hint = f"download *{suffix}.index.json too, or save the model again: it says which tensor lies in which file"
    found = f"{len(shards)} files such as {shards[0].name}"
    return unreadable(folder, "shards without their index", expected=f"*{suffix}.index.json", found=found, hint=hint)


def _no_weights(folder: Path, usual: tuple[str, ...]) -> UnreadableError:
    there = sorted(p.name for p in folder.iterdir())
    hint = next((f"{n} is {kind}, which portkit does not read" for n, kind in _UNREAD.items() if n in there), "")
    found = ", ".join(there[:10]) if there else "an empty folder"
    return UnreadableError(
        "cannot read the checkpoint",
        [Problem(str(folder), "holds no weights", " or ".join(usual), found, hint)],
    )


def _not_read(folder: Path) -> list[str]:
    return [
        f"{name}, {kind}, lies beside the weights and was not looked at"
        for name, kind in _UNREAD.items()
        if (folder / name).exists()
    ]
