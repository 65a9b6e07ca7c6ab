"""Put a fault into a sound checkpoint: another checkpoint, in memory, and how it is run. Nothing is written here."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from portkit.axes import move
from portkit.checkpoint import facts_of
from portkit.config import config_in, given_names
from portkit.dense import dense
from portkit.faults.operations import BOTH_WAYS, OPERATIONS, Context
from portkit.runtimes.outputs import Inputs
from portkit.runtimes.reference import positions
from portkit.table.slots import logical_axes, sizes_of
from portkit.tensors import Array, LazyTensor, TensorSpec, equal_bits

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from portkit.checkpoint import Checkpoint
    from portkit.facts import Facts
    from portkit.faults.catalogue import Fault, Step, Value


@dataclass(frozen=True)
class Faulty:
    """A checkpoint with a fault: what its folder holds, and the facts and inputs with which it is run."""

    checkpoint: Checkpoint
    facts: Facts
    inputs: Inputs


def inject(fault: Fault, sound: Checkpoint, inputs: Inputs) -> Faulty | None:
    """The sound checkpoint with a fault; None where the model cannot have it, or where it would change nothing.

    `inputs` are those that the models will be run on: some faults are about rows that these read, or do not read.
    """
    facts = sound.facts
    if fault.without in sound.logical() or any(getattr(facts, name) != value for name, value in fault.only.items()):
        return None
    folder = _folder(fault, sound, inputs)
    if folder is None:
        return None
    run = replace(folder.facts, **_chosen(fault.program, folder.facts))  # type: ignore[arg-type]
    found = Faulty(folder, run, _INPUTS[fault.inputs](inputs) if fault.inputs else inputs)
    changed = folder is not sound or not (_same_function(facts, run, inputs) and _same_inputs(found.inputs, inputs))
    return found if changed else None


def _folder(fault: Fault, sound: Checkpoint, inputs: Inputs) -> Checkpoint | None:
    """What the folder holds: the sound checkpoint itself where it is the program that is wrong."""
    if fault.steps:
        return _with_tensors(sound, _changed(fault, sound, inputs))
    if fault.config:
        return _with_config(sound, _chosen(fault.config, sound.facts))
    return _with_labels(sound) if fault.labels else sound


# ---------------------------------------------------------------- tensors


def _changed(fault: Fault, sound: Checkpoint, inputs: Inputs) -> dict[str, LazyTensor] | None:
    """The changed tensors by logical name; None where an operation makes no sense or all stay as they are."""
    found: dict[str, LazyTensor] = {}
    different = False
    for step in fault.steps:
        for name, other in _targets(step, sound):
            tensor = _Changed(sound, step, name, other, inputs)
            array = tensor.read()
            if array is None:
                return None
            different |= not equal_bits(np.ascontiguousarray(array), tensor.original.read())
            found[name] = LazyTensor(tensor.original.spec, tensor.dense)
    return found if different else None


@dataclass(frozen=True)
class _Changed:
    """A tensor that is changed whenever it is read, so that one at a time is in memory."""

    sound: Checkpoint
    step: Step
    name: str
    other: str
    inputs: Inputs

    @property
    def original(self) -> LazyTensor:
        return self.sound.logical()[self.name]

    def read(self) -> Array | None:
        tensors = self.sound.logical()
        other = tensors[self.other].read() if self.other else None
        context = Context(self.step, self.name, self.sound.facts, self.inputs, other)
        return OPERATIONS[self.step.op](self.original.read(), context)

    def dense(self) -> Array:
        array = self.read()
        assert array is not None
        return np.ascontiguousarray(array)


def _targets(step: Step, sound: Checkpoint) -> Iterator[tuple[str, str]]:
    """The logical tensors that a step changes, each with the one that it takes from; none where either is lacking."""
    at, other = (_filled(place, sound.anatomy.layers) for place in (step.at, step.with_))
    names = sound.logical()
    ways = [(at, other), (other, at)] if step.op in BOTH_WAYS else [(at, other)]
    for place, source in ways:
        for name in names:
            inside = name in sound.anatomy.stored if not place else f"{name}.".startswith(f"{place}.")
            partner = source + name.removeprefix(place) if source else ""
            if inside and (not partner or partner in names):
                yield name, partner


def _filled(place: str, layers: int) -> str:
    return place.format(first=0, second=1, last=layers - 1)


def _with_tensors(sound: Checkpoint, changed: Mapping[str, LazyTensor] | None) -> Checkpoint | None:
    """The checkpoint with these tensors in its file, as its layout stores them; None where it has no place for one."""
    if not changed:
        return None
    anatomy, container = sound.anatomy, sound.folder.container
    names = {logical: anatomy.stored.get(logical) or anatomy.slots[logical].name for logical in changed}
    if not all(names.values()):
        return None
    stored = {name: _as_stored(sound, logical, changed[logical], name) for logical, name in names.items()}
    container = replace(container, tensors={**container.tensors, **stored})
    anatomy = replace(anatomy, stored={**anatomy.stored, **names})
    return replace(sound, anatomy=anatomy, folder=replace(sound.folder, container=container))


def _as_stored(sound: Checkpoint, logical: str, tensor: LazyTensor, name: str) -> LazyTensor:
    slot, growth = sound.anatomy.slots[logical], sound.growth(logical)
    hub = logical_axes(slot, sound.tables.storages["logical"])
    before = sound.folder.container.tensors.get(name)

    def read() -> Array:
        rows = move(tensor.read(), hub, slot.axes, sound.sizes)[max(-growth[0], 0) :]
        if before is not None and any(n > 0 for n in growth):
            old = before.read()
            rows = np.concatenate([old[: max(growth[0], 0)], rows, old[len(old) - growth[1] :]])
        return dense(rows)

    return LazyTensor(TensorSpec(name, slot.shape(sound.sizes, growth), tensor.spec.dtype), read)


# ---------------------------------------------------------------- config


def _with_config(sound: Checkpoint, chosen: Mapping[str, Value]) -> Checkpoint | None:
    """The checkpoint with another config; None where its layout has no word for that."""
    anatomy, values = sound.anatomy, sound.config.values
    if not chosen or not all(_can_say(sound, name, value) for name, value in chosen.items()):
        return None
    values = {**config_in(anatomy.table, anatomy.layout, {**values, **chosen}), "num_labels": values["num_labels"]}
    facts = facts_of(anatomy.table, anatomy.task, values, anatomy.layout, has_pooler=sound.facts.has_pooler)
    sizes = {**sound.sizes, **sizes_of({k: v for k, v in anatomy.table.axes.items() if k in sound.sizes}, values)}
    again = replace(sound, config=replace(sound.config, values=values), facts=facts, sizes=sizes)
    return _reshaped(again)


def _can_say(sound: Checkpoint, name: str, value: Value) -> bool:
    """Whether a config of this layout has the field, the model is concerned, and the value has a spelling."""
    table, layout = sound.anatomy.table, sound.anatomy.layout
    field, dialect = table.config[name], sound.anatomy.dialect
    fixed = {**table.layouts[layout].fixed, **(dialect.fixed if dialect else {})}
    spelled = name not in table.values or layout in table.values[name].get(str(value), {})
    concerned = not field.head or field.head in sound.anatomy.task.groups
    return bool(field.name_in(layout)) and name not in fixed and spelled and concerned


def _reshaped(again: Checkpoint) -> Checkpoint:
    """The same numbers in the shapes that the new sizes ask for: Keras stores heads as a dimension of their own."""
    container, slots = again.folder.container, again.anatomy.slots
    tensors = dict(container.tensors)
    for logical, name in again.anatomy.stored.items():
        shape = slots[logical].shape(again.sizes, again.growth(logical))
        tensors[name] = _in_shape(tensors[name], shape)
    return replace(again, folder=replace(again.folder, container=replace(container, tensors=tensors)))


def _in_shape(tensor: LazyTensor, shape: tuple[int, ...]) -> LazyTensor:
    if tensor.spec.shape == shape:
        return tensor
    return LazyTensor(replace(tensor.spec, shape=shape), lambda: tensor.read().reshape(shape), tensor.at, tensor.file)


def _with_labels(sound: Checkpoint) -> Checkpoint | None:
    """The classes' names in another order; None where they have no names of their own."""
    names = given_names(sound.config, sound.facts.num_labels)
    return replace(sound, config=replace(sound.config, labels=names[::-1])) if names else None


def _chosen(changes: Mapping[str, tuple[Value, ...]], facts: Facts) -> dict[str, Value]:
    """For each fact the first value that differs and fits."""
    found: dict[str, Value] = {}
    for name, values in changes.items():
        fits = [v for v in values if v != getattr(facts, name) and _divides(name, v, facts)]
        found |= {name: fits[0]} if fits else {}
    return found


def _divides(name: str, value: Value, facts: Facts) -> bool:
    return name != "num_attention_heads" or facts.hidden_size % int(value) == 0


# ---------------------------------------------------------------- programs


def _same_function(sound: Facts, run: Facts, inputs: Inputs) -> bool:
    """Whether a program with these facts computes the same on these inputs: two schemes may read the same rows."""
    alike = replace(run, position_scheme=sound.position_scheme, position_offset=sound.position_offset)
    before, after = (positions(facts, inputs)[inputs.valid] for facts in (sound, run))
    return alike == sound and np.array_equal(before, after)


def _same_inputs(a: Inputs, b: Inputs) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(a.arrays().values(), b.arrays().values(), strict=True))


def _unmasked(inputs: Inputs) -> Inputs:
    return Inputs(inputs.input_ids, np.ones_like(inputs.attention_mask), inputs.token_type_ids)


def _untyped(inputs: Inputs) -> Inputs:
    return Inputs(inputs.input_ids, inputs.attention_mask, np.zeros_like(inputs.token_type_ids))


_INPUTS = {"unmasked": _unmasked, "untyped": _untyped}
