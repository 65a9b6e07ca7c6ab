"""The facts of a model: everything besides its weights that decides which function it computes.

They are logical: no framework's spelling, no framework's default. Each layout's config is read into them.
"""

from __future__ import annotations

from dataclasses import dataclass

ACTIVATIONS = ("gelu", "gelu_tanh", "relu")  # "gelu" is the exact one, over erf
POSITION_SCHEMES = ("absolute", "padding")
HEAD_STYLES = ("bert", "roberta")
DTYPES = ("float64", "float32", "float16", "bfloat16")  # of weights, in the words of frameworks and users
TASKS = (
    "model",
    "masked_lm",
    "pre_training",
    "next_sentence",
    "sequence_classification",
    "token_classification",
    "question_answering",
    "multiple_choice",
)


@dataclass(frozen=True)
class Facts:
    """The logical configuration of one model of the BERT family, for one task."""

    family: str
    """The architecture whose table names the tensors: "bert", "roberta", …"""
    task: str
    """One of TASKS."""
    head_style: str | None
    """Where a sentence head's tanh layer lives: "bert" = the backbone, "roberta" = the head; else None."""
    vocab_size: int
    """Rows of the word table."""
    hidden_size: int
    """Width of every hidden state."""
    num_hidden_layers: int
    """Number of encoder layers; there is one hidden state more."""
    num_attention_heads: int
    """Heads per layer; divides hidden_size."""
    intermediate_size: int
    """Width of the feed-forward layer."""
    max_position_embeddings: int
    """Rows of the position table, used or not; see usable_length."""
    type_vocab_size: int
    """Rows of the token-type table."""
    num_labels: int | None
    """Width of the classifier; None where the task fixes it."""
    layer_norm_eps: float
    """Added to the variance in every layer norm."""
    hidden_act: str
    """Activation of the feed-forward layers, one of ACTIVATIONS."""
    lm_head_act: str
    """Activation of the masked-LM transform, one of ACTIVATIONS: RoBERTa has "gelu", BERT its hidden_act."""
    lm_head_eps: float
    """Added to the variance in the masked-LM head's norm: KerasHub has 1e-5 there, others layer_norm_eps."""
    position_scheme: str
    """"absolute": position = position_offset + index. "padding": pad + the number of real tokens so far."""
    position_offset: int
    """First position row of the "absolute" scheme; 0 for plain BERT."""
    pad_token_id: int
    """The id that fills short rows, and that the "padding" scheme does not count."""
    has_pooler: bool
    """Whether the backbone holds a pooler, so that a pooled vector is among its outputs."""
    pooler_act: str = "tanh"
    """Activation of the pooler; the family knows no other."""

    @property
    def first_position(self) -> int:
        """Row of the position table that the first token of a sentence reads."""
        return self.pad_token_id + 1 if self.position_scheme == "padding" else self.position_offset

    @property
    def usable_length(self) -> int:
        """Tokens of the longest sentence that the position table has rows for."""
        return self.max_position_embeddings - self.first_position
