"""Hugging Face -> Burn -> Hugging Face: nothing changes, and transformers takes what comes back."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from hf_folders import (
    TIED,
    assert_same_state,
    class_of,
    config_for,
    facts_for,
    read_config,
    read_state,
    saved_state,
    small_model,
    write_hf,
)
from models import BERT_TASKS, ROBERTA_TASKS, hf_state, random_logical

import portkit
from portkit.formats import open_container
from portkit.proofs.inputs import choose_inputs
from portkit.runtimes.transformers_runtime import run_transformers

MODELS = [
    *(("bert", task) for task in BERT_TASKS),
    *(("roberta", task) for task in ROBERTA_TASKS),
    ("xlm-roberta", "token_classification"),
    ("camembert", "masked_lm"),
]
BACKBONE = "embeddings.word_embeddings.weight"


def there_and_back(source, tmp_path, form="bpk", **options):
    """The folder that comes back after a way through Burn; both ways are proved."""
    there = portkit.convert(source, tmp_path / "burn", to="burn", form=form, verify="tensors", **options)
    back = portkit.convert(tmp_path / "burn", tmp_path / "back", to="hf", verify="tensors")
    assert there.proved
    assert back.proved
    return tmp_path / "back"


def outputs_in_transformers(folder, family, facts, **options):
    return run_transformers(
        folder,
        choose_inputs(facts),
        task=facts.task,
        class_name=class_of(family, facts.task),
        has_pooler=facts.has_pooler,
        **options,
    )


@pytest.mark.parametrize(("family", "task"), MODELS)
def test_every_tensor_and_every_config_field_comes_back(family, task, tmp_path):
    facts = facts_for(family, task)
    source = small_model(tmp_path / "hf", family, task)
    back = there_and_back(source, tmp_path)
    assert_same_state(read_state(back), saved_state(facts))
    told = {name: value for name, value in read_config(source).items() if name != "num_labels"}
    assert {name: read_config(back).get(name) for name in told} == told


@pytest.mark.parametrize("form", ["safetensors", "mpk"])
@pytest.mark.parametrize(
    ("family", "task"),
    [("bert", "pre_training"), ("roberta", "sequence_classification"), ("roberta", "masked_lm")],
)
def test_every_format_of_burn_brings_the_same_back(family, task, form, tmp_path):
    back = there_and_back(small_model(tmp_path / "hf", family, task), tmp_path, form)
    assert_same_state(read_state(back), saved_state(facts_for(family, task)))


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_backbone_without_pooler_comes_back_without_one(family, tmp_path):
    back = there_and_back(small_model(tmp_path / "hf", family, has_pooler=False), tmp_path)
    assert_same_state(read_state(back), saved_state(facts_for(family, "model", has_pooler=False)))


@pytest.mark.hf
@pytest.mark.parametrize(("family", "task"), MODELS)
def test_transformers_takes_the_result_whole_and_computes_the_same_bits(family, task, tmp_path):
    facts = facts_for(family, task)
    source = small_model(tmp_path / "hf", family, task)
    expected = outputs_in_transformers(source, family, facts)
    found = outputs_in_transformers(there_and_back(source, tmp_path), family, facts)
    assert sorted(found) == sorted(expected)
    for name, array in expected.items():
        assert found[name].tobytes() == array.tobytes(), name


@pytest.mark.hf
@pytest.mark.parametrize(("family", "task"), MODELS)
def test_forward_proof_holds_both_ways(family, task, tmp_path):
    source = small_model(tmp_path / "hf", family, task)
    there = portkit.convert(source, tmp_path / "burn", to="burn", verify="forward")
    back = portkit.convert(tmp_path / "burn", tmp_path / "back", to="hf", verify="forward")
    for verdict in (there.forward, back.forward):
        assert verdict.agrees
        assert len(verdict.agreements) >= facts_for(family, task).num_hidden_layers + 1
    assert "transformers" in there.forward.source.runtime
    assert "transformers" in back.forward.target.runtime


# ---------------------------------------------------------------- masked-LM decoders


def whole_state(family, **decoder):
    """Facts and the state dict of a masked-LM model with both spellings of everything."""
    facts = facts_for(family, "masked_lm")
    return facts, hf_state({**random_logical(facts), **decoder}, facts)


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_untied_decoder_stays_untied(family, tmp_path):
    other = np.random.default_rng(9).normal(0, 0.2, (24, 61)).astype(np.float32)
    facts, state = whole_state(family, **{"masked_lm.decoder.kernel": other})
    source = write_hf(tmp_path / "hf", state, config_for(family, facts, tie_word_embeddings=False))
    back = there_and_back(source, tmp_path)
    assert_same_state(read_state(back), state)
    assert read_config(back)["tie_word_embeddings"] is False


@pytest.mark.hf
@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_untied_decoder_computes_the_same_in_transformers(family, tmp_path):
    other = np.random.default_rng(9).normal(0, 0.2, (24, 61)).astype(np.float32)
    facts, state = whole_state(family, **{"masked_lm.decoder.kernel": other})
    source = write_hf(tmp_path / "hf", state, config_for(family, facts, tie_word_embeddings=False))
    expected = outputs_in_transformers(source, family, facts)
    found = outputs_in_transformers(there_and_back(source, tmp_path), family, facts)
    assert all(found[name].tobytes() == array.tobytes() for name, array in expected.items())


@pytest.mark.hf
@pytest.mark.parametrize(("family", "head"), [("bert", "cls.predictions"), ("roberta", "lm_head")])
def test_untied_decoder_is_proved_in_transformers_and_burn(family, head, tmp_path):
    """Its bias is the decoder's own; the other one, which training never touches then, is read by nothing."""
    other = np.random.default_rng(9).normal(0, 0.2, (24, 61)).astype(np.float32)
    facts, state = whole_state(family, **{"masked_lm.decoder.kernel": other})
    state[f"{head}.decoder.bias"] = state[f"{head}.bias"]
    state[f"{head}.bias"] = np.zeros_like(state[f"{head}.bias"])
    source = write_hf(tmp_path / "hf", state, config_for(family, facts, tie_word_embeddings=False))
    portkit.convert(source, tmp_path / "burn", to="burn")
    back = portkit.convert(tmp_path / "burn", tmp_path / "back", to="hf")
    assert back.verification.results == dict.fromkeys(("tensors", "facts", "forward"), "pass")
    assert portkit.verify(source, tmp_path / "back").holds


@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_tied_decoder_stored_twice_is_written_once(family, tmp_path):
    facts, state = whole_state(family)
    back = there_and_back(write_hf(tmp_path / "hf", state, config_for(family, facts)), tmp_path)
    assert_same_state(read_state(back), {name: array for name, array in state.items() if name not in TIED})


def test_burn_holds_the_tied_decoder_as_a_matrix_of_its_own(tmp_path):
    facts = facts_for("bert", "masked_lm")
    portkit.convert(small_model(tmp_path / "hf", "bert", "masked_lm"), tmp_path / "burn", to="burn", verify="tensors")
    decoder = open_container(tmp_path / "burn" / "model.bpk").tensors["lm_head.decoder.weight"].read()
    assert np.array_equal(decoder, random_logical(facts)["embeddings.word.table"].T)


# ---------------------------------------------------------------- names that training loops and old files have


def old_words(name):
    return name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")


RENAMED = {
    "gamma and beta": old_words,
    "module": lambda name: f"module.{name}",
    "_orig_mod": lambda name: f"_orig_mod.{name}",
    "module and _orig_mod": lambda name: f"module._orig_mod.{name}",
    "fsdp": lambda name: "_fsdp_wrapped_module." + name.replace(".layer.1.", ".layer.1._fsdp_wrapped_module."),
    "checkpointing": lambda name: name.replace(".attention.", "._checkpoint_wrapped_module.attention."),
    "model": lambda name: f"model.{name}",
}


@pytest.mark.parametrize("how", RENAMED)
@pytest.mark.parametrize(("family", "task"), [("bert", "sequence_classification"), ("roberta", "masked_lm")])
def test_wrapped_and_old_names_come_back_as_usual_ones(family, task, how, tmp_path):
    facts, rename = facts_for(family, task), RENAMED[how]
    state = saved_state(facts)
    renamed = {rename(name): array for name, array in state.items()}
    assert renamed.keys() != state.keys()
    back = there_and_back(write_hf(tmp_path / "hf", renamed, config_for(family, facts)), tmp_path)
    assert_same_state(read_state(back), state)


@pytest.mark.parametrize(("family", "task"), [("bert", "sequence_classification"), ("roberta", "token_classification")])
def test_backbone_without_its_prefix_gets_it_back(family, task, tmp_path):
    facts = facts_for(family, task)
    state = saved_state(facts)
    short = {name.removeprefix(f"{family}."): array for name, array in state.items()}
    back = there_and_back(write_hf(tmp_path / "hf", short, config_for(family, facts)), tmp_path)
    assert_same_state(read_state(back), state)


def test_backbone_with_a_prefix_comes_back_bare(tmp_path):
    state = saved_state(facts_for("bert", "model"))
    prefixed = {f"bert.{name}": array for name, array in state.items()}
    back = there_and_back(write_hf(tmp_path / "hf", prefixed, config_for("bert", facts_for("bert", "model"))), tmp_path)
    assert_same_state(read_state(back), state)


@pytest.mark.hf
def test_lightning_checkpoint_is_read_without_its_training_state(tmp_path):
    torch = pytest.importorskip("torch")
    facts = facts_for("bert", "sequence_classification")
    state = saved_state(facts)
    folder = write_hf(tmp_path / "run", state, config_for("bert", facts))
    (folder / "model.safetensors").unlink()
    tensors = {f"model.{name}": torch.from_numpy(array) for name, array in state.items()}
    moments = {"state": {0: {"exp_avg": torch.zeros(3), "step": torch.tensor(7.0)}}, "param_groups": []}
    saved = {"epoch": 3, "global_step": 7, "state_dict": tensors, "optimizer_states": [moments]}
    torch.save(saved, folder / "epoch=3.ckpt")
    assert_same_state(read_state(there_and_back(folder, tmp_path)), state)


# ---------------------------------------------------------------- dtypes

DTYPES = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float64": np.float64}


@pytest.mark.parametrize("dtype", DTYPES)
def test_burn_gets_float32_unless_asked(dtype, tmp_path):
    facts = facts_for("bert", "masked_lm")
    state = saved_state(facts, dtype=DTYPES[dtype])
    source = write_hf(tmp_path / "hf", state, config_for("bert", facts, dtype=dtype))
    back = there_and_back(source, tmp_path)
    assert_same_state(read_state(back), {name: array.astype(np.float32) for name, array in state.items()})
    assert read_config(back)["dtype"] == "float32"


@pytest.mark.parametrize("dtype", DTYPES)
def test_asked_for_dtype_is_kept_through_burn(dtype, tmp_path):
    facts = facts_for("roberta", "sequence_classification")
    state = saved_state(facts, dtype=DTYPES[dtype])
    source = write_hf(tmp_path / "hf", state, config_for("roberta", facts, dtype=dtype))
    back = there_and_back(source, tmp_path, dtype=dtype)
    assert_same_state(read_state(back), state)
    assert read_config(back)["dtype"] == dtype


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrowing_rounds_to_nearest_even(dtype, tmp_path):
    state = saved_state(facts_for("bert", "model"))
    source = small_model(tmp_path / "hf")
    result = portkit.convert(source, tmp_path / "out", to="hf", dtype=dtype, verify="tensors")
    assert sum(result.tensors.casts.values()) == len(state)
    assert_same_state(read_state(tmp_path / "out"), {n: a.astype(DTYPES[dtype]) for n, a in state.items()})


def test_layout_to_itself_keeps_the_dtype(tmp_path):
    facts = facts_for("bert", "model")
    state = saved_state(facts, dtype=np.float16)
    source = write_hf(tmp_path / "hf", state, config_for("bert", facts))
    portkit.convert(source, tmp_path / "out", to="hf", verify="tensors")
    assert_same_state(read_state(tmp_path / "out"), state)


def test_nan_in_the_source_is_moved_and_named(tmp_path):
    facts = facts_for("bert", "model")
    state = saved_state(facts)
    state["embeddings.LayerNorm.bias"][0] = np.nan
    source = write_hf(tmp_path / "hf", state, config_for("bert", facts))
    result = portkit.convert(source, tmp_path / "burn", to="burn", verify="tensors")
    assert result.proved
    assert "embeddings.LayerNorm.bias holds NaN or infinity" in result.warnings


def test_sharded_result_comes_back(tmp_path):
    source = small_model(tmp_path / "hf")
    portkit.convert(source, tmp_path / "shards", to="hf", max_shard_size=20_000, verify="tensors")
    assert len(list((tmp_path / "shards").glob("model-*.safetensors"))) > 1
    back = there_and_back(tmp_path / "shards", tmp_path)
    assert_same_state(read_state(back), saved_state(facts_for("bert", "model")))


@pytest.mark.parametrize("act", ["gelu_tanh", "relu"])
def test_other_activations_come_back_in_the_words_they_had(act, tmp_path):
    facts = replace(facts_for("bert", "model"), hidden_act=act)
    source = write_hf(tmp_path / "hf", saved_state(facts), config_for("bert", facts))
    back = there_and_back(source, tmp_path)
    assert read_config(back)["hidden_act"] == read_config(source)["hidden_act"]
    assert BACKBONE in read_state(back)


# ---------------------------------------------------------------- poolers that are made


@pytest.mark.parametrize("to", ["hf", "burn"])
def test_synthesised_pooler_is_zeros_and_says_so(to, tmp_path):
    source = small_model(tmp_path / "hf", has_pooler=False)
    result = portkit.convert(source, tmp_path / "out", to=to, pooler="synthesize", verify="tensors")
    made = [move for move in result.plan.moves if move.how == "zeros"]
    assert sorted(move.logical for move in made) == ["pooler.bias", "pooler.kernel"]
    opened = portkit.inspect(tmp_path / "out")
    assert not any(opened.logical()[move.logical].read().any() for move in made)
    assert result.plan.pooler.evidence == "zeros: the pooled output is exactly 0, and no feature"


@pytest.mark.hf
def test_forward_proof_holds_beside_a_synthesised_pooler(tmp_path):
    source = small_model(tmp_path / "hf", has_pooler=False)
    result = portkit.convert(source, tmp_path / "out", to="hf", pooler="synthesize", verify="forward")
    assert result.proved
