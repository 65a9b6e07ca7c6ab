"""Runs a model in KerasHub: the preset folder as it lies there, loaded by its class, in a process of its own.

Keras takes its backend once, on import, so that two backends need two processes. The exchange is safetensors files
in a temporary folder. Nothing is looked up on the network, and the user's own Keras settings are not read.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from importlib import metadata, util
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from portkit.errors import MissingRuntimeError, PortkitError, Problem, RuntimeFailedError, UsageError
from portkit.runtimes.keras_program import INPUTS, OUTPUTS, PROBLEMS
from portkit.runtimes.outputs import OutputsOn

if TYPE_CHECKING:
    from portkit.runtimes.outputs import Inputs, Outputs

NAME = "KerasHub"
BACKENDS = ("torch", "tensorflow", "jax")

_PROGRAM = "portkit.runtimes.keras_program"
_LAST_LINES = 20  # of the program's stderr, in an error
_QUIET_AND_EXACT = {
    "HF_HUB_OFFLINE": "1",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "NVIDIA_TF32_OVERRIDE": "0",  # float32 products in full, in every backend
    "JAX_DEFAULT_MATMUL_PRECISION": "highest",
}


def keras_available() -> bool:
    """Whether KerasHub and a backend are installed; neither is imported."""
    return util.find_spec("keras_hub") is not None and _backend(None) is not None


def keras_label() -> str:
    """What a report calls this runtime: KerasHub, with versions and backend where it is installed."""
    if not keras_available():
        return NAME
    versions = f"{NAME} {metadata.version('keras-hub')} on Keras {metadata.version('keras')}"
    return f"{versions}, {_backend(None)} backend"


def run_keras(
    folder: Path, inputs: Inputs, *, class_name: str, device: str = "cpu", backend: str | None = None
) -> Outputs:
    """The outputs of the preset in `folder`, loaded by the KerasHub class `class_name`, as float32.

    A backbone gives its hidden states and, where it has a pooler, that one's vector; a task its logits too, the
    masked LM's at every position. `backend` is one of BACKENDS; without it KERAS_BACKEND decides, else the first
    that is installed. "cuda" needs the torch backend, "auto" takes it where torch sees a GPU, "wgpu" means the cpu.
    Raises MissingRuntimeError without KerasHub or the backend, UsageError for a device that is not there,
    RuntimeFailedError when the folder is not wholly what the class is loaded from, and when loading or running fails.
    """
    backend = _require_backend(backend)
    with tempfile.TemporaryDirectory(prefix="portkit-") as exchange:
        save_file(inputs.arrays(), Path(exchange, INPUTS))
        python = [sys.executable, "-P", "-W", "ignore"]  # -P: nothing is imported from where we stand
        done = subprocess.run(
            [*python, "-m", _PROGRAM, str(folder.absolute()), class_name, device, exchange],
            env=_environment(backend, device, exchange),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        if done.returncode != 0:
            raise _failure(done, Path(exchange, PROBLEMS))
        return _read(Path(exchange, OUTPUTS))


def _backend(chosen: str | None) -> str | None:
    """The backend to run on; None when it, or every one, is not installed."""
    chosen = chosen or os.environ.get("KERAS_BACKEND")
    wanted = [name for name in BACKENDS if chosen in (None, "", name)]
    return next((name for name in wanted if util.find_spec(name) is not None), None)


def _require_backend(chosen: str | None) -> str:
    backend = _backend(chosen)
    problems = []
    if util.find_spec("keras_hub") is None:
        problems.append(Problem("keras_hub", "KerasHub is not installed", hint="pip install keras-hub"))
    if backend is None:
        asked = chosen or os.environ.get("KERAS_BACKEND") or ""
        found = f"KERAS_BACKEND is {asked}" if asked and not chosen else asked
        expected = " or ".join(BACKENDS)
        problems.append(Problem("backend", "no backend for Keras is installed", expected, found, "pip install torch"))
    if problems or backend is None:
        raise MissingRuntimeError("cannot run the model in KerasHub", problems)
    return backend


def _environment(backend: str, device: str, exchange: str) -> dict[str, str]:
    """The user's variables, with what decides numbers, noise and network replaced."""
    hidden = {} if backend == "torch" and device != "cpu" else {"CUDA_VISIBLE_DEVICES": "-1", "JAX_PLATFORMS": "cpu"}
    return {**os.environ, **_QUIET_AND_EXACT, **hidden, "KERAS_BACKEND": backend, "KERAS_HOME": exchange}


def _failure(done: subprocess.CompletedProcess[str], told: Path) -> PortkitError:
    """What the program found wrong, in its words; else how it ended and the last it said."""
    if told.is_file():
        said = json.loads(told.read_text(encoding="utf-8"))
        kind = UsageError if done.returncode == UsageError.exit_code else RuntimeFailedError
        return kind(said["title"], [Problem(**problem) for problem in said["problems"]])
    said = "\n".join(done.stderr.strip().splitlines()[-_LAST_LINES:]) or "nothing on stderr"
    killed = done.returncode < 0
    what = f"ended by signal {-done.returncode}" if killed else f"exit code {done.returncode}"
    hint = "out of memory, if nobody stopped it" if killed else ""
    return RuntimeFailedError("KerasHub failed to run the model", [Problem(NAME, what, found=said, hint=hint)])


def _read(path: Path) -> Outputs:
    try:
        with safe_open(path, framework="numpy") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
            return OutputsOn(arrays, (file.metadata() or {}).get("device", "cpu"))
    except (OSError, SafetensorError) as error:
        problem = Problem(NAME, f"its outputs cannot be read: {error}")
        raise RuntimeFailedError("KerasHub gave no outputs", [problem]) from error
