"""A comparison as one page: no script, nothing from outside, in light and dark."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

from portkit.difference.heat import LEVELS, Cell, Heat, heat_of
from portkit.difference.markup import Markup, tag
from portkit.difference.summary import compared, counts, groups, skipped, verdict
from portkit.difference.text import columns, shown
from portkit.formats.write import replacing

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from portkit.difference.result import Diff, FieldDiff, Side, TensorDiff

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"  # a name that slipped through could still load nothing
_NUMBERS = ("max abs", "relative", "ulp", "share", "correlation", "largest at, A | B")


def write_page(path: Path, diff: Diff) -> None:
    """Write the page; it appears whole or not at all. Raises PortkitError when the system cannot write it."""
    with replacing(path, parents=True) as file:
        file.write(render_page(diff).encode())


def render_page(diff: Diff) -> str:
    """The whole page. Every name and text of a checkpoint in it is escaped."""
    style = Markup((files(__package__) / "page.css").read_text(encoding="utf-8"))
    head = tag(
        "head",
        Markup(f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{_POLICY}">'),
        Markup('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Markup('<meta name="color-scheme" content="light dark">'),
        tag("title", f"{diff.a.path} and {diff.b.path} compared"),
        tag("style", style),
    )
    parts = _head(diff), _sides(diff), _map(heat_of(diff)), _diagnosis(diff), _fields(diff), _all(diff)
    return f"<!doctype html>\n{tag('html', head, tag('body', tag('main', *parts)), lang='en')}\n"


def _head(diff: Diff) -> Markup:
    kind = {0: "same", 1: "other", 3: "none"}[diff.exit_code]
    return tag(
        "header",
        tag("h1", "Two checkpoints compared"),
        tag("p", verdict(diff), class_=f"verdict {kind}"),
        tag("p", f"{compared(diff)}. {counts(diff)}."),
    )


def _sides(diff: Diff) -> Markup:
    rows = [
        (label, s.path, f"{s.layout} ({s.format})", f"{s.family}, {s.task}", f"{s.tensors} in {', '.join(s.dtypes)}")
        for label, s in (("A", diff.a), ("B", diff.b))
    ]
    notes = [*_skipped("A", diff.a), *_skipped("B", diff.b), *(f"{n}: left out by --ignore" for n in diff.ignored)]
    table = _table("The two sides", ("", "path", "layout", "model", "tensors"), rows)
    return _section("Sides", table, *([_list("Not compared", notes)] if notes else []))


def _skipped(label: str, side: Side) -> Iterable[str]:
    return (f"{label}, {', '.join(names)}: {why}" for why, names in skipped(side).items())


def _map(heat: Heat) -> Markup:
    first = next((c for _, row in heat.rows for c in row if c and c.different), None)
    parts = [_legend()]
    if heat.others:
        head = tag("tr", *(tag("th", name, scope="col") for name, _ in heat.others))
        parts.append(_grid("Outside the layers", head, tag("tr", *(_square(cell) for _, cell in heat.others))))
    if heat.rows:
        head = tag("tr", tag("th", "layer", scope="col"), *(tag("th", c, scope="col") for c in heat.columns))
        parts.append(_grid("Layers by modules", head, *(_row(name, cells, first) for name, cells in heat.rows)))
    return _section("Where they part", *parts)


def _grid(caption: str, *rows: Markup) -> Markup:
    return _scroll(caption, tag("table", tag("caption", caption), *rows, class_="map"))


def _row(name: str, cells: tuple[Cell | None, ...], first: Cell | None) -> Markup:
    return tag("tr", tag("th", name, scope="row"), *(_square(c, first=c is first and c is not None) for c in cells))


def _square(cell: Cell | None, *, first: bool = False) -> Markup:
    if cell is None:
        return tag("td", "·", class_="none", title="no such module")
    level = "gone" if cell.level is None else f"h{cell.level}"
    label = f"{cell.label}{' (the first layer that differs)' if first else ''}"
    shown = tag("span", cell.word, aria_hidden="true"), tag("span", label, class_="hidden")
    return tag("td", *shown, class_=f"{level}{' first' if first else ''}", title=label)


def _legend() -> Markup:
    steps = ["= equal, ≈ equal after a cast", f"up to {LEVELS[0]:g}", *(f"up to {step:g}" for step in LEVELS[1:])]
    steps.append(f"above {LEVELS[-1]:g}")
    items = [tag("li", text, class_=f"h{i}") for i, text in enumerate(steps)]
    items.append(tag("li", "on one side only, or of another shape", class_="gone"))
    what = "Each cell shows the relative difference, rms(a - b) / rms(a), of its worst tensor."
    return tag("div", tag("p", what), tag("ul", *items, class_="legend"))


def _diagnosis(diff: Diff) -> Markup:
    found = groups(diff)
    if not found:
        return Markup("")
    items = (
        tag("li", tag("strong", g.text), tag("div", ", ".join(g.names), f" ({g.count} tensors)" if g.count > 1 else ""))
        for g in found
    )
    return _section("What may have happened", tag("ul", *items))


def _fields(diff: Diff) -> Markup:
    other = [f for f in diff.fields if f.state != "equal"]
    equal = [f for f in diff.fields if f.state == "equal"]
    head = ("field", "state", "A", "B", "note")
    parts = [_table("Fields that are not equal", head, map(_field, other))] if other else []
    parts.append(_details(f"{len(equal)} equal fields", _table("Equal fields", head, map(_field, equal))))
    return _section("Facts and config", *parts)


def _field(field: FieldDiff) -> tuple[str, ...]:
    return field.name, field.state, shown(field.a), shown(field.b), field.note


def _all(diff: Diff) -> Markup:
    other = [t for t in diff.tensors if t.state != "equal"]
    equal = [t for t in diff.tensors if t.state == "equal"]
    head = ("tensor", "state", "shape", "dtype", *_NUMBERS, "what may have happened")
    parts = [_table("Tensors that are not equal bit for bit", head, map(_tensor, other), "numbers")] if other else []
    if equal:
        table = _table("Equal tensors", head[:4], (_tensor(t)[:4] for t in equal))
        parts.append(_details(f"{len(equal)} equal tensors", table))
    return _section("Tensors", *parts)


def _tensor(tensor: TensorDiff) -> tuple[str, ...]:
    shapes, dtypes = (" | ".join(dict.fromkeys(str(x) for x in xs if x)) for xs in (tensor.shapes, tensor.dtypes))
    numbers = columns(tensor.numbers) if tensor.numbers else ("",) * len(_NUMBERS)
    said = "; ".join([tensor.note] * bool(tensor.note) + [str(f) for f in tensor.findings])
    return tensor.name, tensor.state, shapes, dtypes, *numbers, said


def _table(caption: str, head: Iterable[str], rows: Iterable[tuple[str, ...]], kind: str | None = None) -> Markup:
    """A table whose first column names the row."""
    top = tag("thead", tag("tr", *(tag("th", h, scope="col") for h in head)))
    body = tag("tbody", *(tag("tr", tag("th", r[0], scope="row"), *(tag("td", c) for c in r[1:])) for r in rows))
    return _scroll(caption, tag("table", tag("caption", caption), top, body, class_=kind))


def _scroll(label: str, table: Markup) -> Markup:
    """A wide table scrolls by itself, with the keyboard too."""
    return tag("div", table, class_="scroll", tabindex="0", role="region", aria_label=label)


def _details(summary: str, content: Markup) -> Markup:
    return tag("details", tag("summary", summary), content)


def _list(title: str, items: Iterable[str]) -> Markup:
    return tag("div", tag("h3", title), tag("ul", *(tag("li", i) for i in items)))


def _section(title: str, *content: Markup) -> Markup:
    return tag("section", tag("h2", title), *content)
