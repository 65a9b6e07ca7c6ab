"""What is said of a pooler: whether it looks trained, and where it goes when the target has none."""

from __future__ import annotations

import numpy as np
import pytest
from hf_folders import config_for, facts_for, saved_state, small_model, write_hf
from test_cli import run


def test_a_pooler_that_never_trained_is_said_to_be_so_once(tmp_path):
    facts = facts_for("bert", "model")
    state = {**saved_state(facts), "pooler.dense.bias": np.zeros(24, np.float32)}
    source = write_hf(tmp_path / "hf", state, config_for("bert", facts))
    for words in (("inspect", source), ("convert", source, tmp_path / "out", "--to", "burn", "--dry-run")):
        text = run(*words)
        assert "  pooler       present in the backbone, looks never trained: bias exactly 0, standard dev" in text
        assert text.count("never trained") == 1


@pytest.mark.parametrize(
    ("task", "words", "why"),
    [
        ("model", ("--to", "hf", "--pooler", "drop"), "--pooler drop"),
        ("model", ("--to", "burn", "--pooler", "drop"), "--pooler drop"),
        ("model", ("--to", "burn", "--dialect", "no-pooler"), "bert-burn before May 2024 has no pooler"),
        (
            "masked_lm",
            ("--to", "hf"),
            "BertForMaskedLM, BertForTokenClassification and BertForQuestionAnswering have no",
        ),
    ],
)
def test_a_pooler_that_is_left_out_is_named_with_its_reason(task, words, why, tmp_path):
    source = small_model(tmp_path / "hf", "bert", task, has_pooler=True)
    text = run("convert", source, tmp_path / "out", *words, "--verify", "tensors")
    line = next(line for line in text.splitlines() if line.startswith("  pooler  "))
    assert line.startswith(f"  pooler       absent: {why}")
    assert line.endswith("; the source's goes into the residue")
    assert f"  kept         pooler.bias: {why}" in text
    again = run("convert", tmp_path / "out", tmp_path / "more", "--to", "burn", "--verify", "tensors")
    left_out = why == "--pooler drop"
    assert (f"  carried on   pooler.bias: {why}" in again) == left_out
    assert ("pooler       present in the backbone" in again) != left_out


def test_a_pooler_that_was_not_there_is_not_said_to_be_kept(tmp_path):
    source = small_model(tmp_path / "hf", has_pooler=False)
    text = run("convert", source, tmp_path / "out", "--to", "hf", "--pooler", "drop", "--verify", "tensors")
    assert "  pooler       absent: the file has no pooler tensors\n" in text
