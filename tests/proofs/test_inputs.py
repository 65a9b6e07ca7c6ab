from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from models import small_facts

from portkit.errors import RefusedError, UsageError
from portkit.proofs.coverage import Coverage, HeadWatch, coverage_of
from portkit.proofs.inputs import Inputs, choose_inputs, shared_facts


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
    assert str(coverage_of(facts, inputs, heads=8)) == (
        "4 rows of 37, 18, 4, 2 tokens: 60 of 61 vocabulary rows, 37 of 37 positions, 2 of 2 token types; "
        "8 of 9 heads in 3 layers"
    )


def test_what_no_output_depends_on_is_left_to_the_bits():
    coverage = Coverage((60, 61), (37, 40), (2, 2), (37, 2), 0, layers=3, heads=(7, 9))
    assert coverage.bits_alone == (
        "1 vocabulary row never read",
        "3 position rows never read",
        "the key bias of 3 layers, which cancels in the softmax",
        "query and key of 2 of the heads, which look at one token only or at all alike",
    )
    assert coverage.as_dict()["bits_alone"] == list(coverage.bits_alone)


def test_head_is_seen_once_it_weighs_tokens_differently_on_any_token_of_any_row():
    watch = HeadWatch()
    one_hot, even, spread = np.eye(3), np.full((3, 3), 1 / 3), np.tile([0.5, 0.3, 0.2], (3, 1))
    nearly = np.array([[1.0, 0, 0], [0, 0.995, 0.005], [0, 0, 1.0]])
    watch("layer.0", np.stack([one_hot, nearly, one_hot]))
    assert watch.heads == 0
    watch("layer.0", np.stack([one_hot, one_hot, np.where(np.arange(3)[:, None] == 1, spread, one_hot)]))
    watch("layer.0", np.stack([one_hot, one_hot, one_hot]))
    watch("layer.1", np.stack([spread, spread, even]))
    watch("layer.1", np.stack([spread, even, even + np.array([0.01, 0, -0.01])]))
    assert watch.heads == 1 + 2


def test_inputs_for_two_models_fit_both_and_name_neither_pad_id():
    bert = small_facts(max_position_embeddings=30, type_vocab_size=3, vocab_size=50)
    roberta = small_facts("roberta", max_position_embeddings=40, type_vocab_size=1, vocab_size=70)
    shared = shared_facts(bert, roberta)
    assert (shared.usable_length, shared.vocab_size, shared.type_vocab_size) == (30, 50, 1)
    inputs = choose_inputs(shared, avoid=(bert.pad_token_id, roberta.pad_token_id))
    real = set(inputs.input_ids[inputs.valid].tolist())
    assert real == set(range(50)) - {0, 1}


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
    with pytest.raises(
        RefusedError, match=r"the model takes no tokens[\s\S]*nothing can be run[\s\S]*found    0 usable positions"
    ):
        choose_inputs(small_facts("roberta", max_position_embeddings=2))


def test_inputs_of_wrong_shapes_and_dtypes_are_refused():
    ids = np.ones((2, 3), np.int64)
    with pytest.raises(
        UsageError,
        match=r"the inputs of a forward pass are wrong[\s\S]*attention_mask: wrong shape or dtype\s+expected int64 \(2, 3\)",
    ):
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
