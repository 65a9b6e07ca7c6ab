"""Run a checkpoint in its own framework, or in the reference: the two sides of a forward proof."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from portkit.casts import narrows
from portkit.errors import MissingRuntimeError, Problem, UsageError
from portkit.execute import cast
from portkit.proofs.agreement import Run
from portkit.proofs.coverage import HeadWatch, coverage_of
from portkit.proofs.forward import Side, compare_runs
from portkit.proofs.inputs import choose_inputs, many_rows, shared_facts
from portkit.proofs.presets import preset_of
from portkit.runtimes.burn_runtime import run_burn
from portkit.runtimes.keras_runtime import NAME as KERAS
from portkit.runtimes.keras_runtime import keras_label, run_keras
from portkit.runtimes.outputs import POOLED, gives_pooled
from portkit.runtimes.reference import run_reference
from portkit.runtimes.transformers_runtime import DTYPES, device_label, run_transformers_tensors
from portkit.table.load import suggestion
from portkit.tensors import LazyTensor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from portkit.checkpoint import Checkpoint
    from portkit.proofs.agreement import ForwardVerdict
    from portkit.runtimes.outputs import Inputs, Outputs

RUNTIMES = ("auto", "own", "reference")
_NAMES = {"hf": "transformers", "burn": "Burn", "keras": KERAS}
_COMPUTES = {"hf": DTYPES}  # Burn's CPU backends have no 16-bit floats: whatever is stored, they compute in float32

_TAKES_TENSORS = ("hf",)  # the others run a folder as it lies there, so none of its numbers can be rounded first


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
    layout = checkpoint.anatomy.layout
    tensors = _rounded(checkpoint.forward_tensors(), like)
    dtype = how.precision if how.precision in _COMPUTES.get(layout, ()) else "float32"

    def own() -> Outputs:
        return _own_runtime(checkpoint, inputs, how.device, like, dtype)

    def reference(dtype: str) -> Outputs:
        return run_reference(checkpoint.facts, tensors, inputs, dtype, watch if dtype == "float64" else None)

    @cache
    def many(dtype: str) -> Outputs:
        return run_reference(checkpoint.facts, tensors, many_rows(checkpoint.facts), dtype)

    narrowed = any(_narrows(tensor, like.get(name)) for name, tensor in tensors.items())
    runs = how.runtime != "reference" and (layout in _TAKES_TENSORS or not narrowed)
    where = device_label(how.device) if layout == "hf" else how.device.replace("auto", "cpu")
    name = keras_label() if layout == "keras" else _NAMES[layout]
    run = Run(name, dtype, where)
    return Side(run, own if runs else None, reference, many, stand_in=how.runtime != "own")


def _rounded(tensors: Mapping[str, LazyTensor], like: Mapping[str, str]) -> dict[str, LazyTensor]:
    """The same tensors in their own dtypes, with no more digits than other dtypes hold."""
    return {name: _rounded_one(tensor, like.get(name)) for name, tensor in tensors.items()}


def _rounded_one(tensor: LazyTensor, dtype: str | None) -> LazyTensor:
    if dtype is None or not _narrows(tensor, dtype):
        return tensor
    return LazyTensor(tensor.spec, lambda: cast(cast(tensor.read(), dtype), tensor.spec.dtype))


def _narrows(tensor: LazyTensor, dtype: str | None) -> bool:
    """Whether a dtype cannot hold every number of the tensor's own."""
    return dtype is not None and narrows(tensor.spec.dtype, dtype)


def _own_runtime(checkpoint: Checkpoint, inputs: Inputs, device: str, like: Mapping[str, str], dtype: str) -> Outputs:
    anatomy, facts = checkpoint.anatomy, checkpoint.facts
    if anatomy.layout == "keras":
        with preset_of(checkpoint) as folder:
            return run_keras(folder, inputs, class_name=anatomy.task.classes["keras"], device=device)
    if anatomy.layout == "burn":
        legacy = checkpoint.folder.container.format == "named_mpk"
        if legacy and facts.has_pooler and anatomy.dialect and "pooler" in anatomy.dialect.columns:
            raise MissingRuntimeError(f"portkit-burn-legacy has no module for the pooler of {anatomy.dialect.name}")
        return run_burn(checkpoint.folder.weights.parent, inputs, device=device, legacy=legacy)
    return run_transformers_tensors(
        _hf_config(checkpoint),
        _hf_tensors(checkpoint, like),
        inputs,
        task=facts.task,
        class_name=anatomy.task.classes["hf"],
        has_pooler=facts.has_pooler,
        dtype=dtype,
        device=device,
    )


def _hf_config(checkpoint: Checkpoint) -> dict[str, Any]:
    """A config that transformers takes, also where the file's own lacks a model_type or counts its labels wrongly."""
    said = {
        k: v
        for k, v in checkpoint.folder.config.items()
        if k not in ("id2label", "label2id", "num_labels", "dtype", "torch_dtype")
    }
    values = {
        k: v for k, v in checkpoint.config.values.items() if k not in ("num_labels", "hidden_act") and v is not None
    }
    labels = {"num_labels": checkpoint.facts.num_labels} if checkpoint.facts.num_labels else {}
    return {**values, **said, **labels, "model_type": checkpoint.anatomy.table.layouts["hf"].model_type}


def _hf_tensors(checkpoint: Checkpoint, like: Mapping[str, str]) -> dict[str, LazyTensor]:
    """The stored tensors under the names that transformers uses today, rounded as `like` says.

    An untied decoder has a bias of its own beside the one of the head, which no forward pass then reads: it fills both.
    """
    anatomy = checkpoint.anatomy
    layout = anatomy.table.layouts["hf"]
    front = "" if anatomy.task.bare else layout.prefix
    named: dict[str, LazyTensor] = {}
    for logical, stored in anatomy.stored.items():
        slot = anatomy.slots[logical]
        name = slot.name.removeprefix(anatomy.prefix) if slot.row.group in anatomy.table.prefixed else slot.name
        full = front + name if slot.row.group in anatomy.table.prefixed else name
        tensor = _rounded_one(checkpoint.folder.container.tensors[stored], like.get(logical))
        names = [full, *([winner] if (winner := slot.place.overruled_by) and stored.endswith(winner) else [])]
        named |= {n: tensor.renamed(n) for n in names}
    return named
