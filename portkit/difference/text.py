"""A comparison as text. Nothing is decided here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from portkit.difference.markup import plain
from portkit.difference.summary import compared, counts, groups, skipped, unmeasured, verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from portkit.difference.result import Diff, Numbers, Side, TensorDiff

_SHOWN = 24  # tensors that a table lists; the rest is counted
_NAMES = 4  # names that a finding lists
_LONG = 200  # characters of a field's value


def render_diff(diff: Diff) -> str:
    """What was compared, what differs, what may have happened, and the verdict."""
    lines = [
        *_side("A", diff.a),
        *_side("B", diff.b),
        compared(diff),
        *_fields(diff),
        f"tensors        {counts(diff)}",
        *_notes(diff),
        *_tensors(diff),
        *_findings(diff),
        verdict(diff),
    ]
    return "\n".join(plain(line) for line in lines)


def number(value: float | None) -> str:
    """Three digits, or a dash where there is no number."""
    return "-" if value is None else f"{value:.3g}"


def shown(value: object) -> str:
    """A field's value, for a reader."""
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return "none" if value is None else str(value)


def columns(numbers: Numbers) -> tuple[str, ...]:
    """Largest absolute difference, relative, in units of the last place, share of elements, where, the two values."""
    at = "[" + ", ".join(map(str, numbers.at)) + "]"
    sizes = (number(numbers.max_abs), number(numbers.relative), number(numbers.ulp))
    related = "-" if numbers.correlation is None else f"{numbers.correlation:.3f}"
    return (*sizes, f"{numbers.share:.2%}", related, f"{at} {numbers.left:.5g} | {numbers.right:.5g}")


def _side(label: str, side: Side) -> Iterator[str]:
    dtypes = ", ".join(side.dtypes)
    what = f"{side.layout} ({side.format}), {side.family}, {side.task}, {side.tensors} tensors in {dtypes}"
    yield f"{label}  {side.path}: {what}"
    for why, names in skipped(side).items():
        yield f"  not compared {_some(names)}: {why}"


def _fields(diff: Diff) -> Iterator[str]:
    other = [f for f in diff.fields if f.state != "equal"]
    yield f"fields         {len(diff.fields) - len(other)} of {len(diff.fields)} equal"
    for field in other:
        note = f" ({field.note})" if field.note else ""
        yield f"  {field.state:<12} {field.name}: {_brief(field.a)} | {_brief(field.b)}{note}"


def _brief(value: object) -> str:
    text = shown(value)
    return text if len(text) <= _LONG else f"{text[:_LONG]} …"


def _notes(diff: Diff) -> Iterator[str]:
    """What is to be said of tensors that are equal, once for all of which it is true."""
    notes: dict[str, list[str]] = {}
    for tensor in diff.tensors:
        if tensor.note:
            notes.setdefault(tensor.note, []).append(tensor.name)
    for note, names in notes.items():
        yield f"  {names[0] if len(names) == 1 else f'{len(names)} tensors'}: {note}"


def _tensors(diff: Diff) -> Iterator[str]:
    measured = [t for t in diff.tensors if t.numbers]
    if measured:
        width = max(len(plain(t.name)) for t in measured[:_SHOWN])
        head = f"{'max abs':>10}{'relative':>10}{'ulp':>12}{'share':>9}{'corr':>8}"
        yield f"  {'tensor':<{width}}{head}  largest at, A | B"
        yield from (_measured(t, width) for t in measured[:_SHOWN])
    if len(measured) > _SHOWN:
        yield f"  and {len(measured) - _SHOWN} more; --json and --html list all"
    yield from (f"  {what}: {_some(names)}" for what, names in unmeasured(diff).items())


def _measured(tensor: TensorDiff, width: int) -> str:
    if tensor.numbers is None:
        return ""
    size, relative, ulp, share, correlation, where = columns(tensor.numbers)
    return f"  {plain(tensor.name):<{width}}{size:>10}{relative:>10}{ulp:>12}{share:>9}{correlation:>8}  {where}"


def _findings(diff: Diff) -> Iterator[str]:
    found = groups(diff)
    if found:
        yield "diagnosis"
    for group in found:
        count = f" ({group.count} tensors)" if group.count > 1 else ""
        yield f"  {group.text}"
        yield f"    in {_some(group.names)}{count}"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return f"{', '.join(names[:_NAMES])}{more}"
