"""Tied tensors: a decoder that is the word table, unless config and weights say otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from portkit.config import TIES
from portkit.tensors import same_bits, transposed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from portkit.checkpoint import Checkpoint
    from portkit.table.slots import Slot


def untied(source: Checkpoint, slots: Mapping[str, Slot]) -> frozenset[str]:
    """The logical tensors that these slots may tie, and that have numbers of their own in the source.

    Reads a stored one and what it would be tied to, unless the config says that they are not tied.
    """
    return frozenset(k for k, s in slots.items() if s.place.tied and not _is_tied(source, k, s))


def contradictions(checkpoint: Checkpoint) -> tuple[str, ...]:
    """Warnings where the config ties what the file stores with other numbers: transformers 4 and 5 differ then."""
    if checkpoint.config.values.get(TIES) is False:
        return ()
    slots = checkpoint.anatomy.slots
    return tuple(
        f"{checkpoint.anatomy.stored[name]} is not {slots[name].place.tied}, to which {TIES} would tie it: its own"
        " numbers are read, as transformers 5 does; transformers 4 puts the table in its place"
        for name in sorted(untied(checkpoint, slots))
    )


def lone_biases(checkpoint: Checkpoint) -> dict[str, str]:
    """Stored name -> the one that an untied decoder reads, and that the file leaves out, as only a tied one may."""
    anatomy = checkpoint.anatomy
    if checkpoint.config.values.get(TIES) is not False:
        return {}
    return {
        anatomy.stored[name]: slot.place.overruled_by
        for name, slot in anatomy.slots.items()
        if slot.place.overruled_by and anatomy.stored.get(name, "").endswith(slot.place.name)
    }


def one_bias(checkpoint: Checkpoint) -> tuple[str, ...]:
    """Warnings where an untied model has one of two names of a bias only: transformers 4 saved it so."""
    return tuple(
        f"{stored} is read as {other} too, as transformers 4 does; transformers 5 would take zeros for it"
        for stored, other in lone_biases(checkpoint).items()
    )


def _is_tied(source: Checkpoint, logical: str, slot: Slot) -> bool:
    """Whether a kernel that may be tied to a table is: not stored, or not said to be untied and of the same numbers.

    One that an earlier conversion kept aside counts as stored. A layout that has no name for it always ties: there the
    numbers decide, whatever is said.
    """
    if logical not in source.anatomy.stored and logical not in source.spare.whole:
        return True
    if slot.name and source.config.values.get(TIES) is False:
        return False
    tensors = {**source.spare.whole, **source.logical()}
    return same_bits(transposed(tensors[logical]), tensors[slot.place.tied])
