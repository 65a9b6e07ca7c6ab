"""The forward contract: what every runtime is given and what it gives back.

`hidden_states.0` (the embeddings after their norm) to `hidden_states.{L}` are [B, S, H], `pooled_output` is
[B, H]; `logits` is [B, S, *] for tasks that judge tokens and [B, *] for those that judge a row; pre-training
adds `seq_relationship_logits` [B, 2]. Multiple choice takes one choice per row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from portkit.errors import Problem, UsageError

if TYPE_CHECKING:
    from portkit.facts import Facts

FloatArray = NDArray[np.floating[Any]]
IntArray = NDArray[np.int64]
Outputs = Mapping[str, FloatArray]

POOLED = "pooled_output"
LOGITS = "logits"
RELATION = "seq_relationship_logits"
VOCABULARY_TASKS = ("masked_lm", "pre_training")  # their logits are as wide as the vocabulary


class OutputsOn(dict[str, FloatArray]):
    """Outputs whose runtime says which device computed them, as `wgpu: NVIDIA L4, Vulkan`."""

    def __init__(self, arrays: Outputs, device: str) -> None:
        super().__init__(arrays)
        self.device = device


def device_of(outputs: Outputs) -> str:
    """Where the outputs were computed, where their runtime says it."""
    return outputs.device if isinstance(outputs, OutputsOn) else ""


def hidden_name(index: int) -> str:
    """Name of a hidden state: 0 is the embeddings, i + 1 the output of layer i."""
    return f"hidden_states.{index}"


def expected_outputs(facts: Facts) -> tuple[str, ...]:
    """Every output of a model with these facts, in the order in which they are computed."""
    names = [hidden_name(i) for i in range(facts.num_hidden_layers + 1)]
    if gives_pooled(facts):
        names.append(POOLED)
    if facts.task != "model":
        names.append(LOGITS)
    if facts.task == "pre_training":
        names.append(RELATION)
    return tuple(names)


def gives_pooled(facts: Facts) -> bool:
    """Whether the tanh layer's vector is an output: RoBERTa's sentence head keeps its own to itself."""
    inside_head = facts.task == "sequence_classification" and facts.head_style == "roberta"
    return facts.has_pooler and not inside_head


@dataclass(frozen=True, eq=False)
class Inputs:
    """A right-padded batch: three int64 arrays [B, S]; attention_mask is 1 at real tokens, then 0.

    Raises UsageError for other shapes or dtypes, a row without tokens, and padding that is not on the right.
    """

    input_ids: IntArray
    attention_mask: IntArray
    token_type_ids: IntArray

    def __post_init__(self) -> None:
        problems = [*self._array_problems()] or [*self._mask_problems()]
        if problems:
            raise UsageError("the inputs of a forward pass are wrong", problems)

    @property
    def lengths(self) -> IntArray:
        """Number of real tokens per row, [B]."""
        lengths: IntArray = self.attention_mask.sum(axis=1)
        return lengths

    @property
    def valid(self) -> NDArray[np.bool_]:
        """True at real tokens, [B, S]."""
        return self.attention_mask.astype(np.bool_)

    def arrays(self) -> dict[str, IntArray]:
        """The three arrays under the names that every runtime knows."""
        return {
            "input_ids": self.input_ids,
            "attention_mask": self.attention_mask,
            "token_type_ids": self.token_type_ids,
        }

    def _array_problems(self) -> list[Problem]:
        shape = self.input_ids.shape
        expected = f"int64 {shape}" if len(shape) == 2 else "int64 [batch, sequence]"
        return [
            Problem(name, "wrong shape or dtype", expected, f"{array.dtype} {array.shape}")
            for name, array in self.arrays().items()
            if len(shape) != 2 or array.shape != shape or array.dtype != np.int64
        ]

    def _mask_problems(self) -> list[Problem]:
        columns = np.arange(self.attention_mask.shape[1])
        right_padded = (columns < self.lengths[:, None]).astype(np.int64)
        wrong = (self.attention_mask != right_padded).any(axis=1) | (self.lengths < 1)
        return [
            Problem(f"attention_mask row {row}", "not right-padded", "one or more 1, then only 0")
            for row in np.flatnonzero(wrong)
        ]


def require_fit(facts: Facts, inputs: Inputs) -> None:
    """Raise UsageError unless every id has a row in its table and the model takes a batch of this length."""
    problems = []
    for name, ids, rows in (
        ("input_ids", inputs.input_ids, facts.vocab_size),
        ("token_type_ids", inputs.token_type_ids, facts.type_vocab_size),
    ):
        if ids.min() < 0 or ids.max() >= rows:
            problems.append(Problem(name, "ids without a row", f"0 to {rows - 1}", f"{ids.min()} to {ids.max()}"))
    length = inputs.input_ids.shape[1]
    if length > facts.usable_length:
        problems.append(
            Problem(
                "input_ids",
                "longer than the model takes",
                f"{facts.usable_length} tokens",
                f"{length} tokens",
            )
        )
    if problems:
        raise UsageError("the inputs do not fit the model", problems)
