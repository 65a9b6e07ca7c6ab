"""The sketch: what its docstring says, and that it feels every value."""

from __future__ import annotations

import hashlib
import math

import numpy as np
import pytest

from portkit.golden import sketch
from portkit.golden.sketch import real_count, sketch_of

VALID = np.array([[True, True, True], [True, False, False]])


def random_output(seed=0, channels=5):
    return np.random.default_rng(seed).normal(0, 2, (2, 3, channels)).astype(np.float32)


def by_the_book(name, values, k):
    """One sum, bit by bit, as the docstring tells it."""
    digest = hashlib.shake_256(f"{name}/{k}".encode()).digest(len(values) // 8 + 1)
    bits = "".join(f"{byte:08b}" for byte in digest)
    return math.fsum(v if bit == "1" else -v for v, bit in zip(values, bits, strict=False)) / math.sqrt(len(values))


def test_it_is_the_sum_with_the_signs_of_the_hash():
    array = random_output()
    real = [float(v) for row, token in zip(*np.nonzero(VALID), strict=True) for v in array[row, token]]
    expected = [by_the_book("hidden_states.1", real, k) for k in range(4)]
    np.testing.assert_allclose(sketch_of("hidden_states.1", array, VALID, 4), expected, rtol=1e-12)
    assert real_count(array, VALID) == len(real) == 20


def test_outputs_without_a_token_axis_are_taken_whole():
    array = random_output()[:, 0]
    expected = [by_the_book("logits", array.ravel().tolist(), k) for k in range(3)]
    np.testing.assert_allclose(sketch_of("logits", array, VALID, 3), expected, rtol=1e-12)


def test_padding_is_not_felt_and_every_real_value_is():
    array = random_output()
    whole = sketch_of("logits", array, VALID)
    padded = np.where(VALID[:, :, None], array, 7)
    np.testing.assert_array_equal(sketch_of("logits", padded, VALID), whole)
    for place in zip(*np.nonzero(np.broadcast_to(VALID[:, :, None], array.shape)), strict=True):
        other = array.copy()
        other[place] += 1
        np.testing.assert_allclose(np.abs(sketch_of("logits", other, VALID) - whole), 1 / math.sqrt(20), rtol=1e-6)


def test_blocks_do_not_change_it(monkeypatch):
    array, valid = random_output(channels=37), np.ones((2, 3), bool)
    whole = sketch_of("logits", array, valid)
    monkeypatch.setattr(sketch, "_BLOCK", 16)
    np.testing.assert_allclose(sketch_of("logits", array, valid), whole, rtol=1e-12)


@pytest.mark.parametrize("where", ["everywhere", "one channel", "one token"])
def test_the_difference_of_two_sketches_is_that_of_the_outputs(where):
    rng, valid = np.random.default_rng(0), np.ones((2, 64), bool)
    estimates = []
    for k in range(100):
        change = rng.normal(0, 1e-3, (2, 64, 24))
        keep = {"everywhere": np.s_[:], "one channel": np.s_[:, :, 3], "one token": np.s_[1, 5]}[where]
        masked = np.zeros_like(change)
        masked[keep] = change[keep]
        found = sketch_of(f"output {k}", masked, valid)
        estimates.append(np.sqrt(np.square(found).mean() / np.square(masked).mean()))
    assert min(estimates) > 0.4
    assert max(estimates) < 2
    assert 0.95 < np.mean(np.square(estimates)) < 1.05
