"""Hugging Face folders of random small models, written by safetensors' own writer and read by its own reader."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
from models import HEAD_CLASSES, hf_config, hf_state, random_logical, small_facts
from safetensors.numpy import load_file, save_file

if TYPE_CHECKING:
    from pathlib import Path

    from portkit.facts import Facts

CLASSES = {"bert": "Bert", "roberta": "Roberta", "xlm-roberta": "XLMRoberta", "camembert": "Camembert"}
TIED = (  # in every state dict, and in no file that transformers writes
    "cls.predictions.decoder.weight",
    "cls.predictions.decoder.bias",
    "lm_head.decoder.weight",
    "lm_head.decoder.bias",
)

State = dict[str, np.ndarray]


def facts_for(family: str, task: str, **changes: object) -> Facts:
    """Facts of a small model; XLM-RoBERTa and CamemBERT are RoBERTa under another name."""
    return small_facts("bert" if family == "bert" else "roberta", task, **changes)


def class_of(family: str, task: str) -> str:
    """The Hugging Face class of a family's model for a task."""
    return CLASSES[family] + HEAD_CLASSES[task]


def saved_state(facts: Facts, seed: int = 0, dtype: type = np.float32) -> State:
    """What `save_pretrained` stores: the state dict without what is tied."""
    state = hf_state(random_logical(facts, seed, dtype), facts)
    return {name: array for name, array in state.items() if name not in TIED}


def config_for(family: str, facts: Facts, **changes: object) -> dict[str, object]:
    """The whole config.json; a change to None takes a field out."""
    named = {"model_type": family, "architectures": [class_of(family, facts.task)]}
    labels = {}
    if facts.num_labels:
        labels = {"id2label": {str(i): f"LABEL_{i}" for i in range(facts.num_labels)}}
    config = {**hf_config(facts), **named, **labels, **changes}
    return {name: value for name, value in config.items() if value is not None}


def write_hf(folder: Path, state: State, config: dict[str, object]) -> Path:
    """A folder with config.json and model.safetensors."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    dense = {name: np.ascontiguousarray(array) for name, array in state.items()}
    save_file(dense, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


def small_model(folder: Path, family: str = "bert", task: str = "model", **changes: object) -> Path:
    """A folder with a random model of a family and task; `changes` are those of its facts."""
    facts = facts_for(family, task, **changes)
    return write_hf(folder, saved_state(facts), config_for(family, facts))


def read_state(folder: Path) -> State:
    """The stored tensors of a Hugging Face folder."""
    return load_file(folder / "model.safetensors")


def read_config(folder: Path) -> dict[str, object]:
    """The config.json of a folder."""
    return json.loads((folder / "config.json").read_text(encoding="utf-8"))


def assert_same_state(found: State, expected: State) -> None:
    """Same names, and the same dtype, shape and bytes under each."""
    assert sorted(found) == sorted(expected)
    for name, array in expected.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape), name
        assert found[name].tobytes() == np.ascontiguousarray(array).tobytes(), name
