"""Random small checkpoints on which faults show: matrices at gain / sqrt(fan_in), every bias and norm moved.

Without the scaling the softmax saturates, attention looks at one token, and a swapped query and key are invisible.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

from portkit.table.load import load_tables
from portkit.table.slots import Slot, expand, sizes_of

if TYPE_CHECKING:
    from pathlib import Path

TABLES = load_tables()
DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


@dataclass(frozen=True)
class Recipe:
    """A model to be made: its family, task and sizes, how loud its matrices are, the dtype of the file."""

    family: str
    task: str
    layers: int
    heads: int
    head_size: int
    inner: int
    rows: int
    vocabulary: int = 97
    labels: int = 5
    gain: float = 1.0
    activation: str = "gelu"
    dtype: str = "float32"
    seed: int = 0

    @property
    def config(self) -> dict[str, object]:
        """Its config.json."""
        table = TABLES.families[self.family]
        reserved = 0 if self.family == "bert" else 2
        labels = {"id2label": {str(i): f"LABEL_{i}" for i in range(self.labels)}} if "classif" in self.task else {}
        return {
            "model_type": table.layouts["hf"].model_type,
            "architectures": [table.tasks[self.task].classes["hf"]],
            "vocab_size": self.vocabulary,
            "hidden_size": self.heads * self.head_size,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "intermediate_size": self.inner,
            "max_position_embeddings": self.rows + reserved,
            "type_vocab_size": 2,
            "hidden_act": self.activation,
            "layer_norm_eps": 1e-12 if self.family == "bert" else 1e-5,
            "pad_token_id": 0 if self.family == "bert" else 1,
            "tie_word_embeddings": True,
            **labels,
        }


def write_model(recipe: Recipe, folder: Path) -> Path:
    """A Hugging Face folder of this recipe; the same recipe gives the same bytes."""
    table = TABLES.families[recipe.family]
    task = table.tasks[recipe.task]
    slots = expand(
        table,
        TABLES.storages["hf"],
        task,
        layers=recipe.layers,
        prefix="" if task.bare else table.layouts["hf"].prefix,
        pooler=task.pooler == "optional",
    )
    letters = {a for slot in slots.values() for a in slot.row.signature.letters()}
    values = {**recipe.config, "num_labels": recipe.labels}
    sizes = sizes_of({k: v for k, v in table.axes.items() if k in letters}, values)
    rng = np.random.default_rng(recipe.seed)
    drawn = {s.name: _draw(s, s.shape(sizes), recipe.gain, rng) for s in slots.values() if not s.place.tied}
    folder.mkdir(parents=True)
    tensors = {name: array.astype(DTYPES[recipe.dtype]) for name, array in drawn.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(recipe.config), encoding="utf-8")
    return folder


def _draw(slot: Slot, shape: tuple[int, ...], gain: float, rng: np.random.Generator) -> np.ndarray:
    part = slot.logical.rpartition(".")[2]
    if part == "kernel":  # [out, in]
        return rng.normal(0, gain / np.sqrt(shape[-1]), shape)
    if part == "table":
        return rng.normal(0, 0.5, shape)
    return (part == "scale") + rng.normal(0, 0.3, shape)
