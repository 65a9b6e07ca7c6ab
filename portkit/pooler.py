"""The pooler: is it there, where does it come from, was it ever trained, and what becomes of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from portkit.errors import Problem, RefusedError

if TYPE_CHECKING:
    from portkit.checkpoint import Checkpoint
    from portkit.table.schema import Dialect, Table, Task
    from portkit.tensors import LazyTensor

_DROPPED = "--pooler drop"


@dataclass(frozen=True)
class Pooler:
    """A dense layer with tanh on the first token.

    `present` says whether the model has one, `home` where it lives ("backbone", "head" or nothing), `origin` whether
    it comes from the source, was synthesised, or is not there. `trained` is None where there is nothing to judge.
    """

    present: bool
    home: str = ""
    origin: str = "none"
    trained: bool | None = None
    evidence: str = ""


def inspect_pooler(checkpoint: Checkpoint) -> Pooler:
    """Look at the pooler's numbers. Reads two tensors of [hidden, hidden] and [hidden]."""
    tensors = {**checkpoint.spare.whole, **checkpoint.logical()}
    if "pooler.kernel" not in tensors:
        return Pooler(False, evidence="the file has no pooler tensors")
    if "pooler.kernel" not in checkpoint.anatomy.slots or checkpoint.stored("pooler.kernel") is None:
        return Pooler(False, "backbone", "residue", evidence="kept in the residue beside the weights")
    home = "head" if checkpoint.anatomy.task.pooler == "head" else "backbone"
    spread = float(checkpoint.config.values.get("initializer_range") or 0.02)
    trained, evidence = _judge(tensors["pooler.kernel"], tensors.get("pooler.bias"), spread)
    return Pooler(True, home, "source", trained, evidence)


def was_synthesised(checkpoint: Checkpoint) -> bool:
    """Whether an earlier conversion made the pooler that stands here, and nobody has trained it since. Reads it."""
    target = checkpoint.folder.record.get("target")
    said = target.get("pooler") if isinstance(target, dict) else None
    made = isinstance(said, dict) and said.get("origin") == "synthesised"
    pooler = [checkpoint.stored(n) for n in ("pooler.kernel", "pooler.bias")]
    return made and not any(t is not None and t.read().any() for t in pooler)


def _judge(kernel: LazyTensor, bias: LazyTensor | None, spread: float) -> tuple[bool, str]:
    """Training moves a bias away from exactly 0 with its first step; initialisation puts it there."""
    weights = kernel.read().astype(np.float64)
    std = float(weights.std())
    if not weights.any():
        return False, "all zeros, as if synthesised; its output says nothing"
    close = "as initialised" if abs(std - spread) < 0.05 * spread else f"initializer_range is {spread:g}"
    if bias is not None and not bias.read().any():
        return False, f"bias exactly 0, standard deviation {std:.4f} ({close})"
    return True, f"bias moved away from 0, standard deviation {std:.4f} ({close})"


def target_pooler(
    checkpoint: Checkpoint, table: Table, task: Task, layout: str, dialect: Dialect | None, policy: str
) -> Pooler:
    """What the target gets. Raises RefusedError where the policy cannot be met."""
    found = inspect_pooler(checkpoint)
    if found.origin == "residue":
        found = replace(found, present=True)
    spare, needed = table.layouts[layout].spare_pooler, table.layouts[layout].needs_pooler
    if was_synthesised(checkpoint) and not needed:
        found = Pooler(False, evidence="zeros that stood for a pooler where there was none")
    lacks = _no_place(table, task, layout, dialect)
    if policy == "require" and not found.present:
        raise _refused("--pooler require", "the source has no pooler", found.evidence)
    if task.pooler in ("read", "head"):
        return _read_pooler(found, task, policy, lacks)
    if policy == "drop" and needed:
        raise _refused("--pooler drop", f"{table.family} in {layout} always has a pooler", "--pooler synthesize: zeros")
    why = lacks or (str(spare) if task.pooler == "unread" and spare is not True else "")
    if why and policy in ("require", "synthesize"):
        raise _refused(f"--pooler {policy}", "the target has no place for a pooler", why)
    if why or policy == "drop":
        return Pooler(False, evidence=why or (_DROPPED if found.present else found.evidence))
    if not found.present and (policy == "synthesize" or needed):
        return _synthesised(table, task, layout, policy)
    return found


def _synthesised(table: Table, task: Task, layout: str, policy: str) -> Pooler:
    """Zeros, where they are asked for, and under a head that never reads them in a layout that cannot go without."""
    zeros = "zeros: the pooled output is exactly 0, and no feature"
    if policy == "synthesize":
        return Pooler(True, "backbone", "synthesised", False, zeros)
    if task.pooler == "unread":
        why = f"{zeros}; {layout} cannot go without a pooler, and the head of {task.name} never reads it"
        return Pooler(True, "backbone", "synthesised", False, why)
    hint = "--pooler synthesize writes zeros: a pooled output of exactly 0, marked in the record"
    what = f"{table.family} in {layout} always has a pooler, and the source has none"
    problem = Problem("--pooler keep", what, hint=hint)
    raise RefusedError("the target needs a pooler", [problem])


def _read_pooler(found: Pooler, task: Task, policy: str, lacks: str) -> Pooler:
    if lacks:
        raise _refused("--dialect", f"{task.name} reads the pooler", lacks)
    if policy == "drop":
        raise _refused(
            "--pooler drop", f"the head of {task.name} reads the pooler", "without it the logits mean nothing"
        )
    return replace(found, home="head" if task.pooler == "head" else "backbone")


def _no_place(table: Table, task: Task, layout: str, dialect: Dialect | None) -> str:
    columns = dialect.columns.get("pooler", {}) if dialect else {}
    rows = [r for g in (task.groups, ("pooler",)) for r in table.rows_of(g) if r.name == "pooler"]
    places = columns.get(layout) or (rows[0].places.get(layout, {}) if rows else {})
    return next(
        (p.absent for p in places.values() if p.absent),
        "" if places else f"the table has no pooler in {layout}",
    )


def _refused(where: str, what: str, found: str) -> RefusedError:
    return RefusedError("the pooler cannot be as asked", [Problem(where, what, found=found)])
