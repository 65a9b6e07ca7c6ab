from __future__ import annotations

import json
import logging as python_logging
import os
import pickle
import subprocess
import sys
from zipfile import BadZipFile

import numpy as np
import pytest
from models import class_name, hf_config, hf_state, lazy, random_logical, small_facts
from safetensors.numpy import save_file

from portkit.errors import MissingRuntimeError, RuntimeFailedError, UsageError
from portkit.proofs.inputs import choose_inputs
from portkit.runtimes import transformers_runtime as runtime

pytestmark = [
    pytest.mark.hf,
    pytest.mark.skipif(not runtime.transformers_available(), reason="transformers is not installed"),
]
TIED = ("cls.predictions.decoder.weight", "cls.predictions.decoder.bias")


def save_folder(folder, facts, state):
    config = {**hf_config(facts), "model_type": facts.family, "architectures": [class_name(facts)]}
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def run_tensors(facts, state, **options):
    return runtime.run_transformers_tensors(
        hf_config(facts),
        lazy(state),
        choose_inputs(facts),
        task=facts.task,
        class_name=class_name(facts),
        has_pooler=facts.has_pooler,
        **options,
    )


def run_folder(folder, facts):
    return runtime.run_transformers(
        folder,
        choose_inputs(facts),
        task=facts.task,
        class_name=class_name(facts),
        has_pooler=facts.has_pooler,
    )


def untied(state):
    return {name: array for name, array in state.items() if name not in TIED}


@pytest.mark.parametrize("task", ["model", "masked_lm", "question_answering"])
def test_folder_and_tensors_give_the_same(tmp_path, task):
    facts = small_facts(task=task)
    state = hf_state(random_logical(facts), facts)
    from_folder = run_folder(save_folder(tmp_path / "model", facts, untied(state)), facts)
    from_tensors = run_tensors(facts, state)
    assert from_folder.keys() == from_tensors.keys()
    for name, array in from_tensors.items():
        np.testing.assert_array_equal(array, from_folder[name], err_msg=name)


def test_folder_without_pooler(tmp_path):
    facts = small_facts(has_pooler=False)
    folder = save_folder(tmp_path / "model", facts, hf_state(random_logical(facts), facts))
    assert "pooled_output" not in run_folder(folder, facts)


def test_folder_that_does_not_fill_the_class_names_every_key(tmp_path):
    facts = small_facts(task="sequence_classification")
    state = hf_state(random_logical(facts), facts)
    state["extra.weight"] = state.pop("bert.pooler.dense.weight")
    state["classifier.bias"] = np.zeros(4, np.float32)
    folder = save_folder(tmp_path / "model", facts, state)
    with pytest.raises(
        RuntimeFailedError, match="BertForSequenceClassification does not load this folder as it is"
    ) as caught:
        run_folder(folder, facts)
    words = str(caught.value)
    assert "(3 problems)" in words
    assert "bert.pooler.dense.weight: missing: transformers fills it with random values" in words
    assert "extra.weight: unexpected: transformers ignores it" in words
    assert "classifier.bias: of another shape: transformers fills it with random values" in words


def test_folder_without_weights_is_one_error(tmp_path):
    facts = small_facts()
    folder = save_folder(tmp_path / "model", facts, {"x": np.zeros(1, np.float32)})
    (folder / "model.safetensors").unlink()
    with pytest.raises(RuntimeFailedError, match=r"BertModel cannot load .*model[\s\S]*OSError: Error no file named"):
        run_folder(folder, facts)


def test_tied_tensors_may_be_absent_but_not_both():
    facts = small_facts(task="masked_lm")
    state = hf_state(random_logical(facts), facts)
    whole, part = run_tensors(facts, state), run_tensors(facts, untied(state))
    np.testing.assert_array_equal(whole["logits"], part["logits"])
    none = {name: array for name, array in untied(state).items() if name != "cls.predictions.bias"}
    with pytest.raises(RuntimeFailedError, match=r"cls\.predictions\.bias: a parameter that no tensor fills"):
        run_tensors(facts, none)


def test_tied_tensors_that_differ_are_refused():
    facts = small_facts(task="masked_lm")
    state = hf_state(random_logical(facts), facts)
    state["cls.predictions.decoder.weight"] = state["cls.predictions.decoder.weight"] + 1
    with pytest.raises(RuntimeFailedError, match=r"tied to .*, but holds other values\s+hint\s+set tie_word_embed"):
        run_tensors(facts, state)


def test_tensors_left_over_missing_or_of_another_shape_are_all_named():
    facts = small_facts()
    state = hf_state(random_logical(facts), facts)
    state["embeddings.position_ids"] = np.arange(37)
    state["pooler.dense.bias"] = state["pooler.dense.bias"][:-1]
    del state["encoder.layer.2.output.dense.weight"]
    with pytest.raises(RuntimeFailedError, match=r"BertModel cannot be loaded \(3 problems\)") as caught:
        run_tensors(facts, state)
    words = str(caught.value)
    assert "embeddings.position_ids: not a parameter of the class" in words
    assert "pooler.dense.bias: another shape\n    expected (24,)\n    found    (23,)" in words
    assert "encoder.layer.2.output.dense.weight: a parameter that no tensor fills" in words


def test_bfloat16_weights_and_runs():
    from portkit.tensors import NUMPY_DTYPES

    facts = small_facts(task="sequence_classification")
    state = hf_state(random_logical(facts), facts)
    rounded = {name: array.astype(NUMPY_DTYPES["BF16"]) for name, array in state.items()}
    widened = {name: array.astype(np.float32) for name, array in rounded.items()}
    full = run_tensors(facts, rounded)["logits"]
    np.testing.assert_array_equal(full, run_tensors(facts, widened)["logits"])
    half = run_tensors(facts, rounded, dtype="bfloat16")["logits"]
    assert half.dtype == np.float32
    assert 1e-4 < np.abs(half - full).max() < 0.3


def test_unknown_classes_dtypes_and_devices_are_said():
    facts = small_facts(family="bart")
    with pytest.raises(UsageError, match=r"cannot run in int8[\s\S]*float64, float32, bfloat16, float16"):
        run_tensors(small_facts(), {}, dtype="int8")
    with pytest.raises(UsageError, match=r"cannot run on tpu[\s\S]*auto, cpu or cuda"):
        runtime.resolve_device("tpu")
    with pytest.raises(
        RuntimeFailedError,
        match=r"transformers cannot run this model[\s\S]*NoSuchModel: no such class\s+found\s+transformers \d",
    ):
        runtime.run_transformers_tensors(
            {}, {}, choose_inputs(facts), task="model", class_name="NoSuchModel", has_pooler=True
        )
    assert runtime.resolve_device("auto") in ("cpu", "cuda")
    assert runtime.resolve_device("wgpu") == "cpu"  # torch has no such device


def test_settings_are_as_before_even_after_a_failure(tmp_path):
    import torch
    from transformers.utils import logging

    logging.set_verbosity(python_logging.INFO)
    logging.enable_progress_bar()
    torch.set_float32_matmul_precision("high")
    try:
        with pytest.raises(RuntimeFailedError):
            run_folder(tmp_path, small_facts())
        assert logging.get_verbosity() == python_logging.INFO
        assert logging.is_progress_bar_enabled()
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        logging.set_verbosity(python_logging.WARNING)
        torch.set_float32_matmul_precision("highest")


def test_it_is_silent(tmp_path, capfd):
    facts = small_facts(task="masked_lm")
    state = untied(hf_state(random_logical(facts), facts))
    state["bert.pooler.dense.weight"] = np.zeros((24, 24), np.float32)
    with pytest.raises(RuntimeFailedError, match="unexpected"):
        run_folder(save_folder(tmp_path / "model", facts, state), facts)
    assert capfd.readouterr() == ("", "")


def test_without_transformers_the_way_to_it_is_named(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert not runtime.transformers_available()
    assert runtime.transformers_label() == "transformers"
    with pytest.raises(
        MissingRuntimeError,
        match=r"cannot run the model in transformers[\s\S]*torch and transformers are not installed\s+hint\s+pip install torch transformers",
    ):
        run_tensors(small_facts(), {})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"_attn_implementation": 7}, "AttributeError: 'int' object has no attribute"),
        ({"dtype": "float31"}, "AttributeError: module 'torch' has no attribute 'float31'"),
        ({"pad_token_id": 61}, "AssertionError: Padding_idx must be within"),
        ({"num_attention_heads": 0}, "ZeroDivisionError"),
        ({"layer_norm_eps": "small"}, "StrictDataclassFieldValidationError: .*layer_norm_eps"),
    ],
    ids=str,
)
def test_whatever_transformers_raises_on_a_strangers_config_is_explained(changes, words):
    facts = small_facts(task="sequence_classification")
    with pytest.raises(RuntimeFailedError, match=rf"BertForSequenceClassification cannot be[\s\S]*({words})"):
        runtime.run_transformers_tensors(
            {**hf_config(facts), **changes},
            lazy(hf_state(random_logical(facts), facts)),
            choose_inputs(facts),
            task=facts.task,
            class_name=class_name(facts),
            has_pooler=True,
        )


@pytest.mark.parametrize(
    "raised", [AttributeError("x"), ImportError("flash_attn"), pickle.UnpicklingError("x"), EOFError("x"), BadZipFile()]
)
def test_every_exception_of_loading_has_its_name_in_the_error(raised):
    with pytest.raises(RuntimeFailedError, match=type(raised).__name__), runtime.explained("cannot load"):
        raise raised


def test_broken_pickle_is_explained(tmp_path):
    facts = small_facts()
    folder = save_folder(tmp_path / "model", facts, {"x": np.zeros(1, np.float32)})
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(RuntimeFailedError, match=r"BertModel cannot load[\s\S]*UnpicklingError"):
        run_folder(folder, facts)


def test_device_that_is_not_there_is_refused_and_one_that_is_has_its_name(monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert runtime.device_label("auto") == runtime.device_label("cpu") == "cpu"
    with pytest.raises(UsageError, match=r"cannot run on cuda[\s\S]*expected auto, cpu or cuda"):
        runtime.device_label("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "A100")
    assert runtime.device_label("auto") == runtime.device_label("cuda") == "cuda: A100, no TF32"
    assert runtime.device_label("cpu") == "cpu"


SETTINGS = {
    "nothing": "",
    "old": "torch.set_float32_matmul_precision('high')",
    "old, bfloat16": "torch.set_float32_matmul_precision('medium')",
    "old flag": "torch.backends.cuda.matmul.allow_tf32 = True",
    "new": "torch.backends.cuda.matmul.fp32_precision = 'tf32'",
    "new, for all": "torch.backends.fp32_precision = 'tf32'",
    "new, cpu": "torch.backends.mkldnn.matmul.fp32_precision = 'bf16'",
}
PRECISION = """
import os, sys, warnings
warnings.simplefilter("ignore")
import torch, transformers.utils
from portkit.runtimes.torch_settings import silent_torch

def settings():
    matmul = torch.backends.cuda.matmul
    return [read(f) for f in (
        torch.get_float32_matmul_precision, lambda: matmul.allow_tf32, lambda: matmul.fp32_precision,
        lambda: torch.backends.mkldnn.matmul.fp32_precision, lambda: torch.backends.fp32_precision,
    )]

def read(get):
    try:
        return get()
    except RuntimeError:
        return "torch cannot tell"

for setting in sys.argv[1:]:
    if os.fork():  # each setting in a process of its own, for nothing brings torch back to its first state
        os.wait()
        continue
    exec(setting)
    before = settings()
    with silent_torch():
        inside = settings()
        torch.ones(64, 64) @ torch.ones(64, 64)
    print(before == settings(), inside[:3], flush=True)
    os._exit(0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_full_precision_whatever_the_caller_has_set_and_all_of_it_is_back():
    torch = pytest.importorskip("torch")
    if not hasattr(torch.backends.cuda.matmul, "fp32_precision"):
        pytest.skip("this torch has only the old setting")
    command = [sys.executable, "-c", PRECISION, *SETTINGS.values()]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["True ['highest', False, 'ieee']"] * len(SETTINGS)
