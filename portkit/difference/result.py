"""What a comparison found, as frozen values."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

EQUAL, CAST, TOLERATED, DIFFERS, SHAPE, ONLY_A, ONLY_B = STATES = (
    "equal",  # the same bits
    "cast",  # the same bits once both have the narrower of two dtypes
    "tolerated",  # every element within the tolerance that was given
    "differs",
    "shape",
    "only in A",
    "only in B",
)
COMPARED = (EQUAL, CAST, TOLERATED, DIFFERS)  # the states in which numbers were looked at
DIFFERENT = (DIFFERS, SHAPE, ONLY_A, ONLY_B)


@dataclass(frozen=True)
class Numbers:
    """How far two arrays of one shape and dtype lie apart. Elements that are not finite count in `not_finite` only."""

    count: int
    differing: int
    """Elements with other bits."""
    not_finite: int
    """Those of them that are NaN or infinite on a side."""
    beyond: int
    """Elements outside the tolerance."""
    max_abs: float
    relative: float
    """rms(a - b) / rms(a); infinite where only `a` is 0."""
    ulp: int | None
    """Largest distance in units of the last place: how many numbers of the dtype lie between. None for integers."""
    at: tuple[int, ...]
    """Where the largest difference is: logical index in A, or the first place that is not finite on one side."""
    left: float
    right: float
    """The two numbers there."""
    correlation: float | None
    """None where a side is constant."""
    squares: float
    """Sum of (a - b)^2."""
    std: tuple[float, float]
    """Standard deviation of each side."""

    @property
    def share(self) -> float:
        """Of all elements, how many have other bits."""
        return self.differing / self.count if self.count else 0.0


@dataclass(frozen=True)
class Finding:
    """What may have happened to one tensor: the hypothesis by name, in words, and how well it holds.

    `certain`: what it says was checked on all numbers. `explained` is the share of the squared difference that goes
    away with it, 1 where every bit is equal then, or None for a statement that undoes nothing. `other` is the tensor
    that it points to.
    """

    kind: str
    text: str
    certain: bool
    explained: float | None = None
    other: str = ""

    @property
    def sure(self) -> str:
        """How well it holds, in words."""
        if self.certain:
            return "certain" if self.explained is None else "certain: then equal bit for bit"
        return (
            "evidence, not proof"
            if self.explained is None
            else f"near: {self.explained:.2%} of the difference goes away"
        )

    def __str__(self) -> str:
        return f"{self.text} ({self.sure})"


@dataclass(frozen=True)
class TensorDiff:
    """One logical tensor of both sides; shapes and dtypes are A's and B's, None where a side lacks it."""

    name: str
    state: str
    shapes: tuple[tuple[int, ...] | None, tuple[int, ...] | None]
    dtypes: tuple[str | None, str | None]
    note: str = ""
    numbers: Numbers | None = None
    findings: tuple[Finding, ...] = ()

    @property
    def different(self) -> bool:
        """Whether this makes the two checkpoints different."""
        return self.state in DIFFERENT


@dataclass(frozen=True)
class FieldDiff:
    """One fact or config field. `noted`: the sides say something else, and the function does not depend on it."""

    name: str
    a: object
    b: object
    state: str  # "equal", "differs" or "noted"
    note: str = ""


@dataclass(frozen=True)
class Side:
    """What one side is, and what of it was not compared, with the reason."""

    path: str
    layout: str
    format: str
    family: str
    task: str
    dtypes: tuple[str, ...]
    tensors: int
    skipped: Mapping[str, str]


@dataclass(frozen=True)
class Diff:
    """Two checkpoints, compared.

    `tensors` come in the order of the model, `ignored` are the names that were left out on request.
    """

    a: Side
    b: Side
    tensors: tuple[TensorDiff, ...]
    fields: tuple[FieldDiff, ...]
    ignored: tuple[str, ...] = ()
    atol: float = 0.0
    rtol: float = 0.0

    def of(self, *states: str) -> tuple[TensorDiff, ...]:
        """The tensors in one of these states."""
        return tuple(t for t in self.tensors if t.state in states)

    @property
    def compared(self) -> int:
        """Tensors whose numbers were looked at."""
        return len(self.of(*COMPARED))

    @property
    def differing(self) -> tuple[str, ...]:
        """Names of all tensors and fields that make the two sides different."""
        return (
            *(t.name for t in self.tensors if t.different),
            *(f.name for f in self.fields if f.state == "differs"),
        )

    @property
    def equal(self) -> bool:
        """Something was compared, and nothing differs."""
        return self.compared > 0 and not self.differing

    @property
    def exit_code(self) -> int:
        """0 equal or within the tolerance, 1 different, 3 nothing was compared."""
        return 3 if not self.compared else int(bool(self.differing))

    @property
    def first(self) -> TensorDiff | None:
        """The first tensor, in the order of the model, in which the two differ."""
        return next((t for t in self.tensors if t.different), None)

    def as_dict(self) -> dict[str, Any]:
        """All of it for JSON; numbers that are not finite are null."""
        whole = _shallow(self)
        summary = {"equal": self.equal, "exit_code": self.exit_code, "compared": self.compared}
        first = self.first.name if self.first else None
        plain: dict[str, Any] = _plain({**summary, "first": first, "differing": self.differing, **whole})
        return plain


def _plain(value: Any) -> Any:  # noqa: ANN401 - whatever JSON holds
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, Numbers):
        return _plain({**_shallow(value), "share": value.share})
    return _plain(_shallow(value)) if is_dataclass(value) else value


def _shallow(value: Any) -> dict[str, Any]:  # noqa: ANN401 - any of the dataclasses above
    return {f.name: getattr(value, f.name) for f in fields(value)}
