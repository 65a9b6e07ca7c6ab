"""JSON as this package wants it: one object, no name twice, and errors that say where."""

from __future__ import annotations

import json
from collections import Counter

from portkit.errors import UnreadableError, unreadable

MAX_NAMED = 5  # names in one message


class _TwiceError(ValueError):
    pass


def parse_object(data: bytes, where: object, what: str) -> dict[str, object]:
    """The JSON object in `data`, which the caller has bounded; `what` names it in errors: "the header".

    Raises UnreadableError when it is no UTF-8, no JSON or no object, or when an object has a name twice.
    """
    try:
        value = json.loads(data.decode(), object_pairs_hook=_once)
    except _TwiceError as error:
        raise unreadable(where, f"{what} has a name twice", found=str(error)) from error
    except (ValueError, RecursionError) as error:
        raise _no_json(where, what, str(error)) from error
    if not isinstance(value, dict):
        raise _no_json(where, what, "null" if value is None else f"a {type(value).__name__}")
    return value


def _no_json(where: object, what: str, found: str) -> UnreadableError:
    return unreadable(where, f"{what} is not valid JSON", expected="an object in UTF-8", found=found)


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    result = dict(pairs)
    if len(result) < len(pairs):
        twice = [repr(name) for name, count in Counter(name for name, _ in pairs).items() if count > 1]
        raise _TwiceError(", ".join(twice[:MAX_NAMED]) + (", …" if len(twice) > MAX_NAMED else ""))
    return result
