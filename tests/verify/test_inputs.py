from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from models import small_facts

from portkit.errors import RefusedError, UsageError
from portkit.verify.inputs import Inputs, choose_inputs, coverage_of


def test_batch_covers_lengths_types_and_vocabulary():
    facts = small_facts()
    inputs = choose_inputs(facts)
    coverage = coverage_of(facts, inputs)
    assert coverage.lengths == (37, 18, 4, 2)
    assert coverage.positions == (37, 37)
    assert coverage.token_types == (2, 2)
    assert coverage.vocabulary == (60, 61)
    assert coverage.pad_ids_inside == 0
    assert {1, 60} <= set(inputs.input_ids[inputs.valid].tolist())
    assert str(coverage) == (
        "4 rows of 37, 18, 4, 2 tokens: 60 of 61 vocabulary rows, 37 of 37 positions, 2 of 2 token types"
    )


def test_padding_scheme_leaves_out_the_rows_that_it_cannot_reach():
    facts = small_facts("roberta", max_position_embeddings=514, type_vocab_size=1, vocab_size=5000)
    coverage = coverage_of(facts, choose_inputs(facts))
    assert coverage.lengths == (512, 256, 64, 2)
    assert coverage.positions == (512, 514)


def test_same_seed_same_batch():
    facts = small_facts()
    first, second, other = (choose_inputs(facts, seed=seed).input_ids for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, second)
    assert (first != other).any()


def test_vocabulary_of_only_the_pad_id_is_said():
    facts = small_facts(vocab_size=1)
    assert "; 61 real tokens are the pad id" in str(coverage_of(facts, choose_inputs(facts)))


@pytest.mark.parametrize(("vocabulary", "rows"), [(30_522, 4), (100_000, 2), (250_002, 2)])
def test_wide_logits_take_fewer_rows(vocabulary, rows):
    facts = small_facts(task="masked_lm", vocab_size=vocabulary, max_position_embeddings=512)
    coverage = coverage_of(facts, choose_inputs(facts))
    assert len(coverage.lengths) == rows
    assert (coverage.lengths[0], coverage.lengths[-1]) == (512, 2)


@given(
    st.builds(
        replace,
        st.sampled_from([small_facts(), small_facts("roberta")]),
        vocab_size=st.integers(2, 300),
        max_position_embeddings=st.integers(3, 600),
        type_vocab_size=st.integers(1, 20),
    )
)
def test_batch_fits_every_model(facts):
    inputs = choose_inputs(facts)
    coverage = coverage_of(facts, inputs)
    assert inputs.lengths[0] == facts.usable_length == inputs.input_ids.shape[1]
    assert inputs.lengths.sum() <= 3 * facts.usable_length + 2
    assert coverage.positions[0] >= facts.usable_length
    assert coverage.token_types[0] >= min(facts.type_vocab_size, facts.usable_length)
    assert inputs.input_ids.min() >= 0
    assert inputs.input_ids.max() < facts.vocab_size
    assert coverage.pad_ids_inside == 0


def test_model_without_positions_is_refused():
    with pytest.raises(RefusedError, match=r"the model takes no tokens[\s\S]*found    0 usable positions"):
        choose_inputs(small_facts("roberta", max_position_embeddings=2))


def test_inputs_of_wrong_shapes_and_dtypes_are_refused():
    ids = np.ones((2, 3), np.int64)
    with pytest.raises(UsageError, match=r"attention_mask: wrong shape or dtype\s+expected int64 \(2, 3\)"):
        Inputs(ids, ids[:1], ids)
    with pytest.raises(UsageError, match=r"token_type_ids[\s\S]*found    int32 \(2, 3\)"):
        Inputs(ids, ids, ids.astype(np.int32))
    with pytest.raises(UsageError, match=r"expected int64 \[batch, sequence\]"):
        Inputs(ids[0], ids[0], ids[0])


@pytest.mark.parametrize("row", [[0, 1, 1], [1, 0, 1], [0, 0, 0], [2, 0, 0]])
def test_padding_elsewhere_than_on_the_right_is_refused(row):
    ids = np.ones((2, 3), np.int64)
    with pytest.raises(UsageError, match=r"attention_mask row 1: not right-padded"):
        Inputs(ids, np.array([[1, 1, 0], row]), ids)
