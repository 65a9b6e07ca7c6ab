"""An explanation as text. Nothing is decided here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from portkit.errors import printable

if TYPE_CHECKING:
    from portkit.explain import Explanation, Stored
    from portkit.homes import Home


def render_explanation(found: Explanation) -> str:
    """What is known of one tensor, for a reader."""
    lines = [f"{found.asked}: {found.found_as}"]
    if found.logical:
        axes = ", ".join(f"{letter} = {size}" for letter, size in (found.axes or {}).items())
        lines += [
            f"  logical      {found.logical}: {found.hub}",
            f"  row          {found.row} of {', '.join(found.tables)}",
            f"  module       {found.kind} {found.signature}: {axes}",
        ]
    lines += [f"  here         {_place(found.stored, found.dimensions)}"] if found.stored else []
    lines += [f"  here         {found.reason}"] if found.reason else []
    lines += [f"  shared       by {name}, which is tied to it" for name in found.shared_by]
    lines += [line for home in found.homes for line in _home(home, found.stored)]
    return "\n".join(printable(line) for line in lines)


def _place(stored: Stored, dimensions: str) -> str:
    where = f"bytes {stored.at[0]} to {stored.at[1]}" if stored.at else "the format gives no byte range"
    shape = f"{list(stored.shape)} {dimensions}".rstrip()
    return f"{stored.name} {shape}, {stored.dtype}, {stored.file}, {where}"


def _home(home: Home, stored: Stored | None) -> list[str]:
    label = f"in {home.layout}"
    dialect = f" (dialect {home.dialect})" if home.dialect else ""
    if not home.name:
        return [f"  {label:<13}{home.note}{dialect}"]
    moves = (", ".join(home.moves) or "as it is") if stored else "nothing to move"
    note = [f"{'':<15}{home.note}"] if home.note else []
    return [f"  {label:<13}{home.name} {list(home.shape)} {home.dimensions}: {moves}{dialect}", *note]
