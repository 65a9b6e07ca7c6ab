"""What a batch touches of a model, and what it leaves to the comparison of bits."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from portkit.runtimes.reference import positions

if TYPE_CHECKING:
    from portkit.facts import Facts
    from portkit.runtimes.outputs import FloatArray, Inputs, IntArray

# What a head with such weights computes says little of its query and key: all of the weight is on one token, or
# all tokens are alike to it, as they are deep in random models, and the weights are even.
_ALL = 0.99
_EVEN = 0.05  # relative


@dataclass(frozen=True)
class Coverage:
    """What a batch touches: of each table (distinct rows read, rows there are); and the tokens per row."""

    vocabulary: tuple[int, int]
    positions: tuple[int, int]
    token_types: tuple[int, int]
    lengths: tuple[int, ...]
    pad_ids_inside: int
    """Real tokens whose id is the pad id: 0 unless the inputs were given so, or the vocabulary has no other."""
    layers: int = 0
    heads: tuple[int, int] = (0, 0)
    """Heads that weigh tokens against each other (the others show nothing of query and key), of all heads."""

    @property
    def bits_alone(self) -> tuple[str, ...]:
        """What no output of this batch depends on: only the tensor proof certifies it."""
        tables = {"vocabulary": self.vocabulary, "position": self.positions, "token-type": self.token_types}
        never = {name: there - seen for name, (seen, there) in tables.items() if there > seen}
        idle = self.heads[1] - self.heads[0]
        return (
            *(f"{count} {name} {'row' if count == 1 else 'rows'} never read" for name, count in never.items()),
            # softmax(q·(k + b)) = softmax(q·k + q·b): the same number is added to every score of a query
            *([f"the key bias of {self.layers} layers, which cancels in the softmax"] if self.layers else []),
            *([f"query and key of {idle} of the heads, which look at one token only or at all alike"] if idle else []),
        )

    def as_dict(self) -> dict[str, object]:
        """The same, for JSON."""
        return {**asdict(self), "bits_alone": list(self.bits_alone)}

    def __str__(self) -> str:
        rows = f"{len(self.lengths)} {'row' if len(self.lengths) == 1 else 'rows'} of {_few(self.lengths)} tokens"
        tables = {
            "vocabulary rows": self.vocabulary,
            "positions": self.positions,
            "token types": self.token_types,
        }
        touched = ", ".join(f"{seen} of {there} {name}" for name, (seen, there) in tables.items())
        pads = f"; {self.pad_ids_inside} real tokens are the pad id" if self.pad_ids_inside else ""
        heads = f"; {self.heads[0]} of {self.heads[1]} heads in {self.layers} layers" if self.layers else ""
        return f"{rows}: {touched}{heads}{pads}"


class HeadWatch:
    """Shown the attention weights of a reference run, it counts the heads that somewhere weigh tokens differently."""

    def __init__(self) -> None:
        self.weighing: dict[str, IntArray] = {}

    def __call__(self, layer: str, weights_nss: FloatArray) -> None:
        """Look at one layer's weights for one row of the batch, [n, s, s]."""
        most = weights_nss.max(axis=-1)
        uneven = most * weights_nss.shape[-1] > 1 + _EVEN
        weighing = ((most < _ALL) & uneven).any(axis=-1).astype(np.int64)
        self.weighing[layer] = np.maximum(weighing, self.weighing.get(layer, np.zeros_like(weighing)))

    @property
    def heads(self) -> int:
        """How many did so far."""
        return sum(int(heads.sum()) for heads in self.weighing.values())


def coverage_of(facts: Facts, inputs: Inputs, heads: int = 0) -> Coverage:
    """Counts the rows that the real tokens of `inputs` read from each embedding table; `heads` is a HeadWatch's."""
    ids, valid = inputs.input_ids[inputs.valid], inputs.valid
    return Coverage(
        vocabulary=(_distinct(ids), facts.vocab_size),
        positions=(_distinct(positions(facts, inputs)[valid]), facts.max_position_embeddings),
        token_types=(_distinct(inputs.token_type_ids[valid]), facts.type_vocab_size),
        lengths=tuple(inputs.lengths.tolist()),
        pad_ids_inside=int((ids == facts.pad_token_id).sum()),
        layers=facts.num_hidden_layers,
        heads=(heads, facts.num_hidden_layers * facts.num_attention_heads),
    )


def _distinct(ids: IntArray) -> int:
    return len(np.unique(ids))


def _few(lengths: tuple[int, ...]) -> str:
    if len(lengths) <= 6:
        return ", ".join(map(str, lengths))
    return f"{min(lengths)} to {max(lengths)}"
