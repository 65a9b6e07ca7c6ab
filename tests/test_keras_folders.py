"""Presets as strangers bring them: whole ones are read to their values, the others are refused in words that help."""

from __future__ import annotations

import json
import shutil

import h5py
import numpy as np
import pytest
from keras_variables import assert_values, h5_read, small, variables, write_preset
from safetensors.numpy import load_file

import portkit
from portkit.checkpoint import open_checkpoint
from portkit.errors import PortkitError, RefusedError, UnknownModelError, UnreadableError
from portkit.record import warnings_of

CLASSES = (
    "BertBackbone",
    "BertTextClassifier",
    "BertMaskedLM",
    "RobertaBackbone",
    "RobertaTextClassifier",
    "RobertaMaskedLM",
    "XLMRobertaBackbone",
    "XLMRobertaTextClassifier",
    "XLMRobertaMaskedLM",
)
FAMILIES = {"B": "bert", "R": "roberta", "X": "xlm-roberta"}
SAVED = ("BertTextClassifier", "BertMaskedLM", "RobertaTextClassifier", "RobertaMaskedLM", "XLMRobertaBackbone")


def edit(path, change):
    content = json.loads(path.read_text(encoding="utf-8"))
    change(content)
    path.write_text(json.dumps(content), encoding="utf-8")


@pytest.fixture
def classifier(tmp_path):
    """A BERT classifier's preset, written by hand."""
    return write_preset(tmp_path / "preset", "BertTextClassifier", small("BertTextClassifier"))


@pytest.mark.parametrize("class_name", CLASSES)
def test_every_class_is_read(tmp_path, class_name):
    values = small(class_name)
    checkpoint = open_checkpoint(write_preset(tmp_path / "preset", class_name, values))
    assert (checkpoint.facts.family, checkpoint.anatomy.task.classes["keras"]) == (FAMILIES[class_name[0]], class_name)
    assert_values(checkpoint, values)
    training = () if class_name.endswith("Backbone") else ("optimizer/vars/0",)
    assert tuple(checkpoint.anatomy.ignored) == training


def test_names_of_keras_nlp_are_read(classifier):
    def rename(config):
        config["registered_name"] = config["registered_name"].replace("keras_hub", "keras_nlp")
        del config["class_name"]

    edit(classifier / "config.json", rename)
    edit(classifier / "task.json", lambda c: (rename(c), rename(c["config"]["backbone"])))
    assert open_checkpoint(classifier).anatomy.task.name == "sequence_classification"


def with_copied_backbone(folder):
    """As KerasHub before 0.30 wrote it: the head's file holds the backbone too."""
    with h5py.File(folder / "task.weights.h5", "r+") as file:
        for name, array in h5_read(folder / "model.weights.h5").items():
            file[f"layers/bert_backbone/{name}"] = array


def test_a_copy_of_the_backbone_must_agree(classifier):
    with_copied_backbone(classifier)
    assert_values(open_checkpoint(classifier), small("BertTextClassifier"))
    with h5py.File(classifier / "task.weights.h5", "r+") as file:
        file["layers/bert_backbone/layers/position_embedding/vars/0"][3, 4] += 1
    words = r"two tensors claim the same place(.|\n)*its copy of the backbone differs from model.weights.h5(.|\n)*1 tensors, such as layers/bert_backbone/layers/position_embedding"
    with pytest.raises(RefusedError, match=words):
        open_checkpoint(classifier)


@pytest.mark.parametrize("class_name", ["BertTextClassifier", "BertMaskedLM", "RobertaTextClassifier"])
def test_a_task_without_its_head_is_refused_and_its_backbone_can_be_read(tmp_path, class_name):
    folder = write_preset(tmp_path / "preset", class_name, small(class_name))
    (folder / "task.weights.h5").unlink()
    words = rf"architectures {class_name}: tensor 'layers/(dense|masked_lm_head)/(.|\n)*--task model reads it so"
    with pytest.raises(UnknownModelError, match=words):
        open_checkpoint(folder)
    for task in ("backbone", "model"):
        checkpoint = open_checkpoint(folder, task=task)
        assert checkpoint.anatomy.task.name == "model"
        body = {v: a for v, a in small(class_name).items() if "_backbone/" in v.file}
        assert_values(checkpoint, body)


def test_the_file_of_weights_stands_for_the_preset(classifier):
    assert_values(open_checkpoint(classifier / "model.weights.h5"), small("BertTextClassifier"))


@pytest.mark.parametrize("part", ["config.json", "task.json", "task.weights.h5"])
def test_a_part_of_a_preset_points_to_the_whole(classifier, part):
    with pytest.raises(UnreadableError, match=r"only a part of a checkpoint(.|\n)*name its folder: .*preset"):
        open_checkpoint(classifier / part)


def saved_model(folder):
    for name in ("model.weights.h5", "task.weights.h5"):
        (folder / name).unlink()
    (folder / "saved_model.pb").write_bytes(b"\x08\x01")
    (folder / "variables").mkdir()


def layers_in(count):
    def change(folder):
        edit(folder / "config.json", lambda c: c["config"].update(num_layers=count))
        edit(folder / "task.json", lambda c: c["config"]["backbone"]["config"].update(num_layers=count))

    return change


def in_task(change):
    return lambda folder: edit(folder / "task.json", change)


# What is done to a preset -> the error and its words.
REFUSED = {
    "empty": (
        lambda folder: [p.unlink() for p in folder.iterdir()],
        UnreadableError,
        r"holds no weights(.|\n)*model.weights.h5 or model.weights.json(.|\n)*an empty folder",
    ),
    "without the backbone": (
        lambda folder: (folder / "model.weights.h5").unlink(),
        UnreadableError,
        r"holds no weights(.|\n)*task.weights.h5",
    ),
    "SavedModel": (
        saved_model,
        UnreadableError,
        "saved_model.pb is a SavedModel of TensorFlow, which portkit does not",
    ),
    "fewer layers": (layers_in(1), RefusedError, r"num_layers says 1, the tensors say 2(.|\n)*set num_layers to 2"),
    "more layers": (layers_in(3), RefusedError, r"num_layers says 3, the tensors say 2(.|\n)*set num_layers to 2"),
    "two configs": (
        in_task(lambda c: c["config"]["backbone"]["config"].update(num_segments=4)),
        RefusedError,
        r"num_segments says 4, the tensors say 2",
    ),
    "two backbones": (
        in_task(lambda c: c["config"]["backbone"].update(class_name="RobertaBackbone")),
        UnreadableError,
        r"task.json: holds another backbone than config.json(.|\n)*BertBackbone(.|\n)*RobertaBackbone",
    ),
    "no backbone": (
        in_task(lambda c: c["config"].pop("backbone")),
        UnreadableError,
        "describes no task over a backbone",
    ),
    "no config": (in_task(lambda c: c.update(config=7)), UnreadableError, "describes no task over a backbone"),
    "odd class": (
        lambda folder: edit(folder / "config.json", lambda c: c.update(class_name=["x"], registered_name={})),
        UnreadableError,
        "holds another backbone than config.json",
    ),
    "broken task": (
        lambda folder: (folder / "task.json").write_text("["),
        UnreadableError,
        "task.json: the file is not valid JSON",
    ),
    "broken head": (
        lambda folder: (folder / "task.weights.h5").write_text("<html>"),
        UnreadableError,
        "task.weights.h5: not a weight file(.|\n)*a web page",
    ),
    "shards too": (
        lambda folder: (folder / "model.weights.json").write_text("{}"),
        UnreadableError,
        r"holds more than one set of weights(.|\n)*model.weights.h5, model.weights.json",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_whole_is_refused(classifier, name):
    change, kind, words = REFUSED[name]
    change(classifier)
    with pytest.raises(kind, match=words):
        open_checkpoint(classifier)


@pytest.mark.parametrize("found", ["BertTextClassifier", "DistilBertTextClassifier", "GemmaBackbone"])
def test_other_classes_are_named(classifier, found):
    values = small("BertTextClassifier")
    edit(classifier / "task.json", lambda c: c.update(class_name=found))
    if found.startswith("Bert"):
        assert_values(open_checkpoint(classifier), values)
        return
    for name in ("config.json", "task.json"):
        kind = "DistilBertBackbone" if found.startswith("Distil") else found
        edit(classifier / name, lambda c, kind=kind: c["config"].get("backbone", c).update(class_name=kind))
    with pytest.raises(UnknownModelError, match=rf"'{kind}' has no table(.|\n)*bert, camembert, roberta"):
        open_checkpoint(classifier)


def test_a_head_of_another_width_is_refused(tmp_path):
    folder = write_preset(tmp_path / "preset", "RobertaTextClassifier", small("RobertaTextClassifier"), hidden_dim=32)
    words = r"the head cannot be read(.|\n)*RobertaTextClassifier hidden_dim: a head of another width(.|\n)*expected 8(.|\n)*found +32"
    with pytest.raises(RefusedError, match=words):
        open_checkpoint(folder)
    edit(folder / "task.json", lambda c: c["config"].update(hidden_dim=8))
    assert_values(open_checkpoint(folder), small("RobertaTextClassifier"))


@pytest.mark.parametrize(("activation", "warned"), [("softmax", True), ("linear", False), (None, False)])
def test_an_activation_behind_the_logits_is_a_warning(tmp_path, activation, warned):
    values = small("BertTextClassifier")
    folder = write_preset(tmp_path / "preset", "BertTextClassifier", values, activation=activation)
    checkpoint = open_checkpoint(folder)
    assert_values(checkpoint, values)
    told = [w for w in warnings_of(checkpoint) if "the Keras classifier ends in 'softmax'" in w]
    assert bool(told) is warned
    back = portkit.convert(folder, tmp_path / "hf", to="hf", verify="tensors")
    assert [w for w in back.warnings if "softmax" in w] == told


@pytest.mark.parametrize(
    "policy",
    [
        "int8_from_mixed_bfloat16",
        {"class_name": "QuantizedDTypePolicy", "config": {"mode": "int8", "source_name": "float32"}},
        {"class_name": "GPTQDTypePolicy", "config": {"mode": "gptq/4/128", "source_name": "float32"}},
        {"class_name": "DTypePolicy", "config": {"name": "int8_from_float32"}},
        {
            "class_name": "DTypePolicyMap",
            "config": {"policy_map": {"a": {"class_name": "Q8DTypePolicy", "config": {}}}},
        },
    ],
)
def test_a_quantising_policy_is_found_however_it_is_spelt(tmp_path, policy):
    folder = write_preset(tmp_path / "preset", "BertBackbone", small("BertBackbone"))
    edit(folder / "config.json", lambda c: c["config"].update(dtype={"class_name": "DTypePolicy", "config": {}}))
    open_checkpoint(folder)
    edit(folder / "config.json", lambda c: c["config"].update(dtype=policy))
    with pytest.raises(RefusedError, match=r"config\.json config\.dtype\S*: a quantised layer"):
        open_checkpoint(folder)


def test_shards_of_a_task(tmp_path, classifier):
    body = h5_read(classifier / "model.weights.h5")
    (classifier / "model.weights.h5").unlink()
    places = {}
    for i, name in enumerate(sorted(body)):
        shard = f"model_0000{i % 2}.weights.h5"
        with h5py.File(classifier / shard, "a") as file:
            file[name] = body[name]
        group = "/" + name.rpartition("/")[0]
        places.setdefault(group, [])
        places[group] = sorted({*places[group], shard})
    places = {group: files if len(files) > 1 else files[0] for group, files in places.items()}
    assert {type(files) for files in places.values()} == {str, list}
    index = {"metadata": {"total_size": 1.0}, "weight_map": places}
    (classifier / "model.weights.json").write_text(json.dumps(index))
    checkpoint = open_checkpoint(classifier)
    assert_values(checkpoint, small("BertTextClassifier"))
    assert len(checkpoint.folder.weights_files()) == 4


# ---------------------------------------------------------------- what KerasHub itself saves


def true_values(saves, class_name):
    stored = load_file(saves / f"{class_name}.safetensors")
    found = {v: stored[v.path] for v in variables(class_name, 3)}
    assert len(found) == len(stored)
    return found


@pytest.mark.keras
@pytest.mark.parametrize("class_name", SAVED)
@pytest.mark.parametrize("suffix", ["", ".weights.h5", ".keras", ".h5"])
def test_what_keras_hub_saves_is_read_to_its_values(keras_saves, class_name, suffix):
    family = FAMILIES[class_name[0]] if suffix == ".weights.h5" else None
    checkpoint = open_checkpoint(keras_saves / f"{class_name}{suffix}", family=family)
    assert checkpoint.anatomy.task.classes["keras"] == class_name
    assert (checkpoint.facts.num_attention_heads, checkpoint.facts.num_hidden_layers) == (3, 3)
    assert_values(checkpoint, true_values(keras_saves, class_name))
    assert checkpoint.anatomy.unexplained == ()
    ignored = [] if class_name.endswith("Backbone") else ["optimizer"]
    assert [name for name in ignored if not any(name in i for i in checkpoint.anatomy.ignored)] == []


@pytest.mark.keras
def test_shards_of_keras_hub(keras_saves):
    checkpoint = open_checkpoint(keras_saves / "RobertaBackbone.shards")
    stored = load_file(keras_saves / "RobertaBackbone.shards.safetensors")
    assert_values(checkpoint, {v: stored[v.path] for v in variables("RobertaBackbone", 3)})
    assert len(checkpoint.folder.weights_files()) > 2


@pytest.mark.keras
def test_variants_of_keras_hub(keras_saves):
    narrow = open_checkpoint(keras_saves / "BertTextClassifier.bfloat16")
    assert {t.spec.dtype for t in narrow.logical().values()} == {"BF16"}
    whole = true_values(keras_saves, "BertTextClassifier")
    for variable, array in whole.items():
        found = narrow.logical()[variable.logical].read()
        assert np.abs(found.astype(np.float32) - variable.canonical(array)).max() < 0.02, variable
    assert "the Keras classifier ends in 'softmax'" in " ".join(
        warnings_of(open_checkpoint(keras_saves / "BertTextClassifier.softmax"))
    )
    with pytest.raises(RefusedError, match="hidden_dim: a head of another width"):
        open_checkpoint(keras_saves / "RobertaTextClassifier.wide")
    with pytest.raises(UnknownModelError, match="'DistilBertBackbone' has no table"):
        open_checkpoint(keras_saves / "DistilBertBackbone")


@pytest.mark.keras
@pytest.mark.parametrize("mode", ["int8", "int4", "float8"])
def test_a_model_that_keras_quantised_is_refused_by_the_mode(keras_saves, mode):
    folder = keras_saves / f"BertTextClassifier.{mode}"
    words = rf"the model is quantised(.|\n)*policy_map\S+: a quantised layer(.|\n)*found +{mode}(.|\n)*dequantise it"
    with pytest.raises(RefusedError, match=words):
        open_checkpoint(folder)


@pytest.mark.keras
def test_an_adapter_is_in_the_kernels_that_keras_saves(keras_saves):
    stored = load_file(keras_saves / "BertBackbone.lora.safetensors")
    checkpoint = open_checkpoint(keras_saves / "BertBackbone.lora")
    assert_values(checkpoint, {v: stored[v.path] for v in variables("BertBackbone", 3)})


@pytest.mark.keras
@pytest.mark.hf
def test_what_stands_behind_the_logits_is_no_part_of_the_proof(keras_saves, tmp_path):
    result = portkit.convert(keras_saves / "BertTextClassifier.softmax", tmp_path / "hf", to="hf", verify="forward")
    assert result.forward.agrees
    assert "logits" in [item.output for item in result.forward.agreements]


@pytest.mark.keras
def test_a_trained_classifier_carries_its_optimizer(keras_saves):
    checkpoint = open_checkpoint(keras_saves / "BertTextClassifier.trained")
    moments = len(variables("BertTextClassifier", 3)) * 2
    assert len(checkpoint.anatomy.ignored) == moments + 2
    assert set(checkpoint.anatomy.ignored.values()) == {"training state, not a weight"}


@pytest.mark.keras
def test_a_damaged_preset_is_an_error_of_ours(keras_saves, tmp_path):
    folder = shutil.copytree(keras_saves / "BertMaskedLM", tmp_path / "preset")
    path = folder / "model.weights.h5"
    whole = path.read_bytes()
    for size in (0, 9, 2000, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:size])
        with pytest.raises(PortkitError, match=r"model\.weights\.h5"):
            open_checkpoint(folder)
