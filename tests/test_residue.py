"""What a target cannot hold is kept beside it and comes back on the way home."""

from __future__ import annotations

import numpy as np
import pytest
from hf_folders import (
    assert_same_state,
    config_for,
    facts_for,
    read_config,
    read_state,
    saved_state,
    small_model,
    write_hf,
)
from safetensors.numpy import load_file, save_file

import portkit
from portkit.errors import RefusedError

RESIDUE = "portkit.residue.safetensors"
TRANSFORM = "masked_lm.transform.kernel"


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


def backbone_of(source, path):
    """The model below a masked-LM head, for Burn; the head waits in the residue."""
    portkit.convert(source, path, to="burn", form="safetensors", verify="none", open_with={"task": "model"})
    return path


def edit(path, change):
    """Change the tensors of a safetensors file."""
    state = load_file(path)
    change(state)
    save_file({name: np.ascontiguousarray(array) for name, array in state.items()}, path)


@pytest.mark.hf
@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_a_head_that_shares_the_word_table_comes_back_with_all_proofs(family, tmp_path):
    source = small_model(tmp_path / "a", family, "masked_lm")
    back = portkit.convert(backbone_of(source, tmp_path / "b"), tmp_path / "c", to="hf")
    assert_same_state(read_state(tmp_path / "c"), read_state(source))
    assert set(back.verification.results.values()) == {"pass"}
    assert "the head of masked_lm comes back from the residue" in back.warnings
    assert not any("changed" in warning for warning in back.warnings)
    assert portkit.verify(source, tmp_path / "c").holds


@pytest.mark.hf
@pytest.mark.parametrize(("family", "head"), [("bert", "cls.predictions"), ("roberta", "lm_head")])
def test_a_head_with_a_decoder_of_its_own_comes_back_with_it(family, head, tmp_path):
    facts = facts_for(family, "masked_lm")
    state = saved_state(facts)
    words = state[f"{family}.embeddings.word_embeddings.weight"]
    state |= {f"{head}.decoder.weight": words * 1.5 + 1, f"{head}.decoder.bias": state[f"{head}.bias"]}
    source = write_hf(tmp_path / "a", state, config_for(family, facts, tie_word_embeddings=False))
    portkit.convert(backbone_of(source, tmp_path / "b"), tmp_path / "c", to="hf")
    assert_same_state(read_state(tmp_path / "c"), state)
    assert read_config(tmp_path / "c")["tie_word_embeddings"] is False
    assert portkit.verify(source, tmp_path / "c").holds


@pytest.mark.parametrize(
    "array", [np.zeros((7, 7), np.float32), np.zeros(24, np.float32), np.zeros((24, 24), np.int32)]
)
def test_a_tensor_of_the_residue_that_does_not_fit_is_refused(array, tmp_path):
    burn = backbone_of(small_model(tmp_path / "a", "bert", "masked_lm"), tmp_path / "b")
    edit(burn / RESIDUE, lambda state: state.update({TRANSFORM: array}))
    with pytest.raises(RefusedError, match=f"residue {TRANSFORM}: does not fit the model") as error:
        portkit.convert(burn, tmp_path / "c", to="hf", verify="none")
    assert "expected (24, 24) of floats" in str(error.value)
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("name", ["embeddings.position.table", "embeddings.type.table"])
@pytest.mark.parametrize("shape", [(7, 7), (24,), (0, 24)])
def test_a_folded_table_of_another_shape_stays_in_the_residue(name, shape, tmp_path):
    source = small_model(tmp_path / "a", "roberta", "model", type_vocab_size=1)
    portkit.convert(source, tmp_path / "b", to="keras", verify="none")
    edit(tmp_path / "b" / RESIDUE, lambda state: state.update({name: np.ones(shape, np.float32)}))
    back = portkit.convert(tmp_path / "b", tmp_path / "c", to="hf", verify="none")
    assert "embeddings.type.table is made of zeros: the source has it folded into another table" in back.warnings


@pytest.mark.parametrize("file", ["model.safetensors", RESIDUE])
def test_what_comes_back_into_weights_that_changed_is_named(file, tmp_path):
    burn = backbone_of(small_model(tmp_path / "a", "bert", "masked_lm"), tmp_path / "b")
    edit(burn / file, lambda state: state.update({n: a * np.float32(1.5) for n, a in state.items()}))
    back = portkit.convert(burn, tmp_path / "c", to="hf", verify="none")
    start = "masked_lm.decoder.bias and 4 more come from the residue, but "
    assert f"{start}{file} changed since it was kept: they may not belong to these weights" in back.warnings
