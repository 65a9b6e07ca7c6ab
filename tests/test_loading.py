"""Folders that transformers' own loader takes for another model than the one portkit reads in them."""

from __future__ import annotations

import numpy as np
import pytest
from hf_folders import class_of, config_for, facts_for, read_config, read_state, saved_state, small_model, write_hf

import portkit
from portkit.api import verify
from portkit.proofs.loading import loaded_otherwise

TASK = "sequence_classification"


def folder(path, rename=lambda name: name, *, family="bert", task=TASK, more=None, **config):
    """A model whose tensors have other names and whose config.json other fields."""
    facts = facts_for(family, task)
    state = saved_state(facts) | (more or {})
    return write_hf(path, {rename(n): a for n, a in state.items()}, config_for(family, facts, **config))


def facts_proof(source, target):
    return verify(source, target, proofs=("facts",)).facts


def loading_info(path, family="bert", task=TASK):
    """What from_pretrained says of a folder, and the dtype that it computes in."""
    transformers = pytest.importorskip("transformers")
    kind = getattr(transformers, class_of(family, task))
    model, info = kind.from_pretrained(str(path), output_loading_info=True, local_files_only=True)
    return info, str(model.dtype)


WRAPPED = ["module.", "model.", "_orig_mod.", "0.auto_model.", "encoder."]


@pytest.mark.parametrize("front", WRAPPED)
def test_names_that_from_pretrained_does_not_find(front, tmp_path):
    source, target = small_model(tmp_path / "a", "bert", TASK), folder(tmp_path / "b", lambda n: front + n)
    verdict = facts_proof(source, target)
    assert not verdict.agrees
    (fact,) = verdict.unequal
    assert str(fact).startswith("stored_names differs: as loaded in the source, 57 that transformers does not load")
    assert fact.target.endswith(f"such as {front}bert.embeddings.word_embeddings.weight")


@pytest.mark.parametrize("front", WRAPPED)
def test_the_same_names_in_the_source_alone_or_in_both_are_no_fault_of_the_target(front, tmp_path):
    source, target = folder(tmp_path / "a", lambda n: front + n), small_model(tmp_path / "b", "bert", TASK)
    assert facts_proof(source, target).agrees
    assert [fact.name for fact in facts_proof(source, target).unequal] == ["stored_names"]
    assert facts_proof(source, source).agrees


@pytest.mark.hf
@pytest.mark.parametrize("front", WRAPPED)
def test_from_pretrained_fills_such_a_model_with_random_numbers(front, tmp_path):
    info, _ = loading_info(folder(tmp_path / "b", lambda n: front + n))
    assert len(info["missing_keys"]) == 57


def tensorflows(name):
    return name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")


def without_prefix(name):
    return name.removeprefix("bert.")


@pytest.mark.hf
@pytest.mark.parametrize("rename", [tensorflows, without_prefix, str], ids=["gamma", "no prefix", "today's"])
def test_names_that_from_pretrained_finds(rename, tmp_path):
    target = folder(tmp_path / "b", rename)
    assert loaded_otherwise(portkit.inspect(target)) == {}
    assert not loading_info(target)[0]["missing_keys"]


@pytest.mark.hf
def test_fairseqs_name_of_an_untied_decoder(tmp_path):
    words = saved_state(facts_for("roberta", "masked_lm"))["roberta.embeddings.word_embeddings.weight"]
    more = {"lm_head.weight": words * 2, "lm_head.decoder.bias": np.ones(61, np.float32)}
    target = folder(tmp_path / "b", family="roberta", task="masked_lm", more=more, tie_word_embeddings=False)
    found = loaded_otherwise(portkit.inspect(target))["stored_names"]
    assert found == "1 that transformers does not load, such as lm_head.weight"
    assert loading_info(target, "roberta", "masked_lm")[0]["missing_keys"] == {"lm_head.decoder.weight"}


@pytest.mark.hf
def test_untied_decoder_without_a_bias_of_its_own(tmp_path):
    more = {"cls.predictions.decoder.weight": np.ones((61, 24), np.float32)}
    target = folder(tmp_path / "b", task="masked_lm", more=more, tie_word_embeddings=False)
    assert loading_info(target, task="masked_lm")[0]["missing_keys"] == {"cls.predictions.decoder.bias"}
    found = loaded_otherwise(portkit.inspect(target))["stored_names"]
    assert found == "none for cls.predictions.decoder.bias, which transformers would make up"


@pytest.mark.hf
@pytest.mark.parametrize(("field", "dtype"), [("dtype", "float16"), ("torch_dtype", "bfloat16")])
def test_config_names_a_narrower_dtype_than_the_weights_have(field, dtype, tmp_path):
    source, target = small_model(tmp_path / "a", "bert", TASK), folder(tmp_path / "b", **{field: dtype})
    (fact,) = facts_proof(source, target).unequal
    assert not fact.holds
    assert fact.target == f"{dtype}, to which transformers rounds weights in F32"
    assert loading_info(target)[1] == f"torch.{dtype}"
    assert facts_proof(target, source).agrees


@pytest.mark.parametrize("dtype", ["float32", "float64", "torch.float32", None, "int8"])
def test_dtype_that_rounds_nothing(dtype, tmp_path):
    assert loaded_otherwise(portkit.inspect(folder(tmp_path / "b", dtype=dtype))) == {}


WRONG = {
    "num_labels": ({"num_labels": 7, "id2label": None}, 7),
    "id2label": ({"num_labels": None, "id2label": {str(i): f"x{i}" for i in range(3)}}, 3),
    "nothing": ({"num_labels": None, "id2label": None}, 2),
}


@pytest.mark.hf
@pytest.mark.parametrize(("config", "said"), WRONG.values(), ids=list(WRONG))
def test_config_of_another_number_of_labels(config, said, tmp_path):
    source, target = small_model(tmp_path / "a", "bert", TASK), folder(tmp_path / "b", **config)
    (fact,) = (f for f in facts_proof(source, target).unequal if f.name == "config_labels")
    assert not fact.holds
    assert fact.target == f"{said}, for a classifier of 5"
    with pytest.raises(RuntimeError, match="mismatched"):
        loading_info(target)


@pytest.mark.hf
def test_question_answering_is_as_wide_as_its_labels(tmp_path):
    task = "question_answering"
    source, target = small_model(tmp_path / "a", "bert", task), folder(tmp_path / "b", task=task, num_labels=5)
    assert [f.target for f in facts_proof(source, target).unequal] == ["5, for a classifier of 2"]
    with pytest.raises(RuntimeError, match="mismatched"):
        loading_info(target, task=task)


def test_a_choice_has_no_labels(tmp_path):
    target = folder(tmp_path / "b", task="multiple_choice", num_labels=5, id2label=None)
    assert loaded_otherwise(portkit.inspect(target)) == {}


@pytest.mark.parametrize("to", ["hf", "burn"])
def test_what_portkit_writes_of_such_folders_is_loaded_as_it_is(to, tmp_path):
    config = {"num_labels": 7, "id2label": None, "dtype": "float16"}
    source = folder(tmp_path / "a", lambda n: "module." + n, **config)
    portkit.convert(source, tmp_path / "b", to=to, verify="facts")
    portkit.convert(tmp_path / "b", tmp_path / "c", to="hf", verify="facts")
    assert loaded_otherwise(portkit.inspect(tmp_path / "c")) == {}
    assert read_config(tmp_path / "c")["dtype"] == "float32"
    assert len(read_state(tmp_path / "c")) == 57


def test_diff_notes_it(tmp_path):
    source, target = small_model(tmp_path / "a", "bert", TASK), folder(tmp_path / "b", dtype="float16")
    found = portkit.diff(source, target)
    (field,) = (f for f in found.fields if f.name.startswith("loading."))
    assert (field.name, field.state, field.a) == ("loading.config_dtype", "noted", None)
    assert field.b == "float16, to which transformers rounds weights in F32"
    assert not [f for f in portkit.diff(source, source).fields if f.name.startswith("loading.")]


@pytest.mark.parametrize("policy", ["bfloat16", "mixed_bfloat16"])
def test_keras_hub_takes_no_notice_of_a_presets_policy(policy, tmp_path):
    source = small_model(tmp_path / "a", "roberta", "model", type_vocab_size=1)
    preset = portkit.convert(source, tmp_path / "b", to="keras", verify="none").path
    config = (preset / "config.json").read_text()
    assert config.count('"name": "float32"') == 1
    (preset / "config.json").write_text(config.replace('"name": "float32"', f'"name": "{policy}"'))
    assert loaded_otherwise(portkit.inspect(preset)) == {}
    assert facts_proof(source, preset).agrees
