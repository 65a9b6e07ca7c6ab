"""Read `mappings/*.toml` into `Tables`. Unknown keys are refused with a suggestion; all problems come in one error."""

from __future__ import annotations

import difflib
import functools
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from portkit.errors import Problem, TableError
from portkit.table.rows import read_columns, read_rows
from portkit.table.schema import (
    CONFIG_USES,
    KINDS,
    POOLER_USES,
    ConfigField,
    Dialect,
    LayoutFacts,
    Storage,
    Table,
    Tables,
    Task,
    Wrappers,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Toml = dict[str, Any]

_SECTIONS = (
    "family", "extends", "about", "without", "prefixed", "axes", "repeat", "config", "values", "facts", "looks_like",
    "restyle", "rows", "task", "dialect",
)  # fmt: skip


def tables_dir() -> Path:
    """The folder of the shipped tables: inside the wheel, or beside the package in a checkout."""
    packaged = Path(__file__).parent.parent / "_mappings"
    return packaged if packaged.is_dir() else Path(__file__).parents[2] / "mappings"


@functools.cache
def load_tables(extra: tuple[Path, ...] = ()) -> Tables:
    """The shipped tables, with those of `extra` files added or put in their place.

    Raises TableError listing every problem of every file.
    """
    raw = {p.stem: _parse(p) for p in sorted(tables_dir().glob("*.toml"))}
    storages = _storages(raw.pop("layouts"))
    by_family = {t.get("family", stem): (t, f"mappings/{stem}.toml") for stem, t in raw.items()}
    for path in extra:
        toml = _parse(path)
        by_family[str(toml.get("family", path.stem))] = (toml, str(path))
    problems: list[Problem] = []
    families = {
        name: _table(_resolve(name, by_family, problems), by_family[name][1], tuple(storages), storages, problems)
        for name in by_family
    }
    if problems:
        raise TableError("the mapping tables are wrong", problems)
    return Tables(families, storages)


def require_family(tables: Tables, name: str) -> Table:
    """A family's table. Raises TableError with a suggestion when there is none."""
    if name not in tables.families:
        raise TableError("unknown family", [Problem(name, "has no table", hint=suggestion(name, tables.families))])
    return tables.families[name]


def suggestion(word: str, known: Iterable[str]) -> str:
    """What to say about an unknown word: the nearest known one, or all of them."""
    known = sorted(known)
    if not known:
        return ""
    close = difflib.get_close_matches(word, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known here: {', '.join(known)}"


def check_keys(where: str, found: Mapping[str, object], known: Iterable[str], problems: list[Problem]) -> None:
    """Note every key that is not known."""
    known = tuple(known)
    problems += [Problem(where, f"unknown key {k!r}", hint=suggestion(k, known)) for k in found if k not in known]


def _parse(path: Path) -> Toml:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise TableError("cannot read a mapping table", [Problem(str(path), "no such file")]) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as e:
        raise TableError("cannot read a mapping table", [Problem(str(path), "not a TOML file", found=str(e))]) from e


def _resolve(family: str, raw: Mapping[str, tuple[Toml, str]], problems: list[Problem], depth: int = 0) -> Toml:
    toml, source = raw[family]
    base = toml.get("extends")
    if base is None:
        return toml
    if base not in raw or depth > len(raw):
        problems.append(
            Problem(source, f"extends unknown or circular family {base!r}", hint=suggestion(str(base), raw))
        )
        return toml
    merged = _merge(_resolve(base, raw, problems, depth + 1), toml)
    for path in toml.get("without", ()):
        _remove(merged, str(path), source, problems)
    return merged


def _merge(base: Toml, over: Toml) -> Toml:
    both = {
        k: _merge(base[k], v) if isinstance(v, dict) and isinstance(base.get(k), dict) else v for k, v in over.items()
    }
    return {**base, **both}


def _remove(toml: Toml, path: str, source: str, problems: list[Problem]) -> None:
    section, _, name = path.partition(".")
    if name not in toml.get(section, {}):
        problems.append(Problem(source, f"`without` names {path!r}, which the base does not have"))
    toml[section] = {k: v for k, v in toml.get(section, {}).items() if k != name}


def _storages(raw: Toml) -> dict[str, Storage]:
    return {name: _storage(name, entry) for name, entry in raw.items()}


def _storage(name: str, entry: Toml) -> Storage:
    parts = {kind: {part: _leaf(text) for part, text in entry[kind].items()} for kind in KINDS if kind in entry}
    left = dict(entry.get("wrappers", {}))
    undo = left.pop("undo", {})
    return Storage(
        name,
        entry.get("about", ""),
        parts,
        entry.get("also", {}),
        tuple(entry.get("formats", ())),
        tuple(entry.get("weights", ())),
        Wrappers(**{k: tuple(v) for k, v in left.items()}, undo=undo),
    )


def _leaf(text: str) -> tuple[str, str]:
    leaf, _, pattern = text.partition(":")
    return leaf.strip(), pattern.strip()


def _table(
    toml: Toml,
    source: str,
    layouts: tuple[str, ...],
    storages: Mapping[str, Storage],
    problems: list[Problem],
) -> Table:
    real = tuple(name for name in layouts if name != "logical")
    check_keys(source, toml, (*_SECTIONS, *real), problems)
    rows = read_rows(toml.get("rows", {}), storages, source, problems)
    tasks = {n: _task(n, t, real, source, problems) for n, t in toml.get("task", {}).items()}
    groups = {r.group for r in rows}
    for task in tasks.values():
        problems += [
            Problem(f"{source} [task.{task.name}]", f"unknown rows {g!r}", hint=suggestion(g, groups))
            for g in task.groups
            if g not in groups
        ]
    return Table(
        family=str(toml.get("family", "")),
        about=str(toml.get("about", "")),
        source=source,
        prefixed=tuple(toml.get("prefixed", ())),
        layouts={n: _layout_facts(n, toml.get(n, {}), source, problems) for n in real},
        axes=toml.get("axes", {}),
        repeat={k: tuple(v) if isinstance(v, list) else v for k, v in toml.get("repeat", {}).items()},
        config={n: _config_field(n, f, real, source, problems) for n, f in toml.get("config", {}).items()},
        values=_values(toml.get("values", {})),
        facts=toml.get("facts", {}),
        looks_like=toml.get("looks_like", {}),
        restyle=toml.get("restyle", {}),
        rows=rows,
        tasks=tasks,
        dialects={n: _dialect(n, d, rows, storages, source, problems) for n, d in toml.get("dialect", {}).items()},
    )


def _layout_facts(name: str, entry: Toml, source: str, problems: list[Problem]) -> LayoutFacts:
    check_keys(f"{source} [{name}]", entry, LayoutFacts.__dataclass_fields__, problems)
    return LayoutFacts(**{k: v for k, v in entry.items() if k in LayoutFacts.__dataclass_fields__})


def _config_field(
    name: str, entry: Toml, layouts: tuple[str, ...], source: str, problems: list[Problem]
) -> ConfigField:
    where = f"{source} [config.{name}]"
    check_keys(where, entry, ("use", "default", *layouts), problems)
    if entry.get("use") not in CONFIG_USES:
        problems.append(Problem(where, "no known use", f"one of {', '.join(CONFIG_USES)}", repr(entry.get("use"))))
    return ConfigField(name, entry.get("use", ""), {k: entry[k] for k in layouts if k in entry}, entry.get("default"))


def _values(raw: Toml) -> dict[str, dict[str, dict[str, tuple[str, ...]]]]:
    return {
        name: {value: {layout: tuple(s) for layout, s in spellings.items()} for value, spellings in values.items()}
        for name, values in raw.items()
    }


def _task(name: str, entry: Toml, layouts: tuple[str, ...], source: str, problems: list[Problem]) -> Task:
    where = f"{source} [task.{name}]"
    check_keys(where, entry, ("rows", "pooler", "head_style", "bare", *layouts), problems)
    if entry.get("pooler") not in POOLER_USES:
        problems.append(
            Problem(where, "no known pooler use", f"one of {', '.join(POOLER_USES)}", repr(entry.get("pooler")))
        )
    classes = {k: entry[k] for k in layouts if k in entry}
    return Task(
        name,
        tuple(entry.get("rows", ())),
        entry.get("pooler", ""),
        entry.get("head_style"),
        classes,
        entry.get("bare", False),
    )


def _dialect(
    name: str,
    entry: Toml,
    rows: tuple[Any, ...],
    storages: Mapping[str, Storage],
    source: str,
    problems: list[Problem],
) -> Dialect:
    where = f"{source} [dialect.{name}]"
    check_keys(where, entry, ("layout", "about", "tasks", "fixed", "columns"), problems)
    if entry.get("layout") not in storages:
        problems.append(
            Problem(
                where,
                f"unknown layout {entry.get('layout')!r}",
                hint=suggestion(str(entry.get("layout")), storages),
            )
        )
    kinds = {r.name: r.kind for r in rows}
    columns = {}
    for row, cells in entry.get("columns", {}).items():
        if row in kinds:
            columns[row] = read_columns(f'{where} columns."{row}"', kinds[row], cells, storages, problems)
        else:
            problems.append(Problem(where, f"unknown row {row!r}", hint=suggestion(row, kinds)))
    return Dialect(
        name,
        str(entry.get("layout")),
        str(entry.get("about", "")),
        columns,
        tuple(entry.get("tasks", ())),
        entry.get("fixed", {}),
    )
