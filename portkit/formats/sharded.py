"""Checkpoints in several files, with an index that says which tensor lies where, as transformers has them."""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import groupby, islice
from pathlib import Path
from typing import TYPE_CHECKING

from portkit.errors import Problem, UnreadableError, UnwritableError, unreadable
from portkit.formats.container import Container
from portkit.formats.pytorch import read_pytorch
from portkit.formats.safetensors_file import lay_out, read_safetensors, write_safetensors
from portkit.formats.source import read_small
from portkit.formats.strict_json import parse_object
from portkit.formats.write import mismatch, write_at_offsets

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from portkit.tensors import Array, TensorSpec

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
MAX_INDEX = 64 << 20
_READERS = {".safetensors": read_safetensors, ".bin": read_pytorch}
NUMBERED = re.compile(r"(?P<stem>.+)-\d{5}-of-(?P<count>\d{5})(?P<suffix>\.\w+)")


def read_sharded(index: Path) -> Container:
    """Open the shards that an index names, as one container, in the order of the index.

    Shards are plain names in the index's own folder; a shard may be a link to elsewhere, as in the cache of
    the Hugging Face hub.
    The index says what belongs together: numbered files of another count are left from another save, which a
    note says.
    Raises UnreadableError, with every disagreement between index, folder and shards, when there is one.
    """
    content = _read_index(index)
    weight_map = _weight_map(index, content)
    files = list(dict.fromkeys(weight_map.values()))
    _raise_if([*_name_problems(index, files)])
    part, old = _strays(index, files)
    _raise_if([*_missing(index, files, old), *_unnamed(index, part)])
    shards = _open_shards(index, files)
    _raise_if([*_disagreements(index, weight_map, shards)])
    tensors = {name: shards[file].tensors[name] for name, file in weight_map.items()}
    notes = [f"{file}: {note}" for file, shard in shards.items() for note in shard.notes]
    notes += _stray_notes(old)
    notes += _size_notes(index, content, sum(tensor.spec.nbytes for tensor in tensors.values()))
    metadata = {key: value for shard in reversed(shards.values()) for key, value in shard.metadata.items()}
    return Container(shards[files[0]].format, tensors, metadata, tuple(notes))


def write_sharded(
    folder: Path,
    specs: Sequence[TensorSpec],
    arrays: Iterable[Array],
    *,
    max_shard_size: int,
    metadata: Mapping[str, str] = {},
) -> dict[str, str]:
    """Write model.safetensors, or shards of at most that many bytes of tensors, with their index.

    Arrays come in the order of `specs`; one is in memory at a time. A tensor larger than the limit has
    a shard of its own. Returns name -> SHA-256 of a single file; shards are not hashed. After an error the
    folder may hold unfinished shards, but no index. Raises PortkitError when an array is not what its spec
    says, or when the system cannot write.
    """
    shards = split(specs, max_shard_size)
    if len(shards) <= 1:
        return {SINGLE: write_safetensors(folder / SINGLE, specs, arrays, metadata=metadata)}
    files = [f"model-{number:05d}-of-{len(shards):05d}.safetensors" for number in range(1, len(shards) + 1)]
    weight_map = {spec.name: file for file, shard in zip(files, shards, strict=True) for spec in shard}
    try:
        _write_shards(folder, specs, arrays, weight_map, metadata)
        (folder / INDEX).write_text(_index(specs, weight_map), encoding="utf-8")
    except OSError as error:
        raise UnwritableError(folder, error) from error
    return {}


def split(specs: Sequence[TensorSpec], limit: int) -> list[list[TensorSpec]]:
    """Which tensors go together: in order, each shard filled to the limit, as transformers fills them."""
    shards: list[list[TensorSpec]] = []
    filling: list[TensorSpec] = []
    size = 0
    for spec in specs:
        if spec.nbytes > limit:
            shards.append([spec])
            continue
        if size + spec.nbytes > limit:
            shards.append(filling)
            filling, size = [], 0
        filling.append(spec)
        size += spec.nbytes
    return [*shards, filling] if filling else shards


def _write_shards(
    folder: Path,
    specs: Sequence[TensorSpec],
    arrays: Iterable[Array],
    weight_map: Mapping[str, str],
    metadata: Mapping[str, str],
) -> None:
    layouts = {}
    for file in dict.fromkeys(weight_map.values()):
        layouts[file] = lay_out([spec for spec in specs if weight_map[spec.name] == file], metadata)
        with (folder / file).open("wb") as empty:
            empty.write(layouts[file].head)
    pending = iter(arrays)
    for file, group in groupby(specs, lambda spec: weight_map[spec.name]):
        run, layout = list(group), layouts[file]
        with (folder / file).open("r+b") as shard:
            write_at_offsets(shard, len(layout.head), run, islice(pending, len(run)), layout.offsets)
    if next(pending, None) is not None:
        raise mismatch("", f"more arrays than the {len(specs)} that were announced")


def _index(specs: Sequence[TensorSpec], weight_map: Mapping[str, str]) -> str:
    """The text of the index, to the byte as transformers 5 writes it."""
    sizes = {
        "total_parameters": sum(spec.count for spec in specs),
        "total_size": sum(spec.nbytes for spec in specs),
    }
    return json.dumps({"metadata": sizes, "weight_map": weight_map}, indent=2, sort_keys=True) + "\n"


def _read_index(index: Path) -> dict[str, object]:
    return parse_object(read_small(index, MAX_INDEX, "an index"), index, "the index")


def _weight_map(index: Path, content: Mapping[str, object]) -> dict[str, str]:
    found = content.get("weight_map")
    if not isinstance(found, dict) or not found:
        what = f"a {type(found).__name__}" if found else "none"
        raise unreadable(index, "the index has no weight_map", expected="tensor names and their files", found=what)
    _raise_if(
        Problem(f"{index}: {name}", "the file of a tensor must be a text", found=repr(file)[:80])
        for name, file in found.items()
        if not isinstance(file, str)
    )
    return found


def _name_problems(index: Path, files: Iterable[str]) -> Iterator[Problem]:
    for file in files:
        if file in {"", ".", ".."} or set(file) & set("/\\:\0"):
            yield Problem(str(index), "a shard outside the folder of its index", "a plain file name", repr(file))
        elif Path(file).suffix not in _READERS:
            yield Problem(str(index), "a shard of no known kind", " or ".join(_READERS), repr(file))
    if len({Path(file).suffix for file in files}) > 1:
        yield Problem(str(index), "shards of different kinds", found=", ".join(sorted(files)))


def _strays(index: Path, files: Sequence[str]) -> tuple[list[str], list[str]]:
    """Numbered files that the index does not name: of its own set, which it should name, and of another save."""
    sets = {match.groups() for file in files if (match := NUMBERED.fullmatch(file))}
    kinds = {(stem, suffix) for stem, _, suffix in sets}
    found = {path.name: NUMBERED.fullmatch(path.name) for path in index.parent.iterdir()}
    strays = sorted(
        name for name, match in found.items() if match and name not in files and match.group("stem", "suffix") in kinds
    )
    part = [name for name in strays if (match := found[name]) and match.groups() in sets]
    return part, [name for name in strays if name not in part]


def _missing(index: Path, files: Iterable[str], old: Sequence[str]) -> Iterator[Problem]:
    hint = "was the download complete?"
    if old:
        hint = f"there are shards of another save, {_some(old)}: is the index the one that was saved with them?"
    for file in files:
        if not (index.parent / file).exists():
            yield Problem(str(index.parent / file), "the index names this shard, but it is not there", hint=hint)


def _unnamed(index: Path, part: Iterable[str]) -> Iterator[Problem]:
    for file in part:
        hint = "get the index that was saved with the shards; if the file is no part of the model, move it away"
        yield Problem(str(index.parent / file), "a shard of this set that the index does not name", hint=hint)


def _stray_notes(old: Sequence[str]) -> list[str]:
    return [f"shards of another save lie beside those of the index and are not read: {_some(old)}"] if old else []


def _some(files: Sequence[str]) -> str:
    return files[0] if len(files) == 1 else f"{files[0]} and {len(files) - 1} more"


def _open_shards(index: Path, files: Iterable[str]) -> dict[str, Container]:
    shards: dict[str, Container] = {}
    problems: list[Problem] = []
    for file in files:
        path = index.parent / file
        try:
            shards[file] = _READERS[path.suffix](path)
        except UnreadableError as error:
            problems += error.problems
    _raise_if(problems)
    return shards


def _disagreements(index: Path, weight_map: Mapping[str, str], shards: Mapping[str, Container]) -> Iterator[Problem]:
    stored = Counter(name for shard in shards.values() for name in shard.tensors)
    for name, file in weight_map.items():
        if name not in shards[file].tensors:
            yield Problem(f"{index.parent / file}: {name}", "the index has this tensor here, the shard has not")
    for file, shard in shards.items():
        for name in shard.tensors:
            if stored[name] > 1:
                yield Problem(f"{index.parent / file}: {name}", f"this tensor lies in {stored[name]} shards")
            elif name not in weight_map:
                yield Problem(f"{index.parent / file}: {name}", "the shard has this tensor, the index has not")


def _size_notes(index: Path, content: Mapping[str, object], total: int) -> list[str]:
    metadata = content.get("metadata")
    said = metadata.get("total_size", total) if isinstance(metadata, dict) else total
    return [] if said == total else [f"{index.name} says {said!r:.40} bytes, its tensors have {total}"]


def _raise_if(problems: Iterable[Problem]) -> None:
    if found := list(problems):
        raise UnreadableError("cannot read the checkpoint", found)
