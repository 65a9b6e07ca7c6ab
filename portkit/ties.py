"""Tied tensors: a decoder that is the word table, unless config and weights say otherwise."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from portkit.tensors import LazyTensor, same_bits, turned

if TYPE_CHECKING:
    from collections.abc import Mapping

    from portkit.checkpoint import Checkpoint
    from portkit.table.slots import Slot

TIES = "tie_word_embeddings"


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


def one_bias(checkpoint: Checkpoint) -> tuple[str, ...]:
    """Warnings where an untied model has one of two names of a bias only: transformers 4 saved it so."""
    anatomy = checkpoint.anatomy
    if checkpoint.config.values.get(TIES) is not False:
        return ()
    alone = (
        (anatomy.stored[name], slot.place.overruled_by)
        for name, slot in anatomy.slots.items()
        if slot.place.overruled_by and anatomy.stored.get(name, "").endswith(slot.place.name)
    )
    return tuple(
        f"{stored} is read as {other} too, as transformers 4 does; transformers 5 would take zeros for it"
        for stored, other in alone
    )


def _is_tied(source: Checkpoint, logical: str, slot: Slot) -> bool:
    """Whether a kernel that may be tied to a table is: not stored, or not said to be untied and of the same numbers.

    One that an earlier conversion kept aside counts as stored. A layout that has no name for it always ties: there the
    numbers decide, whatever is said.
    """
    tensors = {**source.spare.whole, **source.logical()}
    if logical not in source.anatomy.stored and logical not in source.spare.whole:
        return True
    if slot.name and source.config.values.get(TIES) is False:
        return False
    return same_bits(_turned(tensors[logical]), tensors[slot.place.tied])


def _turned(tensor: LazyTensor) -> LazyTensor:
    """A decoder's kernel [in, out] as rows of a table [out, in]."""
    spec = replace(tensor.spec, shape=tensor.spec.shape[::-1])
    return turned(spec, lambda: tensor.read().T)
