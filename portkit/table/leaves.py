"""The single values of table files: texts, numbers, names with holes, signatures, expressions."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from portkit.axes import Signature, parse_pattern, parse_signature
from portkit.errors import TableError
from portkit.table.expr import operands
from portkit.table.rows import holes
from portkit.table.rules import Either, Keys, Leaf, ListOf

if TYPE_CHECKING:
    from collections.abc import Collection

_LARGEST = 2**63  # TOML's own limit
_DIGITS = 18  # in numbers that stand in text
_QUOTES = 'text stands in quotes: "…"'
_BARE = "a number stands without quotes"


def _holes_are_whole(text: str) -> bool:
    return not re.search("[{}]", re.sub(r"\{\w+\}", "", text))


def _is_pattern(text: str) -> bool:
    leaf, _, pattern = text.partition(":")
    try:
        return bool(leaf.strip() and parse_pattern(pattern, Signature(("a",), ("b",))))
    except TableError:
        return False


ANY = Leaf("a value", (str, int, float, bool, list, dict))
TEXT = Leaf("text", (str,), _QUOTES)
FILLED = Leaf("text that is not empty", (str,), _QUOTES, bool)
REASON = Leaf("a reason, as text", (str,), _QUOTES, bool)
FLAG = Leaf("true or false", (bool,), "without quotes")
YES = Leaf("true", (bool,), "where it is not so, the reason stands here, as text", bool)
COUNT = Leaf("a whole number above 0", (int,), _BARE, lambda n: 0 < n < _LARGEST)
WHOLE = Leaf("a whole number, 0 or more", (int,), _BARE, lambda n: 0 <= n < _LARGEST)
REAL = Leaf("a number with a decimal point", (float,), _BARE, math.isfinite)
EPSILON = Leaf("a number with a decimal point, between 0 and 1", (float,), _BARE, lambda x: 0 < x < 1)
NUMBER = Leaf("a number", (int, float), _BARE, lambda x: -_LARGEST < x < _LARGEST)
JSON = Either((FLAG, NUMBER, TEXT, ListOf(TEXT), Keys({})))
PATTERN = Leaf('"leaf : dimensions"', (str,), 'as in "weight : (out) (in)"', _is_pattern)
KEY = Leaf("a key that is not empty", (str,), sound=bool, noun="key")
LETTER = Leaf("one small letter", (str,), "letters stand in signatures: h -> f", re.compile("[a-z]").fullmatch, "key")
HOLE = Leaf("the name of a hole", (str,), "holes stand in names: layer.{i}", str.isidentifier, "key")


def template(wanted: set[str]) -> Leaf:
    """A stored name that has the same holes as its row."""
    said = "with " + " ".join(f"{{{h}}}" for h in sorted(wanted)) if wanted else "without holes"
    hint = "a stored name has the holes of its row's name, each written as {hole}"
    return Leaf(f"a name {said}", (str,), hint, lambda t: bool(t) and _holes_are_whole(t) and holes(t) == wanted)


def logical_name(known: Collection[str]) -> Leaf:
    """A row's name, whose holes `[repeat]` declares."""
    hint = f"the holes of [repeat] are {', '.join(known) or 'none'}"

    def sound(text: str) -> bool:
        return bool(text) and _holes_are_whole(text) and holes(text) <= {*known}

    return Leaf("a name with holes that [repeat] has", (str,), hint, sound, "key")


def signature(kind: str, letters: Collection[str]) -> Leaf:
    """The axes of a module: an embedding has one on each side, a norm has no sides."""
    form = {"norm": '"h"', "embedding": '"v -> h"'}.get(kind, '"h -> n d"')

    def sound(text: str) -> bool:
        try:
            axes = parse_signature(text)
        except TableError:
            return False
        both = (*axes.inputs, *axes.outputs)
        known = axes.letters() <= {*letters} and all(len(a) <= _DIGITS for a in both)
        return known and ("->" in text) == (kind != "norm") and (kind != "embedding" or len(both) == 2)

    return Leaf(f"axes, as in {form}", (str,), f"the letters of [axes] are {', '.join(letters) or 'none'}", sound)


def expression(fields: Collection[str]) -> Leaf:
    """Arithmetic with config fields that are whole numbers."""

    def sound(text: str) -> bool:
        return all(word in fields or re.fullmatch(f"[0-9]{{1,{_DIGITS}}}", word) for word in operands(text))

    return Leaf("config fields and numbers, with + and /", (str,), f"the fields are {', '.join(sorted(fields))}", sound)
