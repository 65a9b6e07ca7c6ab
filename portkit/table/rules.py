"""What a value of a table file may be: small rules, put together in `grammar.py`. A rule lists all that is wrong.

Values are those that TOML has: text, numbers, true and false, dates, lists and tables.
"""

from __future__ import annotations

import difflib
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from portkit.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

Path = tuple[str, ...]  # the keys that lead to a value, as TOML writes them

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_SHOWN = 80  # letters of a found text that a report repeats
_MANY = 16  # known words that a report lists
_BITS = 64


class Rule(Protocol):
    """One kind of value."""

    @property
    def expected(self) -> str:
        """The rule in words."""

    def fits(self, value: object) -> bool:
        """Whether the value is meant as one of this kind; it may still be a wrong one."""

    def problems(self, value: object, path: Path) -> Iterator[Problem]:
        """Everything that is wrong with a value and with those inside it."""


@dataclass(frozen=True)
class Leaf:
    """A value without others inside: of some TOML types, and `sound`. `noun` says what it is to the reader."""

    expected: str
    types: tuple[type, ...]
    hint: str = ""
    sound: Callable[[Any], object] = lambda _: True
    noun: str = "value"

    def fits(self, value: object) -> bool:
        """Whether the type fits; a bool is no number."""
        return type(value) in self.types

    def problems(self, value: object, path: Path) -> Iterator[Problem]:
        """At most one problem."""
        if not (self.fits(value) and self.sound(value)):
            yield Problem(address(path), f"no usable {self.noun}", self.expected, shown(value), self.hint)


@dataclass(frozen=True)
class OneOf:
    """A text that names something known."""

    noun: str
    words: Collection[str]

    @property
    def expected(self) -> str:
        """The known words."""
        return _listed(self.words, "")

    def fits(self, value: object) -> bool:
        """Whether it is text."""
        return isinstance(value, str)

    def problems(self, value: object, path: Path) -> Iterator[Problem]:
        """An unknown word, with the nearest known one."""
        if not isinstance(value, str) or value not in self.words:
            yield unknown(address(path), self.noun, value, self.words)


@dataclass(frozen=True)
class ListOf:
    """A list of at least `least` values of one kind, each of them once."""

    item: Rule
    least: int = 0

    @property
    def expected(self) -> str:
        """The rule in words."""
        return "a list that is not empty" if self.least else "a list"

    def fits(self, value: object) -> bool:
        """Whether it is a list."""
        return isinstance(value, list)

    def problems(self, value: object, path: Path) -> Iterator[Problem]:
        """What is wrong with the list and its items."""
        if not isinstance(value, list) or len(value) < self.least:
            yield Problem(address(path), "no usable value", self.expected, shown(value), "a list: [ …, … ]")
            return
        for i, item in enumerate(value):
            place = (*path[:-1], f"{path[-1]}[{i}]")
            yield from self.item.problems(item, place)
            if item in value[:i]:
                yield Problem(address(place), "stands there twice", "each once", shown(item), "take one out")


@dataclass(frozen=True)
class MapOf:
    """A table with free keys of one kind; `of` gives the rule of a key's value."""

    key: Rule
    of: Callable[[str], Rule]
    required: Collection[str] = ()
    expected: str = "a table"

    def fits(self, value: object) -> bool:
        """Whether it is a table."""
        return isinstance(value, dict)

    def problems(self, value: object, path: Path) -> Iterator[Problem]:
        """What is wrong with the keys and their values."""
        if not isinstance(value, dict):
            yield _no_table(self, value, path)
            return
        yield from _missing({k: self.of(k) for k in self.required if k not in value}, path)
        for key, inner in value.items():
            place = (*path, quoted(key))
            wrong = tuple(self.key.problems(key, place))
            yield from wrong or self.of(key).problems(inner, place)


@dataclass(frozen=True)
class Keys:
    """A table with known keys: `required` ones, exactly one of `one_of`, at least one of `some_of`.

    `mark` is the key by which an Either tells that this kind of table is meant.
    """

    known: Mapping[str, Rule]
    required: Collection[str] = ()
    one_of: Collection[str] = ()
    some_of: Collection[str] = ()
    mark: str = ""

    @property
    def expected(self) -> str:
        """The rule in words."""
        return f"a table with the key {self.mark}" if self.mark else "a table" if self.known else "an empty table"

    def fits(self, value: object) -> bool:
        """Whether it is a table with the mark."""
        return isinstance(value, dict) and (not self.mark or self.mark in value)

    def problems(self, value: object, path: Path) -> Iterator[Problem]:
        """Keys that are unknown or missing, and what is wrong with the values."""
        if not isinstance(value, dict):
            yield _no_table(self, value, path)
            return
        yield from _missing({k: self.known[k] for k in self.required if k not in value}, path)
        for words, choice, most in (("exactly one", self.one_of, 1), ("at least one", self.some_of, len(self.known))):
            found = [k for k in choice if k in value]
            if choice and not 1 <= len(found) <= most:
                said = ", ".join(found) or "none of them"
                yield Problem(header(path), f"needs {words} of these keys", ", ".join(choice), said)
        for key, inner in value.items():
            if key in self.known:
                yield from self.known[key].problems(inner, (*path, quoted(key)))
            else:
                yield unknown(header(path), "key", key, self.known)


@dataclass(frozen=True)
class Either:
    """A value of the first kind that it fits."""

    options: tuple[Rule, ...]

    @property
    def expected(self) -> str:
        """All kinds."""
        return ", or ".join(o.expected for o in self.options)

    def fits(self, value: object) -> bool:
        """Whether it fits any."""
        return any(o.fits(value) for o in self.options)

    def problems(self, value: object, path: Path) -> Iterator[Problem]:
        """What is wrong with it as a value of the kind that is meant."""
        for option in self.options:
            if option.fits(value):
                yield from option.problems(value, path)
                return
        yield Problem(address(path), "no usable value", self.expected, shown(value))


def nearest(word: str, known: Collection[str]) -> str:
    """`did you mean …?` with the nearest known word; empty when none is near."""
    close = difflib.get_close_matches(word, sorted(known), n=1)
    return f"did you mean {close[0]!r}?" if close else ""


def unknown(where: str, noun: str, word: object, known: Collection[str]) -> Problem:
    """The problem that a word is no known one."""
    text = word[:_SHOWN] if isinstance(word, str) else ""
    return Problem(where, f"unknown {noun}", _listed(known, text), shown(word), nearest(text, known))


def _listed(known: Collection[str], word: str) -> str:
    """The known words; of many only those that are most like the unknown one."""
    if len(known) <= _MANY:
        return ", ".join(sorted(known)) or "nothing: none is known"
    return ", ".join([*difflib.get_close_matches(word, sorted(known), _MANY // 2, 0), "…"])


def header(path: Path) -> str:
    """A table's place: `[rows.backbone."layer.{i}.mlp.up"]`."""
    return f"[{'.'.join(path)}]" if path else ""


def address(path: Path) -> str:
    """A value's place: the table's header, then the key."""
    return f"{header(path[:-1])} {path[-1]}".strip() if path else ""


def quoted(key: str) -> str:
    """A key as TOML writes it."""
    return key if _BARE.fullmatch(key) else json.dumps(key, ensure_ascii=False)


def shown(value: object) -> str:
    """What was found, on one line; a table or list only by its kind, for it may be deep."""
    if isinstance(value, (dict, list)):
        kind = "table" if isinstance(value, dict) else "list"
        return f"a {kind}" if value else f"an empty {kind}"
    if isinstance(value, int) and value.bit_length() > _BITS:
        return "a very large number"
    text = str(value).lower() if isinstance(value, bool) else repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _no_table(rule: Rule, value: object, path: Path) -> Problem:
    hint = "a table: { key = value, … }, or a [header] and lines below it"
    return Problem(address(path), "no usable value", rule.expected, shown(value), hint)


def _missing(rules: Mapping[str, Rule], path: Path) -> Iterator[Problem]:
    for key, rule in rules.items():
        yield Problem(address((*path, quoted(key))), "is missing", rule.expected, "nothing", f"add the key {key}")
