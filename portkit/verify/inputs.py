"""Inputs that touch as much of a model as a bounded forward pass can, and a count of what they touch.

Real sentences would touch less: a few hundred of the vocabulary's rows, one token type, the first positions.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from portkit.errors import Problem, RefusedError
from portkit.runtimes.outputs import VOCABULARY_TASKS, Inputs, IntArray
from portkit.runtimes.reference import positions

if TYPE_CHECKING:
    from portkit.facts import Facts

__all__ = ["Coverage", "Inputs", "choose_inputs", "coverage_of"]

_LOGITS_BUDGET = 1 << 27  # elements of vocabulary-wide logits, padding included: 512 MB in float32
_FEWEST_ROWS = 2  # below, nothing would be padded


@dataclass(frozen=True)
class Coverage:
    """What a batch touches: of each table (distinct rows read, rows there are); and the tokens per row."""

    vocabulary: tuple[int, int]
    positions: tuple[int, int]
    token_types: tuple[int, int]
    lengths: tuple[int, ...]
    pad_ids_inside: int
    """Real tokens whose id is the pad id: 0 unless the vocabulary has no other."""

    def as_dict(self) -> dict[str, object]:
        """The same, for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        rows = f"{len(self.lengths)} rows of {', '.join(map(str, self.lengths))} tokens"
        tables = {
            "vocabulary rows": self.vocabulary,
            "positions": self.positions,
            "token types": self.token_types,
        }
        touched = ", ".join(f"{seen} of {there} {name}" for name, (seen, there) in tables.items())
        pads = f"; {self.pad_ids_inside} real tokens are the pad id" if self.pad_ids_inside else ""
        return f"{rows}: {touched}{pads}"


def choose_inputs(facts: Facts, *, seed: int = 0) -> Inputs:
    """A right-padded batch, the same on every call with the same seed.

    Rows: the longest sentence that the model takes, half of it, an eighth, two tokens; fewer where logits are
    so wide that the batch would fill memory. Ids are spread evenly from first to last, without the pad id;
    every token type stands in one stretch of each row.
    Raises RefusedError when the model takes no tokens at all.
    """
    lengths = _lengths(facts)
    mask = (np.arange(lengths[0]) < np.array(lengths)[:, None]).astype(np.int64)
    ids = np.full(mask.shape, facts.pad_token_id, np.int64)
    ids[mask == 1] = _spread_ids(facts, sum(lengths), seed)
    return Inputs(ids, mask, _token_types(facts, lengths))


def coverage_of(facts: Facts, inputs: Inputs) -> Coverage:
    """Counts the rows that the real tokens of `inputs` read from each embedding table."""
    ids, valid = inputs.input_ids[inputs.valid], inputs.valid
    return Coverage(
        vocabulary=(_distinct(ids), facts.vocab_size),
        positions=(_distinct(positions(facts, inputs)[valid]), facts.max_position_embeddings),
        token_types=(_distinct(inputs.token_type_ids[valid]), facts.type_vocab_size),
        lengths=tuple(inputs.lengths.tolist()),
        pad_ids_inside=int((ids == facts.pad_token_id).sum()),
    )


def _lengths(facts: Facts) -> tuple[int, ...]:
    longest = facts.usable_length
    if longest < 1 or facts.vocab_size < 1:
        found = f"{facts.usable_length} usable positions, {facts.vocab_size} vocabulary rows"
        raise RefusedError("the model takes no tokens", [Problem("config", "nothing can be run", "1 or more", found)])
    wanted = (longest, longest // 2, longest // 8, 2)
    rows = len(wanted)
    if facts.task in VOCABULARY_TASKS:
        rows = max(_FEWEST_ROWS, min(rows, _LOGITS_BUDGET // (longest * facts.vocab_size)))
    return tuple(min(longest, max(1, length)) for length in (longest, *wanted[len(wanted) - rows + 1 :]))


def _spread_ids(facts: Facts, count: int, seed: int) -> IntArray:
    """`count` ids from first to last, evenly spread, in random order: neighbours should not be alike."""
    known = np.arange(facts.vocab_size)
    usable = known[known != facts.pad_token_id] if facts.vocab_size > 1 else known
    picks = np.rint(np.linspace(0, len(usable) - 1, count)).astype(np.int64)
    return np.random.default_rng(seed).permutation(usable[picks])


def _token_types(facts: Facts, lengths: tuple[int, ...]) -> IntArray:
    """Segments as in sentence pairs: the first stretch is type 0, the next type 1, …; padding is type 0."""
    types = np.zeros((len(lengths), lengths[0]), np.int64)
    for row, length in enumerate(lengths):
        types[row, :length] = np.arange(length) * facts.type_vocab_size // length
    return types


def _distinct(ids: IntArray) -> int:
    return len(np.unique(ids))
