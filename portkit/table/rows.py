"""Read the rows of a table: one logical module, one column per layout."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from portkit.axes import parse_signature
from portkit.errors import Problem, TableError
from portkit.table.schema import KINDS, Grow, Place, Row, Storage

if TYPE_CHECKING:
    from collections.abc import Mapping

_PLACE_KEYS = ("at", "also", "tied", "overruled_by", "absent", "absorbed_by", "from_row", "grow")
_NOWHERE = ("absent", "absorbed_by")
_HOLE = re.compile(r"\{(\w+)\}")


def holes(text: str) -> set[str]:
    """The names of the holes in a template: `"layer.{i}.{qkv}"` has `i` and `qkv`."""
    return set(_HOLE.findall(text))


def read_rows(
    groups: Mapping[str, Mapping[str, Any]],
    storages: Mapping[str, Storage],
    source: str,
    problems: list[Problem],
) -> tuple[Row, ...]:
    """All rows of a table, in its order. What is wrong is added to `problems`."""
    found = (_read_row(g, n, c, storages, source, problems) for g, rows in groups.items() for n, c in rows.items())
    return tuple(row for row in found if row is not None)


def _read_row(
    group: str,
    name: str,
    cells: Mapping[str, Any],
    storages: Mapping[str, Storage],
    source: str,
    problems: list[Problem],
) -> Row | None:
    where = f'{source} [rows.{group}."{name}"]'
    kinds = [k for k in KINDS if k in cells]
    if len(kinds) != 1:
        problems.append(Problem(where, "a row is of exactly one kind", " or ".join(KINDS), ", ".join(kinds) or "none"))
        return None
    columns = {k: v for k, v in cells.items() if k not in KINDS}
    places = read_columns(where, kinds[0], columns, storages, problems)
    _check_holes(where, name, places, problems)
    try:
        return Row(group, name, kinds[0], parse_signature(str(cells[kinds[0]])), places)
    except TableError as e:
        problems += [Problem(where, p.what, p.expected, p.found) for p in e.problems]
        return None


def read_columns(
    where: str, kind: str, cells: Mapping[str, Any], storages: Mapping[str, Storage], problems: list[Problem]
) -> dict[str, dict[str, Place]]:
    """The cells of one row: layout -> part -> place."""
    columns = {}
    for layout, cell in cells.items():
        if layout in storages and layout != "logical":
            columns[layout] = _read_cell(f"{where} {layout}", kind, cell, storages[layout], problems)
        else:
            known = ", ".join(n for n in storages if n != "logical")
            problems.append(Problem(where, f"unknown column {layout!r}", hint=f"the layouts are {known}"))
    return columns


def _read_cell(
    where: str, kind: str, cell: str | Mapping[str, Any], storage: Storage, problems: list[Problem]
) -> dict[str, Place]:
    parts = storage.parts.get(kind, {})
    if isinstance(cell, str):
        return {
            part: _place({"at": f"{cell}{storage.separator}{leaf}"}, storage, kind, part)
            for part, (leaf, _) in parts.items()
        }
    if any(key in cell for key in _NOWHERE):
        _unknown_keys(where, cell, _NOWHERE, problems)
        return {part: _place_from(cell) for part in parts}
    if "at" in cell:
        _unknown_keys(where, cell, _PLACE_KEYS, problems)
        return {
            part: _place({**cell, "at": f"{cell['at']}{storage.separator}{leaf}"}, storage, kind, part)
            for part, (leaf, _) in parts.items()
        }
    _unknown_keys(where, cell, tuple(parts), problems)
    missing = [part for part in parts if part not in cell]
    problems += [
        Problem(where, f"nothing is said about the {part}", hint='give it a name, or { absent = "why" }')
        for part in missing
    ]
    return {part: _part(f"{where}.{part}", cell[part], problems) for part in parts if part in cell}


def _part(where: str, cell: str | Mapping[str, Any], problems: list[Problem]) -> Place:
    if isinstance(cell, str):
        return Place(name=cell)
    _unknown_keys(where, cell, _PLACE_KEYS, problems)
    return _place_from(cell)


def _place(cell: Mapping[str, Any], storage: Storage, kind: str, part: str) -> Place:
    old = storage.also.get(kind, {}).get(part)
    stem = str(cell["at"]).rpartition(".")[0]
    also = (*cell.get("also", ()), *([f"{stem}.{old}"] if old else []))
    return _place_from({**cell, "also": also})


def _place_from(cell: Mapping[str, Any]) -> Place:
    return Place(
        name=str(cell.get("at", "")),
        also=tuple(cell.get("also", ())),
        tied=str(cell.get("tied", "")),
        overruled_by=str(cell.get("overruled_by", "")),
        absent=str(cell.get("absent", "")) or (f"folded into {into}" if (into := cell.get("absorbed_by")) else ""),
        absorbed_by=str(cell.get("absorbed_by", "")),
        from_row=str(cell.get("from_row", "")),
        grow=tuple(Grow(**g) for g in cell.get("grow", ())),
    )


def _unknown_keys(where: str, cell: Mapping[str, Any], known: tuple[str, ...], problems: list[Problem]) -> None:
    problems += [
        Problem(where, f"unknown key {k!r}", hint=f"known here: {', '.join(known)}") for k in cell if k not in known
    ]


def _check_holes(where: str, name: str, places: Mapping[str, Mapping[str, Place]], problems: list[Problem]) -> None:
    for layout, parts in places.items():
        for place in parts.values():
            names = [n for n in (place.name, place.overruled_by, *place.also) if n]
            wrong = sorted({n for n in names if holes(n) != holes(name)})
            problems += [
                Problem(
                    f"{where} {layout}",
                    f"{n!r} has other holes than the row",
                    f"{sorted(holes(name))}",
                    f"{sorted(holes(n))}",
                )
                for n in wrong
            ]
