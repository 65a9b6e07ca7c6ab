from __future__ import annotations

import numpy as np
import pytest
from models import (
    BERT_TASKS,
    ROBERTA_TASKS,
    class_name,
    hf_config,
    hf_state,
    lazy,
    random_logical,
    small_facts,
)

from portkit.errors import RuntimeFailedError, UsageError
from portkit.proofs.inputs import choose_inputs
from portkit.runtimes.outputs import Inputs, expected_outputs
from portkit.runtimes.reference import positions, run_reference
from portkit.runtimes.transformers_runtime import run_transformers_tensors, transformers_available

needs_hf = pytest.mark.skipif(not transformers_available(), reason="transformers is not installed")
CASES = [("bert", task, {}) for task in BERT_TASKS]
CASES += [("roberta", task, {}) for task in ROBERTA_TASKS]
CASES += [(family, "model", {"has_pooler": False}) for family in ("bert", "roberta")]
CASES += [(family, "model", {"hidden_act": act}) for family in ("bert", "roberta") for act in ("gelu_tanh", "relu")]
CASES += [("bert", "masked_lm", {"hidden_act": act, "lm_head_act": act}) for act in ("gelu_tanh", "relu")]
CASES += [("roberta", "masked_lm", {"hidden_act": "relu"})]  # its head stays gelu
CASES += [("bert", task, {"has_pooler": True}) for task in ("masked_lm", "token_classification", "question_answering")]
CASES += [
    ("bert", "model", {"type_vocab_size": 3}),
    ("roberta", "model", {"type_vocab_size": 1, "pad_token_id": 4}),
]


@needs_hf
@pytest.mark.hf
@pytest.mark.parametrize(("family", "task", "changes"), CASES, ids=str)
def test_reference_is_transformers_in_float64(family, task, changes):
    facts = small_facts(family, task, **changes)
    logical = random_logical(facts, dtype=np.float64)
    inputs = choose_inputs(facts)
    reference = run_reference(facts, lazy(logical), inputs)
    theirs = run_transformers_tensors(
        hf_config(facts),
        lazy(hf_state(logical, facts)),
        inputs,
        task=task,
        class_name=class_name(facts),
        has_pooler=facts.has_pooler,
        dtype="float64",
    )
    assert tuple(sorted(reference)) == tuple(sorted(theirs)) == tuple(sorted(expected_outputs(facts)))
    for name, expected in theirs.items():
        assert expected.dtype == reference[name].dtype == np.float64
        real = inputs.valid if expected.ndim == 3 else slice(None)
        np.testing.assert_allclose(reference[name][real], expected[real], rtol=0, atol=1e-12, err_msg=name)


def test_positions_of_both_schemes():
    inputs = Inputs(
        np.array([[5, 1, 7, 8], [9, 1, 1, 1]]),
        np.array([[1, 1, 1, 1], [1, 0, 0, 0]]),
        np.zeros((2, 4), np.int64),
    )
    absolute = small_facts(position_offset=3)
    np.testing.assert_array_equal(positions(absolute, inputs), [[3, 4, 5, 6]] * 2)
    padding = small_facts("roberta")
    np.testing.assert_array_equal(positions(padding, inputs), [[2, 1, 3, 4], [2, 1, 1, 1]])


def test_an_offset_reads_later_rows():
    plain = small_facts(max_position_embeddings=34)
    shifted = small_facts(position_offset=3)
    assert shifted.usable_length == plain.usable_length == 34
    logical = random_logical(shifted)
    cut = {**logical, "embeddings.position.table": logical["embeddings.position.table"][3:]}
    inputs = choose_inputs(plain)
    ours, theirs = run_reference(shifted, lazy(logical), inputs), run_reference(plain, lazy(cut), inputs)
    np.testing.assert_array_equal(ours["hidden_states.3"], theirs["hidden_states.3"])


def test_both_head_styles_are_one_function():
    bert = small_facts(task="sequence_classification")
    roberta = small_facts(task="sequence_classification", head_style="roberta", has_pooler=False)
    logical, inputs = lazy(random_logical(bert)), choose_inputs(bert)
    ours, theirs = run_reference(bert, logical, inputs), run_reference(roberta, logical, inputs)
    np.testing.assert_array_equal(ours["logits"], theirs["logits"])
    assert "pooled_output" in ours
    assert "pooled_output" not in theirs


def test_float32_run_is_float32_throughout():
    facts = small_facts(task="pre_training")
    outputs = run_reference(facts, lazy(random_logical(facts, dtype=np.float64)), choose_inputs(facts), np.float32)
    assert {array.dtype for array in outputs.values()} == {np.dtype(np.float32)}


def test_a_row_does_not_depend_on_its_neighbours():
    facts = small_facts()
    logical, batch = lazy(random_logical(facts)), choose_inputs(facts)
    length = int(batch.lengths[1])
    alone = Inputs(*(array[1:2, :length] for array in batch.arrays().values()))
    together, apart = run_reference(facts, logical, batch), run_reference(facts, logical, alone)
    np.testing.assert_allclose(together["hidden_states.3"][1, :length], apart["hidden_states.3"][0], atol=1e-14)


def test_missing_tensor_and_unknown_activation_are_named():
    facts = small_facts()
    logical = lazy(random_logical(facts))
    del logical["layer.1.mlp.up.bias"]
    with pytest.raises(
        RuntimeFailedError,
        match=r"cannot compute the reference[\s\S]*layer\.1\.mlp\.up\.bias: the reference needs this tensor",
    ):
        run_reference(facts, logical, choose_inputs(facts))
    odd = small_facts(hidden_act="swish")
    with pytest.raises(
        RuntimeFailedError,
        match=r"activation: unknown to the reference\s+expected gelu, gelu_tanh, relu\s+found\s+swish",
    ):
        run_reference(odd, lazy(random_logical(odd)), choose_inputs(odd))


def test_inputs_that_do_not_fit_are_refused():
    facts = small_facts(vocab_size=10, type_vocab_size=1, max_position_embeddings=3)
    ids = np.array([[1, 2, 10, 3]])
    inputs = Inputs(ids, np.ones_like(ids), np.array([[0, 0, 1, 1]]))
    with pytest.raises(UsageError, match="3 problems") as caught:
        run_reference(facts, {}, inputs)
    assert "expected 0 to 9\n    found    1 to 10" in str(caught.value)
    assert "expected 3 tokens\n    found    4 tokens" in str(caught.value)
