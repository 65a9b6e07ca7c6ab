"""The tensors in what torch.load returns: a state dict, or a trainer's dictionary with state dicts inside."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

SEPARATOR = "/"  # a state dict's own names have dots
MAX_DEPTH = 64
_NAMED = 5  # how many left out entries a note names


class TreeError(ValueError):
    """The tree has no end that names could be given to; the message says where."""


@dataclass
class Leaves:
    """Tensors by path, `model/bert.pooler.dense.bias`, in stored order, and the paths of everything else."""

    tensors: dict[str, object] = field(default_factory=dict)
    others: list[str] = field(default_factory=list)
    repeated: list[str] = field(default_factory=list)  # containers that were met before, under another path

    def notes(self) -> tuple[str, ...]:
        """What was left out, one sentence each."""
        notes = []
        if self.others:
            notes.append(f"no tensors, so left out: {_some(self.others)}")
        if self.repeated:
            notes.append(f"stored twice, so read once only: {_some(self.repeated)}")
        return tuple(notes)


def gather(root: object, kind: type) -> Leaves:
    """All leaves of nested dictionaries, lists and tuples; tensors are those of `kind`.

    A container that is met again is not entered again, so the work is linear in the file, and loops end.
    Raises TreeError when containers lie deeper than MAX_DEPTH, or when two tensors would get one name.
    """
    leaves = Leaves()
    seen: set[int] = set()

    def walk(path: tuple[str, ...], value: object) -> None:
        name = SEPARATOR.join(path)
        if isinstance(value, kind):
            if name in leaves.tensors:
                raise TreeError(f"two tensors have the name {name}")
            leaves.tensors[name] = value
        elif (children := _children(value)) is None:
            leaves.others.append(name)
        elif id(value) in seen:
            leaves.repeated.append(name)
        else:
            seen.add(id(value))
            for key, child in children:
                if len(path) == MAX_DEPTH:
                    raise TreeError(f"nested more than {MAX_DEPTH} deep at {name[:80]}")
                walk((*path, str(key)), child)

    walk((), root)
    return leaves


def _children(value: object) -> Iterator[tuple[object, object]] | None:
    if isinstance(value, dict):
        return iter(value.items())
    if isinstance(value, list | tuple):
        return iter(enumerate(value))
    return None


def _some(names: list[str]) -> str:
    return ", ".join(names[:_NAMED]) + (f", … ({len(names)} in all)" if len(names) > _NAMED else "")
