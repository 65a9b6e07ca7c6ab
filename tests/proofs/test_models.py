"""A checkpoint as one side of a forward proof: what it is run with, and by what."""

from __future__ import annotations

import numpy as np
import pytest
from hf_folders import config_for, facts_for, saved_state, small_model, write_hf

import portkit
from portkit.checkpoint import open_checkpoint
from portkit.proofs.inputs import choose_inputs
from portkit.proofs.models import How, prove_forward, side_of

TASK = "sequence_classification"
REFERENCE = (How(runtime="reference"), How(runtime="reference"))


def opened(folder, dtype=np.float32, **config):
    facts = facts_for("bert", TASK)
    return open_checkpoint(write_hf(folder, saved_state(facts, dtype=dtype), config_for("bert", facts, **config)))


def side(checkpoint, like=None, **how):
    return side_of(checkpoint, choose_inputs(checkpoint.facts), How(**how), like or {})


@pytest.mark.parametrize(
    ("dtype", "like", "rounds"),
    [
        (np.float32, "F32", False),
        (np.float32, "F16", True),
        (np.float32, "BF16", True),
        (np.float16, "F32", False),
        (np.float16, "BF16", True),
        (np.float64, "F32", True),
        (np.float32, "F64", False),
    ],
)
def test_source_is_run_with_the_numbers_that_the_target_can_hold(dtype, like, rounds, tmp_path):
    checkpoint = opened(tmp_path / "a", dtype)
    plain = side(checkpoint).reference("float64")["logits"]
    rounded = side(checkpoint, dict.fromkeys(checkpoint.logical(), like)).reference("float64")["logits"]
    assert (plain == rounded).all() != rounds


def test_framework_that_reads_folders_only_is_not_run_with_rounded_numbers(tmp_path):
    portkit.convert(small_model(tmp_path / "a"), tmp_path / "b", to="burn", verify="none")
    burn = open_checkpoint(tmp_path / "b")
    assert side(burn).run is not None
    assert side(burn, dict.fromkeys(burn.logical(), "F16")).run is None
    hf = open_checkpoint(tmp_path / "a")
    assert side(hf, dict.fromkeys(hf.logical(), "F16")).run is not None


@pytest.mark.parametrize(("precision", "burn"), [("bfloat16", "float32"), ("float32", "float32")])
def test_precision_is_one_that_the_framework_has(precision, burn, tmp_path):
    portkit.convert(small_model(tmp_path / "a"), tmp_path / "b", to="burn", verify="none")
    runs = [side(open_checkpoint(tmp_path / name), precision=precision).own for name in ("a", "b")]
    assert [(run.runtime, run.dtype) for run in runs] == [("transformers", precision), ("Burn", burn)]


def test_announced_fact_of_the_target_is_what_it_is_measured_by(tmp_path):
    """As a layout does that always computes one activation: the weights are right, the function is another."""
    source, target = opened(tmp_path / "a"), opened(tmp_path / "b", hidden_act="gelu_new")
    said = {"hidden_act": "gelu in the source, gelu_tanh in the target"}
    assert not prove_forward(source, target, how=REFERENCE).agrees
    verdict = prove_forward(source, target, how=REFERENCE, announced=said)
    assert verdict.agrees
    assert verdict.announced == ("hidden_act: gelu in the source, gelu_tanh in the target",)
    honest = prove_forward(source, source, how=REFERENCE, announced=said)
    assert honest.announced == ()


def test_heads_are_counted_in_the_sources_exact_run(tmp_path):
    coverage = prove_forward(opened(tmp_path / "a"), opened(tmp_path / "b"), how=REFERENCE).coverage
    assert (coverage.layers, coverage.heads) == (3, (9, 9))
