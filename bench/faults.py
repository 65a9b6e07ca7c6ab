"""Faults of a conversion, as changes of logical tensors and facts; and a change that is none.

Each fault takes the facts and the tensors of a model and returns those of the broken one, or None where it has none.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from portkit.tensors import LazyTensor, in_memory

if TYPE_CHECKING:
    from portkit.facts import Facts

Tensors = Mapping[str, LazyTensor]
Fault = Callable[["Facts", Tensors], "tuple[Facts, Tensors] | None"]
LAYER = "layer.1"


def permuted(facts: Facts, tensors: Tensors, rng: np.random.Generator) -> Tensors:
    """The same function: the heads and the inner units of every layer in another order, so that sums run otherwise."""
    changed = dict(tensors)
    size = facts.hidden_size // facts.num_attention_heads
    for layer in (f"layer.{i}" for i in range(facts.num_hidden_layers)):
        heads = rng.permutation(facts.num_attention_heads)
        columns = (heads[:, None] * size + np.arange(size)).ravel()
        inner = rng.permutation(facts.intermediate_size)
        for name, order in ((f"{layer}.attention.{{}}", columns), (f"{layer}.mlp.{{}}", inner)):
            parts = ("query", "key", "value") if order is columns else ("up",)
            for part in parts:
                changed |= _taken(tensors, name.format(part), order, -1)
            last = name.format("out" if order is columns else "down") + ".kernel"
            changed[last] = in_memory(last, tensors[last].read()[order])
    return changed


def _taken(tensors: Tensors, module: str, order: np.ndarray, axis: int) -> dict[str, LazyTensor]:
    names = [f"{module}.kernel", f"{module}.bias"]
    return {name: in_memory(name, np.take(tensors[name].read(), order, axis)) for name in names}


def _changed(name: str, change: Callable[[np.ndarray], np.ndarray], facts: Facts, tensors: Tensors):  # noqa: ANN202
    if name not in tensors:
        return None
    return facts, {**tensors, name: in_memory(name, change(tensors[name].read()))}


def _swapped(first: str, second: str, facts: Facts, tensors: Tensors):  # noqa: ANN202
    names = {n: n.replace(*pair) for pair in ((first, second), (second, first)) for n in tensors if pair[0] in n}
    return facts, {**tensors, **{n: tensors[other] for n, other in names.items()}}


def _of_facts(changes: dict[str, object], facts: Facts, tensors: Tensors):  # noqa: ANN202
    if all(getattr(facts, name) == value for name, value in changes.items()):
        return None
    return replace(facts, **changes), tensors


def _epsilon(facts: Facts, tensors: Tensors):  # noqa: ANN202
    return replace(facts, layer_norm_eps=1e-5 if facts.layer_norm_eps < 1e-6 else 1e-12), tensors


def _activation(facts: Facts, tensors: Tensors):  # noqa: ANN202
    other = {"gelu": "gelu_tanh", "gelu_tanh": "gelu"}.get(facts.hidden_act)
    return (replace(facts, hidden_act=other), tensors) if other else None


def _heads(facts: Facts, tensors: Tensors):  # noqa: ANN202
    other = 2 if facts.num_attention_heads != 2 else 4
    return (replace(facts, num_attention_heads=other), tensors) if facts.hidden_size % other == 0 else None


def _rounded(dtype: str, facts: Facts, tensors: Tensors):  # noqa: ANN202
    if tensors["embeddings.word.table"].spec.dtype != "F32":
        return None
    return facts, {n: in_memory(n, t.read().astype(dtype).astype(np.float32)) for n, t in tensors.items()}


def _one_percent(array: np.ndarray) -> np.ndarray:
    changed = array.copy()
    changed.flat[array.size // 2] *= np.asarray(1.01, array.dtype)
    return changed


def _shifted(array: np.ndarray) -> np.ndarray:
    return np.roll(array, 1, axis=0)


FAULTS: dict[str, Fault] = {
    "query and key swapped": partial(_swapped, f"{LAYER}.attention.query", f"{LAYER}.attention.key"),
    "query matrix transposed": partial(_changed, f"{LAYER}.attention.query.kernel", np.transpose),
    "value matrix transposed": partial(_changed, f"{LAYER}.attention.value.kernel", np.transpose),
    "attention output transposed": partial(_changed, f"{LAYER}.attention.out.kernel", np.transpose),
    "pooler transposed": partial(_changed, "pooler.kernel", np.transpose),
    "two norms swapped": partial(_swapped, f"{LAYER}.attention.norm", f"{LAYER}.mlp.norm"),
    "two layers swapped": partial(_swapped, "layer.0.", "layer.1."),
    "query bias dropped": partial(_changed, f"{LAYER}.attention.query.bias", np.zeros_like),
    "value bias dropped": partial(_changed, f"{LAYER}.attention.value.bias", np.zeros_like),
    "positions shifted by one": partial(_changed, "embeddings.position.table", _shifted),
    "token types dropped": partial(_changed, "embeddings.type.table", np.zeros_like),
    "epsilon 1e-12 for 1e-5, or back": _epsilon,
    "tanh for erf GELU, or back": _activation,
    "another number of heads": _heads,
    "every weight through float16": partial(_rounded, "float16"),
    # No forward pass sees these; the tensor proof does.
    "key bias dropped": partial(_changed, f"{LAYER}.attention.key.bias", np.zeros_like),
    "one weight changed by 1 %": partial(_changed, f"{LAYER}.mlp.up.kernel", _one_percent),
}
