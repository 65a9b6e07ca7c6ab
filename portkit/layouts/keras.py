"""KerasHub presets, written without Keras, in the form that KerasHub 0.18 to 0.32 loads.

A backbone is config.json and model.weights.h5. A task adds task.json and task.weights.h5, which holds the head and a
copy of the backbone: KerasHub before 0.30 wants the copy there, later ones ignore it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from portkit.config import write_config
from portkit.formats.hdf5 import read_hdf5, write_hdf5
from portkit.keras_json import dtype_policy, hub_object, snake_case
from portkit.layouts.files import write_json
from portkit.layouts.keras_folder import TASK, TASK_WEIGHTS, WEIGHTS
from portkit.tensors import NUMPY_DTYPES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from portkit.layouts.base import Model
    from portkit.table.schema import Dialect, Table
    from portkit.tensors import Array, TensorSpec

_ROOT = ("vars",)  # Keras 3.3 wants this group, empty as it is
_VERSIONS = {"keras_version": "3.15.1", "keras_hub_version": "0.32.0"}  # whose form this is
_OUTSIDE = ("model_type", "architectures", "task")  # what a flat config says of the objects around it


class KerasLayout:
    """config.json, metadata.json, model.weights.h5; task.json and task.weights.h5 for a model with a head."""

    name = "keras"
    formats = ("h5",)
    shards = False

    def logical_raw(self, raw: Mapping[str, Any], table: Table) -> tuple[Mapping[str, Any], Dialect | None]:
        """Presets have no dialects."""
        return raw, None

    def write_config(self, folder: Path, model: Model) -> None:
        """Write config.json and metadata.json, and task.json for a model with a head."""
        backbone = _backbone(model)
        write_json(folder / "config.json", backbone)
        write_json(folder / "metadata.json", {**_VERSIONS, "parameter_count": model.parameters, "tasks": _tasks(model)})
        if not model.task.bare:
            write_json(folder / TASK, _task(model, backbone))

    def write_weights(
        self,
        folder: Path,
        form: str,
        specs: Sequence[TensorSpec],
        arrays: Iterable[Array],
        max_shard_size: int,
    ) -> Mapping[str, str]:
        """Write the backbone, and where there is a head, both together in a second file first."""
        prefix = _prefix(specs)
        if not prefix:
            return {WEIGHTS: write_hdf5(folder / WEIGHTS, specs, arrays, _ROOT)}
        task = write_hdf5(folder / TASK_WEIGHTS, specs, arrays, _ROOT)
        whole = read_hdf5(folder / TASK_WEIGHTS).tensors
        body = [t.renamed(n.removeprefix(prefix)) for n, t in whole.items() if n.startswith(prefix)]
        backbone = write_hdf5(folder / WEIGHTS, [t.spec for t in body], (t.read() for t in body), _ROOT)
        return {TASK_WEIGHTS: task, WEIGHTS: backbone}


def _prefix(specs: Sequence[TensorSpec]) -> str:
    """`layers/bert_backbone/`, below which a task keeps its backbone."""
    for spec in specs:
        first, second, *_ = spec.name.split("/")
        if second.endswith("_backbone"):
            return f"{first}/{second}/"
    return ""


def _backbone(model: Model) -> dict[str, Any]:
    """The backbone as Keras serialises it, over what a preset of this checkpoint said before."""
    kind = model.table.layouts["keras"].model_type
    carried = {k: v for k, v in model.carried.items() if k not in _OUTSIDE}
    first = {"name": snake_case(kind), "trainable": True}
    fields = write_config(model.table, "keras", model.config, {**first, **carried})
    return hub_object(_package(model), kind, {**fields, "dtype": dtype_policy(NUMPY_DTYPES[model.dtype].name)})


def _task(model: Model, backbone: Mapping[str, Any]) -> dict[str, Any]:
    kind = model.task.classes["keras"]
    carried = model.carried.get("task")
    config: dict[str, Any] = {"name": snake_case(kind), **(carried if isinstance(carried, dict) else {})}
    if model.facts.num_labels is not None:
        config = {"activation": "linear", "dropout": _head_dropout(model), **config}
        config |= {"num_classes": model.facts.num_labels}
        config |= {"hidden_dim": model.facts.hidden_size} if model.facts.head_style == "roberta" else {}
    preprocessor = model.preprocessor or config.get("preprocessor")
    return hub_object(_package(model), kind, {**config, "backbone": backbone, "preprocessor": preprocessor})


def _head_dropout(model: Model) -> float:
    return float(model.config.values.get("hidden_dropout_prob") or 0.0)


def _package(model: Model) -> str:
    """Where KerasHub keeps the family's classes: `xlm_roberta`."""
    return snake_case(model.table.layouts["keras"].model_type).removesuffix("_backbone")


def _tasks(model: Model) -> list[str]:
    """The tasks that KerasHub has for this backbone, as the ends of their classes' names: `TextClassifier`."""
    stem = model.table.layouts["keras"].model_type.removesuffix("Backbone")
    classes = [t.classes["keras"] for t in model.table.tasks.values() if "keras" in t.classes and not t.bare]
    return sorted(c.removeprefix(stem) for c in classes)
