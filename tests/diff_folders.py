"""Folders to compare: a random small model in any layout, and the same with something done to its stored tensors."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

import numpy as np
from hf_folders import small_model
from safetensors.numpy import load_file, save_file

import portkit
from portkit.checkpoint import open_checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

LAYOUTS = ("hf", "burn")


def model(folder: Path, layout: str = "hf", family: str = "bert", task: str = "model", **changes: object) -> Path:
    """A random model in a layout, as safetensors; the same numbers in every layout."""
    if layout == "hf":
        return small_model(folder, family, task, **changes)
    source = small_model(folder.with_name(f"{folder.name}-hf"), family, task, **changes)
    portkit.convert(source, folder, to=layout, form="safetensors", verify="none")
    return folder


def edited(
    source: Path,
    target: Path,
    change: Callable[[dict[str, np.ndarray]], Mapping[str, np.ndarray]],
    config: Mapping[str, object] | None = None,
) -> Path:
    """A copy of a folder with other numbers.

    `change` is given every stored tensor under its logical name, [in, out], and returns those to be written back.
    """
    shutil.copytree(source, target)
    checkpoint = open_checkpoint(source)
    stored, turned = checkpoint.anatomy.stored, checkpoint.anatomy.layout == "hf"
    state = load_file(source / "model.safetensors")
    logical = {n: _turned(n, state[s], turned) for n, s in stored.items()}
    for name, array in change(logical).items():
        state[stored[name]] = np.ascontiguousarray(_turned(name, array, turned))
    save_file(state, target / "model.safetensors", metadata={"format": "pt"})
    said = json.loads((target / "config.json").read_text(encoding="utf-8"))
    (target / "config.json").write_text(json.dumps({**said, **(config or {})}), encoding="utf-8")
    return target


def _turned(name: str, array: np.ndarray, turned: bool) -> np.ndarray:
    return array.T if turned and name.endswith(".kernel") else array
