"""The self-test as text: one line for each fault. Nothing is decided here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from portkit.errors import printable
from portkit.proofs import PROOFS
from portkit.proofs.agreement import LIMIT

if TYPE_CHECKING:
    from portkit.faults.self_test import Finding, SelfTest

_UNSOUND = (
    "a proof objects to the pair as it is, so that no fault could be told from it: "
    "give one folder, which is then proved against itself"
)
_LEGEND = (
    f"limit of the forward proof: {LIMIT:g} times the noise. seen: as it must be; -: not seen, and cannot be; "
    "MISSED and WRONG: the checker is at fault"
)


def render_self_test(result: SelfTest) -> str:
    """Both checkpoints, a matrix of faults and proofs, what was left out, and the line for a machine."""
    sides = (("source", result.source), ("target", result.target))
    lines = [
        *(
            f"{side:<8}{c.folder.path}: {c.anatomy.layout}, {c.anatomy.table.family}, {c.facts.task}"
            for side, c in sides
        ),
        f"inputs  rows of {', '.join(map(str, result.lengths))} tokens; the reference runs both sides",
        f"{'fault put into the target':<72}{''.join(f'{p:>9}' for p in PROOFS)}{'times the noise':>17}",
        *(_line(finding) for finding in (result.sound, *result.findings)),
        *([f"left out, as this model cannot have them: {'; '.join(result.left_out)}"] if result.left_out else []),
        _LEGEND if result.sound.right else _UNSOUND,
        result.summary,
    ]
    return "\n".join(printable(line) for line in lines)


def _line(finding: Finding) -> str:
    words = "".join(f"{_word(finding, proof):>9}" for proof in PROOFS)
    return f"{finding.name:<72}{words}{finding.ratio:>17.3g}"


def _word(finding: Finding, proof: str) -> str:
    must, saw = proof in finding.expected, proof in finding.seen_by
    return {(True, True): "seen", (False, False): "-", (True, False): "MISSED", (False, True): "WRONG"}[must, saw]
