"""How each layout's own framework runs a checkpoint: one entry for each layout."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from portkit.casts import cast, rounds
from portkit.config import TIES
from portkit.errors import MissingRuntimeError
from portkit.proofs.presets import preset_of
from portkit.runtimes import burn_runtime, transformers_runtime
from portkit.runtimes.burn_runtime import run_burn
from portkit.runtimes.keras_runtime import keras_label, run_keras
from portkit.runtimes.transformers_runtime import device_label, run_transformers_tensors
from portkit.tensors import LazyTensor
from portkit.ties import untied

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from portkit.checkpoint import Checkpoint
    from portkit.runtimes.outputs import Inputs, Outputs

_NOT_THE_FUNCTION = (  # fields that say how to load or to compute, and may ask for what is not installed
    "id2label", "label2id", "num_labels", "dtype", "torch_dtype", "chunk_size_feed_forward",
    "attn_implementation", "_attn_implementation", "_attn_implementation_internal", "auto_map",
)  # fmt: skip


@dataclass(frozen=True)
class Asked:
    """How a framework is to run: where, and in which of its dtypes.

    `like` gives the dtypes that tensors are rounded to first, by logical name.
    """

    device: str
    dtype: str
    like: Mapping[str, str]


def _plain_device(device: str) -> str:
    """What a report calls the device before the program has said which one it took."""
    return device.replace("auto", "cpu")


@dataclass(frozen=True)
class Framework:
    """What runs the checkpoints of a layout.

    `label` gives its name for reports, `device` that of a device. `dtypes` are those that it can compute in.
    `takes_tensors` is False for one that runs a folder as it lies there: none of its numbers can be rounded first.
    """

    label: Callable[[], str]
    run: Callable[[Checkpoint, Inputs, Asked], Outputs]
    device: Callable[[str], str] = _plain_device
    dtypes: tuple[str, ...] = ("float32",)
    takes_tensors: bool = False


def rounded(tensor: LazyTensor, dtype: str | None) -> LazyTensor:
    """The same tensor in its own dtype, with no more digits than another one holds."""
    if dtype is None or not rounds(tensor.spec.dtype, dtype):
        return tensor
    return LazyTensor(tensor.spec, lambda: cast(cast(tensor.read(), dtype), tensor.spec.dtype))


def _run_keras(checkpoint: Checkpoint, inputs: Inputs, asked: Asked) -> Outputs:
    with preset_of(checkpoint) as folder:
        class_name = checkpoint.anatomy.task.classes["keras"]
        return run_keras(folder, inputs, class_name=class_name, device=asked.device)


def _run_burn(checkpoint: Checkpoint, inputs: Inputs, asked: Asked) -> Outputs:
    """Raises MissingRuntimeError for a record whose pooler the older Burn's program has no module for."""
    dialect, legacy = checkpoint.anatomy.dialect, checkpoint.folder.container.format == "named_mpk"
    if legacy and checkpoint.facts.has_pooler and dialect and "pooler" in dialect.columns:
        raise MissingRuntimeError(f"portkit-burn-legacy has no module for the pooler of {dialect.name}")
    return run_burn(checkpoint.folder.weights.parent, inputs, device=asked.device, legacy=legacy)


def _run_hf(checkpoint: Checkpoint, inputs: Inputs, asked: Asked) -> Outputs:
    return run_transformers_tensors(
        _hf_config(checkpoint),
        _hf_tensors(checkpoint, asked.like),
        inputs,
        task=checkpoint.facts.task,
        class_name=checkpoint.anatomy.task.classes["hf"],
        has_pooler=checkpoint.facts.has_pooler,
        dtype=asked.dtype,
        device=asked.device,
    )


def _hf_config(checkpoint: Checkpoint) -> dict[str, Any]:
    """A config that transformers takes, also where the file's own lacks a model_type or counts its labels wrongly."""
    values = {
        k: v for k, v in checkpoint.config.values.items() if k not in ("num_labels", "hidden_act") and v is not None
    }
    raw = checkpoint.folder.config.items()
    said = {k: v for k, v in raw if k not in _NOT_THE_FUNCTION and not (v is None and k in values)}
    labels = {"num_labels": checkpoint.facts.num_labels} if checkpoint.facts.num_labels else {}
    ties = {TIES: False} if untied(checkpoint, checkpoint.anatomy.slots) else {}
    return {**values, **said, **labels, **ties, "model_type": checkpoint.anatomy.table.layouts["hf"].model_type}


def _hf_tensors(checkpoint: Checkpoint, like: Mapping[str, str]) -> dict[str, LazyTensor]:
    """The stored tensors under the names that transformers uses today, rounded as `like` says.

    A bias that has two names, of which one is tied to the other or dead, goes under both.
    """
    anatomy = checkpoint.anatomy
    layout = anatomy.table.layouts["hf"]
    front = "" if anatomy.task.bare else layout.prefix
    named: dict[str, LazyTensor] = {}
    for logical, stored in anatomy.stored.items():
        slot = anatomy.slots[logical]
        name = slot.name.removeprefix(anatomy.prefix) if slot.row.group in anatomy.table.prefixed else slot.name
        full = front + name if slot.row.group in anatomy.table.prefixed else name
        tensor = rounded(checkpoint.folder.container.tensors[stored], like.get(logical))
        both = (full, slot.place.overruled_by) if slot.place.overruled_by else (full,)
        named |= {known: tensor.renamed(known) for known in both}
    return named


FRAMEWORKS = {
    "hf": Framework(
        lambda: transformers_runtime.NAME,
        _run_hf,
        device_label,
        dtypes=transformers_runtime.DTYPES,
        takes_tensors=True,
    ),
    "keras": Framework(keras_label, _run_keras),
    "burn": Framework(lambda: burn_runtime.NAME, _run_burn),  # its CPU backends have no 16-bit floats
}
