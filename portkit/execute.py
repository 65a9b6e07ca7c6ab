"""Carry a plan out: one tensor at a time from the source to the target's axes and dtype."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from portkit.axes import move
from portkit.tensors import NUMPY_DTYPES, Array, LazyTensor, TensorSpec

if TYPE_CHECKING:
    from portkit.accounting import Kept
    from portkit.moves import Move
    from portkit.plan import Plan

Seen = Callable[[str, Array], None]


def arrays(plan: Plan, seen: Seen = lambda _name, _array: None) -> Iterator[Array]:
    """The target arrays in the order of `plan.moves`; `seen` is shown every source array as it was read."""
    for step in plan.moves:
        yield _zeros(step.target) if step.how == "zeros" else _moved(plan, step, seen)


def restored(plan: Plan) -> list[LazyTensor]:
    """Tensors of an earlier residue that go back under their own names."""
    residue = plan.source.folder.residue
    return [residue.tensors[n] for n in plan.restored] if residue else []


def residue(plan: Plan) -> Iterator[Array]:
    """What the residue keeps, in the order of `residue_specs`, as the source stores it."""
    for kept in plan.kept:
        yield _rows_of(kept, plan)
    for tensor in _carried(plan):
        yield tensor.read()


def residue_specs(plan: Plan) -> list[TensorSpec]:
    """The specs of the residue, without reading it."""
    return [*(_kept_spec(kept, plan) for kept in plan.kept), *(tensor.spec for tensor in _carried(plan))]


def _kept_spec(kept: Kept, plan: Plan) -> TensorSpec:
    spec = plan.source.folder.container.tensors[kept.source].spec
    shape = spec.shape if kept.rows is None else (kept.rows[1] - kept.rows[0], *spec.shape[1:])
    return TensorSpec(kept.name, shape, spec.dtype)


def _carried(plan: Plan) -> list[LazyTensor]:
    residue = plan.source.folder.residue
    return [residue.tensors[k.source] for k in plan.carried] if residue else []


def grown(array: Array, cut: tuple[int, int], grow: tuple[int, int]) -> Array:
    """Take rows off both ends of a table, then put zero rows there."""
    rows = array[cut[0] : array.shape[0] - cut[1]]
    if not any(grow):
        return rows
    front, back = (np.zeros((n, *rows.shape[1:]), rows.dtype) for n in grow)
    return np.concatenate([front, rows, back])


def cast(array: Array, dtype: str) -> Array:
    """The array in another dtype, rounded to nearest even; itself when the dtype is right."""
    target = NUMPY_DTYPES[dtype]
    if array.dtype == target:
        return array
    with np.errstate(over="ignore"):  # what becomes infinite is reported, not raised
        return array.astype(target)


def _moved(plan: Plan, step: Move, seen: Seen) -> Array:
    array = plan.source.folder.container.tensors[step.source].read()
    seen(step.source, array)
    rows = grown(array, step.cut, step.grow) if any((*step.cut, *step.grow)) else array
    if any((*step.cut, *step.grow)):
        return np.ascontiguousarray(cast(rows, step.target.dtype))
    return move(cast(rows, step.target.dtype), plan.source.axes(step.logical), step.slot.axes, plan.sizes)


def _rows_of(kept: Kept, plan: Plan) -> Array:
    array = plan.source.folder.container.tensors[kept.source].read()
    return array if kept.rows is None else np.ascontiguousarray(array[kept.rows[0] : kept.rows[1]])


def _zeros(spec: TensorSpec) -> Array:
    return np.zeros(spec.shape, NUMPY_DTYPES[spec.dtype])
