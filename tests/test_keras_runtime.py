"""KerasHub runs the presets that it saved itself, on two backends, and nothing that is not wholly what it says."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from importlib import metadata, util
from pathlib import Path

import h5py
import numpy as np
import pytest
from keras_presets import CLASSES, EXPECTED, batch
from safetensors.numpy import load_file

from portkit.errors import MissingRuntimeError, RuntimeFailedError, UsageError
from portkit.runtimes import keras_runtime
from portkit.runtimes.keras_preset import require_preset, weight_files
from portkit.runtimes.keras_program import OUTPUTS, PROBLEMS
from portkit.runtimes.keras_runtime import keras_available, keras_label, run_keras
from portkit.runtimes.keras_weights import require_loaded
from portkit.runtimes.outputs import device_of

pytestmark = [pytest.mark.keras, pytest.mark.skipif(not keras_available(), reason="KerasHub is not installed")]

SCRIPT = Path(__file__).with_name("keras_presets.py")
CLOSE = {"rtol": 0, "atol": 2e-5}  # float32 on two backends; logits reach 10


def script(backend, *words):
    with tempfile.TemporaryDirectory() as home:  # where Keras keeps its settings
        environment = os.environ | {"KERAS_BACKEND": backend, "KERAS_HOME": home, "TF_CPP_MIN_LOG_LEVEL": "3"}
        done = subprocess.run(
            [sys.executable, SCRIPT, *map(str, words)], env=environment, capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.fixture(scope="session")
def presets(tmp_path_factory):
    """The folder of all presets as KerasHub saves them. Copies are changed, never these."""
    folder = tmp_path_factory.mktemp("keras")
    script("torch", "save", folder)
    return folder


def edit(path, change):
    content = json.loads(path.read_text(encoding="utf-8"))
    change(content)
    path.write_text(json.dumps(content), encoding="utf-8")


def copied_backbone(folder):
    """As KerasHub before 0.30 wrote it: the head's file holds the backbone too."""
    with h5py.File(folder / "model.weights.h5") as body, h5py.File(folder / "task.weights.h5", "a") as head:
        body.copy("layers", head, "layers/bert_backbone/layers")


def stale_copy(folder):
    copied_backbone(folder)
    with h5py.File(folder / "task.weights.h5", "a") as head:
        head["layers/bert_backbone/layers/position_embedding/vars/0"][3, 4] += 1


def drop_bias(folder):
    with h5py.File(folder / "model.weights.h5", "a") as file:
        del file["layers/transformer_encoder_1/_feedforward_output_dense/vars/1"]


def add_external_link(folder):
    with h5py.File(folder / "model.weights.h5", "a") as file:
        del file["layers/dense/vars/1"]
        file["layers/dense/vars/1"] = h5py.ExternalLink(str(folder / "task.weights.h5"), "layers/dense/vars/1")


# Name of a changed copy -> (what is changed, words of the refusal).
REFUSED = {
    "BertTextClassifier.no head": (
        lambda folder: (folder / "task.weights.h5").unlink(),
        ("task.weights.h5", "no such file", "KerasHub would give the head random numbers and say nothing"),
    ),
    "BertTextClassifier.no task": (lambda folder: (folder / "task.json").unlink(), ("task.json", "cannot be read")),
    "BertTextClassifier.no weights": (
        lambda folder: (folder / "model.weights.h5").unlink(),
        ("model.weights.h5", "no such file", "model.weights.json with shards"),
    ),
    "RobertaMaskedLM.of a classifier": (
        lambda folder: shutil.copy(folder.parent / "RobertaTextClassifier" / "task.json", folder),
        ("task.json", "describes another object", "RobertaMaskedLM, registered as keras_hub>RobertaMaskedLM"),
    ),
    "BertBackbone.fewer layers": (
        lambda folder: edit(folder / "config.json", lambda c: c["config"].update(num_layers=2)),
        (
            "model.weights.h5 layers/transformer_encoder_2/",
            "the loaded model does not hold these numbers",
            "(24, 3, 8)",
        ),
    ),
    "BertBackbone.more layers": (
        lambda folder: edit(folder / "config.json", lambda c: c["config"].update(num_layers=4)),
        ("BertBackbone cannot load", "could not be loaded", "not those of the model that config.json describes"),
    ),
    "BertTextClassifier.two configs": (
        lambda folder: edit(folder / "config.json", lambda c: c["config"].update(num_segments=4)),
        ("task.json config.backbone", "differs from config.json"),
    ),
    "BertTextClassifier.stale copy": (
        stale_copy,
        ("task.weights.h5 layers/bert_backbone/layers/position_embedding", "does not hold these numbers", "(37, 24)"),
    ),
    "BertBackbone.no bias": (drop_bias, ("BertBackbone cannot load", "could not be loaded")),
    "BertBackbone.external link": (
        add_external_link,
        ("BertBackbone cannot load", "pooled_dense", "received 0 variables"),
    ),
    "BertBackbone.cut": (
        lambda folder: os.truncate(folder / "model.weights.h5", 5000),
        ("BertBackbone cannot load", "OSError"),
    ),
    "RobertaBackbone.executes": (
        lambda folder: edit(folder / "config.json", lambda c: c.update(compile_config={"optimizer": {}})),
        ("config.json compile_config", "not a key of a preset: Keras may run what it describes"),
    ),
    "RobertaBackbone.typed": (
        lambda folder: None,
        ("the inputs do not fit the model", "token_type_ids", "the model has no token types"),
    ),
    "BertTokenizer.no model": (lambda folder: None, ("BertTokenizer",)),
    "FantasyBackbone.unknown": (lambda folder: None, ("FantasyBackbone", "no such class in KerasHub")),
}
ACCEPTED = {"BertTextClassifier.copied backbone": copied_backbone}


def changed(presets, name, change):
    folder = presets / name
    base = name.partition(".")[0]
    shutil.copytree(presets / (base if base in CLASSES else "BertBackbone"), folder)
    change(folder)
    return folder


@pytest.fixture(scope="session")
def torch_run(presets):
    """Every preset and every changed copy, run in one process on torch."""
    changes = {**{name: change for name, (change, _) in REFUSED.items()}, **ACCEPTED}
    for name, change in changes.items():
        changed(presets, name, change)
    script("torch", "run", *sorted(presets.iterdir()))
    return presets


@pytest.fixture(scope="session")
def tensorflow_run(presets, tmp_path_factory):
    if util.find_spec("tensorflow") is None:
        pytest.skip("TensorFlow is not installed")
    folder = tmp_path_factory.mktemp("tensorflow")
    for class_name in CLASSES:
        shutil.copytree(presets / class_name, folder / class_name, ignore=shutil.ignore_patterns("exchange"))
    script("tensorflow", "run", *sorted(folder.iterdir()))
    return folder


def assert_as_expected(folder, expected):
    found, wanted = load_file(folder / "exchange" / OUTPUTS), load_file(expected / EXPECTED)
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        assert found[name].dtype == np.float32
        np.testing.assert_allclose(found[name], array, err_msg=name, **CLOSE)


@pytest.mark.parametrize("class_name", CLASSES)
@pytest.mark.parametrize("backend", ["torch", "tensorflow"])
def test_outputs_are_those_of_the_model(backend, class_name, request):
    folder = request.getfixturevalue(f"{backend}_run")
    assert_as_expected(folder / class_name, folder / class_name)


def test_every_output_is_there(presets):
    states = {f"hidden_states.{i}": (2, 17, 24) for i in range(4)}
    heads = {"Backbone": {}, "TextClassifier": {"logits": (2, 5)}, "MaskedLM": {"logits": (2, 17, 61)}}
    for class_name in CLASSES:
        pooled = {"pooled_output": (2, 24)} if class_name.startswith("Bert") else {}
        head = next(shapes for kind, shapes in heads.items() if class_name.endswith(kind))
        found = {name: array.shape for name, array in load_file(presets / class_name / EXPECTED).items()}
        assert found == states | pooled | head


def test_backbone_in_the_file_of_the_head_is_accepted(torch_run):
    assert_as_expected(torch_run / "BertTextClassifier.copied backbone", torch_run / "BertTextClassifier")


def test_shards_are_loaded(torch_run):
    folder = torch_run / "XLMRobertaMaskedLM.shards"
    assert not (folder / "model.weights.h5").exists()
    assert len(weight_files(folder)) > 1
    assert_as_expected(folder, torch_run / "XLMRobertaMaskedLM")


def test_bfloat16_is_run_in_float32(torch_run):
    found = load_file(torch_run / "BertBackbone.bfloat16" / "exchange" / OUTPUTS)["hidden_states.3"]
    whole = load_file(torch_run / "BertBackbone" / "exchange" / OUTPUTS)["hidden_states.3"]
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, whole, rtol=0, atol=0.1)  # the same numbers, with 8 bits
    assert not np.allclose(found, whole, **CLOSE)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_wholly_the_model_is_refused(torch_run, name):
    exchange = torch_run / name / "exchange"
    said = exchange.joinpath(PROBLEMS).read_text(encoding="utf-8")
    assert not (exchange / OUTPUTS).exists()
    for word in REFUSED[name][1]:
        assert word in said


def test_run_keras_imports_nothing_from_the_current_folder(presets, monkeypatch, tmp_path):
    (tmp_path / "numpy.py").write_text("raise SystemExit('taken')", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    folder = presets / "RobertaTextClassifier"
    found = run_keras(folder, batch(folder.name), class_name=folder.name, backend="torch")
    wanted = load_file(folder / EXPECTED)
    assert found.keys() == wanted.keys()
    np.testing.assert_allclose(found["logits"], wanted["logits"], **CLOSE)


def test_wgpu_is_burn_s_alone_and_means_the_cpu(presets):
    folder = presets / CLASSES[0]
    found = run_keras(folder, batch(folder.name), class_name=folder.name, device="wgpu", backend="torch")
    assert device_of(found) == "cpu"


def test_what_the_program_finds_is_raised(presets):
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(UsageError, match="cannot run on cuda") as caught:
        run_keras(presets / CLASSES[0], batch(CLASSES[0]), class_name=CLASSES[0], device="cuda", backend="torch")
    assert "--device: no such device for Keras" in str(caught.value)
    assert "auto, cpu, or cuda with the torch backend" in str(caught.value)


@pytest.mark.parametrize(
    ("code", "title", "words"),
    [
        (
            "raise ValueError('the last words')",
            "KerasHub failed to run the model",
            ("exit code 1", "ValueError: the last words"),
        ),
        (
            "import os; os.kill(os.getpid(), 9)",
            "KerasHub failed to run the model",
            ("ended by signal 9", "out of memory"),
        ),
        ("", "KerasHub gave no outputs", ("cannot be read", "No such file")),
    ],
)
def test_how_the_program_ends_is_explained(monkeypatch, tmp_path, code, title, words):
    (tmp_path / "other_program.py").write_text(code, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(keras_runtime, "_PROGRAM", "other_program")
    with pytest.raises(RuntimeFailedError, match=title) as caught:
        run_keras(tmp_path, batch("BertBackbone"), class_name="BertBackbone", backend="torch")
    for word in words:
        assert word in str(caught.value)


def test_backend_that_is_not_there(monkeypatch, tmp_path):
    monkeypatch.setenv("KERAS_BACKEND", "theano")
    assert not keras_available()
    assert keras_label() == "KerasHub"
    with pytest.raises(
        MissingRuntimeError, match=r"cannot run the model in KerasHub(.|\n)*KERAS_BACKEND is theano"
    ) as caught:
        run_keras(tmp_path, batch("BertBackbone"), class_name="BertBackbone")
    assert "backend: no backend for Keras is installed" in str(caught.value)
    assert "torch or tensorflow or jax" in str(caught.value)


def test_label_names_versions_and_backend(monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "tensorflow")
    hub, keras = metadata.version("keras-hub"), metadata.version("keras")
    assert keras_label() == f"KerasHub {hub} on Keras {keras}, tensorflow backend"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: c.update(registered_name=None), ("describes another object", "BertBackbone, registered as None")),
        (lambda c: c.update(registered_name="os>system"), ("describes another object", "registered as os>system")),
        (
            lambda c: c["config"].update(dropout={"class_name": "x"}),
            ("config.json config.dropout", "not a plain value"),
        ),
        (lambda c: c["config"].update(dtype={"class_name": "DTypePolicyMap"}), ("config.json config.dtype",)),
        (lambda c: c.update(config=[]), ("describes no Keras object",)),
        (lambda c: c.update(shared_object_id=3), ("config.json shared_object_id", "not a key of a preset")),
    ],
)
def test_objects_of_other_classes_are_refused(presets, tmp_path, change, words):
    folder = shutil.copytree(presets / "BertBackbone", tmp_path / "preset")
    edit(folder / "config.json", change)
    with pytest.raises(RuntimeFailedError, match=r"BertBackbone does not load .*preset as it is") as caught:
        require_preset(folder, "BertBackbone", "BertBackbone")
    for word in words:
        assert word in str(caught.value)


def test_names_of_keras_nlp_are_accepted(presets, tmp_path):
    folder = shutil.copytree(presets / "BertBackbone", tmp_path / "preset")
    edit(folder / "config.json", lambda c: c.update(registered_name="keras_nlp>BertBackbone"))
    require_preset(folder, "BertBackbone", "BertBackbone")


@pytest.mark.parametrize("places", [{}, {"/a": "../other.h5"}, {"/a": ["ok.h5", "x/y.h5"]}, {"/a": 3}])
def test_shards_outside_the_folder_are_refused(tmp_path, places):
    (tmp_path / "model.weights.json").write_text(json.dumps({"weight_map": places}), encoding="utf-8")
    with pytest.raises(Exception, match="names no usable shards"):
        weight_files(tmp_path)


def h5(path, **datasets):
    with h5py.File(path, "w") as file:
        for name, array in datasets.items():
            file[name.replace("__", "/")] = array
    return [path]


WHOLE = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones(3, np.float32), "c": np.ones(3, np.float32)}


def test_variables_are_counted(tmp_path):
    files = h5(tmp_path / "w.h5", optimizer__vars__0=np.int32(3), **WHOLE)
    assert require_loaded(WHOLE.items(), files) == 3


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_other_dtypes_are_compared_as_float32(tmp_path, dtype):
    assert require_loaded(WHOLE.items(), h5(tmp_path / "w.h5", **{n: a.astype(dtype) for n, a in WHOLE.items()})) == 3


@pytest.mark.parametrize(
    ("stored", "words"),
    [
        ({"b": np.ones(3, np.float32)}, ("a variable whose numbers are in no file", "KerasHub gave it random numbers")),
        ({"c": np.zeros(3, np.float32)}, ("w.h5 c", "the loaded model does not hold these numbers", "b: a variable")),
        ({"a": WHOLE["a"].T}, ("w.h5 a", "(3, 2)")),
        ({"d": WHOLE["b"]}, ("w.h5 d",)),  # the third of two ones
        ({"d": np.array([b"text"] * 3)}, ("w.h5 d",)),
        ({"d": np.arange(3)}, ("w.h5 d",)),
    ],
)
def test_other_numbers_are_found(tmp_path, stored, words):
    whole = {} if "b" in stored else WHOLE
    with pytest.raises(RuntimeFailedError, match="KerasHub did not load the weights of the folder") as caught:
        require_loaded(WHOLE.items(), h5(tmp_path / "w.h5", **{**whole, **stored}))
    for word in words:
        assert word in str(caught.value)


def test_nothing_compared_is_a_failure(tmp_path):
    with pytest.raises(RuntimeFailedError, match="the model has no variables, so nothing was compared"):
        require_loaded([], h5(tmp_path / "w.h5"))
