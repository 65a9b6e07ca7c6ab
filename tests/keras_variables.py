"""The variables of KerasHub's models, written out by hand: in the order of `model.weights`, by every name they have."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

LAYERS = 2  # of small models, and their sizes by the tables' letters
SMALL = {"v": 13, "p": 11, "t": 2, "h": 8, "n": 2, "f": 10, "c": 3}
FIELDS = {
    "vocabulary_size": "v",
    "max_sequence_length": "p",
    "num_segments": "t",
    "hidden_dim": "h",
    "num_heads": "n",
    "intermediate_dim": "f",
}


@dataclass(frozen=True)
class Variable:
    """`logical` is portkit's name, `path` Keras' own (`w.path`), `file` where a file of today has it."""

    logical: str
    path: str
    file: str

    def canonical(self, array: np.ndarray) -> np.ndarray:
        """An array of the variable's shape as the logical tensor: matrices [in, out], vectors [out]."""
        if self.logical.endswith(".kernel"):
            heads_first = self.path.endswith("attention_output/kernel")
            return array.reshape(-1, array.shape[-1]) if heads_first else array.reshape(array.shape[0], -1)
        return array if self.logical.endswith(".table") else array.reshape(-1)


def backbone(family: str, layers: int) -> list[Variable]:
    bert = [
        Variable("embeddings.word.table", "token_embedding/embeddings", "reversible_embedding/vars/0"),
        Variable("embeddings.position.table", "position_embedding/embeddings", "position_embedding/vars/0"),
        Variable("embeddings.type.table", "segment_embedding/embeddings", "embedding/vars/0"),
    ]
    both = "token_and_position_embedding"
    roberta = [
        Variable("embeddings.word.table", "embeddings/token_embedding/embeddings", f"{both}/token_embedding/vars/0"),
        Variable(
            "embeddings.position.table", "embeddings/position_embedding/embeddings", f"{both}/position_embedding/vars/0"
        ),
    ]
    found = [*(bert if family == "bert" else roberta)]
    found += norm("embeddings.norm", "embeddings_layer_norm", "layer_normalization")
    for i in range(layers):
        found += encoder(
            f"layer.{i}", f"transformer_layer_{i}", f"transformer_encoder_{i}" if i else "transformer_encoder"
        )
    found += dense("pooler", "pooled_dense", "dense") if family == "bert" else []
    return [Variable(v.logical, v.path, f"layers/{v.file}") for v in found]


def encoder(logical: str, path: str, file: str) -> list[Variable]:
    words = (("query", "query", "query"), ("key", "key", "key"), ("value", "value", "value"))
    found = []
    for ours, theirs, stored in (*words, ("out", "attention_output", "output")):
        names = (f"{path}/self_attention_layer/{theirs}", f"{file}/_self_attention_layer/{stored}_dense")
        found += dense(f"{logical}.attention.{ours}", *names)
    for ours, theirs in (("attention.norm", "self_attention_layer_norm"), ("mlp.norm", "feedforward_layer_norm")):
        found += norm(f"{logical}.{ours}", f"{path}/{theirs}", f"{file}/_{theirs}")
    for ours, theirs in (("mlp.up", "feedforward_intermediate_dense"), ("mlp.down", "feedforward_output_dense")):
        found += dense(f"{logical}.{ours}", f"{path}/{theirs}", f"{file}/_{theirs}")
    return found


def head(class_name: str) -> list[Variable]:
    if class_name.endswith("MaskedLM"):
        found = [
            Variable("masked_lm.decoder.bias", "mlm_head/output_bias", "masked_lm_head/vars/0"),
            *dense("masked_lm.transform", "mlm_head/intermediate_dense", "masked_lm_head/_intermediate_dense"),
            *norm("masked_lm.norm", "mlm_head/intermediate_layer_norm", "masked_lm_head/_intermediate_layer_norm"),
        ]
    elif class_name.startswith("Bert"):
        found = dense("classifier", "logits", "dense")
    else:
        found = [*dense("pooler", "pooled_dense", "dense"), *dense("classifier", "logits", "dense_1")]
    return [Variable(v.logical, v.path, f"layers/{v.file}") for v in found]


def variables(class_name: str, layers: int = 3) -> list[Variable]:
    """All of a class, those of a task's backbone below the backbone's own group."""
    family = "bert" if class_name.startswith("Bert") else "roberta"
    body = backbone(family, layers)
    if class_name.endswith("Backbone"):
        return body
    group = {"B": "bert", "R": "roberta", "X": "xlm_roberta"}[class_name[0]]
    below = [Variable(v.logical, v.path, f"layers/{group}_backbone/{v.file}") for v in body]
    return [*below, *head(class_name)]


def dense(logical: str, path: str, file: str) -> list[Variable]:
    return [
        Variable(f"{logical}.kernel", f"{path}/kernel", f"{file}/vars/0"),
        Variable(f"{logical}.bias", f"{path}/bias", f"{file}/vars/1"),
    ]


def norm(logical: str, path: str, file: str) -> list[Variable]:
    return [
        Variable(f"{logical}.scale", f"{path}/gamma", f"{file}/vars/0"),
        Variable(f"{logical}.bias", f"{path}/beta", f"{file}/vars/1"),
    ]


def random_values(shapes: dict[str, tuple[int, ...]], seed: int = 0) -> dict[str, np.ndarray]:
    """Names with arrays of these shapes, no two alike."""
    rng = np.random.default_rng(seed)
    return {name: rng.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()}


def small(class_name: str = "BertBackbone", **changed: int) -> dict[Variable, np.ndarray]:
    """Variables of a tiny model with random values; all sizes are distinct."""
    sizes = {**SMALL, **changed}
    h, n, f, c = sizes["h"], sizes["n"], sizes["f"], sizes["c"]
    rows = {"word": sizes["v"], "position": sizes["p"], "type": sizes["t"]}
    ends = {
        **{f"attention.{x}.kernel": (h, n, h // n) for x in ("query", "key", "value")},
        **{f"attention.{x}.bias": (n, h // n) for x in ("query", "key", "value")},
        "attention.out.kernel": (n, h // n, h),
        "mlp.up.kernel": (h, f),
        "mlp.up.bias": (f,),
        "mlp.down.kernel": (f, h),
        "masked_lm.decoder.bias": (sizes["v"],),
        "classifier.kernel": (h, c),
        "classifier.bias": (c,),
        "pooler.kernel": (h, h),
        "masked_lm.transform.kernel": (h, h),
        **{f"{name}.table": (count, h) for name, count in rows.items()},
    }
    every = variables(class_name, LAYERS)
    shapes = {v: next((s for end, s in ends.items() if v.logical.endswith(end)), (h,)) for v in every}
    return random_values(shapes)


def write_preset(folder: Path, class_name: str, values: dict[Variable, np.ndarray], **fields: object) -> Path:
    """A preset as KerasHub 0.30 and later save it; `fields` are those of the task's config."""
    folder.mkdir()
    body, prefix = {}, f"layers/{snake_case(backbone_class(class_name))}/"
    for variable, array in values.items():
        if variable.file.startswith(prefix) or class_name.endswith("Backbone"):
            body[variable.file.removeprefix(prefix)] = array
    h5_write(folder / "model.weights.h5", body)
    sizes = {f: SMALL[letter] for f, letter in FIELDS.items() if f != "num_segments" or class_name.startswith("Bert")}
    config = serialised(backbone_class(class_name), {**sizes, "num_layers": LAYERS})
    (folder / "config.json").write_text(json.dumps(config))
    if not class_name.endswith("Backbone"):
        head = {v.file: array for v, array in values.items() if not v.file.startswith(prefix)}
        h5_write(folder / "task.weights.h5", {**head, "optimizer/vars/0": np.int32(3)})
        task = serialised(class_name, {"backbone": config, "preprocessor": None, **fields})
        (folder / "task.json").write_text(json.dumps(task))
    return folder


def serialised(class_name: str, config: dict[str, object]) -> dict[str, object]:
    return {"class_name": class_name, "config": config, "registered_name": f"keras_hub>{class_name}"}


def backbone_class(class_name: str) -> str:
    return re.sub("(TextClassifier|MaskedLM)$", "Backbone", class_name)


def snake_case(class_name: str) -> str:
    known = {"BertBackbone": "bert_backbone", "RobertaBackbone": "roberta_backbone"}
    return {**known, "XLMRobertaBackbone": "xlm_roberta_backbone"}[class_name]


def assert_values(checkpoint, expected: dict[Variable, np.ndarray]) -> None:
    """A checkpoint holds exactly these, bit for bit, in canonical orientation.

    RoBERTa's position table has the reserved rows in front, as zeros; a masked LM's decoder is the word table.
    """
    found = checkpoint.logical()
    tied = {"masked_lm.decoder.kernel"} & set(found)
    assert set(found) - tied == {v.logical for v in expected}
    for variable, array in expected.items():
        wanted, tensor = variable.canonical(array), found[variable.logical].read()
        if variable.logical == "embeddings.position.table" and "roberta" in checkpoint.facts.family:
            assert not tensor[:2].any()
            tensor = tensor[2:]
        assert (tensor.dtype, tensor.shape) == (wanted.dtype, wanted.shape), variable
        assert tensor.tobytes() == np.ascontiguousarray(wanted).tobytes(), variable
    for name in tied:
        assert found[name].read().tobytes() == np.ascontiguousarray(found["embeddings.word.table"].read().T).tobytes()


def h5_write(path: Path, arrays: dict[str, np.ndarray], **root: object) -> Path:
    """An HDF5 file with these datasets, by h5py alone; `root` are attributes of its root."""
    import h5py

    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file[name] = array
        file.attrs.update(root)
    return path


def h5_read(path: Path) -> dict[str, np.ndarray]:
    """Every dataset of an HDF5 file by its path, as h5py reads it."""
    import h5py

    found: dict[str, np.ndarray] = {}
    with h5py.File(path) as file:
        file.visititems(lambda name, item: found.update({name: item[()]}) if isinstance(item, h5py.Dataset) else None)
    return found
