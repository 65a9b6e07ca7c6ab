"""KerasHub in the proofs: real checkpoints there and back, chains through all three frameworks, both backends."""

from __future__ import annotations

import importlib.util

import ml_dtypes
import numpy as np
import pytest
from hf_folders import assert_same_state, config_for, facts_for, read_state, saved_state, small_model, write_hf

import portkit
from portkit.runtimes.burn_runtime import burn_available
from portkit.runtimes.keras_runtime import keras_label

pytestmark = [
    pytest.mark.keras,
    pytest.mark.hf,
    pytest.mark.skipif(importlib.util.find_spec("keras_hub") is None, reason="KerasHub is not installed"),
]
BAR = 1e-5  # absolute, of what a model gives out, against the source with the target's facts
TASKS = {"minilm": None, "rxnfp-classes": None, "rxnfp-pretrained": "masked_lm"}


def proved(source, target, to, **options):
    """A conversion whose three proofs were made in the real frameworks, and hold."""
    result = portkit.convert(source, target, to=to, **options)
    assert result.verification.results == {"tensors": "pass", "facts": "pass", "forward": "pass"}
    assert not any(run.stood_in for run in result.forward.runs)
    return result


@pytest.mark.parametrize(
    ("stored", "asked"), [(np.float16, None), (ml_dtypes.bfloat16, None), (np.float32, "float16")], ids=str
)
def test_a_fold_of_16_bit_tables_is_as_exact_as_the_rest(stored, asked, tmp_path):
    facts = facts_for("roberta", "sequence_classification")
    source = write_hf(tmp_path / "hf", saved_state(facts, dtype=stored), config_for("roberta", facts))
    there = proved(source, tmp_path / "keras", "keras", dtype=asked)
    assert there.forward.worst.ratio < 3
    said = "embeddings.position.table is written in float32: embeddings.type.table is folded into it"
    assert [w for w in there.warnings if said in w]
    assert {m.target.dtype for m in there.plan.moves if m.absorbs} == {"F32"}
    back = proved(tmp_path / "keras", tmp_path / "back", "hf")
    assert back.forward.worst.ratio < 3
    if asked is None:
        assert_same_state(read_state(tmp_path / "back"), read_state(source))


@pytest.mark.real
@pytest.mark.parametrize("name", TASKS)
def test_real_checkpoints_go_there_and_back(real, name, tmp_path):
    source, task = real(name), TASKS[name]
    there = proved(source, tmp_path / "keras", "keras", open_with={"task": task} if task else {})
    assert there.forward.target.runtime == keras_label()
    *inner, last = [a for a in there.forward.agreements if a.output.startswith("hidden_states.")]
    assert max(a.max_abs for a in there.forward.agreements if a not in inner) < BAR
    assert max(a.ratio for a in (*inner, last)) < 2  # within rxnfp-classes 1.5e-5 is 0.9 times the noise
    assert {"hidden_act"} <= set(there.plan.changes)
    assert all(0 < c.relative < 0.05 for c in there.forward.changes)
    portkit.convert(tmp_path / "keras", tmp_path / "back", to="hf", verify="tensors")
    same = portkit.diff(source, tmp_path / "back")
    assert same.equal
    assert same.compared == len(portkit.inspect(source).logical()) > 100


@pytest.mark.burn
@pytest.mark.skipif(not burn_available(), reason="the program portkit-burn is not built")
@pytest.mark.parametrize(
    ("family", "task"), [("bert", "masked_lm"), ("roberta", "sequence_classification"), ("xlm-roberta", "model")]
)
def test_chain_is_proved_in_all_three_frameworks(tmp_path, family, task):
    pooler = {} if family == "bert" else {"has_pooler": False}  # one that waits in a residue runs in no framework
    source = small_model(tmp_path / "hf", family, task, **pooler)
    proved(source, tmp_path / "keras", "keras")
    proved(tmp_path / "keras", tmp_path / "burn", "burn")
    proved(tmp_path / "burn", tmp_path / "again", "keras")
    back = proved(tmp_path / "again", tmp_path / "back", "hf")
    assert back.forward.source.runtime == keras_label()
    assert_same_state(read_state(tmp_path / "back"), read_state(source))


@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
@pytest.mark.parametrize(("family", "task"), [("bert", "sequence_classification"), ("roberta", "masked_lm")])
def test_both_backends_agree(tmp_path, monkeypatch, family, task, backend):
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    monkeypatch.setenv("KERAS_BACKEND", backend)
    result = proved(small_model(tmp_path / "hf", family, task), tmp_path / "keras", "keras")
    assert result.forward.target.runtime.endswith(f"{backend} backend")
    assert max(a.max_abs for a in result.forward.agreements) < BAR
