"""Burnpack (.bpk), the weights of Burn 0.19 and newer: a header, an index in CBOR, then the tensors.

    u32 magic · u16 version · u32 size of the metadata · metadata (CBOR) · padding · tensors, little-endian

Burn 0.20 moved every tensor to multiples of 256 bytes without a new version number, so 0.19 misreads newer
files and the other way round, in silence. What is written here makes the metadata end at such a multiple:
then both agree.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from reprlib import repr as brief
from typing import TYPE_CHECKING, Any

import cbor2

from portkit.errors import unreadable
from portkit.formats.burn_dtypes import spell_dtype
from portkit.formats.burnpack_index import (
    ALIGNMENT,
    Entry,
    align,
    check_ranges,
    data_start,
    is_u64,
    parse_entries,
)
from portkit.formats.cbor_guard import check_cbor
from portkit.formats.container import Container
from portkit.formats.hashing import hashing
from portkit.formats.source import Source, file_source
from portkit.formats.write import check_unique, mismatch, replacing, write_at_offsets

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from portkit.tensors import Array, LazyTensor, TensorSpec

MAGIC = b"NRUB"  # 0x4255524E, little-endian
VERSION = 1
MAX_METADATA = 100 << 20  # Burn's own limit
PAD_KEY = "_pad"  # the metadata entry that only fills; Burn reads no metadata
_HEADER = struct.Struct("<4sHI")
_SCALARS: dict[str, type] = {"Int": int, "UInt": int, "Float": float, "Bool": bool}

Scalar = tuple[str, int | float | bool]  # kind as Burn calls it, value


@dataclass(frozen=True)
class BurnpackExtras:
    """What a Burnpack file has beyond tensors; with it a file is written again byte for byte."""

    param_ids: Mapping[str, int] = field(default_factory=dict)  # Burn invents those that are missing
    blob_order: tuple[str, ...] = ()  # names in the order of their bytes; those not named follow by name
    scalars: Mapping[str, Scalar] = field(default_factory=dict)  # Burn 0.22 and newer
    aligned: bool = True  # False: the form of Burn 0.19, which newer ones misread
    padded: bool = True  # metadata filled up so that Burn 0.19 reads the aligned form too
    metadata: Mapping[str, str] = field(default_factory=dict)  # without the filling


@dataclass(frozen=True)
class BurnpackContainer(Container):
    """A Burnpack file, opened."""

    extras: BurnpackExtras = field(default_factory=BurnpackExtras)


def read_burnpack(path: Path) -> BurnpackContainer:
    """Open a Burnpack file of any version; tensors are read later, one by one, in their stored dtype.

    Flex32 is F32; bools are BOOL however they are stored. Raises UnreadableError when the file is cut short,
    has bytes that belong to no tensor, is quantised, or is anything else than Burnpack.
    """
    source = file_source(path)
    index, index_end = _read_index(source)
    entries = parse_entries(index.get("tensors"), source.name)
    start = data_start(entries, index_end, source.size, source.name)
    packed = start != align(index_end)
    check_ranges(entries, 1 if packed else ALIGNMENT, source.name)
    _check_padding(source, index_end, start)
    metadata, scalars = dict(_metadata(index, source.name)), _scalars(index, source.name)
    padded = metadata.pop(PAD_KEY, None) is not None
    extras = BurnpackExtras(
        {entry.spec.name: entry.param_id for entry in entries if entry.param_id is not None},
        tuple(entry.spec.name for entry in sorted(entries, key=lambda entry: (entry.start, entry.end))),
        scalars,
        metadata=metadata,
        aligned=not packed and all(entry.start % ALIGNMENT == 0 for entry in entries),
        padded=padded,
    )
    tensors = {entry.spec.name: _lazy(source, entry, start) for entry in entries}
    return BurnpackContainer("burnpack", tensors, metadata, _notes(index, entries, extras), extras)


def read_extras(path: Path) -> BurnpackExtras:
    """What `write_burnpack` needs to write this file again byte for byte. Raises UnreadableError."""
    return read_burnpack(path).extras


def _read_index(source: Source) -> tuple[dict[str, Any], int]:
    """The decoded metadata and where it ends."""
    if source.size < _HEADER.size:
        raise unreadable(source.name, "too short for Burnpack", expected="10 bytes or more", found=str(source.size))
    magic, version, size = _HEADER.unpack(source.read(0, _HEADER.size))
    if magic != MAGIC:
        raise unreadable(source.name, "not a Burnpack file", expected=f"{MAGIC!r} first", found=repr(magic))
    if version > VERSION:
        hint = "written by a Burn newer than this portkit knows"
        raise unreadable(source.name, "unknown Burnpack version", expected="1", found=str(version), hint=hint)
    limit = min(MAX_METADATA, source.size - _HEADER.size)
    if size > limit:
        raise unreadable(
            source.name,
            "the metadata cannot be that large",
            expected=f"at most {limit} bytes",
            found=str(size),
        )
    return _decode(source.read(_HEADER.size, size), source.name), _HEADER.size + size


def _decode(data: bytes, file: str) -> dict[str, Any]:
    check_cbor(data, file)
    try:
        index = cbor2.loads(data)
    except cbor2.CBORDecodeError as error:
        raise unreadable(file, "the metadata is not CBOR", found=str(error)) from error
    if not isinstance(index, dict):
        raise unreadable(file, "the metadata is not a map", found=type(index).__name__)
    return index


def _metadata(index: Mapping[str, Any], file: str) -> dict[str, str]:
    metadata = index.get("metadata", {})
    if isinstance(metadata, dict) and all(isinstance(value, str) for value in metadata.values()):
        return metadata
    raise unreadable(file, "the section 'metadata' is wrong", expected="a map of text", found=brief(metadata))


def _scalars(index: Mapping[str, Any], file: str) -> dict[str, Scalar]:
    section = index.get("scalars", {})
    if not isinstance(section, dict):
        raise unreadable(file, "the section 'scalars' is not a map", found=brief(section))
    return {name: _scalar(value, f"{file}: {name}") for name, value in section.items()}


def _scalar(value: object, where: str) -> Scalar:
    if isinstance(value, dict) and len(value) == 1:
        kind: str
        number: int | float | bool
        ((kind, number),) = value.items()
        if type(number) is _SCALARS.get(kind) and (kind != "UInt" or is_u64(number)):
            return kind, number
    expected = "one of Int, UInt, Float, Bool with its value"
    raise unreadable(where, "the scalar is wrong", expected=expected, found=brief(value))


def _check_padding(source: Source, index_end: int, start: int) -> None:
    if source.read(index_end, start - index_end).strip(b"\0"):
        raise unreadable(
            source.name,
            "the padding between metadata and tensors holds data",
            expected=f"{start - index_end} zero bytes at {index_end}",
            hint=f"a file of Burn 0.19 with {start - index_end} bytes appended looks like this",
        )


def _lazy(source: Source, entry: Entry, start: int) -> LazyTensor:
    return entry.dtype.tensor(source, start + entry.start, entry.spec)


def _notes(index: Mapping[str, Any], entries: Sequence[Entry], extras: BurnpackExtras) -> tuple[str, ...]:
    unknown = sorted(set(index) - {"tensors", "metadata", "scalars"})
    flex = [entry.spec.name for entry in entries if index["tensors"][entry.spec.name]["dtype"] == "Flex32"]
    shared = len(extras.param_ids) - len(set(extras.param_ids.values()))
    notes = {
        "tensors are not aligned, as Burn 0.19 writes: newer ones misread this file": not extras.aligned,
        f"sections that Burn ignores: {', '.join(unknown)}": unknown,
        f"Flex32, read as F32: {', '.join(flex)}": flex,
        f"{shared} tensors have a param_id that another tensor has too": shared,
    }
    scalars = (f"scalar {name} = {kind} {value}" for name, (kind, value) in extras.scalars.items())
    return (*(note for note, holds in notes.items() if holds), *scalars)


def write_burnpack(
    path: Path,
    specs: Sequence[TensorSpec],
    arrays: Iterable[Array],
    *,
    metadata: Mapping[str, str] = {},
    extras: BurnpackExtras | None = None,
) -> str:
    """Write a Burnpack file that every Burn from 0.19 on reads; `path` is replaced only when all is written.

    Returns its SHA-256. The arrays come in the order of `specs`, which may be any; in the file tensors lie by
    name, unless `extras` says otherwise. Raises RefusedError for a dtype that Burn lacks, PortkitError when
    specs and arrays disagree.
    """
    check_unique(specs)
    extras = extras or BurnpackExtras()
    starts, end = _place(specs, extras)
    index = _encode_index(sorted(specs, key=lambda spec: spec.name), starts, {**extras.metadata, **metadata}, extras)
    header = _HEADER.pack(MAGIC, VERSION, len(index)) + index
    start = align(len(header)) if extras.aligned else len(header)
    with replacing(path) as file, hashing(file) as follower:
        file.write(header)
        write_at_offsets(file, start, specs, arrays, starts, follower.reached)
        file.truncate(start + end)
    return follower.sha256


def _place(specs: Sequence[TensorSpec], extras: BurnpackExtras) -> tuple[dict[str, int], int]:
    """Where each tensor starts in the data section, and where that ends."""
    rank = {name: index for index, name in enumerate(extras.blob_order)}
    starts, end = {}, 0
    for spec in sorted(specs, key=lambda spec: (rank.get(spec.name, len(rank)), spec.name)):
        starts[spec.name] = align(end) if extras.aligned else end
        end = starts[spec.name] + spec.nbytes
    return starts, end


def _encode_index(
    specs: Sequence[TensorSpec],
    starts: Mapping[str, int],
    metadata: Mapping[str, str],
    extras: BurnpackExtras,
) -> bytes:
    tensors = {spec.name: _fields(spec, starts[spec.name], extras.param_ids.get(spec.name)) for spec in specs}
    texts = {key: value for key, value in metadata.items() if key != PAD_KEY}
    index = {"tensors": tensors, "metadata": texts, "scalars": _encode_scalars(extras.scalars)}
    if extras.padded and extras.aligned:
        texts[PAD_KEY] = ""
        texts[PAD_KEY] = _filling(_HEADER.size + len(_cbor(index)))
    data = _cbor(index)
    if len(data) > MAX_METADATA:
        raise mismatch("", "the index is larger than Burn reads", expected=f"{MAX_METADATA}", found=f"{len(data)}")
    return data


def _fields(spec: TensorSpec, start: int, param_id: int | None) -> dict[str, object]:
    fields: dict[str, object] = {
        "dtype": spell_dtype(spec),
        "shape": list(spec.shape),
        "data_offsets": [start, start + spec.nbytes],
    }
    return fields if param_id is None else {**fields, "param_id": param_id}


def _filling(end: int) -> str:
    """The text that makes a file whose index ends at `end` with an empty text end at a multiple of 256."""
    missing = align(end) - end
    if missing == 24:  # a text of 23 adds 23 bytes, one of 24 adds 25, since its length then takes a byte more
        missing += ALIGNMENT
    return " " * (missing - (missing > 23) - (missing > 256))


def _encode_scalars(scalars: Mapping[str, Scalar]) -> dict[str, dict[str, object]]:
    return {name: {kind: _Float(value) if kind == "Float" else value} for name, (kind, value) in scalars.items()}


@dataclass(frozen=True)
class _Float:
    """A float to be written in the fewest bytes that hold it, as Burn does."""

    value: float


def _cbor(index: Mapping[str, object]) -> bytes:
    """Key order is kept; empty sections are left out, as Burn leaves them out."""
    present = {key: value for key, value in index.items() if value or key == "tensors"}
    return cbor2.dumps(present, default=lambda encoder, item: encoder.write(cbor2.dumps(item.value, canonical=True)))
