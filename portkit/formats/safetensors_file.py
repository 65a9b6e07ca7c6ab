"""Safetensors: a length, a header in JSON, then the tensors without gaps.

The safetensors library judges every file that is read here; bytes are then read one tensor at a time, at
their own place (its numpy side knows no 8-bit floats, and parses the whole header again for each tensor).
Files that are written are byte for byte those of the library, which itself needs all tensors in memory.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from portkit.errors import Problem, UnreadableError, unreadable
from portkit.formats.container import Container
from portkit.formats.hashing import hashing
from portkit.formats.sniff import identify
from portkit.formats.source import Source, file_source, system_errors
from portkit.formats.strict_json import parse_object
from portkit.formats.write import check_unique, mismatch, replacing, write_at_offsets
from portkit.tensors import NUMPY_DTYPES, Array, LazyTensor, TensorSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

LENGTH_BYTES = 8
MAX_HEADER = 32 << 20  # the library's own limit is 100 MB; 32 MiB name 300 000 tensors
METADATA = "__metadata__"
MAX_DIMS = 64  # numpy's limit
# The library sorts by dtype in the order of its own list, last one first, and then by name.
_ORDER = (
    "U64", "I64", "F64", "F32", "U32", "I32", "BF16", "F16",
    "U16", "I16", "F8_E4M3", "F8_E5M2", "I8", "U8", "BOOL",
)  # fmt: skip


@dataclass(frozen=True)
class Layout:
    """Where everything of a file to be written lies."""

    head: bytes  # the length and the header
    offsets: Mapping[str, int]  # of each tensor, after the head
    size: int  # of the file


def read_safetensors(path: Path) -> Container:
    """Open a safetensors file; tensors are read later, one by one, in their stored dtype.

    Raises UnreadableError when the file is none, is truncated or broken, or holds dtypes that numpy cannot.
    """
    if (kind := identify(path)) != "safetensors":
        raise unreadable(path, "not a safetensors file", found=kind)
    source = file_source(path)
    header, start = _read_header(source)
    _ask_library(source, header, start)
    metadata: Any = header.pop(METADATA, None) or {}
    _check_tensors(path, header)
    tensors = {name: _tensor(source, start, name, entry) for name, entry in header.items()}
    return Container("safetensors", tensors, metadata)


def write_safetensors(
    path: Path,
    specs: Sequence[TensorSpec],
    arrays: Iterable[Array],
    *,
    metadata: Mapping[str, str] = {},
) -> str:
    """Write a safetensors file from arrays that come in the order of `specs`; one is in memory at a time.

    Returns the file's SHA-256; it appears when it is complete. Raises PortkitError when an array is not what its spec
    says, or when the system cannot write.
    """
    layout = lay_out(specs, metadata)
    with replacing(path) as file, hashing(file) as follower:
        file.write(layout.head)
        write_at_offsets(file, len(layout.head), specs, arrays, layout.offsets, follower.reached)
    return follower.sha256


def lay_out(specs: Sequence[TensorSpec], metadata: Mapping[str, str]) -> Layout:
    """The head of a file that holds these tensors, and their places.

    Raises PortkitError for a name that the format cannot hold.
    """
    check_unique(specs)
    header: dict[str, object] = {METADATA: dict(metadata)} if metadata else {}
    offsets: dict[str, int] = {}
    end = 0
    for spec in sorted(specs, key=lambda spec: (_ORDER.index(spec.dtype), spec.name)):
        if spec.name == METADATA:
            raise mismatch(spec.name, "the format keeps this name for itself")
        offsets[spec.name] = end
        end += spec.nbytes
        place = [offsets[spec.name], end]
        header[spec.name] = {"dtype": spec.dtype, "shape": list(spec.shape), "data_offsets": place}
    head = _encode(header)
    return Layout(head, offsets, len(head) + end)


def _encode(header: Mapping[str, object]) -> bytes:
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":"))
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise mismatch("", "a name that has no UTF-8 form", found=repr(text[error.start : error.end])) from error
    data += b" " * (-len(data) % LENGTH_BYTES)
    if len(data) > MAX_HEADER:
        raise mismatch(
            "",
            "too many tensors for one header",
            expected=f"at most {MAX_HEADER} bytes",
            found=f"{len(data)}",
        )
    return len(data).to_bytes(LENGTH_BYTES, "little") + data


def _read_header(source: Source) -> tuple[dict[str, Any], int]:
    length = int.from_bytes(source.read(0, LENGTH_BYTES), "little")
    start = LENGTH_BYTES + length
    if start > source.size:
        raise _truncated(source, f"the header promises {length} bytes for itself alone")
    if length > MAX_HEADER:
        found = f"{length} bytes"
        raise unreadable(source.path, "the header is too large", expected=f"at most {MAX_HEADER} bytes", found=found)
    return parse_object(source.read(LENGTH_BYTES, length), source.path, "the header"), start


def _ask_library(source: Source, header: Mapping[str, Any], start: int) -> None:
    try:
        with system_errors(source.path), safe_open(source.path, framework="np", backend="pread"):
            pass
    except SafetensorError as error:
        promised = start + max(map(_end_of, header.values()), default=0)
        if promised > source.size:
            raise _truncated(source, f"the header promises {promised} bytes") from error
        raise unreadable(source.path, "the safetensors library refuses the header", found=str(error)) from error


def _end_of(entry: object) -> int:
    """Where the tensor ends, or 0 for an entry that does not say so in the usual form."""
    match entry:
        case {"data_offsets": [int(), int(end)]}:
            return end
        case _:
            return 0


def _truncated(source: Source, promise: str) -> UnreadableError:
    what = f"{promise}, the file has {source.size}"
    return unreadable(source.path, what, hint="was it copied or downloaded to the end?")


def _check_tensors(path: Path, header: Mapping[str, Any]) -> None:
    problems = [
        Problem(f"{path}: {name}", what)
        for name, entry in header.items()
        if (what := _unreadable(entry["dtype"], entry["shape"]))
    ]
    if problems:
        raise UnreadableError("cannot read the checkpoint", problems)


def _unreadable(dtype: str, shape: Sequence[int]) -> str:
    """Why numpy cannot hold such a tensor, or nothing."""
    if dtype not in NUMPY_DTYPES:
        return f"stored as {dtype}, which portkit does not read"
    if len(shape) > MAX_DIMS or math.prod(max(1, dim) for dim in shape) >= 2**60:
        return f"a shape that no array can have: {shape}"
    return ""


def _tensor(source: Source, start: int, name: str, entry: Mapping[str, Any]) -> LazyTensor:
    spec = TensorSpec(name, tuple(entry["shape"]), entry["dtype"])
    return source.tensor(spec, start + entry["data_offsets"][0])
