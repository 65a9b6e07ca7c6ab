"""Files that four generations of Keras and KerasNLP wrote are read to their true values, bit for bit."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import h5py
import numpy as np
import pytest
from keras_variables import LAYERS, assert_values, backbone, h5_read, h5_write, head, random_values, small

from portkit.checkpoint import open_checkpoint
from portkit.errors import RefusedError, UnknownModelError, UnreadableError
from portkit.record import warnings_of

FIXTURES = Path(__file__).parent / "fixtures" / "keras-old"
OLDEST = "keras2.13.1-nlp0.6.1"
GENERATIONS = (OLDEST, "keras2.15-nlp0.7.0", "keras3.0.5-nlp0.8.2", "keras3.12.0-hub0.24.0")
MODELS = ("bert", "bertcls", "roberta")


def unpacked(folder, generation, model):
    path = folder / f"{model}.weights.h5"
    path.write_bytes(gzip.decompress((FIXTURES / generation / f"{model}.weights.h5.gz").read_bytes()))
    return path


def stored_path(variable, generation, below=""):
    """Where a generation's file has a variable; `below` is what a task's backbone lies below."""
    path = variable.file
    if generation in GENERATIONS[:2]:
        path = re.sub(r"/(query|key|value|output)_dense/", r"/_\1_dense/", path)
    if generation == OLDEST:
        path = path.replace("layers/", "_layer_checkpoint_dependencies/", 1).replace("_layer_norm/", "_layernorm/")
        path = path.replace("/embedding/", "/embedding_2/").replace("/reversible_embedding/", "/embedding/")
        path = path.replace("transformer_encoder_1/", "transformer_encoder_2/")
    return below + path


def stored_paths(model, generation):
    """Every variable with its path in the file of a model."""
    task = "_backbone/" if generation == OLDEST else "layers/bert_backbone/"
    body = backbone("roberta" if model == "roberta" else "bert", LAYERS)
    found = {v: stored_path(v, generation, task if model == "bertcls" else "") for v in body}
    return {
        **found,
        **({v: stored_path(v, generation) for v in head("BertTextClassifier")} if model == "bertcls" else {}),
    }


def opened(path, model):
    return open_checkpoint(path, family="roberta" if model == "roberta" else None)


@pytest.mark.parametrize("generation", GENERATIONS)
@pytest.mark.parametrize("model", ["bert", "roberta"])
def test_values_are_those_of_the_model(tmp_path, generation, model):
    true = np.load(FIXTURES / generation / f"{model}.npz")
    expected = dict(zip(backbone(model, LAYERS), (true[name] for name in true.files), strict=True))
    checkpoint = opened(unpacked(tmp_path, generation, model), model)
    assert checkpoint.anatomy.task.name == "model"
    assert (checkpoint.facts.num_attention_heads, checkpoint.facts.hidden_size) == (2, 8)
    assert_values(checkpoint, expected)


@pytest.mark.parametrize("generation", GENERATIONS)
@pytest.mark.parametrize("model", MODELS)
def test_no_variable_is_taken_for_another(tmp_path, generation, model):
    path = unpacked(tmp_path, generation, model)
    paths = stored_paths(model, generation)
    shapes = {name: array.shape for name, array in h5_read(path).items() if not name.startswith("optimizer")}
    values = random_values(shapes)
    assert set(values) == set(paths.values())
    with h5py.File(path, "r+") as file:
        for name, array in values.items():
            file[name][...] = array
    checkpoint = opened(path, model)
    assert checkpoint.anatomy.task.name == ("sequence_classification" if model == "bertcls" else "model")
    assert_values(checkpoint, {variable: values[stored] for variable, stored in paths.items()})


@pytest.mark.parametrize("generation", GENERATIONS)
def test_variables_of_the_optimizer_are_named_and_ignored(tmp_path, generation):
    checkpoint = opened(unpacked(tmp_path, generation, "bertcls"), "bertcls")
    assert checkpoint.facts.num_labels == 3
    count = 2 if generation.startswith("keras3") else 1
    assert dict(checkpoint.anatomy.ignored) == {
        f"optimizer/vars/{i}": "training state, not a weight" for i in range(count)
    }


def test_token_embedding_at_the_root(tmp_path):
    """KerasNLP 0.5 on Keras 2.15: the token embedding is no layer, the norms are spelled in one word."""
    values = small()
    words = {"layers/reversible_embedding": "token_embedding", "_layer_norm/": "_layernorm/", "/query_": "/_query_"}
    stored = {}
    for variable, array in values.items():
        path = variable.file
        for today, then in words.items():
            path = path.replace(today, then)
        stored[path] = array
    assert "token_embedding/vars/0" in stored
    assert_values(open_checkpoint(h5_write(tmp_path / "x.weights.h5", stored)), values)


def keras_2_paths(values):
    """What `save_weights("x.h5")` of Keras 2 wrote: groups of the top layers, names of variables with `:0`."""
    top = {v: "my_backbone" if "_backbone/" in v.file else v.path.partition("/")[0] for v in values}
    return {f"{top[v]}/{v.path}:0": array for v, array in values.items()}


@pytest.mark.parametrize(
    "class_name", ["BertBackbone", "BertTextClassifier", "RobertaBackbone", "RobertaTextClassifier"]
)
@pytest.mark.parametrize("whole", [True, False], ids=["save", "save_weights"])
def test_legacy_files_by_the_names_of_layers(tmp_path, class_name, whole):
    values = small(class_name)
    stored = keras_2_paths(values)
    if whole:
        path = h5_write(tmp_path / "x.h5", {f"model_weights/{name}": array for name, array in stored.items()})
    else:
        layers = sorted({name.partition("/")[0] for name in stored})
        path = h5_write(tmp_path / "x.h5", stored, layer_names=[n.encode() for n in layers], backend=b"tensorflow")
    checkpoint = open_checkpoint(path, family="bert" if class_name.startswith("Bert") else "roberta")
    assert checkpoint.anatomy.task.name == ("model" if class_name.endswith("Backbone") else "sequence_classification")
    assert_values(checkpoint, values)


def test_a_legacy_file_that_is_no_bert_is_refused(tmp_path):
    names = ("model_weights/loose", "model_weights/{0}/{x}/kernel", "model_weights/{i.__class__}_3/kernel:0")
    path = h5_write(tmp_path / "x.h5", dict.fromkeys(names, np.zeros(3, np.float32)))
    with pytest.raises(UnknownModelError, match="no model was found"):
        open_checkpoint(path)


def test_a_tensorflow_model_of_transformers_is_called_by_its_name(tmp_path):
    stored = {
        "bert/tf_bert_for_sequence_classification/bert/embeddings/word_embeddings/weight:0": np.zeros((3, 2)),
        "bert/tf_bert_for_sequence_classification/bert/encoder/layer_._0/output/dense/kernel:0": np.zeros((2, 2)),
    }
    h5_write(tmp_path / "tf_model.h5", stored, layer_names=[b"bert"], keras_version=b"2.15.0")
    with pytest.raises(
        UnreadableError, match=r"a TensorFlow model of transformers, not of KerasHub(.|\n)*from_tf=True"
    ):
        open_checkpoint(tmp_path / "tf_model.h5")
    with pytest.raises(UnreadableError, match=r"holds no weights(.|\n)*tf_model.h5 is TensorFlow's"):
        open_checkpoint(tmp_path)


def test_a_family_that_no_file_names_is_asked_for(tmp_path):
    path = h5_write(tmp_path / "x.weights.h5", {v.file: array for v, array in small("RobertaBackbone").items()})
    words = r"the family cannot be told(.|\n)*roberta, xlm-roberta(.|\n)*--family"
    with pytest.raises(UnknownModelError, match=words):
        open_checkpoint(path)


@pytest.mark.parametrize("class_name", ["RobertaMaskedLM", "XLMRobertaTextClassifier", "BertMaskedLM"])
def test_the_group_of_a_backbone_names_the_family(tmp_path, class_name):
    values = small(class_name)
    checkpoint = open_checkpoint(h5_write(tmp_path / "x.weights.h5", {v.file: a for v, a in values.items()}))
    assert checkpoint.anatomy.task.classes["keras"] == class_name
    assert_values(checkpoint, values)


def test_sizes_come_from_the_shapes_and_a_config_may_say_more(tmp_path):
    values = small()
    path = h5_write(tmp_path / "x.weights.h5", {v.file: array for v, array in values.items()})
    checkpoint = open_checkpoint(path)
    assert [w for w in warnings_of(checkpoint) if w.startswith("no config says of which class these weights are")]
    facts = checkpoint.facts
    assert (facts.vocab_size, facts.max_position_embeddings, facts.type_vocab_size) == (13, 11, 2)
    assert (facts.hidden_size, facts.num_attention_heads, facts.intermediate_size) == (8, 2, 10)
    assert facts.num_hidden_layers == LAYERS
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"class_name": "BertBackbone", "config": {"num_layers": 3}}))
    with pytest.raises(RefusedError, match=r"num_layers(.|\n)*num_layers says 3, the tensors say 2"):
        open_checkpoint(path)


def test_two_copies_that_differ_are_refused(tmp_path):
    values = small()
    stored = {v.file: array for v, array in values.items()}
    stored["token_embedding/vars/0"] = stored["layers/reversible_embedding/vars/0"]
    assert_values(open_checkpoint(h5_write(tmp_path / "same.weights.h5", stored)), values)
    stored["token_embedding/vars/0"] = stored["token_embedding/vars/0"] + 1
    with pytest.raises(RefusedError, match="differs from another copy of the same variable"):
        open_checkpoint(h5_write(tmp_path / "differ.weights.h5", stored))
