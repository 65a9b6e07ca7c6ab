"""A preset that KerasHub can load, for checkpoints that Keras saved in another form."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from portkit.execute import write_model
from portkit.layouts.keras_folder import is_preset
from portkit.moves import Options
from portkit.plan import make_plan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from portkit.checkpoint import Checkpoint


@contextmanager
def preset_of(checkpoint: Checkpoint) -> Iterator[Path]:
    """The folder itself where it is a preset, else one with the same numbers that is there while the block runs.

    Raises what a conversion to the same layout raises.
    """
    if is_preset(checkpoint.folder.path):
        yield checkpoint.folder.path
        return
    plan = make_plan(checkpoint, Options(to="keras", residue=True))
    with tempfile.TemporaryDirectory(prefix="portkit-") as folder:
        write_model(plan, Path(folder))
        yield Path(folder)
