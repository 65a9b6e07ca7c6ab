"""Carry a plan out: one tensor at a time from the source to the target's axes and dtype."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from portkit.axes import move
from portkit.casts import cast
from portkit.fold import fold
from portkit.layouts.registry import layout_of
from portkit.table.slots import logical_axes
from portkit.tensors import NUMPY_DTYPES, Array, LazyTensor, TensorSpec

if TYPE_CHECKING:
    from pathlib import Path

    from portkit.accounting import Kept
    from portkit.moves import Move
    from portkit.plan import Plan

Seen = Callable[[str, Array], None]


def arrays(plan: Plan, seen: Seen = lambda _name, _array: None) -> Iterator[Array]:
    """The target arrays in the order of `plan.moves`; `seen` is shown every source array as it was read."""
    for step in plan.moves:
        yield _zeros(step.target) if step.how == "zeros" else _moved(plan, step, seen)


def write_model(plan: Plan, folder: Path) -> None:
    """Write the model into an existing folder: its config and its weights, without a residue and files that travel.

    Raises UnwritableError where the system does not let it.
    """
    layout = layout_of(plan.layout)
    layout.write_config(folder, plan.model)
    specs = [move.target for move in plan.moves]
    whole = sum(spec.nbytes for spec in specs)  # so that there is one file, and no shards
    layout.write_weights(folder, plan.form, specs, arrays(plan), whole)


def restored(plan: Plan) -> list[LazyTensor]:
    """Tensors of an earlier residue that go back under their own names."""
    residue = plan.source.folder.residue
    return [residue.tensors[n] for n in plan.restored] if residue else []


def residue(plan: Plan) -> Iterator[Array]:
    """What the residue keeps, in the order of `residue_specs`."""
    for tensor in _kept(plan):
        yield tensor.read()


def residue_specs(plan: Plan) -> list[TensorSpec]:
    """The specs of the residue, without reading it."""
    return [tensor.spec for tensor in _kept(plan)]


def _kept(plan: Plan) -> list[LazyTensor]:
    """What is kept now, tensors of the model in canonical orientation, and what an earlier conversion kept."""
    stored = plan.source.folder.container.tensors
    logical = {**(plan.source.whole.logical() if plan.source.whole else {}), **plan.source.logical()}
    now = [_rows_of(k, logical[k.logical] if k.logical else stored[k.source]) for k in plan.kept]
    earlier = plan.source.folder.residue
    return [*now, *([earlier.tensors[k.source] for k in plan.carried] if earlier else [])]


def _rows_of(kept: Kept, tensor: LazyTensor) -> LazyTensor:
    if kept.rows is None:
        return tensor.renamed(kept.name)
    first, last = kept.rows
    spec = TensorSpec(kept.name, (last - first, *tensor.spec.shape[1:]), tensor.spec.dtype)
    return LazyTensor(spec, lambda: np.ascontiguousarray(tensor.read()[first:last]))


def grown(array: Array, cut: tuple[int, int], grow: tuple[int, int], front: Array | None = None) -> Array:
    """Take rows off both ends of a table, then put rows there: those of `front`, else zeros."""
    rows = array[cut[0] : array.shape[0] - cut[1]]
    if not any(grow):
        return rows
    first, last = (np.zeros((n, *rows.shape[1:]), rows.dtype) for n in grow)
    return np.concatenate([first if front is None else front[: grow[0]].astype(rows.dtype), rows, last])


def _moved(plan: Plan, step: Move, seen: Seen) -> Array:
    source = plan.source
    spare = {**source.spare.whole, **{t.name: t for t in source.spare.rows.values()}}
    restored = step.how == "restored"
    array = (spare[step.source] if restored else source.folder.container.tensors[step.source]).read()
    seen(step.source, array)
    if step.absorbs:
        array = fold(array, source.logical()[step.absorbs].read()[0])
    if any((*step.cut, *step.grow)):
        rows = grown(array, step.cut, step.grow, spare[step.front].read() if step.front else None)
        return np.ascontiguousarray(cast(rows, step.target.dtype))
    hub = source.tables.storages["logical"]
    axes = logical_axes(step.slot, hub) if restored else source.axes(step.logical)
    return move(cast(array, step.target.dtype), axes, step.slot.axes, plan.sizes)


def _zeros(spec: TensorSpec) -> Array:
    return np.zeros(spec.shape, NUMPY_DTYPES[spec.dtype])
