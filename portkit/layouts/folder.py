"""Open a folder of any layout: its one set of weights, its config, and what an earlier conversion left beside them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from portkit.errors import Problem, UnreadableError, unreadable
from portkit.formats import open_container

if TYPE_CHECKING:
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


def open_folder(path: Path, tables: Tables, config: Path | None = None) -> Folder:
    """Open a folder, or one weight file with what lies beside it.

    Raises UnreadableError: no such path, no weights, two sets of weights, no config, or anything unreadable.
    """
    if not path.exists():
        raise unreadable(path, "no such file or folder")
    folder = path if path.is_dir() else path.parent
    weights = path if path.is_file() else _find_weights(folder, tables)
    container = open_container(weights)
    config_path = config or folder / "config.json"
    if not config_path.exists():
        raise unreadable(
            config_path,
            "no config.json beside the weights",
            hint="--config FILE names one that lies elsewhere",
        )
    residue = folder / RESIDUE
    record = read_json(folder / RECORD) if (folder / RECORD).exists() else {}
    return Folder(
        path=path,
        weights=weights,
        container=container,
        config=read_json(config_path),
        config_path=config_path,
        record=record,
        residue=open_container(residue) if residue.exists() else None,
        notes=(*container.notes, *_not_read(folder), *_failed(record)),
    )


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file of bounded size. Raises UnreadableError."""
    try:
        if path.stat().st_size > _MAX_JSON:
            size = f"{path.stat().st_size} bytes"
            raise unreadable(path, "too large for a config", expected=f"at most {_MAX_JSON} bytes", found=size)
        value = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as e:
        raise unreadable(path, "not a JSON file", found=str(e)) from e
    except OSError as e:
        raise unreadable(path, "cannot be read", found=str(e.strerror)) from e
    if not isinstance(value, dict):
        raise unreadable(path, "not a JSON object", expected="{…}", found=type(value).__name__)
    return value


def _find_weights(folder: Path, tables: Tables) -> Path:
    usual = dict.fromkeys(name for n in tables.layouts for name in tables.storages[n].weights)
    found = [folder / name for name in usual if (folder / name).exists()] or _unusual(folder)
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


def _no_weights(folder: Path, usual: tuple[str, ...]) -> UnreadableError:
    there = sorted(p.name for p in folder.iterdir())
    hint = next((f"{n} is {kind}'s, which portkit does not read" for n, kind in _UNREAD.items() if n in there), "")
    found = ", ".join(there[:10]) if there else "an empty folder"
    return UnreadableError(
        "cannot read the checkpoint",
        [Problem(str(folder), "holds no weights", " or ".join(usual), found, hint)],
    )


def _failed(record: Mapping[str, Any]) -> list[str]:
    """A warning for a folder that was kept although a proof failed when it was made."""
    return [f"{RECORD} says that this folder failed its proof: do not rely on it"] if record.get("failed") else []


def _not_read(folder: Path) -> list[str]:
    return [
        f"{name} ({kind}) lies beside the weights and was not looked at"
        for name, kind in _UNREAD.items()
        if (folder / name).exists()
    ]
