"""The three proofs between two checkpoints, and what they say together."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from portkit.errors import PortkitError, Problem, UsageError
from portkit.fold import absorbed
from portkit.proofs import PROOFS
from portkit.proofs.facts import announced_by, compare_facts
from portkit.proofs.models import How, prove_forward
from portkit.proofs.tensors import prove_tensors
from portkit.table.load import suggestion
from portkit.tensors import transposed

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from portkit.checkpoint import Checkpoint
    from portkit.plan import Plan
    from portkit.proofs.agreement import ForwardVerdict
    from portkit.proofs.facts import FactsVerdict
    from portkit.proofs.tensors import TensorVerdict
    from portkit.runtimes.outputs import Inputs
    from portkit.tensors import LazyTensor

PASS, FAIL, ERROR, SKIPPED = "pass", "fail", "error", "skipped"


@dataclass(frozen=True)
class Verification:
    """The verdicts on two checkpoints; None for a proof that was not asked for or could not be made.

    `errors` says why a proof could not be made.
    """

    source: Checkpoint
    target: Checkpoint
    tensors: TensorVerdict | None = None
    facts: FactsVerdict | None = None
    forward: ForwardVerdict | None = None
    errors: Mapping[str, PortkitError] = field(default_factory=dict)

    @property
    def results(self) -> dict[str, str]:
        """For each of the three proofs "pass", "fail", "error" (it could not look) or "skipped"."""
        return {name: self._result(name) for name in PROOFS}

    @property
    def holds(self) -> bool:
        """At least one proof was made, and all that were asked for were made and hold."""
        found = set(self.results.values())
        return PASS in found and not found & {FAIL, ERROR}

    @property
    def exit_code(self) -> int:
        """0 when it holds, 1 when a proof failed, 3 when none failed but one could not look."""
        return 0 if self.holds else 1 if FAIL in self.results.values() else 3

    @property
    def verdict(self) -> str:
        """All three in one word: "pass", "fail" or "error"."""
        return {0: PASS, 1: FAIL, 3: ERROR}[self.exit_code]

    @property
    def summary(self) -> str:
        """One line for a machine: `PASS tensors=pass facts=pass forward=pass`, FAIL or ERROR; and what stood in."""
        line = f"portkit verify: {self.verdict.upper()} " + " ".join(
            f"{name}={result}" for name, result in self.results.items()
        )
        stand_ins = [run.runtime for run in self.forward.runs if run.stood_in] if self.forward else []
        return line + (f" ({'; '.join(dict.fromkeys(stand_ins))})" if stand_ins else "")

    def proofs(self) -> dict[str, dict[str, object]]:
        """The verdicts that there are, for JSON."""
        verdicts = {"tensors": self.tensors, "facts": self.facts, "forward": self.forward}
        return {name: verdict.as_dict() for name, verdict in verdicts.items() if verdict is not None}

    def as_dict(self) -> dict[str, object]:
        """All of it, for JSON."""
        sides = {"source": self.source, "target": self.target}
        return {
            "verdict": self.verdict,
            "exit_code": self.exit_code,
            "summary": self.summary,
            "results": self.results,
            **{side: _brief(checkpoint) for side, checkpoint in sides.items()},
            "proofs": self.proofs(),
            "errors": {name: str(error) for name, error in self.errors.items()},
        }

    def _result(self, name: str) -> str:
        if name in self.errors:
            return ERROR
        holds = {
            "tensors": self.tensors and self.tensors.equal,
            "facts": self.facts and self.facts.agrees,
            "forward": self.forward and self.forward.agrees,
        }[name]
        return SKIPPED if holds is None else PASS if holds else FAIL


def verify_pair(
    source: Checkpoint,
    target: Checkpoint,
    proofs: Collection[str] = PROOFS,
    *,
    inputs: Inputs | None = None,
    how: tuple[How, How] = (How(), How()),
    plan: Plan | None = None,
) -> Verification:
    """Make the proofs of these names. With the `plan` that made the target, what it announced is no surprise.

    A proof that cannot look is in `errors`, and does not keep the others from looking. Raises UsageError for unknown
    names and for inputs that do not fit.
    """
    require_proofs(proofs)
    announced = announced_by(plan) if plan else {}
    source, how = (with_residue(plan, how)) if plan else (source, how)
    ways: dict[str, Callable[[], TensorVerdict | FactsVerdict | ForwardVerdict]] = {
        "tensors": lambda: prove_tensors(source, target, plan),
        "facts": lambda: compare_facts(source, target, announced),
        "forward": lambda: prove_forward(source, target, inputs=inputs, how=how, announced=announced),
    }
    verdicts, errors = {}, {}
    for name in (n for n in PROOFS if n in proofs):
        try:
            verdicts[name] = ways[name]()
        except UsageError:
            raise
        except PortkitError as error:
            errors[name] = error
    return Verification(source, target, **verdicts, errors=errors)  # type: ignore[arg-type]  # each under its name


def with_residue(plan: Plan, how: tuple[How, How]) -> tuple[Checkpoint, tuple[How, How]]:
    """The source with what the plan takes out of its residue.

    A pooler or a head that comes back is nothing that the source's own framework could run: the reference then does.
    """
    back = {m.logical for m in plan.moves if m.how == "restored"}
    if not back:
        return plan.source, how
    source = plan.source.completed(back)
    parts = {name for pair in absorbed(plan.source.anatomy.slots.values()).items() for name in pair}
    if back <= parts:
        return source, how
    facts, told = source.facts, plan.model.facts
    source = replace(source, borrowed={**_tied_in(plan), **source.borrowed})
    head = replace(
        facts, task=told.task, head_style=told.head_style, num_labels=told.num_labels, has_pooler=told.has_pooler
    )
    anatomy = replace(source.anatomy, task=plan.model.task)
    return replace(source, facts=head, anatomy=anatomy), (replace(how[0], runtime="reference"), how[1])


def _tied_in(plan: Plan) -> dict[str, LazyTensor]:
    """What a head that comes back shares with the model: its decoder, unless the residue has one of its own."""
    rows = plan.model.table.rows_of(plan.model.task.groups)
    places = {f"{row.name}.{part}": place for row in rows for part, place in row.places[plan.layout].items()}
    moved, own = {m.logical for m in plan.moves}, plan.source.logical()
    shared = {n: own[p.tied] for n, p in places.items() if p.tied in own and n not in own and n not in moved}
    return {n: transposed(t).renamed(n) for n, t in shared.items()}


def require_proofs(proofs: Collection[str]) -> None:
    """Raise UsageError for a name that is no proof, and for none at all."""
    problems = [
        Problem(f"proof {name!r}", "there is none", hint=suggestion(name, PROOFS))
        for name in proofs
        if name not in PROOFS
    ]
    if problems or not proofs:
        raise UsageError("no such proof", problems or [Problem("proofs", "none is asked for", ", ".join(PROOFS))])


def _brief(checkpoint: Checkpoint) -> dict[str, object]:
    anatomy = checkpoint.anatomy
    return {
        "path": checkpoint.folder.path.name,
        "layout": anatomy.layout,
        "format": checkpoint.folder.container.format,
        "family": anatomy.table.family,
        "task": anatomy.task.name,
    }
