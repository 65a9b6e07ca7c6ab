"""Compare two checkpoints in logical names, one pair of tensors in memory at a time."""

from __future__ import annotations

from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cache
from typing import TYPE_CHECKING, Any

from portkit.checkpoint import Checkpoint, open_checkpoint
from portkit.difference.blocks import equal_values, narrower
from portkit.difference.diagnose import diagnose
from portkit.difference.elsewhere import look_elsewhere
from portkit.difference.fields import compare_fields
from portkit.difference.guess import Pair, Ties
from portkit.difference.measure import Tolerance, measure
from portkit.difference.result import CAST, DIFFERS, EQUAL, ONLY_A, ONLY_B, SHAPE, TOLERATED, Diff, TensorDiff
from portkit.difference.sides import Item, alike, pair_up, side_of, ties_of
from portkit.errors import Problem, UsageError
from portkit.table.load import suggestion
from portkit.tensors import equal_bits, same_bits

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


def diff(
    a: Path | str,
    b: Path | str,
    *,
    ignore: Sequence[str] = (),
    atol: float = 0.0,
    rtol: float = 0.0,
    open_a: Mapping[str, Any] | None = None,
    open_b: Mapping[str, Any] | None = None,
) -> Diff:
    """Compare two checkpoints of any layouts and formats.

    `ignore` are globs over the names of tensors (`masked_lm.*`) and fields (`facts.layer_norm_eps`). `atol`, `rtol`:
    as in numpy's `allclose`. `open_a`, `open_b` are keywords of `open_checkpoint`. Holds one pair of tensors in memory.
    Raises what opening raises, and UsageError for a pattern that matches nothing or a tolerance that is none.
    """
    tolerance = Tolerance(atol, rtol)
    sides = open_checkpoint(a, **(open_a or {})), open_checkpoint(b, **(open_b or {}))
    items, fields = pair_up(*sides), compare_fields(*sides)
    ignored = _ignored([*(i.name for i in items), *(f.name for f in fields)], ignore)
    items, fields = _without(items, ignored), _without(fields, ignored)
    ties = cache(lambda: {**ties_of(sides[0]), **ties_of(sides[1])})
    tensors = look_elsewhere(items, [_compare(item, sides, ties, tolerance) for item in items])
    names = {i.name for i in items}
    return Diff(side_of(sides[0], names), side_of(sides[1], names), tensors, fields, tuple(sorted(ignored)), atol, rtol)


def _ignored(names: Sequence[str], patterns: Sequence[str]) -> set[str]:
    """The names that a pattern matches. Raises UsageError listing the patterns that match none."""
    idle = [p for p in patterns if not any(fnmatchcase(n, p) for n in names)]
    if idle:
        problems = [Problem(f"--ignore {p}", "matches no tensor and no field", hint=suggestion(p, names)) for p in idle]
        raise UsageError("nothing to ignore", problems)
    return {n for n in names if any(fnmatchcase(n, p) for p in patterns)}


def _without(found: tuple[Any, ...], ignored: set[str]) -> tuple[Any, ...]:
    return tuple(x for x in found if x.name not in ignored)


def _compare(item: Item, sides: tuple[Checkpoint, Checkpoint], ties: Ties, tolerance: Tolerance) -> TensorDiff:
    if item.a is None or item.b is None:
        return _result(item, ONLY_A if item.b is None else ONLY_B)
    if not any(item.starts) and same_bits(*(item.raw or (item.a, item.b))):
        return _result(item, EQUAL)
    whole = alike(item.a.read(), item.b.read())
    pair = Pair(item.name, whole, item.starts, item.axes, None, sides, ties)
    if pair.a.shape != pair.b.shape:
        return _result(item, SHAPE, findings=diagnose(pair))
    if equal_bits(pair.a, pair.b):
        return _equal(item)
    numbers = measure(pair.a, pair.b, tolerance)
    numbers = replace(numbers, at=tuple(i + item.starts[0] if dim == 0 else i for dim, i in enumerate(numbers.at)))
    if tolerance.given and not numbers.beyond:
        return _result(item, TOLERATED, numbers=numbers)
    return _result(item, DIFFERS, numbers=numbers, findings=diagnose(replace(pair, numbers=numbers)))


def _equal(item: Item) -> TensorDiff:
    """The same bits, in one dtype or after a cast to the narrower of two."""
    if item.a is None or item.b is None or item.a.spec.dtype == item.b.spec.dtype:
        return _result(item, EQUAL)
    same = equal_values(*(t.read()[n:] for t, n in zip((item.a, item.b), item.starts, strict=True)))
    dtypes = item.a.spec.dtype, item.b.spec.dtype
    how = "the same numbers in both" if same else f"equal once rounded to {narrower(*dtypes)}"
    return _result(item, CAST, note=f"{dtypes[0]} in A, {dtypes[1]} in B: {how}")


def _result(item: Item, state: str, **more: Any) -> TensorDiff:  # noqa: ANN401 - fields of TensorDiff
    specs = [t.spec if t else None for t in (item.a, item.b)]
    shapes, dtypes = [s.shape if s else None for s in specs], [s.dtype if s else None for s in specs]
    shift = item.starts[1] - item.starts[0]
    notes = [f"row i of A is row i{shift:+d} of B; rows that no token reads left out"] if any(item.starts) else []
    notes += [more.pop("note")] if "note" in more else []
    return TensorDiff(item.name, state, (shapes[0], shapes[1]), (dtypes[0], dtypes[1]), "; ".join(notes), **more)
