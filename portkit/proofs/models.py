"""Run a checkpoint in its own framework, or in the reference: the two sides of a forward proof."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from portkit.casts import rounds
from portkit.errors import Problem, UsageError
from portkit.proofs.agreement import Run
from portkit.proofs.coverage import HeadWatch, coverage_of
from portkit.proofs.forward import Side, compare_runs
from portkit.proofs.frameworks import FRAMEWORKS, Asked, rounded
from portkit.proofs.inputs import choose_inputs, many_rows, shared_facts
from portkit.runtimes.outputs import POOLED, gives_pooled
from portkit.runtimes.reference import run_reference
from portkit.runtimes.transformers_runtime import DTYPES
from portkit.table.load import suggestion

if TYPE_CHECKING:
    from collections.abc import Mapping

    from portkit.checkpoint import Checkpoint
    from portkit.proofs.agreement import ForwardVerdict
    from portkit.runtimes.outputs import Inputs, Outputs
    from portkit.tensors import LazyTensor

RUNTIMES = ("auto", "own", "reference")


@dataclass(frozen=True)
class How:
    """How a side is to be run.

    `precision` is the dtype to compute in, where its framework can; else it computes in float32. `runtime` is
    "auto" (its framework, or the reference where that is not installed), "own" (its framework or an error) or
    "reference".
    """

    device: str = "cpu"
    precision: str = "float32"
    runtime: str = "auto"

    def __post_init__(self) -> None:
        for what, word, known in (("precision", self.precision, DTYPES), ("runtime", self.runtime, RUNTIMES)):
            if word not in known:
                raise UsageError("unknown choice", [Problem(what, f"{word!r} is none", hint=suggestion(word, known))])


def prove_forward(
    source: Checkpoint,
    target: Checkpoint,
    *,
    inputs: Inputs | None = None,
    how: tuple[How, How] = (How(), How()),
    announced: Mapping[str, str] = {},
) -> ForwardVerdict:
    """Run source and target on the same inputs, chosen to cover much unless given, and judge the difference.

    Where a tensor is narrower in the target, the source is run with the same rounded numbers: the tensor proof is the
    one that certifies a cast. In `announced` facts (and what differs) the target may be another function.
    Raises RuntimeFailedError where a framework refuses the model, MissingRuntimeError where it must run and cannot.
    """
    facts = shared_facts(source.facts, target.facts)
    inputs = inputs or choose_inputs(facts, avoid=(source.facts.pad_token_id, target.facts.pad_token_id))
    like = {name: tensor.spec.dtype for name, tensor in target.logical().items()}
    watch = HeadWatch()
    ours = side_of(source, inputs, how[0], like, watch)
    promised = replace(source.facts, **{name: getattr(target.facts, name) for name in announced})
    tensors = _rounded(source.forward_tensors(), like)
    verdict = compare_runs(
        inputs,
        ours,
        side_of(target, inputs, how[1]),
        coverage_of(source.facts, inputs),
        dropped=(POOLED,) if gives_pooled(source.facts) != gives_pooled(target.facts) else (),
        announced={} if promised == source.facts else announced,
        promised=None if promised == source.facts else lambda dtype: run_reference(promised, tensors, inputs, dtype),
    )
    return replace(verdict, coverage=coverage_of(source.facts, inputs, watch.heads))


def side_of(
    checkpoint: Checkpoint,
    inputs: Inputs,
    how: How,
    like: Mapping[str, str] = {},
    watch: HeadWatch | None = None,
) -> Side:
    """A checkpoint as one side of a comparison.

    `like` gives the dtypes that its tensors are rounded to first, by logical name. `watch` is shown the attention of
    the exact run.
    """
    framework = FRAMEWORKS[checkpoint.anatomy.layout]
    stored = checkpoint.forward_tensors()
    tensors = _rounded(stored, like)
    dtype = how.precision if how.precision in framework.dtypes else "float32"

    def own() -> Outputs:
        return framework.run(checkpoint, inputs, Asked(how.device, dtype, like))

    def reference(dtype: str) -> Outputs:
        return run_reference(checkpoint.facts, tensors, inputs, dtype, watch if dtype == "float64" else None)

    @cache
    def many(dtype: str) -> Outputs:
        return run_reference(checkpoint.facts, tensors, many_rows(checkpoint.facts), dtype)

    narrowed = any(rounds(tensor.spec.dtype, like[name]) for name, tensor in stored.items() if name in like)
    runs = how.runtime != "reference" and (framework.takes_tensors or not narrowed)
    run = Run(framework.label(), dtype, framework.device(how.device))
    return Side(run, own if runs else None, reference, many, stand_in=how.runtime != "own")


def _rounded(tensors: Mapping[str, LazyTensor], like: Mapping[str, str]) -> dict[str, LazyTensor]:
    """The same tensors in their own dtypes, with no more digits than other dtypes hold."""
    return {name: rounded(tensor, like.get(name)) for name, tensor in tensors.items()}
