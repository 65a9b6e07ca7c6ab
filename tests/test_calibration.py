"""The calibration: its honest candidates are honest, and the documents quote what it measured."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from portkit.checkpoint import open_checkpoint
from portkit.proofs.agreement import LIMIT
from portkit.proofs.inputs import choose_inputs
from portkit.runtimes.reference import run_reference

ROOT = Path(__file__).parent.parent


@pytest.fixture
def models(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    import random_models

    yield random_models
    del sys.modules["random_models"]


def test_permuted_heads_and_units_are_the_same_function(models, tmp_path):
    recipe = models.Recipe("roberta", "sequence_classification", layers=3, heads=3, head_size=8, inner=40, rows=20)
    checkpoint = open_checkpoint(models.write_model(recipe, tmp_path / "a"))
    inputs, logical = choose_inputs(checkpoint.facts), checkpoint.logical()
    other = models.permuted(checkpoint.facts, logical, np.random.default_rng(1))
    assert not np.array_equal(other["layer.1.mlp.up.kernel"].read(), logical["layer.1.mlp.up.kernel"].read())
    assert not np.array_equal(
        other["layer.1.attention.out.kernel"].read(), logical["layer.1.attention.out.kernel"].read()
    )
    before, after = (run_reference(checkpoint.facts, tensors, inputs) for tensors in (logical, other))
    for name in before:
        np.testing.assert_allclose(after[name], before[name], rtol=0, atol=1e-12)


def test_documents_quote_the_calibration():
    found = json.loads((ROOT / "bench" / "calibration.json").read_text(encoding="utf-8"))
    said = (ROOT / "docs" / "self-test.md").read_text(encoding="utf-8")
    assert found["limit"] == LIMIT
    assert found["false alarms"] == []
    assert found["honest pairs"]["runs"] >= 500
    for name, figures in [("all honest pairs", found["honest pairs"]), *found["honest, by candidate"].items()]:
        numbers = " | ".join(f"{figures[key]:g}" for key in ("runs", "median", "p99", "max"))
        assert f"| {name} | {numbers} |" in said
    for gain, faults in found["visible faults, by gain"].items():
        (least, ratio), *_ = faults["least"].items()
        assert f"| {gain} | {faults['put in']} | {sum(faults['missed'].values())} | {ratio:g}, {least} |" in said
