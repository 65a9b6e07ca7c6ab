"""Try every hypothesis on a tensor that differs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from portkit.difference.guess import Guess, Pair, judge
from portkit.difference.hypotheses import HYPOTHESES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from portkit.difference.result import Finding


def diagnose(pair: Pair) -> tuple[Finding, ...]:
    """The first finding that is certain; else all that come near, the nearest first, then mere evidence."""
    near: dict[str, Finding] = {}
    for finding in _findings(pair):
        if finding.certain:
            return (finding,)
        near[finding.text] = finding
    return tuple(sorted(near.values(), key=lambda f: -1.0 if f.explained is None else f.explained, reverse=True))


def _findings(pair: Pair) -> Iterator[Finding]:
    plain = pair.numbers.squares if pair.numbers else None
    for hypothesis in HYPOTHESES:
        for found in hypothesis(pair):
            finding = judge(found, hypothesis.__name__, plain) if isinstance(found, Guess) else found
            if finding:
                yield finding
