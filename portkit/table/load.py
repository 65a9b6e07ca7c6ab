"""Read `mappings/*.toml` into `Tables`: files are merged with their bases, checked by the grammar, made into values.

Nothing is made of a table before the grammar found no problem in any, so what makes the values checks nothing.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from portkit.errors import Problem, TableError
from portkit.table.grammar import Grammar, Toml, file_rule, layouts_rule
from portkit.table.rows import read_columns, read_rows
from portkit.table.rules import nearest
from portkit.table.schema import KINDS, ConfigField, Dialect, LayoutFacts, Storage, Table, Tables, Task, Wrappers

Files = Mapping[str, tuple[Toml, str]]  # family -> what its file says, and the name of the file

_LAYOUTS = "mappings/layouts.toml"
_AS_THEY_ARE = ("dtype", "separator", "numbering", "always_prefixed", "infers", "older")  # keys of a layout


def tables_dir() -> Path:
    """The folder of the shipped tables: inside the wheel, or beside the package in a checkout."""
    packaged = Path(__file__).parent.parent / "_mappings"
    return packaged if packaged.is_dir() else Path(__file__).parents[2] / "mappings"


@functools.cache
def load_tables(extra: tuple[Path, ...] = ()) -> Tables:
    """The shipped tables, with those of `extra` files added or put in their place.

    Raises TableError listing every problem of every file.
    """
    shipped = {path.stem: _parse(path) for path in sorted(tables_dir().glob("*.toml"))}
    layouts = shipped.pop("layouts")
    files = [(toml, f"mappings/{stem}.toml") for stem, toml in shipped.items()]
    return make_tables(layouts, [*files, *((_parse(path), str(path)) for path in extra)])


def make_tables(layouts: Toml, files: Iterable[tuple[Toml, str]]) -> Tables:
    """Tables from what `layouts.toml` and the families' files say. Of two files for one family the last one counts.

    Raises TableError listing every problem. A file whose base is unknown is not looked at further.
    """
    named = {str(toml.get("family", source)): (toml, source) for toml, source in files}
    problems = [_in(_LAYOUTS, p) for p in layouts_rule().problems(layouts, ())]
    merged = {name: _merged(name, named, problems) for name in named}
    real = [name for name in layouts if name != "logical"]
    wrong = {
        name: tuple(Grammar(toml, real, merged).table().problems(toml, ())) for name, toml in merged.items() if toml
    }
    for name in wrong:
        base = str(named[name][0].get("extends"))
        problems += [_in(named[name][1], p) for p in wrong[name] if p not in wrong.get(base, ())]
    if problems:
        raise TableError("the mapping tables are wrong", problems)
    storages = {name: _storage(name, entry) for name, entry in layouts.items()}
    return Tables({name: _table(toml, named[name][1], storages) for name, toml in merged.items()}, storages)


def require_family(tables: Tables, name: str) -> Table:
    """A family's table. Raises TableError with a suggestion when there is none."""
    if name not in tables.families:
        raise TableError("unknown family", [Problem(name, "has no table", hint=suggestion(name, tables.families))])
    return tables.families[name]


def suggestion(word: str, known: Iterable[str]) -> str:
    """What to say about an unknown word: the nearest known one, or all of them."""
    known = sorted(known)
    return "" if not known else nearest(word, known) or f"known here: {', '.join(known)}"


def _in(source: str, problem: Problem) -> Problem:
    return replace(problem, where=f"{source} {problem.where}".rstrip())


def _parse(path: Path) -> Toml:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise TableError("cannot read a mapping table", [Problem(str(path), "no such file")]) from None
    except (ValueError, RecursionError, OSError) as e:  # also bad UTF-8, endless digits, endless brackets
        raise TableError("cannot read a mapping table", [Problem(str(path), "not a TOML file", found=str(e))]) from e


def _merged(name: str, files: Files, problems: list[Problem]) -> Toml:
    """What a file says with all that it takes from its bases; nothing where they cannot be told."""
    toml, source = files[name]
    bases = [n for n in files if n != name and name not in _bases(n, files)]
    base = toml.get("extends")
    inherited = _merged(base, files, problems) if base in bases else {}
    if base in bases and not inherited:
        return {}
    parts = [f"{section}.{k}" for section, below in inherited.items() if isinstance(below, dict) for k in below]
    told = bool(inherited) or base is None
    own = {k: toml[k] for k in ("extends", "without") if k in toml and (told or k == "extends")}
    problems += [_in(source, p) for p in file_rule(bases, parts).problems(own, ())]
    return _over(inherited, toml) if told else {}


def _bases(name: str, files: Files) -> list[str]:
    """The base of a file, the base of that, and so on; in a circle each once."""
    found: list[str] = []
    while (base := files[name][0].get("extends")) in [n for n in files if n not in found]:
        found.append(base)
        name = base
    return found


def _over(base: Toml, toml: Toml) -> Toml:
    """A table over its base. `without` then lists all that it and its bases took out."""
    gone = _gone(toml)
    kept = {
        section: {k: v for k, v in below.items() if f"{section}.{k}" not in gone} if isinstance(below, dict) else below
        for section, below in base.items()
        if section not in ("family", "extends")
    }
    return {**_merge(kept, toml), "without": [*_gone(base), *gone]}


def _gone(toml: Toml) -> list[object]:
    names = toml.get("without")
    return names if isinstance(names, list) else []


def _merge(base: Toml, over: Toml) -> Toml:
    both = {
        k: _merge(base[k], v) if isinstance(v, dict) and isinstance(base.get(k), dict) else v for k, v in over.items()
    }
    return {**base, **both}


# ---------------------------------------------------------------- values, from tables that the grammar found sound


def _storage(name: str, entry: Toml) -> Storage:
    left = dict(entry.get("wrappers", {}))
    undo = left.pop("undo", {})
    return Storage(
        name,
        entry.get("about", ""),
        {kind: {part: _leaf(text) for part, text in entry[kind].items()} for kind in KINDS},
        entry.get("also", {}),
        tuple(entry.get("formats", ())),
        tuple(entry.get("weights", ())),
        Wrappers(**{k: tuple(v) for k, v in left.items()}, undo=undo),
        **{k: entry[k] for k in _AS_THEY_ARE if k in entry},
    )


def _leaf(text: str) -> tuple[str, str]:
    leaf, _, pattern = text.partition(":")
    return leaf.strip(), pattern.strip()


def _table(toml: Toml, source: str, storages: Mapping[str, Storage]) -> Table:
    real = [name for name in storages if name != "logical"]
    rows = read_rows(toml["rows"], storages)
    kinds = {row.name: row.kind for row in rows}
    return Table(
        family=toml["family"],
        about=toml.get("about", ""),
        source=source,
        prefixed=tuple(toml.get("prefixed", ())),
        layouts={name: LayoutFacts(**toml.get(name, {})) for name in real},
        axes={letter: str(size) for letter, size in toml["axes"].items()},
        repeat={k: tuple(v) if isinstance(v, list) else v for k, v in toml.get("repeat", {}).items()},
        config={name: _config_field(name, entry, real) for name, entry in toml["config"].items()},
        values=_values(toml.get("values", {})),
        facts=toml["facts"],
        looks_like=toml.get("looks_like", {}),
        restyle=toml.get("restyle", {}),
        rows=rows,
        tasks={name: _task(name, entry, real) for name, entry in toml["task"].items()},
        dialects={name: _dialect(name, entry, kinds, storages) for name, entry in toml.get("dialect", {}).items()},
    )


def _config_field(name: str, entry: Toml, layouts: list[str]) -> ConfigField:
    cells = {k: entry[k] if isinstance(entry[k], dict) else {"at": entry[k]} for k in layouts if k in entry}
    names = {k: str(cell.get("at", name)) for k, cell in cells.items()}
    less = {k: str(cell["less"]) for k, cell in cells.items() if "less" in cell}
    return ConfigField(name, entry["use"], names, entry.get("default"), less, entry.get("head", ""))


def _values(raw: Toml) -> dict[str, dict[str, dict[str, tuple[str, ...]]]]:
    return {
        name: {value: {layout: tuple(s) for layout, s in spellings.items()} for value, spellings in values.items()}
        for name, values in raw.items()
    }


def _task(name: str, entry: Toml, layouts: list[str]) -> Task:
    classes = {k: entry[k] for k in layouts if entry.get(k)}  # empty: not the base's class either
    return Task(name, tuple(entry["rows"]), entry["pooler"], entry.get("head_style"), classes, entry.get("bare", False))


def _dialect(name: str, entry: Toml, kinds: Mapping[str, str], storages: Mapping[str, Storage]) -> Dialect:
    columns = {row: read_columns(kinds[row], cells, storages) for row, cells in entry.get("columns", {}).items()}
    tasks = tuple(entry.get("tasks", ()))
    return Dialect(name, entry["layout"], entry.get("about", ""), columns, tasks, entry.get("fixed", {}))
