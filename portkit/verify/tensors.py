"""The tensor proof: re-open what was written, undo the layout, and compare every number with its source."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from portkit.checkpoint import Checkpoint, open_checkpoint
from portkit.common import in_common
from portkit.execute import cast
from portkit.tensors import equal_bits

if TYPE_CHECKING:
    from pathlib import Path

    from portkit.plan import Plan
    from portkit.tensors import LazyTensor


@dataclass(frozen=True)
class TensorVerdict:
    """How many logical tensors were compared, of how many, and which differ."""

    compared: int
    expected: int
    cast: int
    differing: tuple[str, ...]

    @property
    def equal(self) -> bool:
        """Everything was compared, something was there, and nothing differs."""
        return self.compared == self.expected > 0 and not self.differing

    def __str__(self) -> str:
        how = f", {self.cast} of them after the cast" if self.cast else ", bit for bit"
        if self.equal:
            return f"compared {self.compared} of {self.expected} tensors: equal{how}"
        names = ", ".join(self.differing[:5])
        return f"compared {self.compared} of {self.expected} tensors: {len(self.differing)} differ ({names})"

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return {"equal": self.equal, **asdict(self)}


def prove_tensors(plan: Plan, written: Path, mappings: tuple[Path, ...] = ()) -> TensorVerdict:
    """Compare a written folder with the source of its plan, in logical words.

    Raises what opening the folder raises: a folder that cannot be opened proves nothing.
    """
    model = plan.model
    target = open_checkpoint(
        written, layout=plan.layout, family=model.table.family, task=model.task.name, mappings=mappings
    )
    source = with_spares(plan)
    common = in_common(source, target)
    made = {m.logical for m in plan.moves if m.how == "zeros"}
    pairs = {n: pair for n, pair in common.pairs.items() if n not in made}
    dtypes = {m.logical: m.target.dtype for m in plan.moves}
    differing = tuple(n for n, (ours, theirs) in pairs.items() if not _equal(ours, theirs))
    strange = tuple(n for n in common.only_second if n in target.anatomy.stored and n not in made)
    casts = sum(ours.spec.dtype != dtypes.get(n, ours.spec.dtype) for n, (ours, _) in pairs.items())
    expected = {m.logical for m in plan.moves if m.logical in target.anatomy.slots} - made | set(pairs)
    return TensorVerdict(len(pairs), len(expected), casts, (*differing, *strange))


def with_spares(plan: Plan) -> Checkpoint:
    """The source with the tensors that the plan takes out of its residue; what it had folded is unfolded by them."""
    restored = {m.logical for m in plan.moves if m.how == "restored"}
    return plan.source.completed(restored) if restored else plan.source


def _equal(ours: LazyTensor, theirs: LazyTensor) -> bool:
    source, target = ours.read(), theirs.read()
    return equal_bits(cast(source, theirs.spec.dtype), target)
