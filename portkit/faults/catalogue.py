"""The faults as `faults.toml` says them, one value for each."""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE = Path(__file__).with_name("faults.toml")

Value = str | int | float


@dataclass(frozen=True)
class Step:
    """One change of tensors: what is done where, with which arguments. Its fields are explained in faults.toml."""

    at: str
    op: str
    with_: str = ""
    by: Value = 0
    row: Value = 0
    dtype: str = ""


@dataclass(frozen=True)
class Fault:
    """One fault, and the proofs that see it. Its fields are explained in faults.toml."""

    name: str
    seen_by: frozenset[str]
    steps: tuple[Step, ...] = ()
    config: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    program: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    only: Mapping[str, Value] = field(default_factory=dict)
    labels: str = ""
    inputs: str = ""
    without: str = ""
    because: str = ""


@functools.cache
def load_faults() -> tuple[Fault, ...]:
    """All faults, in the order of the file."""
    entries = tomllib.loads(FILE.read_text(encoding="utf-8"))["fault"]
    return tuple(_fault(_filled(entry, word)) for entry in entries for word in entry.get("each", [""]))


def _filled(value: Any, word: str) -> Any:  # noqa: ANN401 - a TOML file holds any value
    """The same value with `word` for {each}."""
    if isinstance(value, str):
        return int(word) if value == "{each}" and word.isdigit() else value.replace("{each}", word)
    if isinstance(value, list):
        return [_filled(item, word) for item in value]
    return {k: _filled(v, word) for k, v in value.items()} if isinstance(value, dict) else value


def _fault(entry: Mapping[str, Any]) -> Fault:
    steps = tuple(_step(s) for s in ([entry] if "op" in entry else []) + entry.get("more", []))
    said = {k: entry[k] for k in ("only", "labels", "inputs", "without", "because") if k in entry}
    config, program = (_lists(entry.get(k, {})) for k in ("config", "program"))
    return Fault(entry["name"], frozenset(entry["seen_by"]), steps, config, program, **said)


def _lists(changes: Mapping[str, list[Value]]) -> dict[str, tuple[Value, ...]]:
    return {name: tuple(values) for name, values in changes.items()}


def _step(entry: Mapping[str, Any]) -> Step:
    arguments = {k: entry[k] for k in ("by", "row", "dtype") if k in entry}
    return Step(entry["at"], entry["op"], entry.get("with", ""), **arguments)
