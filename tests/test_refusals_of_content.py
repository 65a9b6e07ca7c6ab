"""What is refused for its files, its config, its tensors or the request, and with which words."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hf_folders import config_for, facts_for, small_model, write_hf
from refusal import changed, refused
from safetensors.numpy import save_file

import portkit
from portkit.errors import RefusedError, UnreadableError, UsageError
from portkit.record import warnings_of

# ---------------------------------------------------------------- files


def test_two_sets_of_weights(tmp_path):
    source = small_model(tmp_path / "hf")
    (source / "pytorch_model.bin").write_bytes((source / "model.safetensors").read_bytes())
    words = (
        "cannot tell which weights to read",
        "holds more than one set of weights",
        "model.safetensors, pytorch_model.bin",
        "name the one to read",
    )
    refused(UnreadableError, *words, source=source, tmp_path=tmp_path)


def test_one_of_two_sets_can_be_named(tmp_path):
    source = small_model(tmp_path / "hf")
    save_file({"other": np.ones(1, np.float32)}, source / "model.safetensors.index.json")
    assert portkit.inspect(source / "model.safetensors").anatomy.task.name == "model"


def test_shards_without_their_index(tmp_path):
    source = small_model(tmp_path / "hf")
    for number in (1, 2):
        (source / f"model-0000{number}-of-00002.safetensors").write_bytes(b"")
    (source / "model.safetensors").unlink()
    words = (
        "shards without their index",
        "model-00001-of-00002.safetensors, model-00002",
        "download *.safetensors.index",
    )
    refused(UnreadableError, *words, source=source, tmp_path=tmp_path)


def test_empty_folder(tmp_path):
    (tmp_path / "hf").mkdir()
    words = ("holds no weights", "model.safetensors or", "an empty folder")
    refused(UnreadableError, *words, source=tmp_path / "hf", tmp_path=tmp_path)


def test_weights_of_another_framework_are_named(tmp_path):
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf" / "tf_model.h5").write_bytes(b"\x89HDF\r\n\x1a\n")
    words = ("tf_model.h5 is TensorFlow's, which portkit does not read",)
    refused(UnreadableError, *words, source=tmp_path / "hf", tmp_path=tmp_path)


def test_an_adapter_alone_is_named_with_what_to_do(tmp_path):
    (tmp_path / "hf").mkdir()
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        (tmp_path / "hf" / name).write_bytes(b"{}")
    words = (
        "holds no weights",
        "adapter_model.safetensors is an adapter, to be merged with merge_and_unload() of peft",
    )
    refused(UnreadableError, *words, source=tmp_path / "hf", tmp_path=tmp_path)


def test_an_adapter_beside_a_model_is_a_warning(tmp_path):
    folder = small_model(tmp_path / "hf")
    (folder / "adapter_model.safetensors").write_bytes(b"")
    assert [w for w in warnings_of(portkit.inspect(folder)) if w.startswith("adapter_model.safetensors, an adapter")]


def test_the_state_of_a_training_is_not_taken_for_weights(tmp_path):
    folder = small_model(tmp_path / "hf")
    (folder / "model.safetensors").rename(folder / "mine.safetensors")
    for name in ("optimizer.pt", "scheduler.pt", "training_args.bin", "rng_state_0.pth", "rng_state.pth", "scaler.pt"):
        (folder / name).write_bytes(b"")
    assert portkit.inspect(folder).folder.weights.name == "mine.safetensors"
    (folder / "mine.safetensors").unlink()
    refused(UnreadableError, "holds no weights", source=folder, tmp_path=tmp_path)


@pytest.mark.parametrize(
    ("buffer", "warned"),
    [
        (np.arange(37)[None], False),
        (np.arange(37, dtype=np.float16)[None], False),
        (np.zeros((1, 37), np.int64), False),
        (np.arange(37)[None, ::-1], True),
        (np.arange(2, 39)[None], True),
        (np.ones((1, 37), np.int64), True),
    ],
)
def test_a_buffer_that_is_not_what_it_is_said_to_be_is_a_warning(buffer, warned, tmp_path):
    source = changed(tmp_path, {"embeddings.position_ids": buffer})
    words = "embeddings.position_ids does not hold what its framework makes"
    assert bool([w for w in warnings_of(portkit.inspect(source)) if w.startswith(words)]) is warned


@pytest.mark.parametrize("inside", ["0_Transformer", "snapshots/1a2b3c"])
def test_weights_further_inside_are_named(inside, tmp_path):
    folder = tmp_path / "hf"
    place = small_model(folder / inside)
    (folder / "modules.json").write_text("[]", encoding="utf-8")
    words = ("holds no weights", f"weights lie further inside: name {place}")
    refused(UnreadableError, *words, source=folder, tmp_path=tmp_path)


def test_no_such_folder(tmp_path):
    refused(UnreadableError, "no such file or folder", source=tmp_path / "nowhere", tmp_path=tmp_path)


def test_a_name_on_the_hub_is_not_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnreadableError, match="first hf download bert/base-uncased --local-dir base-uncased"):
        portkit.inspect("bert/base-uncased")
    (tmp_path / "bert").mkdir()
    with pytest.raises(UnreadableError, match="no such file or folder") as caught:
        portkit.inspect("bert/base-uncased")
    assert "hf download" not in str(caught.value)


def test_no_config(tmp_path):
    source = small_model(tmp_path / "hf")
    (source / "config.json").unlink()
    words = ("no config.json beside the weights", "--config FILE names one that lies elsewhere")
    refused(UnreadableError, *words, source=source, tmp_path=tmp_path)


@pytest.mark.parametrize(("text", "words"), [("{", "not valid JSON"), ("[]", "found    a list")])
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
        ("is_causal", True, "False"),
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


@pytest.mark.parametrize(
    ("family", "field", "value", "expected"),
    [
        ("bert", "position_scheme", "padding", "'absolute'"),
        ("bert", "position_offset", 2, "0"),
        ("roberta", "position_scheme", "absolute", "'padding'"),
    ],
)
def test_burn_folder_whose_program_counts_other_positions(family, field, value, expected, tmp_path):
    burn = tmp_path / "burn"
    portkit.convert(small_model(tmp_path / "hf", family), burn, to="burn", verify="none")
    config = json.loads((burn / "config.json").read_text())
    (burn / "config.json").write_text(json.dumps({**config, field: value}))
    words = (f"config.json {field}: another function", f"expected {expected}", f"found    {value!r}")
    refused(RefusedError, *words, source=burn, tmp_path=tmp_path)


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
    words = ("unknown dialect", "--dialect: burn has no dialect 'bert-brun'", "did you mean 'bert-burn'?")
    refused(UsageError, *words, source=source, tmp_path=tmp_path, dialect="bert-brun")


def test_dialect_without_the_task(tmp_path):
    source = small_model(tmp_path / "hf", "bert", "sequence_classification")
    words = (
        "the dialect cannot hold the model",
        "--dialect bert-burn: has no sequence_classification",
        "model, masked_lm",
    )
    refused(RefusedError, *words, source=source, tmp_path=tmp_path, dialect="bert-burn")


def test_dialect_of_another_function_is_refused_when_strict(tmp_path):
    source = changed(tmp_path, {}, config={"hidden_act": "relu"})
    words = (
        "the target computes another function",
        "dialect bert-burn always has hidden_act gelu, the source has relu",
        "without --strict this is a warning",
    )
    refused(RefusedError, *words, source=source, tmp_path=tmp_path, dialect="bert-burn", strict=True)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"to": "brun"}, ("--to: 'brun' is none", "did you mean 'burn'?")),
        ({"verify": "foward"}, ("--verify: 'foward' is none", "did you mean 'forward'?")),
        (
            {"form": "safetensor"},
            ("unknown format", "--format: burn cannot be written as 'safetensor'", "did you mean 'safetensors'?"),
        ),
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
    refused(RefusedError, "the pooler cannot be as asked", words, source=source, tmp_path=tmp_path, pooler=pooler)


def test_synthesised_pooler_has_no_place_in_a_class_without_one(tmp_path):
    source = small_model(tmp_path / "hf", "bert", "masked_lm")
    words = ("--pooler synthesize: the target has no place for a pooler", "BertForQuestionAnswering have no pooler")
    refused(RefusedError, *words, source=source, tmp_path=tmp_path, to="hf", pooler="synthesize")


def test_output_that_exists_needs_force(tmp_path):
    source = small_model(tmp_path / "hf")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("keep", encoding="utf-8")
    with pytest.raises(RefusedError, match=r"the output folder exists(.|\n)*is already there") as caught:
        portkit.convert(source, tmp_path / "out", to="burn", verify="tensors")
    assert "--force replaces it, once the new one is complete" in str(caught.value)
    assert (tmp_path / "out" / "mine.txt").read_text(encoding="utf-8") == "keep"
