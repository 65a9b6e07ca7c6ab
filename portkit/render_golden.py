"""Goldens as text: first what was compared, then difference, limit and verdict. Nothing is decided here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from portkit.errors import printable

if TYPE_CHECKING:
    from pathlib import Path

    from portkit.golden.form import Golden
    from portkit.golden.verdict import GoldenVerdict
    from portkit.golden.weights import WeightsVerdict

_SHOWN = 8  # differing tensors


def render_golden_check(verdict: GoldenVerdict, name: str) -> str:
    """The verdict on a checkpoint; `name` is that of the golden file."""
    lines = [
        f"golden {name} against {verdict.checkpoint}",
        *([f"  about        {verdict.about}"] if verdict.about else []),
        *(f"  made from    {key}: {text}" for key, text in verdict.source.items()),
        f"  facts        {verdict.facts or 'the golden holds none'}",
        f"  weights      {verdict.weights or 'the golden holds none'}",
        *(_weights(verdict.weights) if verdict.weights else []),
        *_outputs(verdict),
        *(line for problem in verdict.problems for line in f"  {problem}".splitlines()),
        *([f"  note         {verdict.note}"] if verdict.note else []),
        str(verdict),
    ]
    return "\n".join(printable(line) for line in lines)


def _weights(verdict: WeightsVerdict) -> list[str]:
    rest = len(verdict.differing) - _SHOWN
    return [
        *(f"  differs      {item.tensor} {item.what}" for item in verdict.differing[:_SHOWN]),
        *([f"  differs      and {rest} more"] if rest > 0 else []),
    ]


def _outputs(verdict: GoldenVerdict) -> list[str]:
    if not verdict.outputs:
        return ["  outputs      nothing compared"]
    widths = f"  {'output':<28}{'numbers':>8}{'difference':>12}{'half unit':>12}{'noise':>12}{'limit':>12}{'ratio':>10}"
    table = [f"{widths}{'max abs':>12}"]
    for item in verdict.outputs:
        word = "reproduced" if item.reproduced else "DIFFERS"
        numbers = f"{item.difference:>12.2e}{item.half_unit:>12.1e}{item.noise:>12.2e}{item.limit:>12.2e}"
        table.append(f"  {item.name:<28}{item.compared:>8}{numbers}{item.ratio:>10.3g}{item.max_abs:>12.2e}  {word}")
    return [
        f"  outputs      of {verdict.runtime} on {verdict.device}; noise: float32 against {verdict.reference}",
        f"  inputs       {verdict.coverage}",
        *table,
    ]


def render_golden_record(golden: Golden, out: Path) -> str:
    """What was recorded, and where."""
    what = f"{golden.count} numbers of {len(golden.outputs)} outputs, {len(golden.weights)} tensors"
    count = len(golden.input_ids)
    rows = f"{count} {'row' if count == 1 else 'rows'}, {sum(map(len, golden.input_ids))} tokens in all"
    return f"wrote {out}: {what}; {rows}, run in {golden.source['runtime']}"
