"""Read the rows of a table that `grammar.py` found sound: one logical module, one column per layout."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from portkit.axes import parse_signature
from portkit.table.schema import KINDS, Grow, Place, Row, Storage

if TYPE_CHECKING:
    from collections.abc import Mapping

_HOLE = re.compile(r"\{(\w+)\}")


def holes(text: str) -> set[str]:
    """The names of the holes in a template: `"layer.{i}.{qkv}"` has `i` and `qkv`."""
    return set(_HOLE.findall(text))


def read_rows(groups: Mapping[str, Mapping[str, Any]], storages: Mapping[str, Storage]) -> tuple[Row, ...]:
    """All rows of a table, in its order."""
    return tuple(_read_row(g, n, cells, storages) for g, rows in groups.items() for n, cells in rows.items())


def _read_row(group: str, name: str, cells: Mapping[str, Any], storages: Mapping[str, Storage]) -> Row:
    kind = next(k for k in KINDS if k in cells)
    return Row(group, name, kind, parse_signature(cells[kind]), read_columns(kind, cells, storages))


def read_columns(kind: str, cells: Mapping[str, Any], storages: Mapping[str, Storage]) -> dict[str, dict[str, Place]]:
    """The cells of one row: layout -> part -> place."""
    return {name: _read_cell(kind, cell, storages[name]) for name, cell in cells.items() if name not in KINDS}


def _read_cell(kind: str, cell: str | Mapping[str, Any], storage: Storage) -> dict[str, Place]:
    if isinstance(cell, str):
        cell = {"at": cell}
    if "absent" in cell or "absorbed_by" in cell:
        return {part: _place(cell) for part in KINDS[kind]}
    if "at" in cell:
        return {part: _below(cell, storage, kind, part) for part in KINDS[kind]}
    return {part: _place({"at": named} if isinstance(named, str) else named) for part, named in cell.items()}


def _below(cell: Mapping[str, Any], storage: Storage, kind: str, part: str) -> Place:
    """The place of one part under the layout's leaf name, and under its old one."""
    leaf, old = storage.parts[kind][part][0], storage.also.get(kind, {}).get(part)
    stem = f"{cell['at']}{storage.separator}"
    also = (*cell.get("also", ()), *([stem + old] if old else []))
    return _place({**cell, "at": stem + leaf, "also": also})


def _place(cell: Mapping[str, Any]) -> Place:
    into = cell.get("absorbed_by", "")
    return Place(
        name=cell.get("at", ""),
        also=tuple(cell.get("also", ())),
        tied=cell.get("tied", ""),
        overruled_by=cell.get("overruled_by", ""),
        absent=f"folded into {into}" if into else cell.get("absent", ""),
        absorbed_by=into,
        from_row=cell.get("from_row", ""),
        grow=tuple(Grow(**rule) for rule in cell.get("grow", ())),
    )
