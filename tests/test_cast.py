"""A cast is certified by the tensor proof, and the forward proof runs the source with the same rounded weights."""

from __future__ import annotations

import pytest
from hf_folders import config_for, facts_for, saved_state, write_hf

import portkit


@pytest.mark.hf
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_target_is_proved_against_the_rounded_source(dtype, tmp_path):
    facts = facts_for("bert", "masked_lm")
    source = write_hf(tmp_path / "hf", saved_state(facts), config_for("bert", facts))
    result = portkit.convert(source, tmp_path / "burn", to="burn", dtype=dtype)
    assert sum(result.tensors.casts.values()) == result.tensors.compared > 0
    assert result.forward.agrees


@pytest.mark.hf
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_target_of_a_framework_that_reads_folders_only_is_proved_too(dtype, tmp_path):
    """Burn runs the folder as it lies there, so the reference runs the rounded source in its place, and says so."""
    facts = facts_for("roberta", "sequence_classification")
    source = write_hf(tmp_path / "hf", saved_state(facts), config_for("roberta", facts))
    portkit.convert(source, tmp_path / "burn", to="burn", verify="none")
    result = portkit.convert(tmp_path / "burn", tmp_path / "back", to="hf", dtype=dtype)
    assert result.proved
    assert result.forward.source.runtime == "reference, not Burn"
