"""What holds while torch and transformers run: full precision, silence, and their errors in portkit's words."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from importlib import util
from pickle import UnpicklingError
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

from portkit.errors import MissingRuntimeError, Problem, RuntimeFailedError

if TYPE_CHECKING:
    from collections.abc import Iterator


def transformers_available() -> bool:
    """Whether torch and transformers are installed; neither is imported."""
    return all(util.find_spec(name) is not None for name in ("torch", "transformers"))


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
