"""Record a golden: run a checkpoint in its own framework, and keep a little of what came out."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import portkit
from portkit.checkpoint import Checkpoint, open_checkpoint
from portkit.errors import Problem, RefusedError
from portkit.formats.write import replacing
from portkit.golden.facts import facts_said
from portkit.golden.form import Expected, Golden, Run, dump, printed, rows_of
from portkit.golden.sketch import sketch_of
from portkit.golden.weights import fingerprints_of
from portkit.proofs.forward import run_side
from portkit.proofs.given import read_inputs
from portkit.proofs.inputs import choose_inputs
from portkit.proofs.models import How, side_of
from portkit.runtimes.burn_runtime import NAME as BURN
from portkit.runtimes.burn_runtime import burn_version
from portkit.runtimes.outputs import expected_outputs, require_fit

if TYPE_CHECKING:
    from portkit.runtimes.outputs import FloatArray, Inputs, Outputs

_CHANNELS = 8  # kept of the first token of each row
_PACKAGES = ("numpy", "torch", "transformers", "keras", "keras-hub", "tensorflow", "jax")


def golden_record(
    path: Path | str,
    out: Path | str,
    *,
    inputs: Path | None = None,
    about: str = "",
    device: str = "cpu",
    force: bool = False,
    **opening: Any,  # noqa: ANN401 - those of open_checkpoint
) -> Golden:
    """Record what a checkpoint is and computes into the new file `out`; returns what was written.

    `inputs` is a file that `proofs.given.read_inputs` takes; without it they are chosen as the forward proof chooses
    them. Raises PortkitError: RefusedError when `out` exists and `force` is not given, and for values that are not
    finite, UsageError for inputs that the model does not take.
    """
    target = Path(out)
    if target.exists() and not force:
        raise RefusedError("the output exists", [Problem(str(target), "is already there", hint="--force replaces it")])
    checkpoint = open_checkpoint(path, **opening)
    golden = _record(checkpoint, read_inputs(inputs) if inputs else choose_inputs(checkpoint.facts), device, about)
    with replacing(target, parents=True) as file:
        file.write(dump(golden).encode())
    return golden


def _record(checkpoint: Checkpoint, inputs: Inputs, device: str, about: str) -> Golden:
    require_fit(checkpoint.facts, inputs)
    outputs, run = run_side(side_of(checkpoint, inputs, How(device)))
    _require_finite(outputs, inputs)
    names = [name for name in expected_outputs(checkpoint.facts) if name in outputs]
    return Golden(
        about=about,
        source={
            "checkpoint": checkpoint.folder.path.name,
            "layout": checkpoint.anatomy.layout,
            "format": checkpoint.folder.container.format,
            "runtime": run.runtime,
            "device": device,
        },
        versions=_versions(checkpoint, run.runtime),
        facts=facts_said(checkpoint),
        outputs={name: _expected(name, outputs[name], inputs) for name in names},
        weights=fingerprints_of(checkpoint.logical()),
        **rows_of(inputs),
    )


def _expected(name: str, array: FloatArray, inputs: Inputs) -> Expected:
    starts = [(row, *(0,) * (array.ndim - 1)) for row in range(len(array))]
    runs = tuple(Run(at, printed(array[at[:-1]][:_CHANNELS].tolist())) for at in starts)
    return Expected(runs, printed(sketch_of(name, array, inputs.valid).tolist()))


def _require_finite(outputs: Outputs, inputs: Inputs) -> None:
    odd = [n for n, a in outputs.items() if not np.isfinite(a[inputs.valid] if a.ndim == 3 else a).all()]
    if odd:
        problems = [Problem(name, "holds NaN or infinity") for name in odd]
        raise RefusedError("a golden of these outputs would say nothing", problems)


def _versions(checkpoint: Checkpoint, runtime: str) -> dict[str, str]:
    """Of portkit, of the packages that were loaded for the run, and of Burn's program."""
    loaded = {name: sys.modules[name.replace("-", "_")] for name in _PACKAGES if name.replace("-", "_") in sys.modules}
    own = {name: str(getattr(module, "__version__", "unknown")) for name, module in loaded.items()}
    legacy = checkpoint.folder.container.format == "named_mpk"
    program = {"program": burn_version(legacy=legacy)} if runtime == BURN else {}
    return {"portkit": portkit.__version__, **own, **program}
