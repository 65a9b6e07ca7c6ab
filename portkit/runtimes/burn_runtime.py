"""Runs a model in Burn: a compiled program reads the folder and the inputs, and writes the outputs.

The exchange is two safetensors files in a temporary folder, so nothing of Burn is linked into Python.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from portkit.errors import MissingRuntimeError, Problem, RuntimeFailedError
from portkit.runtimes.outputs import OutputsOn

if TYPE_CHECKING:
    from portkit.runtimes.outputs import Inputs, Outputs

NAME = "Burn"
PROGRAM = "portkit-burn"
LEGACY_PROGRAM = "portkit-burn-legacy"  # an older Burn, the last that reads .mpk files
_VARIABLES = {PROGRAM: "PORTKIT_BURN", LEGACY_PROGRAM: "PORTKIT_BURN_LEGACY"}
_CRATES = {PROGRAM: "burn", LEGACY_PROGRAM: "burn/legacy"}
_LAST_LINES = 20  # of the program's stderr, in an error


def burn_available(*, legacy: bool = False) -> bool:
    """Whether the program can be found; it is not started."""
    return _find(_program(legacy)) is not None


def find_burn(*, legacy: bool = False) -> Path:
    """The program: the file named by PORTKIT_BURN, else beside this Python, else on the PATH.

    Raises MissingRuntimeError that says how to get it.
    """
    name = _program(legacy)
    found = _find(name)
    if found is None:
        raise _missing(name)
    return found


def burn_version(*, legacy: bool = False) -> str:
    """What the program says of itself, such as "portkit-burn 0.1.0". Raises MissingRuntimeError without it."""
    return _start([str(find_burn(legacy=legacy)), "--version"]).strip()


def run_burn(folder: Path, inputs: Inputs, *, device: str = "cpu", legacy: bool = False) -> Outputs:
    """The outputs of the Burn model in `folder`, as float32.

    They know the device that computed them. `device` is passed on as it is: with "auto" the program takes the first
    hardware that it was built for and finds. `legacy` takes the program for .mpk files, which has the cpu only.
    Raises MissingRuntimeError without the program, RuntimeFailedError with its stderr when it fails.
    """
    program = find_burn(legacy=legacy)
    with tempfile.TemporaryDirectory(prefix="portkit-") as exchange:
        given, wanted = Path(exchange, "inputs.safetensors"), Path(exchange, "outputs.safetensors")
        save_file(inputs.arrays(), given)
        options = {"--model": folder.absolute(), "--inputs": given, "--outputs": wanted}
        words = [str(word) for option in options.items() for word in option]
        _start([str(program), "forward", *words, "--device", device])
        return _read(program, wanted)


def _program(legacy: bool) -> str:
    return LEGACY_PROGRAM if legacy else PROGRAM


def _find(name: str) -> Path | None:
    chosen = os.environ.get(_VARIABLES[name])
    if chosen:  # a choice that leads nowhere is not quietly replaced by another program
        return Path(chosen) if Path(chosen).is_file() else None
    beside_python = str(Path(sys.executable).parent)
    found = shutil.which(name, path=beside_python) or shutil.which(name)
    return Path(found) if found else None


def _missing(name: str) -> MissingRuntimeError:
    variable, crate = _VARIABLES[name], _CRATES[name]
    chosen = os.environ.get(variable)
    found = f"{variable}={chosen}, which is no file" if chosen else "nothing beside this Python or on the PATH"
    install = f"cargo install --path {crate}"
    if name == PROGRAM:
        install = f"pip install ./{crate}, or {install}"
    problem = Problem(name, "the program is not installed", f"{variable} or PATH leads to it", found, install)
    return MissingRuntimeError("cannot run the model in Burn", [problem])


def _start(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        raise RuntimeFailedError("Burn cannot be started", [Problem(command[0], str(error))]) from error
    if done.returncode != 0:
        said = "\n".join(done.stderr.strip().splitlines()[-_LAST_LINES:]) or "nothing on stderr"
        problem = Problem(command[0], f"exit code {done.returncode}", found=said)
        raise RuntimeFailedError("Burn failed to run the model", [problem])
    return done.stdout


def _read(program: Path, path: Path) -> Outputs:
    try:
        with safe_open(path, framework="numpy") as file:
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
            return OutputsOn(arrays, (file.metadata() or {}).get("device", "cpu"))
    except (OSError, SafetensorError) as error:
        problem = Problem(str(program), f"its outputs cannot be read: {error}")
        raise RuntimeFailedError("Burn gave no outputs", [problem]) from error
