"""What `portkit inspect` says to someone who sees it for the first time: evidence, head, and only warnings that matter."""

from __future__ import annotations

import numpy as np
import pytest
from hf_folders import config_for, facts_for, saved_state, small_model, write_hf
from test_cli import run

BY_CLASS = "named by architectures in config.json, and the names fit"


def evidence(folder, *words):
    lines = run("inspect", folder, *words).splitlines()
    return next(line for line in lines if line.startswith("  evidence     ")).removeprefix("  evidence     ")


def odd_model(tmp_path, family, task, **config):
    facts = facts_for(family, task)
    return write_hf(tmp_path / "hf", saved_state(facts), config_for(family, facts, **config))


def test_evidence_of_a_folder_that_says_everything(tmp_path):
    said = evidence(small_model(tmp_path / "hf", "bert", "masked_lm"))
    assert said == f"family bert: model_type in config.json; task masked_lm: {BY_CLASS}"


def test_evidence_of_names_alone(tmp_path):
    folder = odd_model(tmp_path, "bert", "pre_training", model_type=None, architectures=None)
    only = "the only one that the names fit"
    assert evidence(folder) == f"family bert: {only}; task pre_training: {only}"


def test_evidence_of_usual_values_names_those_that_are_there(tmp_path):
    folder = odd_model(tmp_path, "bert", "model", model_type=None, architectures=None, pad_token_id=None)
    assert evidence(folder).startswith(
        "family bert: no model_type in config.json, but type_vocab_size 2 is usual for it;"
    )


def test_evidence_of_a_prefix_that_families_share_says_so(tmp_path):
    folder = odd_model(tmp_path, "roberta", "masked_lm", model_type=None, architectures=None)
    assert evidence(folder).startswith(
        "family roberta: names start with 'roberta.', as camembert and xlm-roberta have; --family decides;"
    )


def test_evidence_of_what_was_given(tmp_path):
    folder = small_model(tmp_path / "hf", "bert", "token_classification")
    said = evidence(folder, "--family", "bert", "--task", "token_classification")
    assert said == "family bert: given; task token_classification: given"


@pytest.mark.parametrize(
    ("task", "head"),
    [
        ("model", "none"),
        ("masked_lm", "masked_lm, reads no pooler"),
        ("token_classification", "token_classification, reads no pooler, 5 labels"),
        ("next_sentence", "next_sentence, reads the pooler"),
        ("multiple_choice", "bert style, tanh"),
    ],
)
def test_head_is_named_by_what_it_reads(task, head, tmp_path):
    assert f"  head         {head}\n" in run("inspect", small_model(tmp_path / "hf", "bert", task)) + "\n"


@pytest.mark.parametrize(("task", "warned"), [("model", False), ("masked_lm", True)])
def test_ties_are_a_warning_only_where_something_could_be_tied(task, warned, tmp_path):
    folder = odd_model(tmp_path, "bert", task, tie_word_embeddings=None)
    assert ("tie_word_embeddings is not in the config" in run("inspect", folder)) is warned


def test_unexplained_tensors_come_with_the_way_on(tmp_path):
    facts = facts_for("bert", "model")
    state = {**saved_state(facts), "probe.weight": np.ones((2, 24), np.float32)}
    text = run("inspect", write_hf(tmp_path / "hf", state, config_for("bert", facts)))
    assert (
        "  unexplained  probe.weight\n               to convert, --drop or --residue says what becomes of them" in text
    )


def test_the_folder_one_stands_in_has_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(small_model(tmp_path / "mine"))
    assert run("inspect", ".").startswith("mine: bert, model\n")
