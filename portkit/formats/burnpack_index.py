"""The index of a Burnpack file: which tensors, of what kind, at which bytes. Read from untrusted metadata."""

from __future__ import annotations

import math
from dataclasses import dataclass
from reprlib import repr as brief
from typing import TYPE_CHECKING, TypeGuard

from portkit.errors import Problem, UnreadableError, unreadable
from portkit.formats.burn_dtypes import StoredDtype, parse_dtype
from portkit.tensors import TensorSpec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ALIGNMENT = 256  # since Burn 0.20 the data section, and each tensor in it, starts at a multiple of this
MAX_TENSORS = 100_000  # Burn's own limit
MAX_PROBLEMS = 20  # more would not be read by anyone
MAX_RANK = 32
MAX_BYTES = 1 << 62  # beyond any file; keeps a shape like (2**62, 0) from numpy
U64_END = 1 << 64


@dataclass(frozen=True)
class Entry:
    """One tensor of the index; `start` and `end` count from the start of the data section."""

    spec: TensorSpec
    dtype: StoredDtype
    start: int
    end: int
    param_id: int | None


def align(offset: int, alignment: int = ALIGNMENT) -> int:
    """The next multiple of `alignment`."""
    return -(-offset // alignment) * alignment


def parse_entries(tensors: object, file: str) -> list[Entry]:
    """The entries in the order of the index. Raises UnreadableError with those that are wrong."""
    if not isinstance(tensors, dict):
        raise unreadable(file, "the metadata has no map 'tensors'", found=type(tensors).__name__)
    if len(tensors) > MAX_TENSORS:
        raise unreadable(file, "too many tensors", expected=f"at most {MAX_TENSORS}", found=str(len(tensors)))
    entries: list[Entry] = []
    problems: list[Problem] = []
    for name, fields in tensors.items():
        try:
            entries.append(_entry(name, fields, f"{file}: {name}"))
        except UnreadableError as error:
            problems += error.problems
        if len(problems) == MAX_PROBLEMS:
            break
    if problems:
        raise UnreadableError("cannot read the checkpoint", problems[:MAX_PROBLEMS])
    return entries


def _entry(name: str, fields: object, where: str) -> Entry:
    if not isinstance(fields, dict):
        raise unreadable(where, "the entry of the tensor is not a map", found=type(fields).__name__)
    dtype = parse_dtype(_field(fields, "dtype", where), where)
    shape = _numbers(fields, "shape", where)
    offsets = _numbers(fields, "data_offsets", where)
    spec = TensorSpec(name, shape, dtype.dtype)
    start, end = _range(spec, dtype, offsets, where)
    return Entry(spec, dtype, start, end, _param_id(fields, where))


def _field(fields: Mapping[str, object], key: str, where: str) -> object:
    if key not in fields:
        raise unreadable(where, f"the entry has no '{key}'", found=brief(list(fields)))
    return fields[key]


def is_u64(value: object) -> TypeGuard[int]:
    """Whether it is an integer that fits 64 bits without a sign."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < U64_END


def _numbers(fields: Mapping[str, object], key: str, where: str) -> tuple[int, ...]:
    value = _field(fields, key, where)
    if not isinstance(value, list) or not all(map(is_u64, value)):
        found = brief(value)
        raise unreadable(where, f"'{key}' is wrong", expected="a list of integers, none negative", found=found)
    return tuple(value)


def _range(spec: TensorSpec, dtype: StoredDtype, offsets: tuple[int, ...], where: str) -> tuple[int, int]:
    if len(offsets) != 2 or offsets[0] > offsets[1]:
        raise unreadable(where, "'data_offsets' is no range", expected="[start, end]", found=brief(list(offsets)))
    nbytes = check_shape(spec.shape, dtype, where)
    if offsets[1] - offsets[0] != nbytes:
        found = f"{offsets[1] - offsets[0]} at {list(offsets)}"
        raise unreadable(where, "shape and size disagree", expected=f"{nbytes} bytes for {spec}", found=found)
    return offsets[0], offsets[1]


def check_shape(shape: tuple[int, ...], dtype: StoredDtype, where: str) -> int:
    """How many bytes such a tensor takes. Raises UnreadableError for a shape that no array can have."""
    rank_ok = len(shape) <= MAX_RANK
    if not rank_ok or math.prod(size or 1 for size in shape) * dtype.stored.itemsize > MAX_BYTES:
        expected = f"at most {MAX_RANK} axes and {MAX_BYTES} bytes"
        raise unreadable(where, "the shape is impossible", expected=expected, found=brief(shape))
    return math.prod(shape) * dtype.stored.itemsize


def _param_id(fields: Mapping[str, object], where: str) -> int | None:
    value = fields.get("param_id")
    if value is None or is_u64(value):
        return value
    raise unreadable(where, "'param_id' is wrong", expected="an integer of 64 bits", found=brief(value))


def data_start(entries: Sequence[Entry], index_end: int, size: int, file: str) -> int:
    """Where the data section starts. Both forms have one version number, so the file's length has to tell.

    Burn 0.20 and newer start at the next multiple of 256, Burn 0.19 right after the metadata; both end the
    file with the last tensor. Raises UnreadableError when the length fits neither.
    """
    end = max((entry.end for entry in entries), default=0)
    for start in (align(index_end), index_end):
        if size == start + end:
            return start
    aligned, packed = align(index_end) + end, index_end + end
    expected = f"{aligned} bytes (as Burn 0.20 and newer write) or {packed} bytes (as Burn 0.19 writes)"
    raise unreadable(
        file,
        "the file's length does not fit its index",
        expected=expected if aligned != packed else f"{aligned} bytes",
        found=f"{size} bytes, {_difference(size, aligned, packed)}",
        hint=_length_hint(size, aligned, packed),
    )


def _difference(size: int, aligned: int, packed: int) -> str:
    counts = dict.fromkeys((size - aligned, size - packed))
    return " or ".join(f"{abs(count)} too {'many' if count > 0 else 'few'}" for count in counts)


def _length_hint(size: int, aligned: int, packed: int) -> str:
    if size > aligned:
        return "trailing bytes belong to no tensor: was something appended, or is the index from another file?"
    if size < packed:
        return "the file is cut short: was it copied or downloaded completely?"
    return "a file of Burn 0.20 and newer that was cut short, or one of Burn 0.19 with bytes appended"


def check_ranges(entries: Sequence[Entry], alignment: int, file: str) -> None:
    """Every byte belongs to one tensor or to padding. Raises UnreadableError for overlaps and holes."""
    problems, cursor, before = [], 0, "the start of the data"
    for entry in sorted(entries, key=lambda entry: (entry.start, entry.end)):
        where = f"{file}: {entry.spec.name}"
        at = f"{entry.start}, where {before} ends at {cursor}"
        if entry.start < cursor:
            problems.append(Problem(where, "the tensor overlaps another", f"a start of {cursor} or more", at))
        elif entry.start - cursor >= alignment:
            hint = "tensors are missing from the index, or the file was cut short"
            limit = f"less than {alignment} bytes of padding" if alignment > 1 else "no gap, as in Burn 0.19"
            problems.append(Problem(where, "bytes before the tensor belong to none", limit, at, hint))
        if entry.end >= cursor:
            cursor, before = entry.end, entry.spec.name
    if problems:
        raise UnreadableError("cannot read the checkpoint", problems[:MAX_PROBLEMS])
