"""Goldens of small models for tests."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from hf_folders import config_for, facts_for, saved_state, write_hf

import portkit

if TYPE_CHECKING:
    from pathlib import Path

    from portkit.golden.form import Golden


def hf_folder(path: Path, family: str = "bert", task: str = "model", config: dict | None = None, **facts) -> Path:
    """A folder whose stored tensors may be changed first: `damage` takes and returns the state dict."""
    damage = facts.pop("damage", dict)
    known = facts_for(family, task, **facts)
    return write_hf(path, damage(saved_state(known)), config_for(family, known, **(config or {})))


def recorded(source: Path, **options) -> tuple[Golden, Path]:
    """The golden of a folder, beside it."""
    out = source.with_name(f"{source.name}.golden.json")
    return portkit.golden_record(source, out, **options), out


def rewritten(path: Path, change) -> Path:
    """The same golden file after `change` has had its JSON."""
    said = json.loads(path.read_text(encoding="utf-8"))
    change(said)
    path.write_text(json.dumps(said), encoding="utf-8")
    return path
