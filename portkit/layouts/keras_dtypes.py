"""Dtype policies in Keras' configs: those of a quantised model are found, whose weights are not the model's numbers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from portkit.errors import Problem, RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_QUANTISED = re.compile(r"(\w[\w/]*)_from_\w+")  # Keras: int8_from_float32, int4/128_from_float32
_FLOAT = ("DTypePolicy", "FloatDTypePolicy")
_HINT = "dequantise it, or convert the model as it was before quantize()"


def check_dtypes(said: Mapping[str, Any]) -> None:
    """Raise RefusedError where a config says that layers are quantised, with the mode and one of the layers."""
    modes: dict[str, str] = {}
    for where, mode in _modes(said):
        modes.setdefault(mode, where)
    if modes:
        problems = [
            Problem(f"config.json {where}", "a quantised layer", "float32, float16, bfloat16 or float64", mode, _HINT)
            for mode, where in modes.items()
        ]
        raise RefusedError("the model is quantised", problems)


def _modes(said: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(path, mode) of every quantising policy in an object of Keras, in its order."""
    waiting: list[tuple[str, object]] = [("", said)]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, dict):
            if mode := _mode(value):
                yield path, mode
                continue
            waiting += [(f"{path}.{key}".strip("."), child) for key, child in reversed(value.items())]
        elif isinstance(value, list):
            waiting += [(f"{path}.{i}".strip("."), child) for i, child in reversed([*enumerate(value)])]
        elif isinstance(value, str) and path.rpartition(".")[2] == "dtype" and (match := _QUANTISED.fullmatch(value)):
            yield path, match[1]


def _mode(value: Mapping[str, Any]) -> str:
    """The mode of a serialised policy; nothing for one of plain floats, and for any other object."""
    name, config = str(value.get("class_name", "")), value.get("config")
    if not name.endswith("DTypePolicy") or not isinstance(config, dict):
        return ""
    if match := _QUANTISED.fullmatch(str(config.get("name", ""))):
        return match[1]
    return "" if name in _FLOAT else str(config.get("mode") or name)
