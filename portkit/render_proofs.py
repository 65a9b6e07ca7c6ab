"""The verdicts of the three proofs as text. Nothing is decided here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from portkit.errors import printable
from portkit.record import warnings_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from portkit.proofs.agreement import Agreement, ForwardVerdict
    from portkit.proofs.facts import Fact, FactsVerdict
    from portkit.proofs.pair import Verification
    from portkit.proofs.tensors import TensorVerdict

_LARGE = 10_000  # a ratio that is printed as a power of ten
_SHOWN = 20  # lines of one kind


def render_verification(verdict: Verification) -> str:
    """Both checkpoints, the proofs, what none of them has seen, and the line for a machine."""
    sides = (("source", verdict.source), ("target", verdict.target))
    lines = [
        *(
            f"{side:<8}{c.folder.path}: {c.anatomy.layout} ({c.folder.container.format}), "
            f"{c.anatomy.table.family}, {c.anatomy.task.name}"
            for side, c in sides
        ),
        *(f"warning {note} ({side})" for side, c in sides for note in warnings_of(c)),
        *render_proofs(verdict, rest=True),
        *(line for name, error in verdict.errors.items() for line in _lines(f"proof {name:<9}could not look: ", error)),
        *(f"proof {name:<9}not made" for name, result in verdict.results.items() if result == "skipped"),
        verdict.summary,
    ]
    return "\n".join(printable(line) for line in lines)


def render_proofs(verdict: Verification, *, rest: bool) -> list[str]:
    """The proofs that were made; with `rest` also each tensor that has no counterpart and needs none."""
    return [
        *(render_tensors(verdict.tensors, rest=rest) if verdict.tensors else []),
        *(render_facts(verdict.facts) if verdict.facts else []),
        *(render_forward(verdict.forward, by_bits=verdict.tensors is not None) if verdict.forward else []),
    ]


def render_tensors(verdict: TensorVerdict, *, rest: bool) -> list[str]:
    """The count first, then every tensor that fails the proof, then what was not compared."""
    return [
        f"proof tensors  {verdict}",
        *_listed("DIFFERS", verdict.differing),
        *_listed("MISSING", verdict.missing),
        *(_listed("not compared", verdict.rest) if rest else []),
    ]


def render_facts(verdict: FactsVerdict) -> list[str]:
    """The count, then what is not equal."""
    return [f"proof facts    {verdict}", *(f"  {_word(fact):<13}{fact}" for fact in verdict.unequal)]


def _word(fact: Fact) -> str:
    """In capitals where it fails the proof."""
    if fact.announced:
        return "as announced"
    return fact.status if fact.holds else fact.status.upper()


def render_forward(verdict: ForwardVerdict, *, by_bits: bool) -> list[str]:
    """One line per output: difference, noise, limit, ratio, verdict. `by_bits`: the tensor proof was made too."""
    sides = f"{verdict.source} against {verdict.target}"
    certified = "certified by the tensor proof alone" if by_bits else "certified by no proof that was made"
    unseen = "; ".join(verdict.coverage.bits_alone)
    return [
        f"proof forward  {sides}, both measured against {verdict.reference}",
        f"  inputs       {verdict.coverage}",
        *([f"  not seen     {unseen}: {certified}"] if unseen else []),
        *(f"  announced    {what}: measured against that function" for what in verdict.announced),
        *(f"  not compared {name}: one side has none, by design" for name in verdict.dropped),
        f"  {'output':<26}{'difference':>12}{'noise':>12}{'limit':>12}{'ratio':>8}{'max abs':>12}",
        *(_agreement(item) for item in verdict.agreements),
        f"  {verdict}",
        *_changes(verdict),
        *(line for problem in verdict.problems for line in _lines("  ", problem)),
    ]


def _lines(start: str, what: object) -> list[str]:
    """A problem or an error, whose own lines are kept apart: what is in them is printable already."""
    return (start + str(what)).splitlines()


def _agreement(item: Agreement) -> str:
    ratio = f"{item.ratio:.2f}" if item.ratio < _LARGE else f"{item.ratio:.1e}"
    numbers = f"{item.difference:>12.2e}{item.noise:>12.2e}{item.limit:>12.2e}{ratio:>8}{item.max_abs:>12.2e}"
    return f"  {item.output:<26}{numbers}  {'agrees' if item.agrees else 'DIFFERS'}"


def _changes(verdict: ForwardVerdict) -> list[str]:
    """How far the announced function lies from the source's own, at the last outputs."""
    lines = [f"  {c.output:<26}{c.rms:>12.2e}{c.relative:>12.2e}{c.max_abs:>12.2e}" for c in verdict.changes[-2:]]
    head = f"  {'change of the function':<26}{'rms':>12}{'relative':>12}{'max abs':>12}"
    return [head, *lines] if lines else []


def _listed(word: str, reasons: Mapping[str, str]) -> list[str]:
    shown = [f"  {word:<13}{name}: {why}" for name, why in list(reasons.items())[:_SHOWN]]
    return shown + ([f"  {word:<13}and {len(reasons) - _SHOWN} more"] if len(reasons) > _SHOWN else [])
