"""What a check found: each output with its difference and limit, the weights, the facts, and the verdict."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from portkit.proofs.agreement import LIMIT, describe, finite_or_none, ratio_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from portkit.errors import Problem
    from portkit.golden.weights import WeightsVerdict
    from portkit.proofs.coverage import Coverage


@dataclass(frozen=True)
class Reproduction:
    """How well one set of expected numbers was reproduced.

    The part of each deviation that the printed digits explain (half a unit of the last one) is taken off first;
    `difference` is the rms of what is left, and must not exceed the limit, a multiple of the measured noise.
    """

    output: str
    kind: str
    """"values" or "sketch"."""
    compared: int
    difference: float
    half_unit: float
    """The largest half unit of a last digit among the numbers."""
    noise: float
    limit: float
    max_abs: float
    """Largest deviation with nothing taken off, for the reader; it decides nothing."""
    reproduced: bool

    @property
    def ratio(self) -> float:
        """difference / noise; 0 where both are 0, infinite where only the noise is."""
        return ratio_of(self.difference, self.noise)

    @property
    def name(self) -> str:
        """As reports name it."""
        return self.output if self.kind == "values" else f"{self.output} ({self.kind})"


@dataclass(frozen=True)
class FactsVerdict:
    """Which facts were compared, and those that differ: (name, of the golden, of the checkpoint)."""

    compared: int
    differing: tuple[tuple[str, object, object], ...]

    @property
    def equal(self) -> bool:
        """Nothing differs."""
        return not self.differing

    def __str__(self) -> str:
        if self.equal:
            return f"compared {self.compared} facts: equal"
        words = "; ".join(f"{name} is {found!r}, the golden says {said!r}" for name, said, found in self.differing)
        return f"compared {self.compared} facts: {len(self.differing)} differ: {words}"


@dataclass(frozen=True)
class GoldenVerdict:
    """What was compared with the golden, and whether the checkpoint reproduces it.

    `facts` and `weights` are None, and `coverage` and `runtime` empty, where the golden holds nothing of the kind.
    """

    about: str
    source: Mapping[str, str]
    checkpoint: str
    """Its folder, layout, family and task."""
    device: str
    runtime: str = ""
    reference: str = ""
    coverage: Coverage | None = None
    facts: FactsVerdict | None = None
    weights: WeightsVerdict | None = None
    outputs: tuple[Reproduction, ...] = ()
    problems: tuple[Problem, ...] = ()
    """Outputs that could not be compared; any of them fails the check."""
    note: str = ""
    """What the float64 reference says of a run that does not reproduce the golden."""

    @property
    def compared(self) -> int:
        """Numbers and tensors compared."""
        return sum(item.compared for item in self.outputs) + (self.weights.compared if self.weights else 0)

    @property
    def reproduced(self) -> bool:
        """True when something was compared, all of it agrees, and nothing was in the way."""
        facts, weights = self.facts is None or self.facts.equal, self.weights is None or self.weights.equal
        return self.compared > 0 and facts and weights and not self.problems and self.first_divergence is None

    @property
    def first_divergence(self) -> str | None:
        """The first output, in the order of the golden, that was not reproduced."""
        return next((item.output for item in self.outputs if not item.reproduced), None)

    @property
    def worst(self) -> Reproduction | None:
        """The reproduction of the largest ratio; one that is not a number counts as the largest."""
        return max(self.outputs, key=lambda item: (not item.reproduced, item.ratio), default=None)

    def __str__(self) -> str:
        names = {item.output for item in self.outputs}
        of = "1 output" if len(names) == 1 else f"{len(names)} outputs"
        looked = f"compared {sum(item.compared for item in self.outputs)} numbers of {of}"
        if self.reproduced:
            times = f", at most {self.worst.ratio:.2f} times the noise ({self.worst.name})" if self.worst else ""
            return f"{looked if self.worst else self.weights}: reproduced{times}"
        parting = next((item for item in self.outputs if not item.reproduced), None)
        if parting is not None:
            times = f"{parting.ratio:.3g} times the noise, limit {LIMIT:g}"
            return f"{looked}: NOT reproduced, parts at {parting.name}, {describe(parting.output)}: {times}"
        wrong = [str(part) for part in (self.weights, self.facts) if part is not None and not part.equal]
        return f"{looked}: NOT reproduced: {'; '.join(wrong) or f'{len(self.problems)} problems'}"

    @property
    def exit_code(self) -> int:
        """0 where all of it is reproduced, else 1."""
        return 0 if self.reproduced else 1

    def as_dict(self) -> dict[str, object]:
        """All of it for JSON, where a number that is not finite is null."""
        return {
            "reproduced": self.reproduced,
            "exit_code": self.exit_code,
            "compared": self.compared,
            "first_divergence": self.first_divergence,
            "about": self.about,
            "source": dict(self.source),
            "checkpoint": self.checkpoint,
            "runtime": self.runtime,
            "reference": self.reference,
            "device": self.device,
            "coverage": self.coverage.as_dict() if self.coverage else None,
            "limit": LIMIT,
            "outputs": [finite_or_none({**asdict(item), "ratio": item.ratio}) for item in self.outputs],
            "weights": self.weights.as_dict() if self.weights else None,
            "facts": {"equal": self.facts.equal, **asdict(self.facts)} if self.facts else None,
            "problems": [asdict(problem) for problem in self.problems],
            "note": self.note,
        }
