"""The arithmetic that tables may do with config fields: `field`, `7`, `field + 1`, `field / field`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from portkit.errors import Problem, TableError

if TYPE_CHECKING:
    from collections.abc import Mapping


def operands(expression: str) -> list[str]:
    """The fields and numbers of an expression."""
    return [word.strip() for word in re.split("[+/]", expression)]


def evaluate(expression: str | int, config: Mapping[str, object]) -> int:
    """The value of an expression. Raises TableError when a field is missing or a division leaves a remainder."""
    if isinstance(expression, int):
        return expression
    return sum(_quotient(term.strip(), config) for term in expression.split("+"))


def _quotient(term: str, config: Mapping[str, object]) -> int:
    first, *others = operands(term)
    value = _value(first, config)
    for word in others:
        divisor = _value(word, config)
        if divisor <= 0 or value % divisor:
            found, hint = f"{value} / {divisor}", f"{word} must divide {first}"
            raise _wrong(term, "a division without remainder", found, hint)
        value //= divisor
    return value


def _value(word: str, config: Mapping[str, object]) -> int:
    if word.isdigit():
        return int(word)
    value = config.get(word)
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong(word, "a whole number", "nothing" if value is None else repr(value))
    return value


def _wrong(where: str, expected: str, found: str, hint: str = "") -> TableError:
    return TableError("the config does not fit the table", [Problem(where, "no usable value", expected, found, hint)])
