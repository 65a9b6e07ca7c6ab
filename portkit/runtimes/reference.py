"""The reference: the whole family's forward pass in numpy, straight from logical tensors.

In float64 it is the exact function that every framework's result is measured against; in another dtype it stands
in for a framework that is not installed. It is written as formulas and shares no code with any framework.
In float16 and bfloat16 it does what frameworks do: sums run in float32, what an operation gives is rounded.

Axes: t = real tokens of the batch, s = those of one row, b = rows, h = hidden, n d = heads and head size.
Padding is not masked but left out: a masked key has weight 0, so the rows' real tokens are computed alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from portkit.errors import Problem, RuntimeFailedError
from portkit.runtimes.erf import erf
from portkit.runtimes.outputs import (
    LOGITS,
    POOLED,
    RELATION,
    VOCABULARY_TASKS,
    FloatArray,
    Inputs,
    IntArray,
    Outputs,
    gives_pooled,
    hidden_name,
    require_fit,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import DTypeLike, NDArray

    from portkit.facts import Facts
    from portkit.tensors import LazyTensor

Watch = Callable[[str, FloatArray], None]  # a layer's name and its attention weights of one row, [n, s, s]
Rows = tuple[slice, ...]  # where each row's tokens lie on the t axis

_HALF = 2  # bytes of float16 and bfloat16
_TOKEN_HEADS = {"token_classification": "classifier", "question_answering": "qa"}
_SENTENCE_HEADS = {
    "sequence_classification": (LOGITS, "classifier"),
    "multiple_choice": (LOGITS, "classifier"),
    "next_sentence": (LOGITS, "next_sentence"),
    "pre_training": (RELATION, "next_sentence"),
}


@dataclass(frozen=True)
class Weights:
    """Logical tensors, read one at a time in the dtype of the run."""

    tensors: Mapping[str, LazyTensor]
    dtype: np.dtype[Any]

    def __call__(self, name: str) -> FloatArray:
        """The tensor called `name`; RuntimeFailedError when the checkpoint has none."""
        if name not in self.tensors:
            problem = Problem(name, "the reference needs this tensor", hint="check the task and its facts")
            raise RuntimeFailedError("cannot compute the reference", [problem])
        return self.rounded(self.tensors[name].read())

    def rounded(self, x: NDArray[Any]) -> FloatArray:
        """`x` with the digits that the dtype has; 16-bit floats stay float32 arrays, in which numpy can sum."""
        narrow: NDArray[Any] = x.astype(self.dtype, copy=False)
        return narrow.astype(np.float32) if self.dtype.itemsize == _HALF else narrow


def run_reference(
    facts: Facts,
    tensors: Mapping[str, LazyTensor],
    inputs: Inputs,
    dtype: DTypeLike = "float64",
    watch: Watch | None = None,
) -> Outputs:
    """Every output of the forward contract, in `dtype` (float32 for 16-bit ones); padding positions are 0.

    `tensors` are in canonical orientation (x @ kernel + bias); one layer of them is in memory at a time.
    `watch` is shown the attention weights of every layer and row.
    Raises UsageError for inputs that misfit, RuntimeFailedError for an absent tensor or unknown activation.
    """
    require_fit(facts, inputs)
    weights = Weights(tensors, np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype))
    rows = _rows(inputs)
    with np.errstate(over="ignore", invalid="ignore"):  # a broken checkpoint gives NaN, which the verdict reports
        x_th = _embed(facts, weights, inputs)
        outputs = {hidden_name(0): _unpack(x_th, inputs)}
        for i in range(facts.num_hidden_layers):
            x_th = _layer(facts, weights, f"layer.{i}", x_th, rows, watch)
            outputs[hidden_name(i + 1)] = _unpack(x_th, inputs)
        outputs |= _sentence_outputs(facts, weights, x_th[[row.start for row in rows]])
        outputs |= {name: _unpack(y, inputs) for name, y in _token_outputs(facts, weights, x_th).items()}
    return outputs


def _rows(inputs: Inputs) -> Rows:
    ends = np.cumsum(inputs.lengths).tolist()
    return tuple(slice(start, end) for start, end in zip([0, *ends], ends, strict=False))


def _unpack(y_t: FloatArray, inputs: Inputs) -> FloatArray:
    """[t, *] to [B, S, *]; padding is left at the zeros of fresh memory, which costs none."""
    out = np.zeros((*inputs.input_ids.shape, *y_t.shape[1:]), y_t.dtype)
    out[inputs.valid] = y_t
    return out


def _embed(facts: Facts, weights: Weights, inputs: Inputs) -> FloatArray:
    word_th = weights("embeddings.word.table")[inputs.input_ids[inputs.valid]]
    position_th = weights("embeddings.position.table")[positions(facts, inputs)[inputs.valid]]
    type_th = weights("embeddings.type.table")[inputs.token_type_ids[inputs.valid]]
    sum_th = weights.rounded(weights.rounded(word_th + type_th) + position_th)
    return _norm(facts.layer_norm_eps, weights, "embeddings.norm", sum_th)


def positions(facts: Facts, inputs: Inputs) -> IntArray:
    """Row of the position table that each token reads, int64 [B, S]; meaningless at padding."""
    ids = inputs.input_ids
    if facts.position_scheme == "padding":  # a pad id inside a sentence is not counted and reads the pad row
        counted = (ids != facts.pad_token_id).astype(np.int64)
        ordinal: IntArray = np.cumsum(counted, axis=1) * counted
        return facts.pad_token_id + ordinal
    row: IntArray = facts.position_offset + np.arange(ids.shape[1])
    return np.broadcast_to(row, ids.shape)


def _layer(facts: Facts, weights: Weights, at: str, x_th: FloatArray, rows: Rows, watch: Watch | None) -> FloatArray:
    """One post-norm encoder layer."""
    attended = _attention(facts, weights, f"{at}.attention", x_th, rows, watch)
    x_th = _norm(facts.layer_norm_eps, weights, f"{at}.attention.norm", weights.rounded(x_th + attended))
    up_tf = weights.rounded(activation(facts.hidden_act)(_linear(weights, f"{at}.mlp.up", x_th)))
    down_th = _linear(weights, f"{at}.mlp.down", up_tf)
    return _norm(facts.layer_norm_eps, weights, f"{at}.mlp.norm", weights.rounded(x_th + down_th))


def _attention(
    facts: Facts, weights: Weights, at: str, x_th: FloatArray, rows: Rows, watch: Watch | None
) -> FloatArray:
    heads, rounded = facts.num_attention_heads, weights.rounded
    query, key, value = (_linear(weights, f"{at}.{name}", x_th) for name in ("query", "key", "value"))
    context_th = np.empty_like(x_th)
    for row in rows:
        q_nsd, k_nsd, v_nsd = (_split_heads(part[row], heads) for part in (query, key, value))
        scores_nss = rounded(rounded(q_nsd @ k_nsd.swapaxes(1, 2)) / math.sqrt(q_nsd.shape[-1]))
        weights_nss = rounded(_softmax(scores_nss))
        if watch is not None:
            watch(at, weights_nss)
        context_nsd = rounded(weights_nss @ v_nsd)
        context_th[row] = context_nsd.swapaxes(0, 1).reshape(-1, x_th.shape[1])
    return _linear(weights, f"{at}.out", context_th)


def _split_heads(x_sh: FloatArray, heads: int) -> FloatArray:
    return x_sh.reshape(len(x_sh), heads, -1).swapaxes(0, 1)


def _token_outputs(facts: Facts, weights: Weights, x_th: FloatArray) -> dict[str, FloatArray]:
    if facts.task in VOCABULARY_TASKS:
        hidden = weights.rounded(activation(facts.lm_head_act)(_linear(weights, "masked_lm.transform", x_th)))
        normed = _norm(facts.lm_head_eps, weights, "masked_lm.norm", hidden)
        return {LOGITS: _linear(weights, "masked_lm.decoder", normed)}
    if facts.task in _TOKEN_HEADS:
        return {LOGITS: _linear(weights, _TOKEN_HEADS[facts.task], x_th)}
    return {}


def _sentence_outputs(facts: Facts, weights: Weights, first_bh: FloatArray) -> dict[str, FloatArray]:
    """What the first token gives. Both head styles are this one function: tanh of a linear, then a linear."""
    outputs: dict[str, FloatArray] = {}
    if not (facts.has_pooler or facts.task in _SENTENCE_HEADS):
        return outputs
    pooled_bh = weights.rounded(np.tanh(_linear(weights, "pooler", first_bh)))
    if gives_pooled(facts):
        outputs[POOLED] = pooled_bh
    if facts.task in _SENTENCE_HEADS:
        name, module = _SENTENCE_HEADS[facts.task]
        outputs[name] = _linear(weights, module, pooled_bh)
    return outputs


def _linear(weights: Weights, at: str, x: FloatArray) -> FloatArray:
    product: FloatArray = x @ weights(f"{at}.kernel")
    product += weights(f"{at}.bias")
    return weights.rounded(product)


def _norm(eps: float, weights: Weights, at: str, x: FloatArray) -> FloatArray:
    centred: FloatArray = x - x.mean(axis=-1, keepdims=True)
    variance = np.square(centred).mean(axis=-1, keepdims=True)
    centred /= np.sqrt(variance + eps)
    return weights.rounded(centred * weights(f"{at}.scale") + weights(f"{at}.bias"))


def _softmax(x: FloatArray) -> FloatArray:
    powers: FloatArray = np.exp(x - x.max(axis=-1, keepdims=True))
    powers /= powers.sum(axis=-1, keepdims=True)
    return powers


def _gelu(x: FloatArray) -> FloatArray:
    return 0.5 * x * (1 + erf(x * math.sqrt(0.5)))


def _gelu_tanh(x: FloatArray) -> FloatArray:
    bend: FloatArray = np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x))
    return 0.5 * x * (1 + bend)


def _relu(x: FloatArray) -> FloatArray:
    kept: FloatArray = np.maximum(x, 0)
    return kept


_ACTIVATIONS: dict[str, Callable[[FloatArray], FloatArray]] = {
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "relu": _relu,
}


def activation(name: str) -> Callable[[FloatArray], FloatArray]:
    """The activation of that logical name; RuntimeFailedError for one that the reference does not know."""
    if name not in _ACTIVATIONS:
        problem = Problem("activation", "unknown to the reference", ", ".join(_ACTIVATIONS), name)
        raise RuntimeFailedError("cannot compute the reference", [problem])
    return _ACTIVATIONS[name]
