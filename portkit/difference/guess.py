"""A guess at what happened to a tensor, and how well it holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from portkit.difference.blocks import blocks
from portkit.difference.result import Finding, Numbers
from portkit.tensors import bits

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from portkit.axes import Axes
    from portkit.checkpoint import Checkpoint
    from portkit.tensors import Array

Ties = Callable[[], Mapping[str, str]]
NEAR = 0.9  # of the squared difference must go away before a guess is worth telling


def _same(array: Array) -> Array:
    return array


@dataclass(frozen=True)
class Pair:
    """Two tensors that differ, in memory: canonical orientation, the same dtype, maybe other shapes.

    `whole` are both tables with the rows that no token reads, `a` and `b` begin after these, at the rows `starts`.
    `numbers` is None where the shapes differ, `ties` tells which tensor a framework may tie to which.
    """

    name: str
    whole: tuple[Array, Array]
    starts: tuple[int, int]
    axes: Axes
    numbers: Numbers | None
    sides: tuple[Checkpoint, Checkpoint]
    ties: Ties

    @property
    def a(self) -> Array:
        """A's numbers that are compared."""
        return self.whole[0][self.starts[0] :] if any(self.starts) else self.whole[0]

    @property
    def b(self) -> Array:
        """B's numbers that are compared."""
        return self.whole[1][self.starts[1] :] if any(self.starts) else self.whole[1]

    @property
    def floats(self) -> bool:
        """Whether both sides hold floats; what no row explains may be anything."""
        return self.a.dtype.kind not in "iub"

    @property
    def part(self) -> str:
        """`kernel`, `bias`, `scale` or `table`."""
        return self.name.rpartition(".")[2]


@dataclass(frozen=True)
class Guess:
    """`text` holds when `via(left)`, its rows taken in the order `rows`, equals `right`.

    Both are views where that is possible: nothing is copied before it is judged, block by block.
    """

    text: str
    left: Array
    right: Array
    via: Callable[[Array], Array] = field(default=_same)
    rows: NDArray[np.intp] | None = None
    other: str = ""


def judge(guess: Guess, kind: str, plain: float | None) -> Finding | None:
    """A finding where the guess is exact, or little is left with it: of `plain`, the sum of squared differences
    without it (None where shapes differ), and of the right side's own spread.

    Stops as soon as too much is left, which it mostly is after the first block.
    """
    if guess.left.shape != guess.right.shape or not guess.right.size:
        return None
    with np.errstate(all="ignore"):  # what is not finite ends as a guess that does not hold
        return _judge(guess, kind, plain)


def _judge(guess: Guess, kind: str, plain: float | None) -> Finding | None:
    exact, left, total, squares = True, 0.0, 0.0, 0.0
    for start, block, y in blocks(guess.left, guess.right):
        x = guess.via(block if guess.rows is None else guess.left[guess.rows[start : start + len(y)]])
        exact = exact and bool((bits(x) == bits(y)).all())
        wide = y.astype(np.float64)
        left += 0.0 if exact else float(np.square(x.astype(np.float64) - wide).sum())
        total, squares = total + float(wide.sum()), squares + float(np.square(wide).sum())
        if not left <= (1 - NEAR) * (squares if plain is None else plain):  # also where it is not a number
            return None
    spread = squares - total * total / guess.right.size
    if exact or left <= (1 - NEAR) * spread:
        return Finding(kind, guess.text, exact, 1.0 if exact else 1 - left / (plain or spread), guess.other)
    return None
