"""The grammar of table files: which keys stand where, and what each may say. docs/tables.md explains their meaning.

A new key is one line here, and one where `load.py` or `rows.py` reads it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from portkit.facts import ACTIVATIONS, DTYPES, HEAD_STYLES, POSITION_SCHEMES, TASKS
from portkit.table.leaves import (
    ANY,
    COUNT,
    EPSILON,
    FILLED,
    FLAG,
    HOLE,
    JSON,
    KEY,
    LETTER,
    PATTERN,
    REAL,
    REASON,
    TEXT,
    WHOLE,
    YES,
    expression,
    logical_name,
    signature,
    template,
)
from portkit.table.rows import holes
from portkit.table.rules import Either, Keys, Leaf, ListOf, MapOf, OneOf, Rule
from portkit.table.schema import CONFIG_USES, KINDS, POOLER_USES

if TYPE_CHECKING:
    from collections.abc import Collection

Toml = dict[str, Any]

FIELDS: dict[str, Rule] = {  # what makes the facts of a model; a family may have more
    "vocab_size": COUNT,
    "hidden_size": COUNT,
    "num_hidden_layers": COUNT,
    "num_attention_heads": COUNT,
    "intermediate_size": COUNT,
    "max_position_embeddings": COUNT,
    "type_vocab_size": COUNT,
    "layer_norm_eps": EPSILON,
    "hidden_act": OneOf("activation", ACTIVATIONS),
    "lm_head_eps": EPSILON,
    "lm_head_act": OneOf("activation", ACTIVATIONS),
    "pad_token_id": WHOLE,
}
_LAYERS = "num_hidden_layers"  # the only field that a hole can count to
_LABELS = "num_labels"  # a size, and no field: the classifier's shape decides it
_BY_DEFAULT: dict[type, Rule] = {bool: FLAG, int: WHOLE, float: REAL, str: TEXT}


def layouts_rule() -> Rule:
    """What `layouts.toml` may say."""
    stored = _by_kind(PATTERN, whole=True)
    files: dict[str, Rule] = {"formats": ListOf(FILLED, 1), "weights": ListOf(FILLED, 1)}
    words = ListOf(FILLED)
    undo = MapOf(KEY, lambda _: REASON)
    wrappers = Keys({"infixes": words, "prefixes": words, "ignored": words, "undo": undo})
    also = Keys(_by_kind(FILLED, whole=False))
    names: dict[str, Rule] = {"separator": FILLED, "numbering": FILLED, "always_prefixed": FLAG, "infers": FLAG}
    older = MapOf(KEY, lambda _: MapOf(KEY, lambda _: FILLED))
    dtype = OneOf("dtype", DTYPES)
    more: dict[str, Rule] = {"also": also, "wrappers": wrappers, "dtype": dtype, **names, "older": older}
    real = Keys({"about": TEXT, **stored, **files, **more}, (*stored, *files))
    hub = Keys(stored, tuple(stored))
    return MapOf(KEY, lambda name: hub if name == "logical" else real, ("logical",))


def file_rule(families: Collection[str], parts: Collection[str]) -> Keys:
    """How a file takes from its base: one of `families`, without some of the `parts` that the base has."""
    return Keys({"extends": OneOf("or circular family", families), "without": ListOf(OneOf("part of the base", parts))})


@dataclass(frozen=True)
class Grammar:
    """What one family's table may say, once merged with its base.

    References are ordinary words: the tasks of this `toml` may name its own rows, its axes its own fields.
    """

    toml: Toml
    layouts: Collection[str]
    families: Collection[str]

    def table(self) -> Rule:
        """The whole table."""
        field = OneOf("config field", self._keys("config"))
        sections: dict[str, Rule] = {
            "family": FILLED,
            "about": TEXT,
            "extends": ANY,  # these two are looked at by `file_rule`
            "without": ANY,
            **dict.fromkeys(self.layouts, self._layout()),
            "prefixed": ListOf(OneOf("rows", self._keys("rows"))),
            "axes": MapOf(LETTER, lambda _: Either((self._expression, COUNT))),
            "repeat": MapOf(HOLE, lambda _: Either((OneOf("number of layers", (_LAYERS,)), ListOf(FILLED, 1)))),
            "config": MapOf(KEY, self._config_field, tuple(FIELDS)),
            "values": MapOf(field, self._spellings),
            "facts": self._facts(),
            "looks_like": MapOf(field, self._value),
            "restyle": MapOf(OneOf("head style", HEAD_STYLES), lambda _: OneOf("family", self.families)),
            "rows": MapOf(KEY, self._group),
            "task": MapOf(OneOf("task", TASKS), lambda _: self._task()),
            "dialect": MapOf(KEY, self._dialect),
        }
        return Keys(sections, ("family", "axes", "config", "facts", "rows", "task"))

    def _config_field(self, name: str) -> Rule:
        place = Either((TEXT, Keys({"at": FILLED, "less": self._expression}, ("at",))))
        said: dict[str, Rule] = {
            "use": OneOf("use", CONFIG_USES),
            "default": self._value_or_field(name),
            "head": OneOf("rows", self._keys("rows")),
        }
        return Keys({**said, **dict.fromkeys(self.layouts, place)}, ("use",))

    def _layout(self) -> Rule:
        """What a family says of one layout."""
        facts = OneOf("fact", (*self._keys("config"), "position_scheme"))
        said: dict[str, Rule] = {
            "model_type": TEXT,
            "prefix": TEXT,
            "spare_pooler": Either((YES, REASON)),
            "needs_pooler": FLAG,
            "fixed": MapOf(facts, self._value_or_field),
            "require": MapOf(KEY, lambda _: JSON),
            "ignore": MapOf(KEY, lambda _: REASON),
        }
        return Keys(said)

    def _value_or_field(self, field: str) -> Rule:
        """A value of a field, or another field in braces whose value it takes."""
        if field == "position_scheme":
            return OneOf("position scheme", POSITION_SCHEMES)
        value = self._value(field)
        alike = [k for k in self._keys("config") if k != field and FIELDS.get(k) == FIELDS.get(field, ANY)]
        fields = [f"{{{k}}}" for k in alike if not str(self._at("config", k, "default")).startswith("{")]
        if isinstance(value, OneOf):
            return OneOf(value.noun, (*value.words, *fields))
        return Either((value, OneOf("config field in braces", fields))) if fields else value

    def _spellings(self, field: str) -> Rule:
        return MapOf(FIELDS.get(field, KEY), lambda _: Keys(dict.fromkeys(self.layouts, ListOf(FILLED, 1))))

    def _facts(self) -> Rule:
        facts: dict[str, Rule] = {
            "position_scheme": OneOf("position scheme", POSITION_SCHEMES),
            "reserved_positions": Either((self._expression, WHOLE)),
        }
        return Keys(facts, tuple(facts))

    def _group(self, group: str) -> Rule:
        return MapOf(logical_name(self._keys("repeat")), lambda name: self._row(group, name))

    def _row(self, group: str, name: str) -> Rule:
        kind = next((k for k in self._keys("rows", group, name) if k in KINDS), "")
        signatures = {k: signature(k, self._keys("axes")) for k in KINDS}
        return Keys({**signatures, **dict.fromkeys(self.layouts, self._cell(name, kind))}, one_of=tuple(KINDS))

    def _cell(self, row: str, kind: str) -> Rule:
        """A cell of a row: a name for the whole module, or for each of its parts."""
        if not kind:
            return ANY
        path = template(holes(row))
        place: dict[str, Rule] = {
            "at": path,
            "also": ListOf(path),
            "tied": OneOf("tensor", [t for t in self._tensors if holes(t) <= holes(row)]),
            "overruled_by": path,
            "from_row": self._expression,
            "grow": ListOf(self._grow(), 1),
        }
        absent = Keys({"absent": REASON}, mark="absent")
        absorbed = Keys({"absorbed_by": OneOf("tensor", self._tensors)}, mark="absorbed_by")
        part = Either((path, absent, Keys(place, some_of=("at", "tied"))))
        parts = dict.fromkeys(KINDS[kind], part)
        return Either((path, absent, absorbed, Keys(place, mark="at"), Keys(parts, tuple(parts))))

    def _grow(self) -> Rule:
        when: dict[str, Rule] = {"below": COUNT, "equals": COUNT, "above": COUNT}
        what: dict[str, Rule] = {"to": COUNT, "front": self._expression}
        return Keys({**when, **what}, one_of=tuple(when), some_of=tuple(what))

    def _task(self) -> Rule:
        said: dict[str, Rule] = {
            "rows": ListOf(OneOf("rows", self._keys("rows")), 1),
            "pooler": OneOf("pooler use", POOLER_USES),
            "head_style": OneOf("head style", HEAD_STYLES),
            "bare": FLAG,
        }
        return Keys({**said, **dict.fromkeys(self.layouts, TEXT)}, ("rows", "pooler"))

    def _dialect(self, name: str) -> Rule:
        layout = self._at("dialect", name, "layout")
        columns = {layout} & {*self.layouts} if isinstance(layout, str) else ()
        said: dict[str, Rule] = {
            "layout": OneOf("layout", self.layouts),
            "about": TEXT,
            "tasks": ListOf(OneOf("task", self._tasks), 1),
            "fixed": MapOf(OneOf("config field", self._keys("config")), self._value),
            "columns": MapOf(
                OneOf("row", self._kinds), lambda row: Keys(dict.fromkeys(columns, self._cell(row, self._kinds[row])))
            ),
        }
        return Keys(said, ("layout",))

    def _value(self, field: str) -> Rule:
        """The values that a config field may have, in logical words."""
        words, default = self._keys("values", field), self._at("config", field, "default")
        if words:
            return OneOf("value", words)
        if field in FIELDS or self._at("config", field, "use") == "size":
            return FIELDS.get(field, COUNT)
        return _BY_DEFAULT.get(type(default), Either(tuple(_BY_DEFAULT.values()))) if default is not None else WHOLE

    @cached_property
    def _expression(self) -> Leaf:
        whole = (k for k in self._keys("config") if self._value(k) in (COUNT, WHOLE))
        return expression((*whole, _LABELS))

    @cached_property
    def _kinds(self) -> dict[str, str]:
        """Row -> kind, in dialects, which name a row without its group."""
        rows = (
            (name, self._keys("rows", group, name))
            for group in self._keys("rows")
            for name in self._keys("rows", group)
        )
        return {name: next((k for k in keys if k in KINDS), "") for name, keys in rows}

    @cached_property
    def _tasks(self) -> set[str]:
        """The tasks, and those that a table took out of its base: an inherited dialect may still name them."""
        return {*self._keys("task"), *(t for t in TASKS if f"task.{t}" in self.toml.get("without", ()))}

    @cached_property
    def _tensors(self) -> list[str]:
        return [f"{row}.{part}" for row, kind in self._kinds.items() for part in KINDS.get(kind, ())]

    def _at(self, *path: str) -> object:
        """The value under some keys; None where there is none."""
        value: object = self.toml
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        return value

    def _keys(self, *path: str) -> tuple[str, ...]:
        """The keys of a table in the table; none where it is no table."""
        value = self._at(*path)
        return tuple(value) if isinstance(value, dict) else ()


def _by_kind(rule: Rule, *, whole: bool) -> dict[str, Rule]:
    """A table for each kind of module, with a key for each part; `whole`: no part may be left out."""
    return {kind: Keys(dict.fromkeys(parts, rule), parts if whole else ()) for kind, parts in KINDS.items()}
