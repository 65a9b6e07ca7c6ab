"""What a target cannot hold is kept beside it and comes back on the way home."""

from __future__ import annotations

import numpy as np
from hf_folders import config_for, facts_for, saved_state, write_hf
from safetensors.numpy import load_file

import portkit


def _source(tmp_path):
    facts = facts_for("bert", "masked_lm")
    head = {"cls.species.weight": np.arange(12, dtype=np.float32).reshape(3, 4)}
    return write_hf(tmp_path / "hf", {**saved_state(facts), **head}, config_for("bert", facts))


def test_foreign_head_comes_back_under_its_name(tmp_path):
    source = _source(tmp_path)
    there = portkit.convert(source, tmp_path / "burn", to="burn", verify="tensors", residue=True)
    assert [k.name for k in there.plan.kept] == ["cls.species.weight"]
    portkit.convert(tmp_path / "burn", tmp_path / "burn2", to="burn", form="safetensors", verify="tensors")
    back = portkit.convert(tmp_path / "burn2", tmp_path / "back", to="hf", verify="tensors")
    assert back.plan.restored == ("cls.species.weight",)
    was, now = load_file(source / "model.safetensors"), load_file(tmp_path / "back" / "model.safetensors")
    assert was.keys() == now.keys()
    for name, array in was.items():
        np.testing.assert_array_equal(now[name], array)
