"""The arithmetic that tables may do with config fields: `field`, `7`, `field + 1`, `field / field`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from portkit.errors import Problem, TableError

if TYPE_CHECKING:
    from collections.abc import Mapping


def evaluate(expression: str | int, config: Mapping[str, object]) -> int:
    """The value of an expression. Raises TableError when a field is missing or a division leaves a remainder."""
    if isinstance(expression, int):
        return expression
    for operator in ("+", "/"):
        left, found, right = expression.partition(operator)
        if found:
            return _apply(operator, evaluate(left, config), evaluate(right, config), expression)
    return _value(expression.strip(), config)


def _apply(operator: str, left: int, right: int, expression: str) -> int:
    if operator == "+":
        return left + right
    if right <= 0 or left % right:
        raise _wrong(expression, "a division without remainder", f"{left} / {right}")
    return left // right


def _value(word: str, config: Mapping[str, object]) -> int:
    if word.isdigit():
        return int(word)
    value = config.get(word)
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong(word, "a whole number", "nothing" if value is None else repr(value))
    return value


def _wrong(where: str, expected: str, found: str) -> TableError:
    return TableError("the config does not fit the table", [Problem(where, "no usable value", expected, found)])
