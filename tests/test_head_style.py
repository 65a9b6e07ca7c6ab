"""A BERT classifier rewritten as RoBERTa's: the same sums in the same order, so the same bits."""

from __future__ import annotations

import numpy as np
import pytest
from hf_folders import (
    assert_same_state,
    class_of,
    config_for,
    facts_for,
    read_config,
    read_state,
    saved_state,
    small_model,
    write_hf,
)

import portkit
from portkit.proofs.inputs import choose_inputs
from portkit.runtimes.outputs import LOGITS
from portkit.runtimes.transformers_runtime import run_transformers

TASK = "sequence_classification"
POSITIONS = {
    "bert": "bert.embeddings.position_embeddings.weight",
    "roberta": "roberta.embeddings.position_embeddings.weight",
}


def logits_of(folder, family, inputs):
    return run_transformers(folder, inputs, task=TASK, class_name=class_of(family, TASK))[LOGITS]


def bert_and_roberta(tmp_path, pad_token_id=0):
    facts = facts_for("bert", TASK, pad_token_id=pad_token_id)
    source = write_hf(tmp_path / "bert", saved_state(facts), config_for("bert", facts))
    result = portkit.convert(source, tmp_path / "roberta", to="hf", head_style="roberta", verify="tensors")
    return facts, source, result


def test_roberta_gets_bert_positions_behind_the_reserved_rows(tmp_path):
    _, source, result = bert_and_roberta(tmp_path)
    assert result.proved
    rows = read_state(result.path)[POSITIONS["roberta"]]
    assert not rows[:1].any()
    assert np.array_equal(rows[1:], read_state(source)[POSITIONS["bert"]])
    config = read_config(result.path)
    assert config["architectures"] == ["RobertaForSequenceClassification"]
    assert (config["model_type"], config["max_position_embeddings"], config["pad_token_id"]) == ("roberta", 38, 0)
    assert config["layer_norm_eps"] == 1e-12


def test_plan_says_where_it_is_exact(tmp_path):
    _, _, result = bert_and_roberta(tmp_path)
    assert (
        "head style bert -> roberta: written as roberta; equal for right-padded input without the pad id inside"
        in result.warnings
    )


@pytest.mark.hf
@pytest.mark.parametrize("pad_token_id", [0, 3])
def test_logits_are_the_same_bits_in_transformers(pad_token_id, tmp_path):
    facts, source, result = bert_and_roberta(tmp_path, pad_token_id)
    inputs = choose_inputs(facts)
    expected, found = logits_of(source, "bert", inputs), logits_of(result.path, "roberta", inputs)
    assert np.abs(found - expected).max() == 0.0
    assert np.ptp(expected, axis=0).min() > 0.01  # the rows differ, so the test can see something


@pytest.mark.hf
@pytest.mark.parametrize("pad_token_id", [0, 3])
def test_and_back_again(pad_token_id, tmp_path):
    facts, source, result = bert_and_roberta(tmp_path, pad_token_id)
    back = portkit.convert(result.path, tmp_path / "back", to="hf", head_style="bert", verify="tensors")
    assert back.proved
    assert_same_state(read_state(back.path), read_state(source))
    inputs = choose_inputs(facts)
    assert np.array_equal(logits_of(back.path, "bert", inputs), logits_of(source, "bert", inputs))


@pytest.fixture
def roberta_classifier(tmp_path):
    facts = facts_for("roberta", TASK)
    return write_hf(tmp_path / "roberta", saved_state(facts), config_for("roberta", facts))


@pytest.mark.hf
def test_roberta_classifier_becomes_bert_without_the_reserved_rows(roberta_classifier, tmp_path):
    options = {"head_style": "bert", "residue": True, "verify": "tensors"}
    result = portkit.convert(roberta_classifier, tmp_path / "bert", to="hf", **options)
    assert result.proved
    assert read_config(result.path)["max_position_embeddings"] == 37 - 2
    inputs = choose_inputs(facts_for("roberta", TASK))
    difference = logits_of(result.path, "bert", inputs) - logits_of(roberta_classifier, "roberta", inputs)
    assert np.abs(difference).max() == 0.0


@pytest.mark.hf
def test_forward_proof_agrees_on_the_way_from_roberta(roberta_classifier, tmp_path):
    result = portkit.convert(roberta_classifier, tmp_path / "bert", to="hf", head_style="bert", verify="forward")
    assert result.proved


@pytest.mark.hf
def test_forward_proof_agrees_on_the_way_to_burn_too(tmp_path):
    source = small_model(tmp_path / "bert", "bert", TASK)
    result = portkit.convert(source, tmp_path / "burn", to="burn", head_style="roberta", verify="forward")
    assert result.proved
    assert read_config(result.path)["head_style"] == "roberta"


@pytest.mark.parametrize(
    "task", ["multiple_choice", "token_classification", "question_answering", "masked_lm", "model"]
)
def test_other_tasks_are_refused(task, tmp_path):
    source = small_model(tmp_path / "bert", "bert", task)
    with pytest.raises(
        portkit.PortkitError,
        match=rf"the head cannot be rewritten exactly[\s\S]*--head-style roberta: a {task} head has no roberta style in roberta",
    ) as e:
        portkit.convert(source, tmp_path / "out", to="hf", head_style="roberta")
    assert "exact for sequence classification with a tanh head" in str(e.value)
    assert not (tmp_path / "out").exists()


def test_the_style_that_is_there_changes_nothing(tmp_path):
    source = small_model(tmp_path / "bert", "bert", TASK)
    result = portkit.convert(source, tmp_path / "out", to="hf", head_style="bert", verify="tensors")
    assert_same_state(read_state(result.path), read_state(source))
