"""NamedMpk (.mpk, .mpk.gz), the records of Burn 0.12 to 0.21: nested MessagePack maps of a module's fields.

    {"metadata": {…}, "item": {"field": {"id": …, "param": {"bytes": …, "shape": …, "dtype": …}}, …}, "_b":
    []}

Tensors are named by their path, joined by dots. A record also has an entry for each constant of the module,
mostly nil.
"""

from __future__ import annotations

import base64
import hashlib
import re
import sys
from dataclasses import dataclass, field
from reprlib import repr as brief
from typing import TYPE_CHECKING

import msgpack  # type: ignore[import-untyped]

from portkit.errors import Problem, UnreadableError, UsageError, unreadable
from portkit.formats.burnpack_index import MAX_PROBLEMS
from portkit.formats.container import Container
from portkit.formats.hashing import hashing
from portkit.formats.mpk_record import Parameter, is_parameter, leaves, parse_parameter
from portkit.formats.mpk_scan import Node, scan
from portkit.formats.mpk_tree import Constant, Piece, Tree, build_tree, pieces
from portkit.formats.source import Source, file_source, unpacked
from portkit.formats.write import check_unique, replacing, write_at_offsets

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from portkit.tensors import Array, TensorSpec

SETTINGS = {
    "FullPrecisionSettings": ("f32", "i32"),
    "HalfPrecisionSettings": ("half::binary16::f16", "i16"),
    "DoublePrecisionSettings": ("f64", "i64"),
}
_FORMAT = "burn_core::record::file::NamedMpkFileRecorder<burn_core::record::settings::{}>"


@dataclass(frozen=True)
class NamedMpkExtras:
    """What a record has beyond tensors; with it a file is written again byte for byte."""

    ids: Mapping[str, str] = field(default_factory=dict)  # by tensor name; missing ones are made from the name
    constants: Mapping[str, object] = field(default_factory=dict)  # by path: nil, text, numbers, empty maps
    order: tuple[str, ...] = ()  # the paths of tensors and constants; those not named follow
    metadata: Mapping[str, str] = field(default_factory=dict)  # taken as it is, when there is any


@dataclass(frozen=True)
class NamedMpkContainer(Container):
    """A record, opened."""

    extras: NamedMpkExtras = field(default_factory=NamedMpkExtras)


def read_named_mpk(path: Path) -> NamedMpkContainer:
    """Open a record of Burn 0.12 to 0.21, gzipped or not; tensors are read later, one by one.

    Raises UnreadableError when it is no record, broken, or when two parameters have one id.
    """
    source = unpacked(file_source(path))
    record = _sections(scan(source), source.name)
    metadata = dict(_flat(record["metadata"]))
    order = [*leaves(record["item"])] if record["item"] else []
    parameters, constants = _sort(order, metadata, source)
    extras = NamedMpkExtras(
        {name: parameter.id for name, parameter in parameters.items()},
        constants,
        tuple(name for name, _ in order),
        metadata,
    )
    tensors = {name: parameter.tensor for name, parameter in parameters.items()}
    return NamedMpkContainer("named_mpk", tensors, metadata, _notes(record, parameters), extras)


def _sections(record: Node, file: str) -> dict[str, Node]:
    if not isinstance(record, dict) or "item" not in record or not isinstance(record.get("metadata"), dict):
        found = brief(list(record)) if isinstance(record, dict) else type(record).__name__
        raise unreadable(file, "not a record of Burn", expected="a map with 'metadata' and 'item'", found=found)
    item = record["item"]
    if not isinstance(item, dict | list) or is_parameter(item):
        raise unreadable(file, "the record's item is not a module", expected="a map of fields")
    return record


def _flat(node: Node, path: str = "") -> Iterator[tuple[str, str]]:
    if node in ({}, []):
        return
    for key, value in leaves(node, path):
        yield key, value if isinstance(value, str) else str(value)


def _sort(
    found: Sequence[tuple[str, Node]], metadata: Mapping[str, str], source: Source
) -> tuple[dict[str, Parameter], dict[str, object]]:
    """Parameters and constants. Raises UnreadableError with everything that is wrong."""
    parameters: dict[str, Parameter] = {}
    constants: dict[str, object] = {}
    problems: list[Problem] = []
    for name, node in found:
        if len(problems) == MAX_PROBLEMS:
            break
        try:
            parameter = parse_parameter(node, name, metadata, source)
        except UnreadableError as error:
            problems += error.problems
            continue
        if parameter is None:
            constants[name] = node
        else:
            parameters[name] = parameter
    problems += _shared_ids(parameters, source.name)
    if problems:
        raise UnreadableError("cannot read the checkpoint", problems[:MAX_PROBLEMS])
    return parameters, constants


def _shared_ids(parameters: Mapping[str, Parameter], file: str) -> Iterator[Problem]:
    owners: dict[str, str] = {}
    for name, parameter in parameters.items():
        owner = owners.setdefault(parameter.id, name)
        if owner != name:
            found = f"{parameter.id}, the id of {owner} too"
            yield Problem(f"{file}: {name}", "two parameters have one id", "ids of their own", found)


def _notes(record: Mapping[str, Node], parameters: Mapping[str, Parameter]) -> tuple[str, ...]:
    legacy = sum(parameter.legacy for parameter in parameters.values())
    unknown = sorted(set(record) - {"metadata", "item", "_b"})
    notes = {
        f"{legacy} tensors are stored number by number, as Burn up to 0.13 wrote them": legacy,
        f"sections that Burn ignores: {', '.join(unknown)}": unknown,
    }
    return tuple(note for note, holds in notes.items() if holds)


def write_named_mpk(
    path: Path,
    specs: Sequence[TensorSpec],
    arrays: Iterable[Array],
    *,
    version: str = "0.21.0",
    settings: str = "FullPrecisionSettings",
    constants: Mapping[str, object] = {},
    extras: NamedMpkExtras | None = None,
) -> str:
    """Write a record for Burn 0.14 to 0.21, not gzipped; `path` is replaced only when all is written.

    Returns its SHA-256. The arrays come in the order of `specs`, which may be any. `constants` puts values that
    are no tensors at paths of the record, e.g. `{"encoder.layers.0.pwff.gelu": None}`; `extras`, of a record that
    was read, does so too, and its metadata replaces `version` and `settings`. Raises RefusedError for a dtype that Burn
    lacks, PortkitError when names make no tree or arrays are not as announced.
    """
    check_unique(specs)
    extras = extras or NamedMpkExtras()
    metadata = Constant(dict(extras.metadata)) if extras.metadata else _metadata(version, settings)
    item = build_tree(specs, {**extras.constants, **constants}, extras.order)
    record: dict[str, Tree] = {"metadata": metadata, "item": item, "_b": Constant([])}
    ids = {spec.name: extras.ids.get(spec.name) or param_id(spec.name) for spec in specs}
    layout = list(_record_pieces(record, ids))
    with replacing(path) as file, hashing(file) as follower:
        places = {}
        for piece in layout:
            if isinstance(piece, bytes):
                file.write(piece)
            else:
                places[piece.name] = file.tell()
                file.seek(piece.nbytes, 1)
        write_at_offsets(file, 0, specs, arrays, places, follower.reached)
    return follower.sha256


def tree_order(names: Iterable[str]) -> list[str]:
    """The names in the order of a record's bytes: specs in this order are written without going back."""
    return sorted(names, key=lambda name: [_rank(part) for part in name.split(".")])


def _record_pieces(record: Mapping[str, Tree], ids: Mapping[str, str]) -> Iterator[Piece]:
    packer = msgpack.Packer()
    yield packer.pack_map_header(len(record))
    for section, tree in record.items():
        yield packer.pack(section)
        yield from pieces(tree, ids, packer)


def _metadata(version: str, settings: str) -> Constant:
    if settings not in SETTINGS:
        raise UsageError(f"unknown settings {settings!r}: Burn has {', '.join(SETTINGS)}")
    floats, ints = SETTINGS[settings]
    form = _FORMAT.format(settings)
    return Constant({"float": floats, "int": ints, "format": form, "version": version, "settings": settings})


def _rank(part: str) -> tuple[int, str]:
    """Numbers of vectors by their value, then names."""
    return (len(part), part) if re.fullmatch("[0-9]+", part) else (sys.maxsize, part)


def param_id(name: str) -> str:
    """A parameter id as Burn 0.15 and newer write it: 64 bits in base32hex; always the same for one name."""
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    return base64.b32hexencode(digest).decode().rstrip("=").lower()
