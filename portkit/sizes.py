"""The sizes of a model: what the config says of them against what the stored shapes say.

A wrong field makes many shapes wrong. It is named once; a tensor is blamed only where no field explains its shape.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from portkit.errors import Problem, TableError
from portkit.table.expr import evaluate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from portkit.anatomy import Anatomy
    from portkit.axes import Axis, Sizes
    from portkit.config import Config
    from portkit.formats.container import Container
    from portkit.table.schema import Table
    from portkit.table.slots import Slot

Shape = tuple[int | None, ...]  # None: a size that cannot be told
_PAD = ("pad_token_id", "vocab_size")
Votes = Mapping[int, list[str]]  # size -> the tensors that have it


@dataclass(frozen=True)
class _Stored:
    """A stored tensor, its slot, and how many rows its layout adds."""

    name: str
    slot: Slot
    shape: tuple[int, ...]
    added: int

    def expected(self, sizes: Sizes) -> Shape:
        """The shape that some sizes give."""
        first, *rest = (_group_size(group, sizes) for group in self.slot.axes)
        return (first + self.added if first is not None else None, *rest)

    def fits(self, expected: Shape) -> bool:
        """Whether the shape is the expected one, as far as that can be told."""
        return len(self.shape) == len(expected) and all(
            e in (None, s) for e, s in zip(expected, self.shape, strict=True)
        )


def inferred_fields(container: Container, anatomy: Anatomy) -> dict[str, int]:
    """Config fields, in the layout's words, that names and shapes decide: for files that come without a config."""
    table, layout = anatomy.table, anatomy.layout
    layers = next((f for f in table.repeat.values() if isinstance(f, str)), "")
    found = {layers: anatomy.layers}
    for logical, stored in anatomy.stored.items():
        slot = anatomy.slots[logical]
        shape = container.tensors[stored].spec.shape
        if len(shape) == len(slot.axes):
            for group, size in zip(slot.axes, shape, strict=True):
                found |= {table.axes[letter]: size for _, letter in group if len(group) == 1 and letter in table.axes}
    return {e.name_in(layout): found[n] for n, e in table.config.items() if n in found and e.name_in(layout)}


def sizes_or_problems(
    container: Container, anatomy: Anatomy, config: Config, where: str
) -> tuple[dict[str, int], list[Problem]]:
    """The size of every letter, and every contradiction between the config, the table and the stored shapes."""
    stored = tuple(_stored(container, anatomy, config))
    said, _ = _sizes(anatomy, config.values, where)
    problems = _layer_problems(anatomy, config, where)
    corrected = dict(config.values)
    for field, votes in _votes(stored, anatomy.table, said, config).items():
        size = max(votes, key=lambda s: (len(votes[s]), s == config[field]))
        corrected[field] = size
        if size != config[field]:
            less = _less(anatomy, config, field)
            found = f"{size - less} in {len(votes[size])} tensors, such as {votes[size][0]}"
            problems.append(_contradiction(anatomy, field, config[field] - less, size - less, found, where))
    sizes, wrong = _sizes(anatomy, corrected, where)
    return sizes, [*problems, *_pad_problems(anatomy, config, where), *wrong, *_misfits(stored, sizes, anatomy)]


def _stored(container: Container, anatomy: Anatomy, config: Config) -> Iterator[_Stored]:
    for logical, stored in anatomy.stored.items():
        slot = anatomy.slots[logical]
        for name in (stored, *anatomy.twins.get(logical, ())):
            yield _Stored(name, slot, container.tensors[name].spec.shape, sum(slot.growth(config.values)))


def _group_size(group: tuple[Axis, ...], sizes: Sizes) -> int | None:
    known = [int(axis) if axis.isdigit() else sizes.get(axis) for _, axis in group]
    return None if None in known else math.prod(s for s in known if s is not None)


def _sizes(anatomy: Anatomy, values: Mapping[str, object], where: str) -> tuple[dict[str, int], list[Problem]]:
    """The size of every letter that the model uses; and why others have none."""
    sizes: dict[str, int] = {}
    problems: list[Problem] = []
    for letter in sorted({a for s in anatomy.slots.values() for a in s.row.signature.letters()}):
        try:
            sizes[letter] = evaluate(anatomy.table.axes[letter], values)
        except TableError as e:
            problems += [replace(p, where=f"{where} {p.where}") for p in e.problems]
    return sizes, problems


def _votes(stored: tuple[_Stored, ...], table: Table, said: Sizes, config: Config) -> dict[str, Votes]:
    """Field -> size -> the tensors that have a dimension which is this field alone.

    A tensor that has the expected sizes in another order is turned, and says nothing of the config.
    """
    votes: dict[str, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    for tensor in stored:
        expected = tensor.expected(said)
        turned = not tensor.fits(expected) and sorted(tensor.shape) == sorted(s or 0 for s in expected)
        if turned or len(tensor.shape) != len(expected):
            continue
        shape = (tensor.shape[0] - tensor.added, *tensor.shape[1:])
        alone = [(table.axes.get(g[0][1], ""), s) for g, s in zip(tensor.slot.axes, shape, strict=True) if len(g) == 1]
        for field, size in dict.fromkeys(alone):
            if field in config.values:
                votes[field][size].append(tensor.name)
    return dict(votes)


def _layer_problems(anatomy: Anatomy, config: Config, where: str) -> list[Problem]:
    field, found = "num_hidden_layers", anatomy.layers
    if config[field] == found:
        return []
    return [_contradiction(anatomy, field, config[field], found, f"{found} layers", where)]


def _pad_problems(anatomy: Anatomy, config: Config, where: str) -> list[Problem]:
    entry, pad, words = (anatomy.table.config.get("pad_token_id"), *(config.values.get(n) for n in _PAD))
    if entry is None or not isinstance(pad, int) or not isinstance(words, int) or 0 <= pad < words:
        return []
    at = f"{where} {entry.name_in(anatomy.layout) or entry.name}"
    return [Problem(at, "is no row of the word table", f"0 to {words - 1}", str(pad))]


def _contradiction(anatomy: Anatomy, field: str, said: int, size: int, found: str, where: str) -> Problem:
    entry = anatomy.table.config.get(field)
    name = entry.name_in(anatomy.layout) if entry else field
    what = f"contradicts the weights: {name} says {said}, the tensors say {size}"
    return Problem(f"{where} {name}", what, str(said), found, f"set {name} to {size}, if these are the right weights")


def _misfits(stored: tuple[_Stored, ...], sizes: Sizes, anatomy: Anatomy) -> Iterator[Problem]:
    """Tensors whose shape no config explains."""
    for tensor in stored:
        expected = tensor.expected(sizes)
        if tensor.fits(expected):
            continue
        what = f"shape does not fit {anatomy.table.source} {tensor.slot.row.address}"
        hint = f"transposed: is it stored in another layout's orientation than {anatomy.layout}'s?"
        turned = tensor.shape == expected[::-1]
        yield Problem(tensor.name, what, str(expected), str(tensor.shape), hint if turned else "")


def _less(anatomy: Anatomy, config: Config, field: str) -> int:
    """How much smaller the layout's number is than the logical one."""
    entry = anatomy.table.config.get(field)
    return evaluate(entry.less.get(anatomy.layout, 0), config.values) if entry else 0
