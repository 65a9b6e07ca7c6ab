"""Runs a model in Hugging Face transformers: a folder as it lies there, or tensors under its names.

Attention is "eager" unless asked otherwise: plain products and a softmax, the same result on every run.
Nothing is looked up on the network, and no setting of torch or transformers outlives a call.
"""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from importlib import metadata, util
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np

from portkit.errors import MissingRuntimeError, Problem, RuntimeFailedError, UsageError
from portkit.runtimes.outputs import LOGITS, POOLED, RELATION, FloatArray, Inputs, Outputs, OutputsOn, hidden_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from portkit.tensors import LazyTensor

NAME = "transformers"
DTYPES = ("float64", "float32", "bfloat16", "float16")


def transformers_available() -> bool:
    """Whether torch and transformers are installed; neither is imported."""
    return all(util.find_spec(name) is not None for name in ("torch", "transformers"))


def transformers_label() -> str:
    """What a report calls this runtime: its name, with the version where it is installed."""
    return f"{NAME} {metadata.version(NAME)}" if transformers_available() else NAME


def resolve_device(device: str) -> str:
    """The device to run on: "auto" is "cuda" where torch sees a GPU, else "cpu". UsageError if not there.

    Torch has no wgpu: the source of a proof on wgpu runs on the cpu.
    """
    with silent_torch() as torch:
        found = "cuda" if torch.cuda.is_available() else "cpu"
    if device in ("auto", "wgpu"):
        return found if device == "auto" else "cpu"
    if device not in ("cpu", found):
        problem = Problem("--device", f"{device!r} is not there", "auto, cpu or cuda", f"torch sees {found} only")
        raise UsageError(f"cannot run on {device}", [problem])
    return device


def device_label(device: str) -> str:
    """What a report calls the device: its name too, where it is a GPU. UsageError where there is none.

    Without transformers it is "cpu": that is where the reference runs in its place.
    """
    if not transformers_available() or (found := resolve_device(device)) == "cpu":
        return "cpu"
    with silent_torch() as torch:
        return f"{found}: {torch.cuda.get_device_name()}, no TF32"


def run_transformers(
    folder: Path,
    inputs: Inputs,
    *,
    task: str,
    class_name: str,
    has_pooler: bool = True,
    dtype: str = "float32",
    device: str = "cpu",
    attention: str = "eager",
) -> Outputs:
    """The outputs of the model in `folder`, loaded by the class `class_name` as it is written.

    `has_pooler` decides for task "model" alone: the other classes decide for themselves.
    Raises MissingRuntimeError without transformers, RuntimeFailedError when keys are missing, unexpected or
    of another shape, and when loading or running fails.
    """
    device = resolve_device(device)
    with silent_torch() as torch, explained(f"{class_name} cannot load {folder}"):
        options = {"add_pooling_layer": has_pooler} if task == "model" else {}
        model, loading = _class(class_name).from_pretrained(
            str(folder),
            local_files_only=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # reported below, by name
            dtype=getattr(torch, _known_dtype(dtype)),
            attn_implementation=attention,
            **options,
        )
    _require_nothing_left(class_name, loading)
    return _forward(model, inputs, task=task, device=device)


def run_transformers_tensors(
    config: Mapping[str, object],
    tensors: Mapping[str, LazyTensor],
    inputs: Inputs,
    *,
    task: str,
    class_name: str,
    has_pooler: bool,
    dtype: str = "float32",
    device: str = "cpu",
    attention: str = "eager",
) -> Outputs:
    """The outputs of `class_name` built from `config`, with `tensors` in that class's names and orientation.

    Tied tensors may be absent. A backbone that its class builds without a pooler gets one if `has_pooler`.
    Raises like run_transformers.
    """
    device = resolve_device(device)
    with silent_torch() as torch, explained(f"{class_name} cannot be built"):
        model = _build(class_name, {**config, "attn_implementation": attention}, task, has_pooler)
        model = model.to(getattr(torch, _known_dtype(dtype)))
        _fill(model, tensors, class_name)
    return _forward(model, inputs, task=task, device=device)


def _class(class_name: str) -> Any:  # noqa: ANN401 - classes of an optional package
    import transformers

    if not hasattr(transformers, class_name):
        problem = Problem(class_name, "no such class", found=transformers_label())
        raise RuntimeFailedError("transformers cannot run this model", [problem])
    return getattr(transformers, class_name)


def _known_dtype(dtype: str) -> str:
    if dtype not in DTYPES:
        raise UsageError(f"cannot run in {dtype}", [Problem("dtype", "unknown", ", ".join(DTYPES), dtype)])
    return dtype


def _build(class_name: str, config: Mapping[str, object], task: str, has_pooler: bool) -> Any:  # noqa: ANN401
    kind = _class(class_name)
    settings = kind.config_class(**config)
    if task == "model":
        return kind(settings, add_pooling_layer=has_pooler)
    model = kind(settings)
    backbone = model.base_model
    if has_pooler and backbone.pooler is None:  # e.g. BertForMaskedLM: the head never reads one, yet files hold one
        setattr(model, model.base_model_prefix, type(backbone)(settings, add_pooling_layer=True))
        model.tie_weights()
    return model


def _fill(model: Any, tensors: Mapping[str, LazyTensor], class_name: str) -> None:  # noqa: ANN401
    """Write every tensor into its parameter; all problems are found, then raised once."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    problems = [Problem(name, "not a parameter of the class") for name in tensors if name not in parameters]
    filled: dict[int, str] = {}
    for name in tensors.keys() & parameters.keys():
        problems += _fill_one(name, tensors[name], parameters[name], filled)
    missing = [name for name, parameter in parameters.items() if id(parameter) not in filled]
    problems += [Problem(name, "a parameter that no tensor fills") for name in missing if name not in tensors]
    if problems:
        raise RuntimeFailedError(f"{class_name} cannot be loaded", problems)


def _fill_one(name: str, tensor: LazyTensor, parameter: Any, filled: dict[int, str]) -> list[Problem]:  # noqa: ANN401
    import torch

    shape = tuple(parameter.shape)
    if tensor.spec.shape != shape:
        return [Problem(name, "another shape", str(shape), str(tensor.spec.shape))]
    wide = np.float64 if parameter.dtype == torch.float64 else np.float32  # torch cannot take numpy's bfloat16
    values = torch.from_numpy(tensor.read().astype(wide)).to(parameter.dtype)
    other = filled.setdefault(id(parameter), name)
    if other != name and not torch.equal(values, parameter.data):
        return [Problem(name, f"tied to {other}, but holds other values", hint="set tie_word_embeddings to false")]
    parameter.data.copy_(values)
    return []


def _require_nothing_left(class_name: str, loading: Mapping[str, Any]) -> None:
    words = {
        "missing_keys": "missing: transformers fills it with random values",
        "unexpected_keys": "unexpected: transformers ignores it",
        "mismatched_keys": "of another shape: transformers fills it with random values",
    }
    problems = [
        Problem(key if isinstance(key, str) else key[0], what)
        for kind, what in words.items()
        for key in loading.get(kind, ())
    ]
    if problems:
        raise RuntimeFailedError(f"{class_name} does not load this folder as it is", problems)


def _forward(model: Any, inputs: Inputs, *, task: str, device: str) -> Outputs:  # noqa: ANN401
    with silent_torch() as torch, torch.no_grad(), explained(f"{type(model).__name__} failed on {device}"):
        model = model.to(device).eval()
        batch = {name: torch.from_numpy(array).to(device) for name, array in inputs.arrays().items()}
        if task == "multiple_choice":  # [B, 1, S]: one choice per row
            batch = {name: array[:, None] for name, array in batch.items()}
        pooled: list[Any] = []
        pooler = getattr(model.base_model, "pooler", None)
        if pooler is not None:  # the classes with a head do not return its vector
            pooler.register_forward_hook(lambda _module, _inputs, output: pooled.append(output))
        result = model(**batch, output_hidden_states=True, return_dict=True)
        outputs = {name: _numpy(value) for name, value in _named(result, pooled, task).items()}
        label = device if device == "cpu" else f"{device}: {torch.cuda.get_device_name()}"
        return OutputsOn(outputs, label)


def _named(result: Any, pooled: list[Any], task: str) -> dict[str, Any]:  # noqa: ANN401
    import torch

    named = {hidden_name(i): state for i, state in enumerate(result.hidden_states)}
    if pooled:
        named[POOLED] = pooled[0]
    if task == "pre_training":
        named |= {LOGITS: result.prediction_logits, RELATION: result.seq_relationship_logits}
    elif task == "question_answering":
        named[LOGITS] = torch.stack((result.start_logits, result.end_logits), dim=-1)
    elif task != "model":
        named[LOGITS] = result.logits
    return named


def _numpy(value: Any) -> FloatArray:  # noqa: ANN401
    import torch

    wide = value if value.dtype in (torch.float32, torch.float64) else value.float()  # numpy has no bfloat16
    array: FloatArray = wide.cpu().numpy()
    return array


@contextmanager
def explained(title: str) -> Iterator[None]:
    """What loading and running raise on a stranger's config or file, as one of portkit's errors."""
    from huggingface_hub.errors import StrictDataclassError
    from safetensors import SafetensorError

    # transformers judges a config by using it: an attribute that is missing, an assertion of torch, a division by zero
    clumsy = (TypeError, LookupError, AttributeError, ArithmeticError, AssertionError, ImportError)
    files = (OSError, EOFError, UnpicklingError, BadZipFile, SafetensorError)
    try:
        yield
    except (RuntimeError, ValueError, StrictDataclassError, *clumsy, *files) as error:
        problem = Problem("transformers", f"{type(error).__name__}: {error}")
        raise RuntimeFailedError(title, [problem]) from error


@contextmanager
def silent_torch() -> Iterator[Any]:
    """Torch in full precision and transformers in silence; both are as before when the block ends."""
    if not transformers_available():
        problem = Problem(
            "transformers", "torch and transformers are not installed", hint="pip install torch transformers"
        )
        raise MissingRuntimeError("cannot run the model in transformers", [problem])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import torch
        from transformers.utils import logging

        with _full_precision(torch), _silent(logging):
            yield torch


@contextmanager
def _full_precision(torch: Any) -> Iterator[None]:  # noqa: ANN401
    """No TF32 and no bfloat16 inside float32 products, on any device.

    Torch from 2.9 on keeps this in two places, an old setting and one for each backend, and fails where they disagree;
    the old setter sets both. The old getter fails where only the new one was used: the old one is then "highest".
    """
    backends: list[Any] = [
        backend
        for backend in (torch.backends.cuda.matmul, getattr(torch.backends.mkldnn, "matmul", None))
        if hasattr(backend, "fp32_precision")
    ]
    new = [backend.fp32_precision for backend in backends]
    try:
        old = torch.get_float32_matmul_precision()
    except RuntimeError:
        old = "highest"
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(old)
        for backend, precision in zip(backends, new, strict=True):
            backend.fp32_precision = precision


@contextmanager
def _silent(logging: Any) -> Iterator[None]:  # noqa: ANN401
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
