"""KerasHub's own presets, for tests: saved and run by it in processes of their own, as Keras takes one backend.

python keras_presets.py save FOLDER        a preset per class, and what its model computes, in FOLDER/CLASS
python keras_presets.py run FOLDER...      runs each preset by portkit's program, in FOLDER/exchange
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from portkit.runtimes import keras_program
from portkit.runtimes.outputs import Inputs

FAMILIES = ("Bert", "Roberta", "XLMRoberta")
CLASSES = tuple(f"{family}{kind}" for family in FAMILIES for kind in ("Backbone", "TextClassifier", "MaskedLM"))
EXPECTED = "expected.safetensors"
SIZES = {
    "vocabulary_size": 61,
    "num_layers": 3,
    "num_heads": 3,
    "hidden_dim": 24,
    "intermediate_dim": 40,
    "max_sequence_length": 37,
}


def batch(name: str) -> Inputs:
    """Two rows of 17 and 5 tokens; BERT has token types, others where the name ends so."""
    rng = np.random.default_rng(0)
    mask = (np.arange(17) < np.array([[17], [5]])).astype(np.int64)
    typed = name.startswith("Bert") or name.endswith(".typed")
    types = rng.integers(0, 2, mask.shape) if typed else np.zeros_like(mask)
    return Inputs(rng.integers(2, 61, mask.shape) * mask, mask, types * mask)


def save(folder: Path) -> None:
    """Every class, with random numbers everywhere, beside the outputs of its layers called one by one."""
    import keras_hub

    for class_name in CLASSES:
        model = build(keras_hub.models, class_name)
        randomise(model)
        model.save_to_preset(str(folder / class_name))
        save_file(called_by_hand(model, class_name), folder / class_name / EXPECTED)
    model.save_to_preset(str(folder / f"{class_name}.shards"), max_shard_size=2e-5)  # GB
    narrow = keras_hub.models.BertBackbone(**SIZES, dtype="bfloat16")
    randomise(narrow)
    narrow.save_to_preset(str(folder / "BertBackbone.bfloat16"))


def build(models, class_name: str):
    family = next(family for family in reversed(FAMILIES) if class_name.startswith(family))
    backbone = getattr(models, f"{family}Backbone")(**SIZES)
    if class_name.endswith("Backbone"):
        return backbone
    options = {"num_classes": 5} if class_name.endswith("TextClassifier") else {}
    return getattr(models, class_name)(backbone=backbone, preprocessor=None, **options)


def randomise(model) -> None:
    """Embeddings N(0, .5), matrices N(0, 1/sqrt(fan in)), norms 1 + N(0, .3), biases N(0, .3)."""
    rng = np.random.default_rng(1)
    for variable in model.weights:
        name, shape = variable.path.rpartition("/")[2], tuple(variable.shape)
        fan_in = np.prod(shape[:-1]) if "attention_output" in variable.path else shape[0]
        scale = 0.5 if "embedding" in name else fan_in**-0.5 if name == "kernel" else 0.3
        variable.assign(rng.normal(0, scale, shape) + (name == "gamma"))


def called_by_hand(model, class_name: str) -> dict[str, np.ndarray]:
    import keras

    inputs = batch(class_name)
    x = {"token_ids": inputs.input_ids, "padding_mask": inputs.attention_mask, "segment_ids": inputs.token_type_ids}
    backbone = getattr(model, "backbone", model)
    states = list(hidden_states(backbone, x, class_name))
    outputs = {f"hidden_states.{i}": state for i, state in enumerate(states)}
    x = {name: value for name, value in x.items() if name in backbone.input}
    if class_name.startswith("Bert"):
        outputs["pooled_output"] = backbone(x)["pooled_output"]
    if model is not backbone:
        positions = np.tile(np.arange(17), (2, 1))
        outputs["logits"] = model({**x, **({"mask_positions": positions} if "MaskedLM" in class_name else {})})
    return {name: np.array(keras.ops.convert_to_numpy(value)) for name, value in outputs.items()}


def hidden_states(backbone, x, class_name: str):
    if class_name.startswith("Bert"):
        tokens = backbone.token_embedding(x["token_ids"])
        state = tokens + backbone.position_embedding(tokens) + backbone.segment_embedding(x["segment_ids"])
    else:
        state = backbone.embeddings(x["token_ids"])
    state = backbone.embeddings_layer_norm(state)
    yield state
    for layer in backbone.transformer_layers:
        state = layer(state, padding_mask=x["padding_mask"])
        yield state


def run(folder: Path) -> None:
    """Run a preset that is named as its class up to the first dot."""
    class_name = folder.name.partition(".")[0]
    exchange = folder / "exchange"
    exchange.mkdir()
    save_file(batch(folder.name).arrays(), exchange / keras_program.INPUTS)
    keras_program.main([str(folder), class_name, "cpu", str(exchange)])


if __name__ == "__main__":
    command, *folders = sys.argv[1:]
    for each in folders:
        {"save": save, "run": run}[command](Path(each))
