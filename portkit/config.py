"""Read a config.json in the table's words, and write it back in a layout's."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from portkit.errors import Problem
from portkit.table.expr import evaluate

if TYPE_CHECKING:
    from portkit.table.schema import ConfigField, LayoutFacts, Table

Json = Mapping[str, Any]
TIES = "tie_word_embeddings"  # whether one tensor has two names, and training moves both
_EXPECTED = {int: "a whole number", float: "a number from 0 on", bool: "true or false", str: "a word"}
_UNUSED_LABELS = "id2label does not give the labels 0, 1, 2, … a name each: its names are not used"
_OWN_CODE = (
    "auto_map names code of its own, which was not run: the weights are read as transformers' own class computes them,"
    " and the target does not name that code"
)


@dataclass(frozen=True)
class Config:
    """A config in logical words.

    `values` holds every logical field, `defaulted` those that the file left out, `labels` the class names in order
    where the file gives them, `notes` what a reader should know.
    """

    values: Mapping[str, Any]
    defaulted: tuple[str, ...] = ()
    labels: tuple[str, ...] | None = None
    notes: tuple[str, ...] = field(default=())

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - a config holds any JSON value
        return self.values[name]


def read_config(
    table: Table, layout: str, raw: Json, where: str, problems: list[Problem], remembered: Json | None = None
) -> Config:
    """The logical config of a raw config.json. What is wrong is added to `problems`.

    What the layout's framework fixes is fixed; what it has no field for is as `remembered`, else the default, and is
    not among the `defaulted`.
    """
    values: dict[str, Any] = {}
    defaulted: list[str] = []
    fixed = table.layouts[layout].fixed
    for entry in table.config.values():
        name = entry.name_in(layout)
        if entry.name in fixed or not name:
            values[entry.name] = fixed.get(entry.name, (remembered or {}).get(entry.name, entry.default))
        elif raw.get(name) is None and entry.default is not None:
            values[entry.name] = entry.default
            defaulted += [] if _is_reference(entry.default) else [entry.name]
        else:
            values[entry.name] = _checked(table, entry, raw.get(name), f"{where} {name}", problems)
    for name in table.values:
        values[name] = _logical_value(table, name, layout, values.get(name))
    values = _resolved(values)
    if not problems:
        values |= {n: values[n] + evaluate(e.less[layout], values) for n, e in table.config.items() if layout in e.less}
    problems += _required(table.layouts[layout], raw, where)
    labels = label_names(raw)
    return Config(values, tuple(defaulted), labels, _notes(raw, labels))


def _notes(raw: Json, labels: tuple[str, ...] | None) -> tuple[str, ...]:
    unused = raw.get("id2label") is not None and labels is None
    return (*((_UNUSED_LABELS,) if unused else ()), *((_OWN_CODE,) if raw.get("auto_map") else ()))


def config_in(table: Table, layout: str, values: Json) -> dict[str, Any]:
    """What a logical config becomes in a layout, whose framework may fix some of its function fields."""
    fixed = table.layouts[layout].fixed
    changed = {n: fixed[n] for n, e in table.config.items() if n in fixed and e.use == "function"}
    return _resolved({**values, **changed})


def _is_reference(value: object) -> bool:
    return isinstance(value, str) and value.startswith("{")


def _resolved(values: Json) -> dict[str, Any]:
    return {n: values[v.strip("{}")] if _is_reference(v) else v for n, v in values.items()}


def write_config(table: Table, layout: str, config: Config, carried: Json) -> dict[str, Any]:
    """The fields of the table in a layout's words, over what `carried` already says.

    A spelling in `carried` stays when it means the same: `gelu_fast` is not rewritten as `gelu_new`.
    """
    facts = table.layouts[layout]
    raw = {**{k: v for k, v in facts.require.items() if not isinstance(v, dict)}, **carried}
    for entry in table.config.values():
        name, value = entry.name_in(layout), config.values[entry.name]
        if layout in entry.less:
            value -= evaluate(entry.less[layout], config.values)
        if name and entry.name not in facts.fixed and _logical_value(table, entry.name, layout, raw.get(name)) != value:
            raw[name] = spelled(table, entry.name, layout, value) or value
    return raw


def spelled(table: Table, name: str, layout: str, value: object) -> str | None:
    """How a layout writes a logical value; None when the field has no vocabulary or the layout lacks this value."""
    spellings = table.values.get(name, {}).get(str(value), {}).get(layout, ())
    return spellings[0] if spellings else None


def _logical_value(table: Table, name: str, layout: str, value: object) -> object:
    for logical, spellings in table.values.get(name, {}).items():
        if value in spellings.get(layout, ()):
            return logical
    return value


def _checked(table: Table, entry: ConfigField, value: object, where: str, problems: list[Problem]) -> object:
    default = table.config[str(entry.default).strip("{}")].default if _is_reference(entry.default) else entry.default
    kind = int if default is None else type(default)
    size = entry.use == "size"
    if not _fits(kind, value, size=size):
        expected = "a whole number above 0" if size else _EXPECTED.get(kind, "a value")
        problems.append(Problem(where, "no usable value", expected, "nothing" if value is None else repr(value)))
    return value


def _fits(kind: type, value: object, *, size: bool) -> bool:
    """JSON of strangers: true is no number, and there are NaN, infinity and integers beyond all floats."""
    if isinstance(value, bool) or kind not in (int, float):
        return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
    if kind is float:
        return isinstance(value, (int, float)) and 0 <= value <= sys.float_info.max
    return isinstance(value, int) and (value > 0 or not size)


def _required(facts: LayoutFacts, raw: Json, where: str) -> list[Problem]:
    return [
        Problem(f"{where} {name}", "another function than the table describes", repr(value), repr(raw[name]))
        for name, value in facts.require.items()
        if raw.get(name) is not None and raw[name] != value
    ]


def numbered_labels(count: int) -> tuple[str, ...]:
    """The names that transformers gives to classes without: LABEL_0, LABEL_1, …"""
    return tuple(f"LABEL_{i}" for i in range(count))


def given_names(config: Config, count: int | None) -> tuple[str, ...] | None:
    """The names of `count` classes, where somebody named them all: not fewer, not more, not by numbers only."""
    names = config.labels
    return names if names and len(names) == count and names != numbered_labels(count) else None


def class_names(config: Config, count: int) -> tuple[str, ...]:
    """A name for each of `count` classes: the config's where it has as many, else transformers'."""
    names = config.labels
    return names if names and len(names) == count else numbered_labels(count)


def label_names(raw: Json) -> tuple[str, ...] | None:
    """The class names of a raw config in order, where they are plain and numbered 0, 1, 2, …"""
    names = raw.get("id2label")
    if not isinstance(names, dict) or not all(isinstance(n, (str, int, float)) for n in names.values()):
        return None
    by_index = {str(k): str(v) for k, v in names.items()}
    order = [str(i) for i in range(len(names))]
    return tuple(by_index[i] for i in order) if by_index.keys() == set(order) else None
