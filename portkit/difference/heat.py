"""The map of a comparison: layers by modules, and how far each cell is apart."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from portkit.difference.result import EQUAL, ONLY_A, ONLY_B, SHAPE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from portkit.difference.result import Diff, TensorDiff

LEVELS = (1e-6, 1e-4, 1e-2, 1e-1)  # relative difference above which a cell is one step warmer


@dataclass(frozen=True)
class Cell:
    """The tensors of one module: `level` is 0 (equal) to 5, or None where there is nothing to measure.

    `word` stands in the cell, `label` says it in full.
    """

    level: int | None
    word: str
    label: str
    different: bool


@dataclass(frozen=True)
class Heat:
    """`columns` are the modules of a layer, `rows` the layers with a cell for each, `others` the modules outside."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell | None, ...]], ...]
    others: tuple[tuple[str, Cell], ...]


def heat_of(diff: Diff) -> Heat:
    """Gather the tensors of each module."""
    layered: dict[str, dict[str, list[TensorDiff]]] = defaultdict(lambda: defaultdict(list))
    others: dict[str, list[TensorDiff]] = defaultdict(list)
    for tensor in diff.tensors:
        module = tensor.name.rpartition(".")[0] or tensor.name
        if match := re.fullmatch(r"(.*?\.\d{1,9})\.(.*)", module):
            layered[match[1]][match[2]].append(tensor)
        else:
            others[module].append(tensor)
    columns = tuple(dict.fromkeys(module for modules in layered.values() for module in modules))
    rows = (
        (layer, tuple(_cell(found[c]) if c in found else None for c in columns)) for layer, found in layered.items()
    )
    return Heat(columns, tuple(rows), tuple((name, _cell(found)) for name, found in others.items()))


def _cell(tensors: Iterable[TensorDiff]) -> Cell:
    """The worst of a module's tensors, and all of them in words."""
    cells = [(_level(t), t) for t in tensors]
    level, worst = max(cells, key=lambda pair: 9 if pair[0] is None else pair[0])
    label = "; ".join(f"{t.name}: {t.state}" + _relative(t) for _, t in cells)
    return Cell(level, _word(worst), label, any(t.different for _, t in cells))


def _level(tensor: TensorDiff) -> int | None:
    if tensor.state in (SHAPE, ONLY_A, ONLY_B):
        return None
    if tensor.numbers is None:
        return 0
    return 1 + sum(not tensor.numbers.relative <= step for step in LEVELS)


def _word(tensor: TensorDiff) -> str:
    if tensor.numbers:
        return f"{tensor.numbers.relative:.0e}".replace("e-0", "e-").replace("e+0", "e")
    return {EQUAL: "=", SHAPE: "shape", ONLY_A: "A only", ONLY_B: "B only"}.get(tensor.state, "≈")


def _relative(tensor: TensorDiff) -> str:
    if tensor.numbers is None:
        return ""
    size = tensor.numbers.relative
    return f", relative difference {size:.3g}" if math.isfinite(size) else ", nothing to relate the difference to"
