"""A Burn record inside a scanned MessagePack file: parameters and constants by their path."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from reprlib import repr as brief
from typing import TYPE_CHECKING

import msgpack  # type: ignore[import-untyped]
import numpy as np

from portkit.errors import unreadable
from portkit.formats.burn_dtypes import StoredDtype, parse_dtype
from portkit.formats.burnpack_index import check_shape
from portkit.formats.mpk_scan import Blob, Node, Numbers, number_stream
from portkit.formats.source import Source, system_errors
from portkit.tensors import NUMPY_DTYPES, Array, LazyTensor, TensorSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_HALF = "half::binary16::f16"
_INTS = {"i16": "I16", "i32": "I32", "i64": "I64"}


@dataclass(frozen=True)
class Parameter:
    """One parameter of a record."""

    id: str
    tensor: LazyTensor
    legacy: bool  # stored as numbers, as Burn up to 0.13 did


def leaves(node: Node, path: str = "") -> Iterator[tuple[str, Node]]:
    """What a record is made of, in its order: parameters as maps of `id` and `param`, the rest as it is.

    Names of fields, numbers of vectors and names of enum variants make the path, joined by dots.
    """
    if not isinstance(node, dict | list) or not node or is_parameter(node):
        yield path, node
        return
    pairs = node.items() if isinstance(node, dict) else ((str(i), child) for i, child in enumerate(node))
    for key, child in pairs:
        yield from leaves(child, f"{path}.{key}" if path else key)


def is_parameter(node: Node) -> bool:
    """Whether it is the map that stands for a parameter."""
    return isinstance(node, dict) and set(node) == {"id", "param"}


def parse_parameter(node: Node, name: str, metadata: Mapping[str, str], source: Source) -> Parameter | None:
    """The parameter, or None for a constant. Raises UnreadableError for a broken parameter."""
    where = f"{source.name}: {name}"
    if isinstance(node, Blob | Numbers):
        hint = "a parameter is a map of 'id' and 'param'"
        raise unreadable(where, "data that belongs to no parameter", hint=hint)
    if not (isinstance(node, dict) and is_parameter(node)):
        return None
    identity, data = node["id"], node["param"]
    if not isinstance(identity, str) or not identity:
        raise unreadable(where, "the parameter's id is not text", found=brief(identity))
    if not isinstance(data, dict):
        raise unreadable(where, "the parameter holds no tensor", expected="a map", found=type(data).__name__)
    legacy = "value" in data and "bytes" not in data
    tensor = _old(data, name, metadata, source) if legacy else _new(data, name, source)
    return Parameter(identity, tensor, legacy)


def _new(data: Mapping[str, Node], name: str, source: Source) -> LazyTensor:
    """`bytes`, `shape` and `dtype`: Burn 0.14 and newer."""
    where = f"{source.name}: {name}"
    blob = data.get("bytes")
    if not isinstance(blob, Blob) or "dtype" not in data:
        found = brief(list(data))
        raise unreadable(where, "not a tensor of Burn", expected="bytes, shape and dtype", found=found)
    dtype = parse_dtype(data["dtype"], where)
    spec = TensorSpec(name, _shape(data, where), dtype.dtype)
    nbytes = check_shape(spec.shape, dtype, where)
    if nbytes != blob.size:
        found = f"{blob.size} bytes"
        raise unreadable(where, "shape and size disagree", expected=f"{nbytes} bytes for {spec}", found=found)
    return dtype.tensor(source, blob.offset, spec)


def _old(data: Mapping[str, Node], name: str, metadata: Mapping[str, str], source: Source) -> LazyTensor:
    """`value` and `shape`: Burn up to 0.13."""
    where = f"{source.name}: {name}"
    numbers = Numbers(0, 0, 0, float) if data["value"] == [] else data["value"]
    if not isinstance(numbers, Numbers):
        raise unreadable(where, "the parameter's value is not a list of numbers")
    dtype = _old_dtype(numbers, metadata)
    spec = TensorSpec(name, _shape(data, where), dtype)
    check_shape(spec.shape, StoredDtype(dtype, NUMPY_DTYPES[dtype]), where)
    if spec.count != numbers.count:
        found = f"{numbers.count} numbers"
        raise unreadable(where, "shape and size disagree", expected=f"{spec.count} numbers", found=found)
    at = (numbers.offset, numbers.offset + numbers.size)
    return LazyTensor(spec, _number_reader(source, numbers, spec), at, source.name)


def _shape(data: Mapping[str, Node], where: str) -> tuple[int, ...]:
    shape = data.get("shape")
    if isinstance(shape, list):
        sizes = tuple(size for size in shape if type(size) is int and size >= 0)
        if len(sizes) == len(shape):
            return sizes
    raise unreadable(where, "the shape is wrong", expected="a list of sizes", found=brief(shape))


def _old_dtype(numbers: Numbers, metadata: Mapping[str, str]) -> str:
    if numbers.kind is bool:
        return "BOOL"
    if numbers.kind is int and metadata.get("float") == _HALF:
        return "F16"  # the half crate writes a number's 16 bits as an integer
    if numbers.kind is int:
        return _INTS.get(metadata.get("int", ""), "I64")
    if numbers.count == 0 and metadata.get("float") == _HALF:
        return "F16"
    return "F64" if numbers.size == 9 * numbers.count and numbers.count else "F32"


def _number_reader(source: Source, numbers: Numbers, spec: TensorSpec) -> Callable[[], Array]:
    bits = np.dtype("<u2") if spec.dtype == "F16" else NUMPY_DTYPES[spec.dtype]

    def read() -> Array:
        try:
            with system_errors(source.path), source.opened() as file:
                file.seek(numbers.offset)
                stream = islice(number_stream(file), numbers.count)
                flat = np.fromiter(stream, bits, numbers.count)
        except (ValueError, OverflowError, msgpack.UnpackException) as error:
            where, found = f"{source.name}: {spec.name}", str(error)
            raise unreadable(where, "a number does not fit", expected=spec.dtype, found=found) from error
        return flat.view(NUMPY_DTYPES[spec.dtype]).reshape(spec.shape)

    return read
