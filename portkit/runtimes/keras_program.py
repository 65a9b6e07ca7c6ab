"""The program that runs a KerasHub preset, in a process of its own: Keras takes its backend when it is imported.

    python -m portkit.runtimes.keras_program FOLDER CLASS DEVICE EXCHANGE

reads `inputs.safetensors` in the folder EXCHANGE and writes `outputs.safetensors` there, or `problems.json` with
what a PortkitError says. KERAS_BACKEND chooses the backend.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from safetensors.numpy import load_file, save_file

from portkit.errors import PortkitError, Problem, RuntimeFailedError, UsageError
from portkit.runtimes.keras_preset import TASK_WEIGHTS, require_preset, weight_files
from portkit.runtimes.keras_weights import require_loaded
from portkit.runtimes.outputs import LOGITS, POOLED, FloatArray, Inputs, Outputs, hidden_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import ModuleType

INPUTS, OUTPUTS, PROBLEMS = "inputs.safetensors", "outputs.safetensors", "problems.json"

_MAX_MESSAGE = 2000  # characters of a Keras error: some print the whole config
_NOT_LOADED = "could not be loaded"  # in the error of a weights file that does not fit; a wrong shape counts as missing
_NOT_LOADED_HINT = "the file's paths or shapes are not those of the model that config.json describes"


def main(words: Sequence[str]) -> int:
    """Run one preset; the exit code of the command."""
    folder, class_name, asked, exchange = words
    try:
        device = _device(asked)
        outputs = forward(Path(folder), class_name, Inputs(**load_file(Path(exchange, INPUTS))), device)
    except PortkitError as error:
        said = {"title": error.title, "problems": [asdict(problem) for problem in error.problems]}
        Path(exchange, PROBLEMS).write_text(json.dumps(said), encoding="utf-8")
        return error.exit_code
    save_file(dict(outputs), Path(exchange, OUTPUTS), {"device": device})
    return 0


def forward(folder: Path, class_name: str, inputs: Inputs, device: str) -> Outputs:
    """Every output of the forward contract, float32, from the preset loaded by the KerasHub class `class_name`.

    Raises RuntimeFailedError where the folder is not wholly and only what the class is loaded from, and where Keras
    fails; UsageError for inputs that the model has no table for.
    """
    keras, models = _import_keras(device)
    kind = getattr(models, class_name, None)
    if kind is None:
        raise RuntimeFailedError("KerasHub cannot run this model", [Problem(class_name, "no such class in KerasHub")])
    backbone_name = class_name if issubclass(kind, models.Backbone) else kind.backbone_cls.__name__
    require_preset(folder, class_name, backbone_name)
    with _explained(f"{class_name} cannot load {folder}"):
        options = {} if class_name == backbone_name else {"preprocessor": None}
        if issubclass(kind, models.TextClassifier):  # its logits are what is compared, whatever stands behind them
            options["activation"] = None
        model = kind.from_preset(str(folder.absolute()), dtype="float32", **options)
        _require_loaded(keras, model, folder)
    with _explained(f"{class_name} failed on {device}"), _no_gradients():
        return _run(keras, model, inputs)


def _device(device: str) -> str:
    """The device to run on, "cpu" or "cuda"; a GPU is looked for in torch alone. UsageError if not there.

    No backend of Keras has wgpu: its side of a proof on wgpu runs on the cpu.
    """
    if device == "wgpu":
        return "cpu"
    found = "cpu"
    if device != "cpu" and os.environ.get("KERAS_BACKEND") == "torch":
        import torch

        found = "cuda" if torch.cuda.is_available() else "cpu"
    if device not in ("auto", "cpu", found):
        problem = Problem("--device", "no such device for Keras", "auto, cpu, or cuda with the torch backend", found)
        raise UsageError(f"cannot run on {device}", [problem])
    return found


def _import_keras(device: str) -> tuple[ModuleType, ModuleType]:
    os.environ["KERAS_TORCH_DEVICE"] = device  # Keras takes any other accelerator that torch sees, unasked
    if os.environ.get("KERAS_BACKEND") != "tensorflow":  # Keras would import it for its data pipelines: seconds, 600 MB
        cast("dict[str, ModuleType | None]", sys.modules).setdefault("tensorflow", None)
    import keras
    from keras_hub import models

    return keras, models


def _require_loaded(keras: ModuleType, model: Any, folder: Path) -> None:  # noqa: ANN401 - classes of an optional package
    backbone = _backbone(model)
    own = {id(variable) for variable in backbone.weights}
    body = [(v.path, _numpy(keras, v)) for v in backbone.weights]
    head = [(v.path, _numpy(keras, v)) for v in model.weights if id(v) not in own]
    require_loaded(body, weight_files(folder))
    if model is not backbone:
        require_loaded(head, [folder / TASK_WEIGHTS], copies=body)


def _run(keras: ModuleType, model: Any, inputs: Inputs) -> Outputs:  # noqa: ANN401
    probe = keras.Model(model.input, _tensors(model))
    outputs = probe(_batch(probe, inputs), training=False)
    return {name: _numpy(keras, value) for name, value in outputs.items()}


def _tensors(model: Any) -> dict[str, Any]:  # noqa: ANN401
    """The model's symbolic tensors, by output: a task's graph starts from its backbone's own inputs."""
    backbone = _backbone(model)
    layers = ["embeddings_dropout", *(f"transformer_layer_{i}" for i in range(backbone.num_layers))]
    tensors = {hidden_name(i): backbone.get_layer(name).output for i, name in enumerate(layers)}
    if isinstance(backbone.output, dict):
        tensors[POOLED] = backbone.output["pooled_output"]
    return tensors if model is backbone else {**tensors, LOGITS: model.output}


def _backbone(model: Any) -> Any:  # noqa: ANN401
    return getattr(model, "backbone", model)


def _batch(probe: Any, inputs: Inputs) -> dict[str, Any]:  # noqa: ANN401
    positions = np.broadcast_to(np.arange(inputs.input_ids.shape[1]), inputs.input_ids.shape)
    arrays = {
        "token_ids": inputs.input_ids,
        "padding_mask": inputs.attention_mask,
        "segment_ids": inputs.token_type_ids,
        "mask_positions": positions,  # the masked-LM head judges the positions it is told: all
    }
    if "segment_ids" not in probe.input and inputs.token_type_ids.any():
        problem = Problem("token_type_ids", "the model has no token types", "only 0", "other types")
        raise UsageError("the inputs do not fit the model", [problem])
    return {name: arrays[name].astype(np.int32) for name in probe.input}


def _numpy(keras: ModuleType, value: Any) -> FloatArray:  # noqa: ANN401
    array: FloatArray = np.ascontiguousarray(keras.ops.convert_to_numpy(value))
    return array


def _no_gradients() -> AbstractContextManager[None]:
    if os.environ.get("KERAS_BACKEND") != "torch":
        return nullcontext()
    import torch

    return torch.no_grad()  # type: ignore[no-any-return]


@contextmanager
def _explained(title: str) -> Iterator[None]:
    """What Keras is known to raise, as one of portkit's errors."""
    try:
        yield
    except (OSError, RuntimeError, ValueError, TypeError, KeyError, IndexError) as error:
        said = f"{type(error).__name__}: {error}"
        hint = _NOT_LOADED_HINT if _NOT_LOADED in said else ""
        raise RuntimeFailedError(title, [Problem("KerasHub", said[:_MAX_MESSAGE], hint=hint)]) from error


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
