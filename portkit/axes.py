"""The notation for shapes: a row says what a module maps (`"h -> n d"`), a layout how it stores it (`"(out) (in)"`).

An axis is a role and a letter, so that `h -> h` still has two different axes. A stored dimension is a group of
axes: `(out)` flattens all output axes into one dimension, `out` keeps one dimension for each.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from portkit.errors import Problem, TableError

if TYPE_CHECKING:
    from portkit.tensors import Array

Axis = tuple[str, str]  # ("in" or "out", letter or literal size)
Axes = tuple[tuple[Axis, ...], ...]  # one group of axes for each stored dimension
Sizes = Mapping[str, int]

_LETTER = re.compile(r"[a-z]|[1-9][0-9]*")
_ROLE = re.compile(r"\(?(in|out)\)?")
_FLIPPED = {"in": "out", "out": "in"}


@dataclass(frozen=True)
class Signature:
    """What a module maps: its input and output axes, as letters (config fields) or literal sizes."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def letters(self) -> set[str]:
        """The letters whose sizes the config must give."""
        return {a for a in (*self.inputs, *self.outputs) if not a.isdigit()}


def parse_signature(text: str) -> Signature:
    """Read `"h -> n d"`, or `"h"` for a module with one set of axes. Raises TableError."""
    left, arrow, right = text.partition("->")
    inputs, outputs = tuple(left.split()), tuple(right.split()) if arrow else tuple(left.split())
    if not inputs or not outputs or not all(_LETTER.fullmatch(a) for a in (*inputs, *outputs)):
        raise TableError(
            "cannot read a signature",
            [Problem(repr(text), "not a signature", 'letters or sizes around an arrow, as in "h -> n d"', text)],
        )
    return Signature(inputs, outputs)


@cache
def parse_pattern(pattern: str, signature: Signature) -> Axes:
    """Read a layout's `"(out) (in)"` for one signature. Raises TableError."""
    groups: list[tuple[Axis, ...]] = []
    for token in pattern.split():
        if not _ROLE.fullmatch(token) or token.startswith("(") != token.endswith(")"):
            raise TableError(
                "cannot read a pattern",
                [Problem(repr(pattern), f"unknown token {token!r}", "in, out, (in) or (out)", token)],
            )
        role = token.strip("()")
        axes = tuple((role, a) for a in (signature.inputs if role == "in" else signature.outputs))
        groups += [axes] if token.startswith("(") else [(a,) for a in axes]
    return tuple(groups)


def flip(axes: Axes) -> Axes:
    """Exchange the roles: an embedding table `v -> h` seen as the kernel of a linear `h -> v`."""
    return tuple(tuple((_FLIPPED[role], letter) for role, letter in group) for group in axes)


def spell(axes: Axes) -> str:
    """For a reader, stored dimensions with role and letters: `out(n d) in(h)`."""
    return " ".join(f"{group[0][0]}({' '.join(letter for _, letter in group)})" for group in axes)


def size_of(axis: Axis, sizes: Sizes) -> int:
    """The size of one axis. KeyError when `sizes` lacks its letter."""
    return int(axis[1]) if axis[1].isdigit() else sizes[axis[1]]


def shape_of(axes: Axes, sizes: Sizes) -> tuple[int, ...]:
    """The stored shape."""
    return tuple(math.prod(size_of(a, sizes) for a in group) for group in axes)


def move(array: Array, src: Axes, dst: Axes, sizes: Sizes) -> Array:
    """Bring an array of shape `shape_of(src)` into the layout `dst`.

    Returns an array of shape `shape_of(dst)` with the same dtype and the same numbers: the argument itself or a view of
    it wherever one will do, so that nothing is copied before it is known where to. Source and target must name the
    same axes.
    """
    if src == dst:
        return array
    names = [a for group in src for a in group]
    order = [names.index(a) for group in dst for a in group]
    return array.reshape([size_of(a, sizes) for a in names]).transpose(order).reshape(shape_of(dst, sizes))


def described_move(src: Axes, dst: Axes, sizes: Mapping[str, int]) -> tuple[str, ...]:
    """What `move` does, in numpy's words: nothing, one transpose, or reshape, transpose, reshape."""
    if src == dst:
        return ()
    if sorted(src) == sorted(dst):
        return (f"transpose {[src.index(group) for group in dst]}",)
    split, wanted = [a for group in src for a in group], [a for group in dst for a in group]
    atoms, target = tuple(size_of(a, sizes) for a in split), tuple(size_of(a, sizes) for a in wanted)
    steps = [f"reshape {list(atoms)}"] if atoms != shape_of(src, sizes) else []
    steps += [f"transpose {[split.index(a) for a in wanted]}"] if split != wanted else []
    return (*steps, *([f"reshape {list(shape_of(dst, sizes))}"] if target != shape_of(dst, sizes) else []))
