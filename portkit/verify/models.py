"""Run a checkpoint in its own framework, or in the reference: the two sides of a forward proof."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from portkit.checkpoint import Checkpoint, open_checkpoint
from portkit.errors import MissingRuntimeError
from portkit.execute import cast
from portkit.runtimes.burn_runtime import run_burn
from portkit.runtimes.reference import run_reference
from portkit.runtimes.transformers_runtime import run_transformers_tensors
from portkit.tensors import NUMPY_DTYPES, LazyTensor
from portkit.verify.forward import Side, compare_runs
from portkit.verify.inputs import choose_inputs, coverage_of

if TYPE_CHECKING:
    from pathlib import Path

    from portkit.plan import Plan
    from portkit.runtimes.outputs import Inputs, Outputs
    from portkit.verify.agreement import ForwardVerdict

_NAMES = {"hf": "transformers", "burn": "Burn"}


def prove_forward(plan: Plan, written: Path, *, device: str = "cpu", mappings: tuple[Path, ...] = ()) -> ForwardVerdict:
    """Run source and written folder on the same inputs and judge the difference.

    A framework that is not installed is replaced by the reference, and the verdict says so. Raises RuntimeFailedError
    where a framework refuses the model.
    """
    model = plan.model
    target = open_checkpoint(
        written, layout=plan.layout, family=model.table.family, task=model.task.name, mappings=mappings
    )
    source = plan.source
    inputs = choose_inputs(min(source.facts, target.facts, key=lambda f: f.usable_length))
    return compare_runs(
        inputs,
        side_of(source, inputs, device, plan.model.dtype),
        side_of(target, inputs, device),
        coverage_of(source.facts, inputs),
        device=device,
        dropped=("pooled_output",) if source.facts.has_pooler != target.facts.has_pooler else (),
    )


def side_of(checkpoint: Checkpoint, inputs: Inputs, device: str, through: str = "F64") -> Side:
    """A checkpoint as one side of a comparison.

    `through` is the dtype that its weights are rounded to first: where a conversion casts, the source is run with the
    same rounded weights, since the tensor proof is the one that certifies a cast.
    """
    tensors = {n: _rounded(t, through) for n, t in checkpoint.logical().items()}

    def own() -> Outputs:
        return _own_runtime(checkpoint, inputs, device, through)

    return Side(
        _NAMES[checkpoint.anatomy.layout],
        own,
        lambda dtype: run_reference(checkpoint.facts, tensors, inputs, dtype),
    )


def _rounded(tensor: LazyTensor, dtype: str) -> LazyTensor:
    """The same tensor in its own dtype, with no more digits than another dtype holds."""
    own = tensor.spec.dtype
    if NUMPY_DTYPES[dtype].itemsize >= NUMPY_DTYPES[own].itemsize:
        return tensor
    return LazyTensor(tensor.spec, lambda: cast(cast(tensor.read(), dtype), own))


def _own_runtime(checkpoint: Checkpoint, inputs: Inputs, device: str, through: str) -> Outputs:
    anatomy, facts = checkpoint.anatomy, checkpoint.facts
    if anatomy.layout == "burn":
        legacy = checkpoint.folder.container.format == "named_mpk"
        if legacy and facts.has_pooler and anatomy.dialect and "pooler" in anatomy.dialect.columns:
            raise MissingRuntimeError(f"portkit-burn-legacy has no module for the pooler of {anatomy.dialect.name}")
        return run_burn(checkpoint.folder.weights.parent, inputs, device=device, legacy=legacy)
    return run_transformers_tensors(
        _hf_config(checkpoint),
        {n: _rounded(t, through) for n, t in _hf_tensors(checkpoint).items()},
        inputs,
        task=facts.task,
        class_name=anatomy.task.classes["hf"],
        has_pooler=facts.has_pooler,
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


def _hf_tensors(checkpoint: Checkpoint) -> dict[str, LazyTensor]:
    """The stored tensors under the names that transformers uses today."""
    anatomy = checkpoint.anatomy
    layout = anatomy.table.layouts["hf"]
    front = "" if anatomy.task.bare else layout.prefix
    named = {}
    for logical, stored in anatomy.stored.items():
        slot = anatomy.slots[logical]
        name = slot.name.removeprefix(anatomy.prefix) if slot.row.group in anatomy.table.prefixed else slot.name
        full = front + name if slot.row.group in anatomy.table.prefixed else name
        named[full] = checkpoint.folder.container.tensors[stored].renamed(full)
    return named
