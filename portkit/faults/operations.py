"""What faults do to tensors: named operations on logical arrays, kernels [in, out] and tables [rows, columns].

Each takes the array, and the step with what it may refer to, and gives an array of the same shape and dtype, or None
where it makes no sense: a matrix that is not square has no transpose of its own shape.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from portkit.casts import cast
from portkit.runtimes.reference import positions
from portkit.table.expr import evaluate
from portkit.tensors import dtype_name

if TYPE_CHECKING:
    from portkit.facts import Facts
    from portkit.faults.catalogue import Step
    from portkit.runtimes.outputs import Inputs, IntArray
    from portkit.tensors import Array


@dataclass(frozen=True)
class Context:
    """What an operation may look at besides the array that it changes."""

    step: Step
    name: str
    """The logical name of that array."""
    facts: Facts
    inputs: Inputs
    other: Array | None = None
    """The array at the step's `with`."""


Operation = Callable[["Array", Context], "Array | None"]


def transpose(x: Array, _: Context) -> Array | None:
    """A square matrix turned; another cannot pass for itself."""
    return x.T if x.ndim == 2 and x.shape[0] == x.shape[1] else None


def take(x: Array, at: Context) -> Array | None:
    """The other array in the place of this one."""
    return at.other if at.other is not None and at.other.shape == x.shape else None


def take_turned(x: Array, at: Context) -> Array | None:
    """The other array transposed."""
    return at.other.T if at.other is not None and at.other.shape == x.shape[::-1] else None


def zero(x: Array, _: Context) -> Array:
    """Never loaded, where a framework starts from zeros."""
    return np.zeros_like(x)


def one(x: Array, _: Context) -> Array:
    """Never loaded, where a framework starts from ones."""
    return np.ones_like(x)


def random(x: Array, _: Context) -> Array:
    """Never loaded, where a framework starts from random numbers; of the same spread."""
    drawn = np.random.default_rng(1).normal(0, float(x.astype(np.float64).std()), x.shape)
    return drawn.astype(x.dtype)


def scale(x: Array, at: Context) -> Array:
    """Every number times `by`."""
    return (x.astype(np.float64) * float(at.step.by)).astype(x.dtype)


def round_(x: Array, at: Context) -> Array:
    """There and back through a narrower dtype."""
    return cast(cast(x, at.step.dtype), dtype_name(x.dtype))


def ulp(x: Array, _: Context) -> Array:
    """The last bit of one number."""
    changed = x.copy()
    changed.reshape(-1).view(f"u{x.itemsize}")[x.size // 2] ^= 1
    return changed


def interleave(x: Array, at: Context) -> Array:
    """The columns (n d) read as (d n)."""
    heads = at.facts.num_attention_heads
    return x.reshape(*x.shape[:-1], heads, -1).swapaxes(-1, -2).reshape(x.shape)


def shift(x: Array, at: Context) -> Array:
    """Each row where the one `by` places before it belongs; `by` is an expression of facts."""
    return np.roll(x, evaluate(str(at.step.by), vars(at.facts)), axis=0)


def permute(x: Array, _: Context) -> Array:
    """All rows in another order."""
    return x[np.random.default_rng(1).permutation(len(x))]


def roll_front(x: Array, at: Context) -> Array:
    """The first `by` rows moved on by one, the last of them in front."""
    return np.concatenate([np.roll(x[: int(at.step.by)], 1, axis=0), x[int(at.step.by) :]])


def reverse_rows(x: Array, _: Context) -> Array:
    """The last row first."""
    return x[::-1]


def reverse_columns(x: Array, _: Context) -> Array:
    """The last column first, in a bias the last number."""
    return x[..., ::-1]


def zero_row(x: Array, at: Context) -> Array | None:
    """One row lost: one of a number, or the last that the inputs read or do not read."""
    row = _row(x, at)
    return None if row is None else _with_row(x, row, np.zeros_like(x[row]))


def negate_row(x: Array, at: Context) -> Array | None:
    """One row with the other sign."""
    row = _row(x, at)
    return None if row is None else _with_row(x, row, np.negative(x[row]))


def _with_row(x: Array, row: int, numbers: Array) -> Array:
    changed = x.copy()
    changed[row] = numbers
    return changed


def _row(x: Array, at: Context) -> int | None:
    if isinstance(at.step.row, int):
        return at.step.row if at.step.row < len(x) else None
    read = np.isin(np.arange(len(x)), _rows_read(at))
    rows = np.flatnonzero(read if at.step.row == "read" else ~read)
    return int(rows[-1]) if rows.size else None


def _rows_read(at: Context) -> IntArray:
    """Rows of a table that real tokens read."""
    ids = at.inputs.input_ids if at.name == "embeddings.word.table" else positions(at.facts, at.inputs)
    return np.unique(ids[at.inputs.valid])


OPERATIONS: dict[str, Operation] = {
    "interleave": interleave,
    "negate_row": negate_row,
    "one": one,
    "permute": permute,
    "random": random,
    "reverse_columns": reverse_columns,
    "reverse_rows": reverse_rows,
    "roll_front": roll_front,
    "round": round_,
    "scale": scale,
    "shift": shift,
    "swap": take,
    "swap_turned": take_turned,
    "take": take,
    "transpose": transpose,
    "ulp": ulp,
    "zero": zero,
    "zero_row": zero_row,
}
BOTH_WAYS = ("swap", "swap_turned")  # done at `with` too
