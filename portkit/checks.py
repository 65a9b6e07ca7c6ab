"""What must hold between config, table and headers of the weights. Each function lists all problems it finds."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from portkit.errors import Problem, TableError
from portkit.table.slots import Slot, sizes_of
from portkit.tensors import FLOATS, LazyTensor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from portkit.anatomy import Anatomy
    from portkit.config import Config
    from portkit.formats.container import Container

_LABELS = "num_labels"


def label_count(container: Container, anatomy: Anatomy) -> int | None:
    """The number of classes, from the shape of the classifier; None for a task without one."""
    letter = next((k for k, field in anatomy.table.axes.items() if field == _LABELS), None)
    for logical, slot in anatomy.slots.items():
        dims = [i for i, group in enumerate(slot.axes) if [a for _, a in group] == [letter]]
        stored = anatomy.stored.get(logical)
        if dims and stored and len(container.tensors[stored].spec.shape) == len(slot.axes):
            return container.tensors[stored].spec.shape[dims[0]]
    return None


def sizes_or_problems(anatomy: Anatomy, config: Config, where: str) -> tuple[dict[str, int], list[Problem]]:
    """The size of every letter, or why the config gives none."""
    letters = {a for s in anatomy.slots.values() for a in s.row.signature.letters()}
    table = anatomy.table
    try:
        return sizes_of({k: v for k, v in table.axes.items() if k in letters}, config.values), []
    except TableError as e:
        return {}, [Problem(f"{where} {p.where}", p.what, p.expected, p.found) for p in e.problems]


def config_problems(anatomy: Anatomy, config: Config, where: str) -> list[Problem]:
    """Contradictions between the config and the names."""
    problems = []
    said, found = config["num_hidden_layers"], f"{anatomy.layers} layers"
    if said != anatomy.layers:
        problems.append(Problem(f"{where} num_hidden_layers", "contradicts the weights", str(said), found))
    pad, words = config.values.get("pad_token_id"), config.values.get("vocab_size")
    if isinstance(pad, int) and isinstance(words, int) and not 0 <= pad < words:
        expected = f"0 to {words - 1}"
        problems.append(Problem(f"{where} pad_token_id", "is no row of the word table", expected, str(pad)))
    return problems


def shape_problems(
    container: Container, anatomy: Anatomy, config: Config, sizes: Mapping[str, int], where: str
) -> list[Problem]:
    """Every tensor whose stored shape is not the one that config and table give, by the config field at fault."""
    if not sizes:
        return []
    by_field: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    problems = []
    for logical, stored in anatomy.stored.items():
        slot = anatomy.slots[logical]
        expected = slot.shape(sizes, slot.growth(config.values))
        for name in (stored, *anatomy.twins.get(logical, ())):
            tensor = container.tensors[name]
            if tensor.spec.shape == expected:
                continue
            faults = _faults(anatomy, slot, tensor.spec.shape, expected)
            if not faults:
                problems.append(_misfit(name, slot, tensor, expected, anatomy))
            for fault in faults:
                by_field[fault].append(name)
    return problems + [
        Problem(
            f"{where} {field}",
            "contradicts the weights",
            said,
            f"{found} in {len(names)} tensors, such as {names[0]}",
        )
        for (field, said, found), names in by_field.items()
    ]


def _faults(
    anatomy: Anatomy, slot: Slot, found: tuple[int, ...], expected: tuple[int, ...]
) -> list[tuple[str, str, str]]:
    """The config fields that would explain a wrong shape; none where the shape is wrong in another way."""
    if len(found) != len(expected):
        return []
    faults = []
    for group, size, said in zip(slot.axes, found, expected, strict=True):
        if size != said and len(group) == 1 and not group[0][1].isdigit():
            faults.append((anatomy.table.axes[group[0][1]], str(said), str(size)))
        elif size != said and len(group) == 1:
            return []
    return faults if sorted(found) != sorted(expected) else []


def _misfit(name: str, slot: Slot, tensor: LazyTensor, expected: tuple[int, ...], anatomy: Anatomy) -> Problem:
    turned = tensor.spec.shape == expected[::-1]
    hint = f"transposed: is it stored in another layout's orientation than {anatomy.layout}'s?" if turned else ""
    return Problem(
        name,
        f"shape does not fit {anatomy.table.source} {slot.row.address}",
        str(expected),
        str(tensor.spec.shape),
        hint,
    )


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


def same_bits(a: LazyTensor, b: LazyTensor) -> bool:
    """Whether two tensors of one orientation hold the same bytes."""
    if (a.spec.shape, a.spec.dtype) != (b.spec.shape, b.spec.dtype):
        return False
    return bool(np.array_equal(a.read().view(np.uint8), b.read().view(np.uint8))) if a.spec.count else True
