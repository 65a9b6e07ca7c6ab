"""How Burn spells dtypes, in Burnpack and in records alike."""

from __future__ import annotations

from dataclasses import dataclass
from reprlib import repr as brief
from typing import TYPE_CHECKING

import numpy as np

from portkit.errors import Problem, RefusedError, unreadable
from portkit.tensors import NUMPY_DTYPES, LazyTensor, TensorSpec

if TYPE_CHECKING:
    from portkit.formats.source import Source

PLAIN = ("F64", "F32", "F16", "BF16", "I64", "I32", "I16", "I8", "U64", "U32", "U16", "U8")
_BOOL_STORES: dict[str, np.dtype[np.generic]] = {
    "Native": np.dtype("u1"),
    "U8": np.dtype("u1"),
    "U32": np.dtype("<u4"),
}


@dataclass(frozen=True)
class StoredDtype:
    """A dtype in portkit's words, and as which numbers it lies in the file."""

    dtype: str
    stored: np.dtype[np.generic]

    def tensor(self, source: Source, offset: int, spec: TensorSpec) -> LazyTensor:
        """Such a tensor, unread."""
        if self.dtype != "BOOL":
            return source.tensor(spec, offset)
        at = (offset, offset + spec.count * self.stored.itemsize)
        return LazyTensor(spec, lambda: np.asarray(source.array(offset, spec.shape, self.stored) != 0), at, source.name)


def parse_dtype(value: object, where: str) -> StoredDtype:
    """Burn's dtype, from what stands in the file. Raises UnreadableError when it is quantised or unknown."""
    if isinstance(value, str) and value in PLAIN:
        return StoredDtype(value, NUMPY_DTYPES[value])
    if value == "Flex32":  # computed with less precision on some devices, stored as 32 bits
        return StoredDtype("F32", NUMPY_DTYPES["F32"])
    if value == "Bool":  # Burn up to 0.20
        return StoredDtype("BOOL", np.dtype("u1"))
    if isinstance(value, dict) and list(value) == ["Bool"] and value["Bool"] in ("Native", "U8", "U32"):
        return StoredDtype("BOOL", _BOOL_STORES[value["Bool"]])
    if value == "QFloat" or (isinstance(value, dict) and "QFloat" in value):
        hint = "dequantise the model in Burn and save it again"
        raise unreadable(where, "the tensor is quantised (QFloat)", expected="plain numbers", hint=hint)
    expected = f"one of {', '.join(PLAIN)}, Flex32, Bool"
    raise unreadable(where, "unknown dtype", expected=expected, found=brief(value))


def spell_dtype(spec: TensorSpec) -> str | dict[str, str]:
    """The dtype as Burn 0.21 and newer spell it. Raises RefusedError when Burn has none such."""
    if spec.dtype == "BOOL":
        return {"Bool": "Native"}
    if spec.dtype in PLAIN:
        return spec.dtype
    raise RefusedError(
        "cannot write the tensors",
        [Problem(spec.name, "Burn has no such dtype", ", ".join(PLAIN), spec.dtype, "cast it first")],
    )
