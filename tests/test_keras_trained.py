"""Classifiers that KerasHub built and trained, taken to transformers and to Burn: the same outputs."""

from __future__ import annotations

import numpy as np
import pytest
from hf_folders import read_config
from keras_presets import batch
from keras_saves import TRAINED
from keras_variables import h5_read
from safetensors.numpy import load_file

import portkit
from portkit.runtimes.burn_runtime import burn_available, run_burn
from portkit.runtimes.transformers_runtime import run_transformers

pytestmark = pytest.mark.keras

CLOSE = {"rtol": 0, "atol": 3e-5}  # float32 in two frameworks; logits reach 10
TASK = "sequence_classification"


def assert_as_in_keras(found, saves, class_name):
    """Real tokens, and all that is one vector to a row; padding has no positions of its own in transformers."""
    wanted = load_file(saves / f"{class_name}.trained.safetensors")
    real = batch(class_name).attention_mask.astype(bool)
    assert {"hidden_states.0", "hidden_states.3", "logits"} <= wanted.keys() & found.keys()
    for name, array in wanted.items():
        rows = real if name.startswith("hidden_states") else slice(None)
        assert found[name].shape == array.shape
        np.testing.assert_allclose(found[name][rows], array[rows], err_msg=name, **CLOSE)


def source(saves, class_name):
    return saves / f"{class_name}.trained"


@pytest.mark.parametrize("class_name", TRAINED)
def test_training_changed_the_model(keras_saves, class_name):
    """Where a model of the same first numbers was saved: all of it is trained, the pooler and the head too."""
    if class_name.startswith("XLM"):
        first = h5_read(keras_saves / "RobertaTextClassifier" / "task.weights.h5")  # the same names and numbers
    else:
        first = h5_read(keras_saves / class_name / "task.weights.h5")
    now = h5_read(source(keras_saves, class_name) / "task.weights.h5")
    names = [name for name in first if name.startswith("layers/")]
    assert len(names) == (2 if class_name.startswith("Bert") else 4)
    for name in names:
        assert 1e-3 < np.abs(now[name] - first[name]).max() < 0.1, name


@pytest.mark.hf
@pytest.mark.parametrize("class_name", TRAINED)
def test_transformers_computes_the_same(keras_saves, tmp_path, class_name):
    done = portkit.convert(source(keras_saves, class_name), tmp_path / "hf", to="hf", verify="tensors")
    kind = done.plan.model.task.classes["hf"]
    assert read_config(tmp_path / "hf")["architectures"] == [kind]
    found = run_transformers(tmp_path / "hf", batch(class_name), task=TASK, class_name=kind)
    assert_as_in_keras(found, keras_saves, class_name)


@pytest.mark.burn
@pytest.mark.skipif(not burn_available(), reason="portkit-burn is not built: make burn")
@pytest.mark.parametrize("class_name", TRAINED)
def test_burn_computes_the_same(keras_saves, tmp_path, class_name):
    portkit.convert(source(keras_saves, class_name), tmp_path / "burn", to="burn", verify="tensors")
    assert_as_in_keras(run_burn(tmp_path / "burn", batch(class_name)), keras_saves, class_name)
