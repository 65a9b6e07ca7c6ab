"""The tensor proof: re-open what was written, undo the layout, and compare every number with its source."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from portkit.checkpoint import Checkpoint, open_checkpoint
from portkit.execute import cast
from portkit.tensors import equal_bits

if TYPE_CHECKING:
    from pathlib import Path

    from portkit.plan import Plan
    from portkit.tensors import LazyTensor

_POSITIONS = "embeddings.position.table"


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
    theirs, ours = target.logical(), plan.source.logical()
    made = {m.logical for m in plan.moves if m.how == "zeros"}
    wanted = [name for name in theirs if name not in made]
    dtypes = {m.logical: m.target.dtype for m in plan.moves}
    differing = tuple(
        n for n in wanted if n not in ours or not _equal(ours[n], theirs[n], _shift(plan.source, target, n))
    )
    casts = sum(ours[n].spec.dtype != dtypes.get(n, ours[n].spec.dtype) for n in wanted if n in ours)
    return TensorVerdict(len(wanted), len({m.logical for m in plan.moves} - made | set(wanted)), casts, differing)


def _shift(source: Checkpoint, target: Checkpoint, name: str) -> int:
    """How many more rows the target's position table has in front, because its family reserves more."""
    rows = "max_position_embeddings"
    return int(target.config[rows]) - int(source.config[rows]) if name == _POSITIONS else 0


def _equal(ours: LazyTensor, theirs: LazyTensor, shift: int) -> bool:
    source, target = ours.read(), theirs.read()
    source, target = source[max(-shift, 0) :], target[max(shift, 0) :]
    return equal_bits(cast(source, theirs.spec.dtype), target)
