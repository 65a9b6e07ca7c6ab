"""Fields of a Hugging Face config that ask for something else than a function of these weights."""

from __future__ import annotations

import pytest
from hf_folders import config_for, facts_for, read_config, saved_state, write_hf

import portkit
from portkit.errors import RefusedError
from portkit.record import warnings_of


def model(folder, family="bert", task="sequence_classification", nulls=(), **config):
    facts = facts_for(family, task)
    return write_hf(folder, saved_state(facts), {**config_for(family, facts, **config), **dict.fromkeys(nulls)})


def test_code_of_its_own_is_a_warning_and_not_carried_on(tmp_path):
    source = model(tmp_path / "hf", auto_map={"AutoModel": "modeling_mine.MyModel"})
    words = "auto_map names code of its own, which was not run"
    assert [w for w in warnings_of(portkit.inspect(source)) if words in w]
    result = portkit.convert(source, tmp_path / "target", to="hf", verify="tensors")
    assert [w for w in result.warnings if words in w]
    assert "auto_map" not in read_config(tmp_path / "target")


@pytest.mark.hf
@pytest.mark.parametrize(
    "config",
    [
        {"chunk_size_feed_forward": 4},
        {"attn_implementation": "flash_attention_2"},
        {"_attn_implementation": "flash_attention_2"},
        {"auto_map": {"AutoModel": "modeling_mine.MyModel"}},
        {"use_cache": False, "torchscript": True, "return_dict": False, "output_attentions": True},
    ],
)
def test_how_to_load_and_compute_is_no_matter_of_the_proof(tmp_path, config):
    result = portkit.convert(model(tmp_path / "hf", **config), tmp_path / "burn", to="burn", verify="forward")
    assert result.forward.agrees


@pytest.mark.hf
def test_a_field_of_null_is_run_with_what_was_assumed_for_it(tmp_path):
    source = model(tmp_path / "hf", "roberta", nulls=("pad_token_id", "layer_norm_eps"))
    result = portkit.convert(source, tmp_path / "burn", to="burn", verify="forward")
    assert result.forward.agrees
    assert [w for w in result.warnings if w.startswith("pad_token_id is not in the config; the default")]


def test_an_activation_of_a_head_that_is_not_there_is_no_problem(tmp_path):
    with pytest.raises(RefusedError, match=r"hidden_act: burn cannot compute 'silu'") as caught:
        portkit.convert(model(tmp_path / "hf", hidden_act="silu"), tmp_path / "burn", to="burn")
    assert [p.where for p in caught.value.problems] == ["config.json hidden_act"]
