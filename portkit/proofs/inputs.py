"""Inputs that touch as much of a model as a bounded forward pass can.

Real sentences would touch less: a few hundred of the vocabulary's rows, one token type, the first positions.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from portkit.errors import Problem, RefusedError
from portkit.runtimes.outputs import VOCABULARY_TASKS, Inputs, IntArray

if TYPE_CHECKING:
    from collections.abc import Collection

    from portkit.facts import Facts

_LOGITS_BUDGET = 1 << 27  # elements of vocabulary-wide logits, padding included: 512 MB in float32
_FEWEST_ROWS = 2  # below, nothing would be padded
FEW = 32  # numbers: two rms of fewer are not sure to be of one size, see `many_rows`
_SHORT = (2, 3, 5, 8)  # tokens


def shared_facts(a: Facts, b: Facts) -> Facts:
    """Facts of a model that takes only what both models take: the shorter sentence, the smaller tables."""
    shorter = min(a, b, key=lambda facts: facts.usable_length)
    vocabulary, types = min(a.vocab_size, b.vocab_size), min(a.type_vocab_size, b.type_vocab_size)
    return replace(shorter, vocab_size=vocabulary, type_vocab_size=types)


def choose_inputs(facts: Facts, *, seed: int = 0, avoid: Collection[int] = ()) -> Inputs:
    """A right-padded batch, the same on every call with the same seed.

    Rows: the longest sentence that the model takes, half of it, an eighth, two tokens; fewer where logits are
    so wide that the batch would fill memory. Ids are spread evenly from first to last, without the pad id
    and those to `avoid`, such as another model's pad id; every token type stands in one stretch of each row.
    Raises RefusedError when the model takes no tokens at all.
    """
    return _batch(facts, _lengths(facts), seed, avoid)


def _batch(facts: Facts, lengths: tuple[int, ...], seed: int, avoid: Collection[int]) -> Inputs:
    """Rows of these lengths, the longest first."""
    mask = (np.arange(lengths[0]) < np.array(lengths)[:, None]).astype(np.int64)
    ids = np.full(mask.shape, facts.pad_token_id, np.int64)
    ids[mask == 1] = _spread_ids(facts, sum(lengths), seed, avoid)
    return Inputs(ids, mask, _token_types(facts, lengths))


def many_rows(facts: Facts, *, seed: int = 0) -> Inputs:
    """As many short rows as the noise of any output needs: one number from each row is enough."""
    lengths = sorted((min(_SHORT[i % len(_SHORT)], facts.usable_length) for i in range(FEW)), reverse=True)
    return _batch(facts, tuple(lengths), seed, ())


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


def _spread_ids(facts: Facts, count: int, seed: int, avoid: Collection[int]) -> IntArray:
    """`count` ids from first to last, evenly spread, in random order: neighbours should not be alike."""
    known = np.arange(facts.vocab_size)
    other = known[~np.isin(known, [facts.pad_token_id, *avoid])]
    usable = other if other.size else known
    picks = np.rint(np.linspace(0, len(usable) - 1, count)).astype(np.int64)
    return np.random.default_rng(seed).permutation(usable[picks])


def _token_types(facts: Facts, lengths: tuple[int, ...]) -> IntArray:
    """Segments as in sentence pairs: the first stretch is type 0, the next type 1, …; padding is type 0."""
    types = np.zeros((len(lengths), lengths[0]), np.int64)
    for row, length in enumerate(lengths):
        types[row, :length] = np.arange(length) * facts.type_vocab_size // length
    return types
