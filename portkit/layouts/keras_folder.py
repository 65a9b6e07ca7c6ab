"""Open what Keras and KerasHub save: presets, bare weights, `.keras` archives, legacy `.h5` files of all generations.

All give the same: weights under the paths that a whole task has today (`layers/bert_backbone/layers/…` and the head's
`layers/…`; a backbone of its own has no prefix), and one flat config with the fields of backbone and head.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from portkit.errors import Problem, RefusedError, UnreadableError, unreadable
from portkit.formats import open_container
from portkit.formats.container import Container
from portkit.keras_json import snake_case
from portkit.layouts.files import read_json
from portkit.layouts.keras_dtypes import check_dtypes
from portkit.layouts.keras_names import todays_paths
from portkit.tensors import same_bits

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from portkit.table.schema import Storage
    from portkit.tensors import LazyTensor

WEIGHTS = "model.weights.h5"
SHARDS = "model.weights.json"
TASK = "task.json"
TASK_WEIGHTS = "task.weights.h5"
_LINEAR = (None, "linear")
_BARE = "no config says of which class these weights are: names and shapes alone tell family, task and head"
_OF_TRANSFORMERS = re.compile(r"(^|/)tf_[a-z_0-9]+/|/layer_\._\d")

Json = dict[str, Any]


def open_keras(weights: Path, container: Container, config: Path | None, storage: Storage) -> tuple[Container, Json]:
    """The weights under today's paths, and the flat config; empty where a bare file says nothing.

    `container` is the opened weights file, `config` a file with a KerasHub object (`class_name` and `config`) or with
    flat fields. Raises UnreadableError for broken files, RefusedError where two copies of a backbone differ.
    """
    container = _below_model_weights(weights, container)
    said = read_json(config) if config else _inner_config(weights, container)
    check_dtypes(said)
    task = weights.with_name(TASK)
    is_preset = config is not None and config.parent == weights.parent and task.is_file()
    raw = _task_config(task, class_of(said)) if is_preset else flat_config(said)
    backbone = str(raw.get("model_type", ""))
    container = _renamed(container, storage, backbone)
    if is_preset:
        head = weights.with_name(TASK_WEIGHTS)
        own = open_container(head) if head.is_file() else Container("hdf5", {}, {})
        container = _whole_task(container, _renamed(own, storage, backbone), backbone)
    notes = _activation_note(raw) if raw else (_BARE,)
    return replace(container, notes=(*container.notes, *notes)), raw


def is_preset(path: Path) -> bool:
    """Whether a folder is one that `from_preset` loads: a Keras object in config.json, weights under today's name."""
    if not (path / "config.json").is_file() or not ((path / WEIGHTS).is_file() or (path / SHARDS).is_file()):
        return False
    return bool(class_of(read_json(path / "config.json")))


def flat_config(said: Mapping[str, Any], backbone: str = "") -> Json:
    """One flat object from Keras' nested ones: the backbone's fields, `model_type` and `architectures` as classes.

    What the task says besides stays under `task`, for the way back. `backbone` is the class that config.json names.
    Raises UnreadableError where the task has another, RefusedError for a head whose dense layer has a width of its own.
    """
    if not isinstance(said.get("config"), dict):
        return dict(said)
    inner = said["config"].get("backbone")
    body = inner if isinstance(inner, dict) and isinstance(inner.get("config"), dict) else said
    kind = class_of(body)
    flat = {**body["config"], "model_type": kind, "architectures": [class_of(said)]}
    if body is said:
        return flat
    if backbone not in ("", kind):
        problem = Problem(TASK, "holds another backbone than config.json", backbone, kind)
        raise UnreadableError("cannot read the checkpoint", [problem])
    rest = {k: v for k, v in said["config"].items() if k != "backbone"}
    width = flat.get("hidden_dim")
    if rest.get("hidden_dim", width) != width:
        hint = "the backbone can be read from a folder that holds config.json and model.weights.h5 alone"
        what = "a head of another width than its backbone, which no table describes"
        problem = Problem(f"{class_of(said)} hidden_dim", what, f"{width}", f"{rest['hidden_dim']}", hint)
        raise RefusedError("the head cannot be read", [problem])
    return {**flat, "task": rest}


def _task_config(path: Path, backbone: str) -> Json:
    raw = flat_config(read_json(path), backbone)
    if "task" not in raw:
        raise unreadable(path, "describes no task over a backbone", expected="a Keras object with config.backbone")
    return raw


def class_of(said: Mapping[str, Any]) -> str:
    """The class that a serialised object names: `BertBackbone`, also where only `keras_nlp>BertBackbone` stands."""
    return str(said.get("class_name") or str(said.get("registered_name") or "").rpartition(">")[2])


def _inner_config(weights: Path, container: Container) -> Json:
    """The config that `.keras` archives and legacy `.h5` files carry themselves."""
    text = container.metadata.get("model_config")
    if text is None:
        return {}
    try:
        said = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise unreadable(weights, "its model_config is not valid JSON", found=str(error)) from error
    return said if isinstance(said, dict) else {}


def _below_model_weights(weights: Path, container: Container) -> Container:
    """What Keras 2's `save_weights("x.h5")` wrote has no group around its layers; `save("x.h5")` has one.

    Raises UnreadableError for the TensorFlow models of transformers, which lie in such a file too.
    """
    if "layer_names" not in container.metadata:
        return container
    if any(_OF_TRANSFORMERS.search(name) for name in container.tensors):
        hint = "load it with transformers 4 and TensorFlow, from_tf=True, and save it with save_pretrained"
        raise unreadable(weights, "a TensorFlow model of transformers, not of KerasHub", hint=hint)
    return replace(container, tensors={f"model_weights/{n}": t for n, t in container.tensors.items()})


def _renamed(container: Container, storage: Storage, backbone: str) -> Container:
    """The same tensors under today's paths. A variable that is stored twice must be the same twice."""
    names = todays_paths(list(container.tensors), storage.older, backbone)
    tensors: dict[str, LazyTensor] = {}
    problems = []
    for stored, tensor in container.tensors.items():
        name = names[stored]
        if name in tensors and not same_bits(tensors[name], tensor):
            problems.append(Problem(stored, "differs from another copy of the same variable", found=name))
        tensors.setdefault(name, tensor.renamed(name))
    if problems:
        raise RefusedError("two tensors claim the same place", problems)
    return replace(container, tensors=tensors)


def _whole_task(body: Container, task: Container, backbone: str) -> Container:
    """Backbone and head as one; before KerasHub 0.30 the head's file had a copy of the backbone, which must agree."""
    prefix = f"layers/{snake_case(backbone)}/"
    named = {n if n.startswith(prefix) else prefix + n: t for n, t in body.tensors.items()}
    differ = [n for n, t in task.tensors.items() if n in named and not same_bits(named[n], t)]
    if differ:
        hint = "older KerasHub reads one of them, newer the other: remove the one that is stale"
        found = f"{len(differ)} tensors, such as {differ[0]}"
        problem = Problem(TASK_WEIGHTS, "its copy of the backbone differs from model.weights.h5", "equal", found, hint)
        raise RefusedError("two tensors claim the same place", [problem])
    head = {n: t.renamed(n) for n, t in task.tensors.items() if n not in named}
    tensors = {**{n: t.renamed(n) for n, t in named.items()}, **head}
    return replace(body, tensors=tensors, notes=(*body.notes, *task.notes))


def _activation_note(raw: Mapping[str, Any]) -> tuple[str, ...]:
    task = raw.get("task")
    activation = task.get("activation") if isinstance(task, dict) else None
    if activation in _LINEAR:
        return ()
    return (f"the Keras classifier ends in {activation!r}: what is converted are the logits before it",)
