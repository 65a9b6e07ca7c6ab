"""The self-test: every fault is put into the target of a sound pair, and the three proofs must see what they can.

Models are run by the reference, on short inputs: what is tested is the checker, and no framework.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from portkit.errors import Problem, RefusedError
from portkit.faults.catalogue import Fault, load_faults
from portkit.faults.inject import Faulty, inject
from portkit.proofs import PROOFS
from portkit.proofs.agreement import LIMIT
from portkit.proofs.coverage import coverage_of
from portkit.proofs.facts import compare_facts
from portkit.proofs.forward import Side, compare_runs
from portkit.proofs.inputs import choose_inputs, shared_facts
from portkit.proofs.models import How, side_of
from portkit.proofs.tensors import prove_tensors
from portkit.runtimes.outputs import POOLED, gives_pooled

if TYPE_CHECKING:
    from portkit.checkpoint import Checkpoint
    from portkit.facts import Facts
    from portkit.proofs.agreement import ForwardVerdict
    from portkit.runtimes.outputs import Inputs

TOKENS = 48  # of the longest row
_FEWEST = 2
_SPARE = 2  # positions that programs with shifted positions read beyond
_REFERENCE = How(runtime="reference")


@dataclass(frozen=True)
class Finding:
    """One fault, the proofs that saw it, and how far its worst output lies from the exact one, in units of noise.

    `expected` are the proofs that must see it, and no other may. `because` says why not all do.
    """

    name: str
    expected: frozenset[str]
    seen_by: frozenset[str]
    ratio: float
    because: str = ""

    @property
    def right(self) -> bool:
        """Whether exactly the expected proofs saw it."""
        return self.seen_by == self.expected

    def as_dict(self) -> dict[str, object]:
        """For JSON, where a ratio that is not finite is null."""
        return {
            "fault": self.name,
            "right": self.right,
            "expected": sorted(self.expected),
            "seen_by": sorted(self.seen_by),
            "ratio": self.ratio if math.isfinite(self.ratio) else None,
            **({"because": self.because} if self.because else {}),
        }


@dataclass(frozen=True)
class SelfTest:
    """What came of all faults. `sound` is the pair without one, which no proof may object to."""

    source: Checkpoint
    target: Checkpoint
    lengths: tuple[int, ...]
    """Tokens of each row of the inputs."""
    sound: Finding
    findings: tuple[Finding, ...]
    left_out: tuple[str, ...]
    """Faults that this model or its layout cannot have."""

    @property
    def wrong(self) -> tuple[Finding, ...]:
        """Faults that a proof missed, or claimed to see and cannot; the sound pair where a proof objects to it."""
        return tuple(f for f in (self.sound, *self.findings) if not f.right)

    @property
    def holds(self) -> bool:
        """Something was tested, and nothing came out wrong."""
        return bool(self.findings) and not self.wrong

    @property
    def exit_code(self) -> int:
        """0 when it holds, else 1."""
        return 0 if self.holds else 1

    @property
    def summary(self) -> str:
        """One line for a machine: how many faults came out right, and how many each proof saw of those it must see."""
        right = sum(finding.right for finding in self.findings)
        parts = [f"{proof}={self._seen(proof)}" for proof in PROOFS]
        word = "PASS" if self.holds else "FAIL"
        return f"portkit verify --self-test: {word} faults={right}/{len(self.findings)} {' '.join(parts)}"

    def _seen(self, proof: str) -> str:
        must = [finding for finding in self.findings if proof in finding.expected]
        return f"{sum(proof in finding.seen_by for finding in must)}/{len(must)}"

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return {
            "holds": self.holds,
            "summary": self.summary,
            "limit": LIMIT,
            "lengths": list(self.lengths),
            "sound": self.sound.as_dict(),
            "faults": [finding.as_dict() for finding in self.findings],
            "left_out": list(self.left_out),
        }


def run_self_test(source: Checkpoint, target: Checkpoint, faults: tuple[Fault, ...] = ()) -> SelfTest:
    """Put each fault (all, unless given) into the target in memory, one after the other, and make the three proofs.

    A pair to which a proof objects as it is tests nothing: no fault is then put in, and the test does not hold.
    Raises what opening and reading the checkpoints raises.
    """
    bench = Bench.of(source, target)
    sound = bench.judge(Faulty(target, target.facts, bench.inputs), Fault("no fault", frozenset()))
    findings, left_out = [], []
    for fault in (faults or load_faults()) if sound.right else ():
        faulty = inject(fault, target, bench.inputs)
        if faulty is None:
            left_out.append(fault.name)
        else:
            findings.append(bench.judge(faulty, fault))
    return SelfTest(source, target, tuple(bench.inputs.lengths.tolist()), sound, tuple(findings), tuple(left_out))


@dataclass(frozen=True)
class Bench:
    """What all faults are judged by: the source, the inputs, and the source's runs, which are made once."""

    source: Checkpoint
    inputs: Inputs
    ours: Side
    dropped: tuple[str, ...]

    @classmethod
    def of(cls, source: Checkpoint, target: Checkpoint) -> Bench:
        """For a pair; where the target's dtype is narrower, the source is run with the same rounded numbers."""
        inputs = short_inputs(source.facts, target.facts)
        like = {name: tensor.spec.dtype for name, tensor in target.logical().items()}
        ours = side_of(source, inputs, _REFERENCE, like)
        pooled = gives_pooled(source.facts) == gives_pooled(target.facts)
        return cls(
            source, inputs, replace(ours, reference=functools.cache(ours.reference)), () if pooled else (POOLED,)
        )

    def judge(self, faulty: Faulty, fault: Fault) -> Finding:
        """The three proofs between the source and a faulty target."""
        forward = self.forward(faulty)
        saw = {
            "tensors": not prove_tensors(self.source, faulty.checkpoint).equal,
            "facts": not compare_facts(self.source, faulty.checkpoint).agrees,
            "forward": not forward.agrees,
        }
        ratio = forward.worst.ratio if forward.worst else math.nan
        seen_by = frozenset(proof for proof, saw_it in saw.items() if saw_it)
        return Finding(fault.name, fault.seen_by, seen_by, ratio, fault.because)

    def forward(self, faulty: Faulty) -> ForwardVerdict:
        """The forward proof, with the source's runs of before."""
        run = replace(faulty.checkpoint, facts=faulty.facts)
        theirs = side_of(run, faulty.inputs, _REFERENCE)
        return compare_runs(
            self.inputs, self.ours, theirs, coverage_of(self.source.facts, self.inputs), dropped=self.dropped
        )


def short_inputs(source: Facts, target: Facts) -> Inputs:
    """Inputs that both models take, and programs that read positions a few rows too far.

    Raises RefusedError for models whose sentences are so short that no token can look at another.
    """
    facts = shared_facts(source, target)
    length = min(TOKENS, facts.usable_length - _SPARE)
    if length < _FEWEST:
        expected, found = f"{_FEWEST + _SPARE} tokens or more", f"{facts.usable_length}"
        problem = Problem("the longest sentence", "too short to show what attention does", expected, found)
        raise RefusedError("the self-test needs longer sentences", [problem])
    facts = replace(facts, max_position_embeddings=facts.first_position + length)
    return choose_inputs(facts, avoid=(source.pad_token_id, target.pad_token_id))
