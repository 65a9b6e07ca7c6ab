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
    result = portkit.convert(source, tmp_path / "burn", to="burn", dtype=dtype, verify="forward")
    assert result.tensors.cast == result.tensors.compared > 0
    assert result.forward.agrees
