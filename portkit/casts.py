"""Casts, and which of them lose something: digits, which is a warning, or a number that becomes infinite, an error."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from portkit.errors import Problem, RefusedError
from portkit.tensors import NUMPY_DTYPES, Array

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def cast(array: Array, dtype: str) -> Array:
    """The array in another dtype, rounded to nearest even; itself when the dtype is right."""
    target = NUMPY_DTYPES[dtype]
    if array.dtype == target:
        return array
    with np.errstate(over="ignore"):  # what becomes infinite is reported, not raised
        return array.astype(target)


def rounds(stored: str, written: str) -> bool:
    """Whether a dtype cannot hold every number of another."""
    return not np.can_cast(NUMPY_DTYPES[stored], NUMPY_DTYPES[written], "safe")


def cast_notes(pairs: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """One warning for every lossy cast among (stored dtype, written dtype), with the number of tensors."""
    lossy = Counter((a, b) for a, b in pairs if rounds(a, b))
    return tuple(
        f"{count} tensors are cast from {NUMPY_DTYPES[a].name} to {NUMPY_DTYPES[b].name}, which rounds their numbers"
        for (a, b), count in sorted(lossy.items())
    )


@dataclass
class Watch:
    """Looks at every array on its way: `notes` says which are not finite, `problems` which a cast makes infinite.

    `dtypes` gives the dtype that each stored tensor is written in.
    """

    dtypes: Mapping[str, str]
    notes: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    def __call__(self, name: str, array: Array) -> None:
        """Look at one array as it was read."""
        if array.dtype.kind != "f" and array.dtype.name != "bfloat16":
            return
        with np.errstate(over="ignore", invalid="ignore"):
            finite = np.isfinite(array.sum(dtype=np.float32)) or np.isfinite(array).all()
        if not finite:
            self.notes.append(f"{name} holds NaN or infinity")
            array = array[np.isfinite(array)]
        self._check_range(name, array)

    def _check_range(self, name: str, finite: Array) -> None:
        target = NUMPY_DTYPES[self.dtypes.get(name, "F64")]
        if not finite.size or np.can_cast(finite.dtype, target, "safe"):
            return
        ends = np.array([finite.min(), finite.max()])
        with np.errstate(over="ignore"):
            outside = ends[np.isinf(ends.astype(target))]
        if outside.size:
            found = ", ".join(f"{float(x):g}" for x in outside)
            hint = "bfloat16 and float32 reach 3e38" if target.itemsize == 2 else "--dtype float64 keeps them"
            self.problems.append(Problem(name, f"holds numbers that {target.name} cannot", found=found, hint=hint))

    def raise_if_unfit(self) -> None:
        """Raise RefusedError listing every tensor that the cast would make infinite."""
        if self.problems:
            raise RefusedError("a cast would make numbers infinite", self.problems)
