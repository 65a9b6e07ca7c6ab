"""The presets that portkit writes: file by file as KerasHub saves them, and loaded by it to the same numbers."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from importlib import util
from pathlib import Path

import h5py
import numpy as np
import pytest
from hf_folders import config_for, facts_for, saved_state, write_hf
from keras_variables import h5_read, variables
from models import random_logical
from safetensors.numpy import load_file

import portkit

FAMILIES = {"bert": "Bert", "roberta": "Roberta", "xlm-roberta": "XLMRoberta"}
KINDS = {"model": "Backbone", "sequence_classification": "TextClassifier", "masked_lm": "MaskedLM"}
CLASSES = {f"{c}{k}": (family, task) for family, c in FAMILIES.items() for task, k in KINDS.items()}
SAVED = ("BertTextClassifier", "BertMaskedLM", "RobertaTextClassifier", "RobertaMaskedLM", "XLMRobertaBackbone")
SKIPPED_OPTIMIZER = "Skipping variable loading for optimizer"


def converted(folder, class_name):
    """A random model of transformers, converted to Keras; the logical tensors that it was made of."""
    family, task = CLASSES[class_name]
    facts = facts_for(family, task)
    source = write_hf(folder / f"hf-{class_name}", saved_state(facts), config_for(family, facts))
    portkit.convert(source, folder / class_name, to="keras", verify="tensors")
    return random_logical(facts)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """The folder of converted presets by their classes, and their logical tensors."""
    folder = tmp_path_factory.mktemp("written")
    return folder, {name: converted(folder, name) for name in CLASSES}


def loaded_by(backend, folder, home):
    environment = os.environ | {"KERAS_BACKEND": backend, "KERAS_HOME": str(home), "TF_CPP_MIN_LOG_LEVEL": "3"}
    script = Path(__file__).with_name("keras_loads.py")
    words = [sys.executable, script, *(folder / name for name in CLASSES)]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return backend


@pytest.fixture(scope="module", params=["torch", "tensorflow"])
def backend(request, written, tmp_path_factory):
    if util.find_spec("keras_hub") is None or util.find_spec(request.param) is None:
        pytest.skip(f"KerasHub or {request.param} is not installed")
    return loaded_by(request.param, written[0], tmp_path_factory.mktemp("home"))


@pytest.mark.keras
@pytest.mark.parametrize("class_name", CLASSES)
def test_every_variable_is_loaded(written, backend, class_name):
    folder, logical = written[0] / class_name, written[1][class_name]
    said = json.loads((folder / f"{backend}.json").read_text())
    assert said["class"] == class_name
    assert [w for w in said["warnings"] if SKIPPED_OPTIMIZER not in w] == []
    found = load_file(folder / f"{backend}.safetensors")
    every = variables(class_name, 3)
    assert set(found) == {v.path for v in every}
    for variable in every:
        array, wanted = variable.canonical(found[variable.path]), expected(variable, class_name, logical)
        assert (array.dtype, array.shape) == (wanted.dtype, wanted.shape), variable
        assert np.ascontiguousarray(array).tobytes() == np.ascontiguousarray(wanted).tobytes(), variable


def expected(variable, class_name, logical):
    """RoBERTa's positions begin behind the reserved rows, with the token type in each; BERT always has a pooler."""
    if variable.logical == "embeddings.position.table" and not class_name.startswith("Bert"):
        return logical[variable.logical][2:] + logical["embeddings.type.table"][0]
    if variable.logical.startswith("pooler.") and class_name == "BertMaskedLM":
        return np.zeros((24, 24) if variable.logical.endswith("kernel") else 24, np.float32)
    return logical[variable.logical]


@pytest.mark.parametrize("class_name", CLASSES)
def test_the_datasets_are_those_of_keras(written, class_name):
    folder = written[0] / class_name
    every = variables(class_name, 3)
    prefixed = [v.file for v in every if "_backbone/" in v.file]
    body = {name.partition("_backbone/")[2] for name in prefixed} or {v.file for v in every}
    assert set(h5_read(folder / "model.weights.h5")) == body
    tasks = [] if class_name.endswith("Backbone") else ["task.json", "task.weights.h5"]
    assert {p.name for p in folder.iterdir() if p.suffix in (".json", ".h5")} - {"torch.json", "tensorflow.json"} == {
        "config.json", "metadata.json", "model.weights.h5", "portkit.json", *tasks
    }  # fmt: skip
    if tasks:
        assert set(h5_read(folder / "task.weights.h5")) == {v.file for v in every}
    for path in folder.glob("*.h5"):
        with h5py.File(path) as file:
            assert "vars" in file
            assert sorted(file) == ["layers", "vars"]
            assert (len(file["vars"]), dict(file.attrs)) == (0, {})


def said(path):
    """A JSON file without what is not the model's: the date, counters in names, the head's dropout, other tasks."""
    if not path.exists():
        return None
    content = json.loads(re.sub(r'("name": "\w+?)_\d+"', r'\1"', path.read_text(encoding="utf-8")))
    content.pop("date_saved", None)
    if path.name == "metadata.json":
        content["tasks"] = [t for t in content["tasks"] if t != "TextEmbedder"]
    if path.name == "task.json":
        content["config"].pop("dropout", None)
    return content


def without_memory(folder):
    """The folder as a stranger has it: without portkit's record and residue."""
    for path in folder.glob("portkit*"):
        path.unlink()
    return folder


@pytest.mark.keras
@pytest.mark.parametrize("class_name", SAVED)
def test_a_preset_of_keras_hub_comes_back_as_it_was(keras_saves, tmp_path, class_name):
    """Through transformers' form and without a memory of the first preset: all is written anew."""
    original = shutil.copytree(keras_saves / class_name, tmp_path / "original")
    portkit.convert(original, tmp_path / "hf", to="hf", verify="tensors")
    portkit.convert(without_memory(tmp_path / "hf"), tmp_path / "keras", to="keras", verify="tensors")
    for name in ("config.json", "task.json", "metadata.json"):
        ours, theirs = (said(folder / name) for folder in (tmp_path / "keras", original))
        assert ours == theirs, name
    before = h5_read(original / "model.weights.h5")
    if class_name == "BertMaskedLM":  # transformers' has no pooler, and no head reads it
        before |= {name: np.zeros_like(before[name]) for name in ("layers/dense/vars/0", "layers/dense/vars/1")}
    assert_same(h5_read(tmp_path / "keras" / "model.weights.h5"), before)
    if not class_name.endswith("Backbone"):
        ours, theirs = (h5_read(folder / "task.weights.h5") for folder in (tmp_path / "keras", original))
        assert_same(
            {n: a for n, a in ours.items() if "_backbone/" not in n},
            {n: a for n, a in theirs.items() if not n.startswith("optimizer/")},
        )


def assert_same(found, wanted):
    assert sorted(found) == sorted(wanted)
    for name, array in wanted.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape), name
        assert found[name].tobytes() == array.tobytes(), name
