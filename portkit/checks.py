"""What must hold between config, table and headers of the weights. Each function lists all problems it finds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from portkit.config import TIES
from portkit.errors import Problem
from portkit.tensors import FLOATS, same_bits

if TYPE_CHECKING:
    from portkit.anatomy import Anatomy
    from portkit.config import Config
    from portkit.formats.container import Container
    from portkit.tensors import LazyTensor

_LABELS = "num_labels"
_LONGEST = 1 << 20  # positions of a buffer that could be one


def label_count(container: Container, anatomy: Anatomy) -> int | None:
    """The number of classes, from the shape of the classifier; None for a task without one."""
    letter = next((k for k, field in anatomy.table.axes.items() if field == _LABELS), None)
    for logical, slot in anatomy.slots.items():
        dims = [i for i, group in enumerate(slot.axes) if [a for _, a in group] == [letter]]
        stored = anatomy.stored.get(logical)
        if dims and stored and len(container.tensors[stored].spec.shape) == len(slot.axes):
            return container.tensors[stored].spec.shape[dims[0]]
    return None


def dtype_problems(container: Container, anatomy: Anatomy) -> list[Problem]:
    """Weights that are no plain floats: integers, quantised, 8-bit floats."""
    used = [n for k, stored in anatomy.stored.items() for n in (stored, *anatomy.twins.get(k, ()))]
    return [
        Problem(
            n,
            "is no plain floating-point weight",
            " ".join(FLOATS),
            container.tensors[n].spec.dtype,
            "dequantise it with the tool that quantised it",
        )
        for n in used
        if container.tensors[n].spec.dtype not in FLOATS
    ]


def tie_problems(anatomy: Anatomy, config: Config) -> list[Problem]:
    """Tensors that the config says are not tied, and that the file lacks: the framework would make up their numbers."""
    if config.values.get(TIES) is not False:
        return []
    hint = f"set {TIES} to true if it is the word table"
    return [
        Problem(slot.name, f"is not in the file, and {TIES} is false: it would be random", hint=hint)
        for logical, slot in anatomy.slots.items()
        if slot.place.tied and slot.name and logical not in anatomy.stored
    ]


def buffer_notes(container: Container, anatomy: Anatomy) -> tuple[str, ...]:
    """Warnings for stored buffers that are not what the framework makes itself: 0, 1, 2, … or zeros. Reads them."""
    buffers = [n for n in anatomy.ignored if anatomy.ignored[n].startswith("buffer")]
    return tuple(
        f"{name} does not hold what its framework makes: transformers before 4.31 read it, later ones do not"
        for name in buffers
        if not _counts_or_zeros(container.tensors[name])
    )


def _counts_or_zeros(tensor: LazyTensor) -> bool:
    if tensor.spec.count > _LONGEST:
        return False
    numbers = tensor.read().ravel().astype(np.float64)
    return not numbers.any() or np.array_equal(numbers, np.arange(numbers.size))


def twin_problems(container: Container, anatomy: Anatomy) -> tuple[list[Problem], dict[str, str]]:
    """Compare tensors that are stored twice for one place.

    Returns what is wrong, and the dead tensors: a bias that another one overrules is never read.
    """
    problems, dead = [], {}
    for logical, names in anatomy.twins.items():
        first = container.tensors[anatomy.stored[logical]]
        place = anatomy.slots[logical].place
        for name in names:
            if same_bits(first, container.tensors[name]):
                continue
            if place.overruled_by and name.endswith(place.name):
                dead[name] = f"never read: {first.name} is there and differs"
            else:
                problems.append(Problem(name, "differs from another spelling of the same tensor", found=first.name))
    return problems, dead
