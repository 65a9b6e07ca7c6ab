"""Fingerprints of weights that do not depend on the layout: a hash of each logical tensor in its canonical form.

The bytes that are hashed: canonical orientation (kernels [in, out]), row-major, little-endian, float32 for what is
stored in 16 or 32 bits (widening is exact), float64 for float64. One tensor is in memory at a time.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from portkit.common import in_order
from portkit.golden.form import Fingerprint
from portkit.tensors import NUMPY_DTYPES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from portkit.tensors import Array, LazyTensor


@dataclass(frozen=True)
class Difference:
    """A logical tensor that is not what the golden says, and what can be said about it."""

    tensor: str
    what: str


@dataclass(frozen=True)
class WeightsVerdict:
    """How many tensors were compared, of how many, and which differ, in the order of the golden."""

    compared: int
    expected: int
    differing: tuple[Difference, ...]

    @property
    def equal(self) -> bool:
        """Everything was compared, something was there, and nothing differs."""
        return self.compared == self.expected > 0 and not self.differing

    def __str__(self) -> str:
        looked = f"compared {self.compared} of {self.expected} tensors"
        if self.equal:
            return f"{looked}: equal, bit for bit"
        if not self.differing:
            return f"{looked}: nothing proved"
        first = self.differing[0]
        return f"{looked}: {len(self.differing)} differ, first in {part_of(first.tensor)}: {first.tensor} {first.what}"

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return {"equal": self.equal, **asdict(self)}


def fingerprints_of(tensors: Mapping[str, LazyTensor]) -> dict[str, Fingerprint]:
    """The fingerprint of every logical tensor, in the order in which a model computes."""
    return {name: _fingerprint(_hashed(tensors[name].read())) for name in in_order(tensors)}


def compare_weights(expected: Mapping[str, Fingerprint], tensors: Mapping[str, LazyTensor]) -> WeightsVerdict:
    """Compare logical tensors with the fingerprints of a golden."""
    counts = Counter(entry.sha256 for entry in expected.values())
    homes = {entry.sha256: name for name, entry in expected.items() if counts[entry.sha256] == 1}
    there = [name for name in expected if name in tensors]
    found = {name: _judge(name, expected[name], _hashed(tensors[name].read()), homes) for name in there}
    found |= {name: "is absent" for name in expected if name not in tensors}
    found |= {name: "is not in the golden" for name in in_order(tensors) if name not in expected}
    order = dict.fromkeys([*expected, *found])
    return WeightsVerdict(len(there), len(expected), tuple(Difference(n, found[n]) for n in order if found[n]))


def part_of(name: str) -> str:
    """The part of the model that a tensor belongs to: "the embeddings", "layer 3", "the pooler"."""
    first, _, rest = name.partition(".")
    return f"layer {rest.partition('.')[0]}" if first == "layer" else f"the {first}"


def _judge(name: str, expected: Fingerprint, array: Array, homes: Mapping[str, str]) -> str:
    """What is wrong with a tensor, or nothing."""
    found = _fingerprint(array)
    if found == expected:
        return ""
    if homes.get(found.sha256, name) != name:
        return f"holds what the golden has as {homes[found.sha256]}"
    if found.shape != expected.shape:
        return f"has shape {list(found.shape)}, the golden {list(expected.shape)}"
    if found.dtype != expected.dtype:
        return f"is stored as {found.dtype}, the golden saw {expected.dtype}"
    if array.ndim == 2 and _fingerprint(np.ascontiguousarray(array.T)).sha256 == expected.sha256:
        return "is transposed"
    return "holds other values"


def _hashed(array: Array) -> Array:
    """The array in the form whose bytes are hashed."""
    dtype = array.dtype if array.dtype == NUMPY_DTYPES["F64"] else NUMPY_DTYPES["F32"]
    return np.ascontiguousarray(array, dtype)


def _fingerprint(array: Array) -> Fingerprint:
    dtype = "F64" if array.dtype.itemsize == 8 else "F32"
    return Fingerprint(array.shape, dtype, hashlib.sha256(array.reshape(-1).view(np.uint8).data).hexdigest())
