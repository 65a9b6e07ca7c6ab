"""What is refused, and with which words: what, where, expected, found, what to do next."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hf_folders import (
    assert_same_state,
    config_for,
    facts_for,
    read_state,
    saved_state,
    small_model,
    write_hf,
)
from safetensors.numpy import load_file, save_file

import portkit
from portkit.errors import RefusedError, UnknownModelError, UnreadableError, UsageError


def refused(kind, *words, source, tmp_path, **options):
    """Converting raises `kind`, says all of `words`, and leaves nothing behind."""
    options = {"to": "burn", "verify": "tensors", **options}
    with pytest.raises(kind, match=re.escape(words[0])) as caught:
        portkit.convert(source, tmp_path / "out", **options)
    for word in words:
        assert word in str(caught.value)
    assert not (tmp_path / "out").exists()
    return caught.value


def changed(tmp_path, state, family="bert", task="model", config=None):
    """A folder whose stored tensors and config differ from a sound model's."""
    facts = facts_for(family, task)
    return write_hf(tmp_path / "hf", {**saved_state(facts), **state}, config_for(family, facts, **(config or {})))


def without(tmp_path, gone, family="bert", task="model", config=None):
    facts = facts_for(family, task)
    state = {name: array for name, array in saved_state(facts).items() if not gone(name)}
    return write_hf(tmp_path / "hf", state, config_for(family, facts, **(config or {})))


# ---------------------------------------------------------------- names


def test_tensor_inside_the_encoder_is_another_architecture(tmp_path):
    name = "encoder.layer.0.attention.self.distance_embedding.weight"
    source = changed(tmp_path, {name: np.ones((9, 8), np.float32)})
    words = (f"{name}: part of the encoder that no row explains: this is another architecture", f"--drop '{name}'")
    refused(RefusedError, *words, source=source, tmp_path=tmp_path)


def test_residue_does_not_keep_a_part_of_the_encoder(tmp_path):
    source = changed(
        tmp_path, {"encoder.layer.0.attention.self.distance_embedding.weight": np.ones((9, 8), np.float32)}
    )
    refused(RefusedError, "this is another architecture", source=source, tmp_path=tmp_path, residue=True)


def test_foreign_heads_are_all_named_with_the_two_ways_out(tmp_path):
    heads = {"cls.species.weight": np.ones((4, 24), np.float32), "probe.bias": np.ones(3, np.float32)}
    source = changed(tmp_path, heads)
    words = ("(2 problems)", "cls.species.weight: no row explains it", "probe.bias: no row explains it")
    hint = "--drop 'cls.species.*' leaves it out, --residue keeps it beside the weights"
    refused(RefusedError, *words, hint, source=source, tmp_path=tmp_path)


def test_dropped_heads_are_recorded_and_the_rest_converts(tmp_path):
    source = changed(tmp_path, {"cls.species.weight": np.ones((4, 24), np.float32)})
    result = portkit.convert(source, tmp_path / "out", to="hf", drop=("cls.*",), verify="tensors")
    assert result.plan.dropped == {"cls.species.weight": "--drop 'cls.*'"}
    assert_same_state(read_state(tmp_path / "out"), saved_state(facts_for("bert", "model")))


def test_residue_keeps_foreign_heads_as_they_were(tmp_path):
    head = np.arange(96, dtype=np.float16).reshape(4, 24)
    source = changed(tmp_path, {"cls.species.weight": head})
    portkit.convert(source, tmp_path / "out", to="burn", residue=True, verify="tensors")
    kept = load_file(tmp_path / "out" / "portkit.residue.safetensors")
    assert_same_state(kept, {"cls.species.weight": head})


def test_drop_that_matches_nothing_is_a_mistake(tmp_path):
    source = changed(tmp_path, {"cls.species.weight": np.ones((4, 24), np.float32)})
    words = (
        "--drop 'cls.spices.weight': matches no tensor that could be dropped",
        "did you mean 'cls.species.weight'?",
    )
    refused(RefusedError, *words, source=source, tmp_path=tmp_path, drop=("cls.spices.weight", "cls.species.*"))


def test_prefix_that_fits_twice_lists_both(tmp_path):
    two = {
        f"{tower}.{n}": a for tower in ("query", "document") for n, a in saved_state(facts_for("bert", "model")).items()
    }
    source = write_hf(tmp_path / "hf", two, config_for("bert", facts_for("bert", "model")))
    words = (
        "more than one model is in the file",
        "the prefix fits twice",
        "'document.'",
        "'query.'",
        "--strip-prefix 'query.'",
    )
    refused(UnknownModelError, *words, source=source, tmp_path=tmp_path)


def test_strip_prefix_reads_one_of_two_models(tmp_path):
    state = saved_state(facts_for("bert", "model"))
    two = {**{f"query.{n}": a for n, a in state.items()}, **{f"document.{n}": a + 1 for n, a in state.items()}}
    source = write_hf(tmp_path / "hf", two, config_for("bert", facts_for("bert", "model")))
    chosen = {"open_with": {"strip_prefix": "query."}, "drop": ("document.*",)}
    portkit.convert(source, tmp_path / "out", to="hf", verify="tensors", **chosen)
    assert_same_state(read_state(tmp_path / "out"), state)


def test_unknown_prefix_is_named(tmp_path):
    state = {f"student.{n}": a for n, a in saved_state(facts_for("bert", "model")).items()}
    source = write_hf(tmp_path / "hf", state, config_for("bert", facts_for("bert", "model")))
    words = ("the backbone's names start with 'student.'", "--strip-prefix 'student.' reads the model below it")
    refused(UnknownModelError, *words, source=source, tmp_path=tmp_path)


def test_missing_layer_is_listed_by_name(tmp_path):
    source = without(tmp_path, lambda name: ".layer.1." in name)
    words = (
        "no model fits the names; nearest is bert, task model",
        "encoder.layer.1.attention.self.query.weight: missing",
    )
    refused(UnknownModelError, *words, "and 4 more", source=source, tmp_path=tmp_path)


def test_missing_last_layer_contradicts_the_config(tmp_path):
    source = without(tmp_path, lambda name: ".layer.2." in name)
    words = ("config.json num_hidden_layers: contradicts the weights", "expected 3", "found    2 layers")
    refused(RefusedError, *words, source=source, tmp_path=tmp_path)


def test_classifier_without_its_pooler_is_named_by_architectures(tmp_path):
    source = without(tmp_path, lambda name: ".pooler." in name, task="sequence_classification")
    words = (
        "config.json and weights name different models",
        "architectures BertForSequenceClassification: tensor 'bert.pooler.dense.weight' is not in the file",
        "--task token_classification reads it so",
    )
    refused(UnknownModelError, *words, source=source, tmp_path=tmp_path)


def test_wrong_model_type_is_told_by_the_head(tmp_path):
    source = changed(tmp_path, {}, task="masked_lm", config={"model_type": "roberta", "architectures": None})
    words = (
        "config.json model_type: says 'roberta', the weights are another family's",
        "names of bert, task masked_lm",
        "--family bert reads it as one",
    )
    refused(UnknownModelError, *words, source=source, tmp_path=tmp_path)


def test_family_without_a_table(tmp_path):
    source = changed(tmp_path, {}, config={"model_type": "electra"})
    words = (
        "config.json model_type: 'electra' has no table",
        "families with a table: bert, camembert, roberta, xlm-roberta",
    )
    refused(UnknownModelError, *words, source=source, tmp_path=tmp_path)


def test_misspelt_family_gets_a_suggestion(tmp_path):
    source = small_model(tmp_path / "hf")
    refused(
        UnknownModelError, "did you mean 'roberta'?", source=source, tmp_path=tmp_path, open_with={"family": "robreta"}
    )


def test_family_that_cannot_be_told(tmp_path):
    source = changed(
        tmp_path, {}, config={"model_type": None, "architectures": None, "pad_token_id": 7, "type_vocab_size": 2}
    )
    words = (
        "the family cannot be told",
        "no model_type, and the names fit several families",
        "say which with --family",
    )
    refused(UnknownModelError, *words, source=source, tmp_path=tmp_path)


def test_names_of_no_model_at_all(tmp_path):
    state = {"conv.weight": np.ones((3, 3), np.float32)}
    source = write_hf(tmp_path / "hf", state, config_for("bert", facts_for("bert", "model")))
    refused(UnknownModelError, "no word embeddings among the names", source=source, tmp_path=tmp_path)


def test_already_converted_folder_is_not_taken_for_hugging_face(tmp_path):
    portkit.convert(small_model(tmp_path / "hf"), tmp_path / "burn", to="burn", form="safetensors", verify="tensors")
    words = (
        "the folder is of another layout",
        "these are the names of layout 'burn'",
        "already converted? leave --from out",
    )
    refused(UnknownModelError, *words, source=tmp_path / "burn", tmp_path=tmp_path, open_with={"layout": "hf"})


# ---------------------------------------------------------------- files


def test_two_sets_of_weights(tmp_path):
    source = small_model(tmp_path / "hf")
    (source / "pytorch_model.bin").write_bytes((source / "model.safetensors").read_bytes())
    words = ("holds more than one set of weights", "model.safetensors, pytorch_model.bin", "name the one to read")
    refused(UnreadableError, *words, source=source, tmp_path=tmp_path)


def test_one_of_two_sets_can_be_named(tmp_path):
    source = small_model(tmp_path / "hf")
    save_file({"other": np.ones(1, np.float32)}, source / "model.safetensors.index.json")
    assert portkit.inspect(source / "model.safetensors").anatomy.task.name == "model"


def test_empty_folder(tmp_path):
    (tmp_path / "hf").mkdir()
    words = ("holds no weights", "model.safetensors or", "an empty folder")
    refused(UnreadableError, *words, source=tmp_path / "hf", tmp_path=tmp_path)


def test_weights_of_another_framework_are_named(tmp_path):
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf" / "tf_model.h5").write_bytes(b"\x89HDF\r\n\x1a\n")
    words = ("tf_model.h5 is TensorFlow's, which portkit does not read",)
    refused(UnreadableError, *words, source=tmp_path / "hf", tmp_path=tmp_path)


def test_no_such_folder(tmp_path):
    refused(UnreadableError, "no such file or folder", source=tmp_path / "nowhere", tmp_path=tmp_path)


def test_no_config(tmp_path):
    source = small_model(tmp_path / "hf")
    (source / "config.json").unlink()
    words = ("no config.json beside the weights", "--config FILE names one that lies elsewhere")
    refused(UnreadableError, *words, source=source, tmp_path=tmp_path)


@pytest.mark.parametrize(("text", "words"), [("{", "not a JSON file"), ("[]", "not a JSON object")])
def test_config_that_is_none(text, words, tmp_path):
    source = small_model(tmp_path / "hf")
    (source / "config.json").write_text(text, encoding="utf-8")
    refused(UnreadableError, words, source=source, tmp_path=tmp_path)


def test_file_without_tensors(tmp_path):
    source = write_hf(tmp_path / "hf", {}, config_for("bert", facts_for("bert", "model")))
    refused(UnreadableError, "holds no tensors", source=source, tmp_path=tmp_path)


# ---------------------------------------------------------------- configs


def test_all_contradictions_come_at_once(tmp_path):
    wrong = {"vocab_size": 60, "hidden_size": 27, "num_hidden_layers": 4, "intermediate_size": 41}
    source = changed(tmp_path, {}, config=wrong)
    words = (
        "config.json and weights contradict each other",
        "config.json hidden_size: contradicts the weights",
        "config.json intermediate_size: contradicts the weights",
        "config.json num_hidden_layers: contradicts the weights",
        "config.json vocab_size: contradicts the weights",
        "61 in 1 tensors, such as embeddings.word_embeddings.weight",
    )
    refused(RefusedError, *words, source=source, tmp_path=tmp_path)


def test_heads_that_do_not_divide_the_hidden_size(tmp_path):
    source = changed(tmp_path, {}, config={"num_attention_heads": 5})
    words = ("config.json hidden_size / num_attention_heads", "a division without remainder", "24 / 5")
    refused(RefusedError, *words, source=source, tmp_path=tmp_path)


@pytest.mark.parametrize(
    ("value", "found"), [(None, "nothing"), ("many", "'many'"), (0, "0"), (True, "True"), (2.5, "2.5")]
)
def test_size_that_is_none(value, found, tmp_path):
    source = changed(tmp_path, {}, config={"vocab_size": value})
    words = ("config.json vocab_size: no usable value", "a whole number above 0", f"found    {found}")
    refused(RefusedError, *words, source=source, tmp_path=tmp_path)


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        ("is_decoder", True, "False"),
        ("add_cross_attention", True, "False"),
        ("position_embedding_type", "relative_key", "'absolute'"),
        ("position_embedding_type", "relative_key_query", "'absolute'"),
        ("pruned_heads", {"0": [1]}, "{}"),
        ("quantization_config", {"quant_method": "bitsandbytes"}, "{}"),
    ],
)
@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_config_that_asks_for_another_function(family, field, value, expected, tmp_path):
    source = changed(tmp_path, {}, family=family, config={field: value})
    words = (f"config.json {field}: another function than the table describes", f"expected {expected}")
    refused(RefusedError, *words, source=source, tmp_path=tmp_path)


def test_activation_that_burn_lacks(tmp_path):
    source = changed(tmp_path, {}, config={"hidden_act": "silu"})
    words = ("config.json hidden_act: burn cannot compute 'silu'", "gelu, gelu_tanh, relu")
    refused(RefusedError, *words, source=source, tmp_path=tmp_path)


# ---------------------------------------------------------------- tensors


def test_eight_bit_weights(tmp_path):
    name = "encoder.layer.0.attention.self.query.weight"
    source = changed(tmp_path, {name: np.ones((24, 24), np.int8)})
    words = (
        f"{name}: is no plain floating-point weight",
        "found    I8",
        "dequantise it with the tool that quantised it",
    )
    refused(UnreadableError, *words, source=source, tmp_path=tmp_path)


def test_transposed_matrix_is_named_by_its_row(tmp_path):
    name = "encoder.layer.0.intermediate.dense.weight"
    source = changed(tmp_path, {name: np.ones((24, 40), np.float32)})
    words = (f'{name}: shape does not fit mappings/bert.toml [rows.backbone."layer.{{i}}.mlp.up"]', "transposed:")
    refused(RefusedError, *words, source=source, tmp_path=tmp_path)


def test_two_spellings_that_differ(tmp_path):
    source = changed(tmp_path, {"embeddings.LayerNorm.gamma": np.full(24, 7, np.float32)})
    words = (
        "embeddings.LayerNorm.gamma: differs from another spelling of the same tensor",
        "embeddings.LayerNorm.weight",
    )
    refused(RefusedError, *words, source=source, tmp_path=tmp_path)


# ---------------------------------------------------------------- requests


def test_unknown_dialect_gets_a_suggestion(tmp_path):
    source = small_model(tmp_path / "hf")
    words = ("--dialect: burn has no dialect 'bert-brun'", "did you mean 'bert-burn'?")
    refused(UsageError, *words, source=source, tmp_path=tmp_path, dialect="bert-brun")


def test_dialect_without_the_task(tmp_path):
    source = small_model(tmp_path / "hf", "bert", "sequence_classification")
    words = ("--dialect bert-burn: has no sequence_classification", "model, masked_lm")
    refused(RefusedError, *words, source=source, tmp_path=tmp_path, dialect="bert-burn")


def test_dialect_of_another_function_is_refused_when_strict(tmp_path):
    source = changed(tmp_path, {}, config={"hidden_act": "relu"})
    words = ("bert-burn always computes hidden_act gelu, the source has relu", "without --strict this is a warning")
    refused(RefusedError, *words, source=source, tmp_path=tmp_path, dialect="bert-burn", strict=True)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"to": "brun"}, ("--to: 'brun' is none", "did you mean 'burn'?")),
        ({"verify": "foward"}, ("--verify: 'foward' is none", "did you mean 'forward'?")),
        ({"form": "safetensor"}, ("--format: burn cannot be written as 'safetensor'", "did you mean 'safetensors'?")),
    ],
)
def test_unknown_choices_get_a_suggestion(options, words, tmp_path):
    refused(UsageError, *words, source=small_model(tmp_path / "hf"), tmp_path=tmp_path, **options)


@pytest.mark.parametrize(
    ("task", "pooler", "words"),
    [
        ("sequence_classification", "drop", "the head of sequence_classification reads the pooler"),
        ("masked_lm", "require", "the source has no pooler"),
    ],
)
def test_pooler_that_cannot_be_as_asked(task, pooler, words, tmp_path):
    source = small_model(tmp_path / "hf", "bert", task)
    refused(RefusedError, words, source=source, tmp_path=tmp_path, pooler=pooler)


def test_synthesised_pooler_has_no_place_in_a_class_without_one(tmp_path):
    source = small_model(tmp_path / "hf", "bert", "masked_lm")
    words = ("--pooler synthesize: the target has no place for a pooler", "BertForQuestionAnswering have no pooler")
    refused(RefusedError, *words, source=source, tmp_path=tmp_path, to="hf", pooler="synthesize")


def test_output_that_exists_needs_force(tmp_path):
    source = small_model(tmp_path / "hf")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("keep", encoding="utf-8")
    with pytest.raises(RefusedError, match="is already there") as caught:
        portkit.convert(source, tmp_path / "out", to="burn", verify="tensors")
    assert "--force replaces it, once the new one is complete" in str(caught.value)
    assert (tmp_path / "out" / "mine.txt").read_text(encoding="utf-8") == "keep"
