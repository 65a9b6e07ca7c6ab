"""Keras weights in several HDF5 files: `model.weights.json` says which file holds the variables of which group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from portkit.errors import Problem, UnreadableError, unreadable
from portkit.formats.container import Container
from portkit.formats.hdf5 import read_hdf5
from portkit.formats.source import read_small
from portkit.formats.strict_json import parse_object

if TYPE_CHECKING:
    from pathlib import Path

MAX_INDEX = 64 << 20


def read_hdf5_shards(index: Path) -> Container:
    """Open all files that the index names, as one container.

    Raises UnreadableError listing whatever disagrees: names that leave the folder, missing files, groups that the
    files lack or that the index does not name, tensors that two files hold.
    """
    groups = _groups(index)
    files = sorted({f for names in groups.values() for f in names})
    problems = [Problem(f"{index}: {f}", "leaves the folder", "a plain file name") for f in files if not _plain(f)]
    problems += [
        Problem(f"{index}: {f}", "the shard is missing", hint="fetch it, or the file without shards")
        for f in files
        if _plain(f) and not (index.parent / f).is_file()
    ]
    _raise(problems)
    shards = {f: read_hdf5(index.parent / f) for f in files}
    _raise(_disagreements(index, groups, shards))
    tensors = {n: t for shard in shards.values() for n, t in shard.tensors.items()}
    notes = tuple(n for shard in shards.values() for n in shard.notes)
    return Container("hdf5", tensors, next(iter(shards.values())).metadata, notes)


def _groups(index: Path) -> dict[str, list[str]]:
    """Group path -> the files that its variables lie in; one or several."""
    said = parse_object(read_small(index, MAX_INDEX, "an index"), index, "the index").get("weight_map")
    if not isinstance(said, dict) or not said:
        raise unreadable(index, "no index of Keras weights", expected="a weight_map of groups and files")
    groups = {str(k).strip("/"): v if isinstance(v, list) else [v] for k, v in said.items()}
    if not all(isinstance(f, str) for names in groups.values() for f in names):
        raise unreadable(index, "the weight_map names something that is no file", expected="text or a list of texts")
    return groups


def _plain(name: str) -> bool:
    return "/" not in name and "\\" not in name and name not in ("", ".", "..")


def _disagreements(index: Path, groups: dict[str, list[str]], shards: dict[str, Container]) -> list[Problem]:
    problems = []
    seen: dict[str, str] = {}
    for file, shard in shards.items():
        for name in shard.tensors:
            group = name.rpartition("/")[0]
            if file not in groups.get(group, ()):
                problems.append(Problem(f"{index}: {file}", f"holds {name}, which the index does not place there"))
            if name in seen:
                problems.append(Problem(f"{index}: {file}", f"holds {name} a second time", found=seen[name]))
            seen[name] = file
    held = {n.rpartition("/")[0] for n in seen}
    problems += [
        Problem(f"{index}: /{group}", "no shard holds variables of this group", ", ".join(names))
        for group, names in groups.items()
        if group not in held
    ]
    return problems


def _raise(problems: list[Problem]) -> None:
    if problems:
        raise UnreadableError("cannot read the checkpoint", problems)
