"""Files of every kind that Keras writes, for tests: saved by KerasHub itself, in a process of its own.

python keras_saves.py FOLDER

For each of CLASSES, FOLDER/CLASS is its preset, CLASS.weights.h5, CLASS.keras and CLASS.h5 hold the same model, and
CLASS.safetensors its true values by the paths of its variables. VARIANTS and TRAINED are presets of their own.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np
from keras_presets import SIZES, batch, build, called_by_hand, randomise
from safetensors.numpy import save_file

CLASSES = ("BertTextClassifier", "BertMaskedLM", "RobertaTextClassifier", "RobertaMaskedLM", "XLMRobertaBackbone")
TRAINED = ("BertTextClassifier", "RobertaTextClassifier", "XLMRobertaTextClassifier")
QUANTISED = ("int8", "int4", "float8")
CLASSES_COUNT = 5


def main(folder: Path) -> None:
    sys.modules.setdefault("tensorflow", None)  # Keras would import it for its data pipelines: seconds
    import keras_hub

    models = keras_hub.models
    for class_name in CLASSES:
        save_every_way(build(models, class_name), folder, class_name)
    for name, model in variants(models):
        randomise(model)
        model.save_to_preset(str(folder / name))
    for mode in QUANTISED:
        model = build(models, "BertTextClassifier")
        randomise(model)
        model.quantize(mode)
        model.save_to_preset(str(folder / f"BertTextClassifier.{mode}"))
    adapted = build(models, "BertBackbone")
    adapted.enable_lora(2)
    randomise(adapted)
    save_file(merged(adapted), folder / "BertBackbone.lora.safetensors")
    adapted.save_to_preset(str(folder / "BertBackbone.lora"))
    shards = build(models, "RobertaBackbone")
    randomise(shards)
    shards.save_to_preset(str(folder / "RobertaBackbone.shards"), max_shard_size=2e-5)  # GB
    save_file(values(shards), folder / "RobertaBackbone.shards.safetensors")
    for class_name in TRAINED:
        save_trained(build(models, class_name), folder / f"{class_name}.trained", class_name)


def save_every_way(model, folder: Path, class_name: str) -> None:
    randomise(model)
    model.save_to_preset(str(folder / class_name))
    model.save_weights(str(folder / f"{class_name}.weights.h5"))
    model.save(str(folder / f"{class_name}.keras"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the format is a legacy one
        model.save(str(folder / f"{class_name}.h5"))
    save_file(values(model), folder / f"{class_name}.safetensors")


def values(model) -> dict[str, np.ndarray]:
    import keras

    return {v.path: np.array(keras.ops.convert_to_numpy(v.value)) for v in model.weights}


def merged(model) -> dict[str, np.ndarray]:
    """The values as the model computes with them: a kernel with its adapter is their sum."""
    import keras

    kernels = {layer._kernel.path: layer.kernel for layer in model._flatten_layers() if hasattr(layer, "_kernel")}
    tables = {e._embeddings.path: e.embeddings for e in model._flatten_layers() if hasattr(e, "_embeddings")}
    summed = {**kernels, **tables}
    own = {v.path: summed.get(v.path, v.value) for v in model.weights if "lora" not in v.path}
    return {path: np.array(keras.ops.convert_to_numpy(value)) for path, value in own.items()}


def variants(models):
    yield "DistilBertBackbone", models.DistilBertBackbone(**SIZES)
    yield "BertTextClassifier.bfloat16", with_head(models, "Bert", dtype="bfloat16")
    yield "BertTextClassifier.softmax", with_head(models, "Bert", {"activation": "softmax"})
    yield "RobertaTextClassifier.wide", with_head(models, "Roberta", {"hidden_dim": 32})


def with_head(models, family: str, head: dict | None = None, **options):
    backbone = getattr(models, f"{family}Backbone")(**SIZES, **options)
    kind = getattr(models, f"{family}TextClassifier")
    return kind(backbone=backbone, preprocessor=None, num_classes=CLASSES_COUNT, **options, **(head or {}))


def save_trained(model, folder: Path, class_name: str) -> None:
    """A preset after a few steps of training from random numbers, with what the model computes then."""
    import keras

    keras.utils.set_random_seed(0)
    randomise(model)
    inputs = batch(class_name)
    x = {"token_ids": inputs.input_ids, "padding_mask": inputs.attention_mask, "segment_ids": inputs.token_type_ids}
    x = {name: value.astype(np.int32) for name, value in x.items() if name in model.backbone.input}
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(loss=loss, optimizer=keras.optimizers.Adam(1e-2))
    for _ in range(3):  # `fit` would want a data pipeline, and with it tensorflow
        model.train_on_batch(x, np.array([1, 3]))
    model.save_to_preset(str(folder))
    save_file(called_by_hand(model, class_name), folder.with_name(f"{folder.name}.safetensors"))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
