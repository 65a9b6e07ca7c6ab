"""Facts of two folders, field by field: what changes the function fails, what cannot is named."""

from __future__ import annotations

import json

import pytest
from hf_folders import config_for, facts_for, saved_state, small_model, write_hf

import portkit
from portkit.checkpoint import open_checkpoint
from portkit.proofs.facts import DIFFERS, EQUAL, UNKNOWN, compare_facts

TASK = "sequence_classification"


def pair(tmp_path, family="bert", task=TASK, ours=None, theirs=None):
    """Two folders with the same weights and different configs."""
    facts = facts_for(family, task)
    folders = [
        write_hf(tmp_path / name, saved_state(facts), config_for(family, facts, **(changes or {})))
        for name, changes in (("a", ours), ("b", theirs))
    ]
    return [open_checkpoint(folder) for folder in folders]


def fact(verdict, name):
    (found,) = [f for f in verdict.facts if f.name == name]
    return found


def test_every_fact_is_compared_and_equal(tmp_path):
    verdict = compare_facts(*pair(tmp_path))
    assert verdict.agrees
    assert {f.status for f in verdict.facts} == {EQUAL}
    named = {f.name for f in verdict.facts}
    assert named >= {
        "task", "num_attention_heads", "hidden_act", "layer_norm_eps", "positions", "usable_length", "pad_token_id",
        "type_vocab_size", "pooler_act", "num_labels", "labels", "head_style", "vocab_size", "hidden_dropout_prob",
    }  # fmt: skip
    assert str(verdict) == f"compared {len(named)} facts: equal"


@pytest.mark.parametrize(
    ("changes", "name", "words"),
    [
        ({"hidden_act": "gelu_new"}, "hidden_act", "hidden_act differs: gelu in the source, gelu_tanh in the target"),
        ({"layer_norm_eps": 1e-5}, "layer_norm_eps", "1e-12 in the source, 1e-05 in the target"),
        ({"num_attention_heads": 4}, "num_attention_heads", "3 in the source, 4 in the target (no tensor shows it)"),
    ],
    ids=["activation", "epsilon", "heads"],
)
def test_difference_that_no_tensor_shows_fails(changes, name, words, tmp_path):
    verdict = compare_facts(*pair(tmp_path, theirs=changes))
    assert not verdict.agrees
    assert [f.name for f in verdict.unequal] == [name]
    assert words in str(fact(verdict, name))
    assert str(verdict).endswith(f"{name}: differs, and changes the function")


def test_epsilon_that_went_through_float32_is_the_same(tmp_path):
    verdict = compare_facts(*pair(tmp_path, ours={"layer_norm_eps": 1e-5}, theirs={"layer_norm_eps": 9.99999974e-06}))
    assert fact(verdict, "layer_norm_eps").status == EQUAL


def test_announced_difference_is_named_and_passes(tmp_path):
    a, b = pair(tmp_path, theirs={"hidden_act": "gelu_new"})
    verdict = compare_facts(a, b, {"hidden_act": "gelu in the source, gelu_tanh in the target"})
    assert verdict.agrees
    assert str(verdict).endswith("hidden_act: differs, as announced")


def test_training_settings_are_named_and_pass(tmp_path):
    verdict = compare_facts(*pair(tmp_path, theirs={"hidden_dropout_prob": 0.5}))
    assert verdict.agrees
    assert fact(verdict, "hidden_dropout_prob").note.startswith("only training reads it")
    assert "hidden_dropout_prob: differs, without changing any output" in str(verdict)


def test_spellings_of_one_activation_are_equal(tmp_path):
    verdict = compare_facts(*pair(tmp_path, ours={"hidden_act": "gelu_new"}, theirs={"hidden_act": "gelu_fast"}))
    assert fact(verdict, "hidden_act").status == EQUAL


def test_default_of_the_class_is_said_to_be_one(tmp_path):
    verdict = compare_facts(*pair(tmp_path, theirs={"layer_norm_eps": None}))
    found = fact(verdict, "layer_norm_eps")
    assert (found.status, found.note) == (EQUAL, "target: not in the config, the class's default is assumed")


def test_word_without_a_meaning_is_unknown_between_layouts_and_fails(tmp_path):
    a, b = pair(tmp_path, ours={"hidden_act": "silu"}, theirs={"hidden_act": "silu"})
    assert fact(compare_facts(a, b), "hidden_act").status == EQUAL  # the same word in the same layout
    portkit.convert(small_model(tmp_path / "c", "bert", TASK), tmp_path / "burn", to="burn", verify="none")
    config = tmp_path / "burn" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"hidden_act": "silu"}), encoding="utf-8")
    verdict = compare_facts(a, open_checkpoint(tmp_path / "burn"))
    assert fact(verdict, "hidden_act").status == UNKNOWN
    assert not verdict.agrees


# ---------------------------------------------------------------- labels


def labels(*names):
    return {"id2label": {str(i): name for i, name in enumerate(names)}}


@pytest.mark.parametrize(
    ("ours", "theirs", "status", "agrees"),
    [
        (labels(*"abcde"), labels(*"abcde"), EQUAL, True),
        (labels(*"abcde"), labels(*"bacde"), DIFFERS, False),
        (labels(*"abcde"), labels(*(f"LABEL_{i}" for i in range(5))), DIFFERS, True),
        (labels(*"abcde"), {"id2label": None}, UNKNOWN, True),
        (labels(*"abcde"), labels(*"abc"), UNKNOWN, True),
    ],
    ids=["same", "swapped", "generic", "none", "too few"],
)
def test_label_names(ours, theirs, status, agrees, tmp_path):
    verdict = compare_facts(*pair(tmp_path, ours=ours, theirs=theirs))
    assert (fact(verdict, "labels").status, verdict.agrees) == (status, agrees)


# ---------------------------------------------------------------- tables and positions


def resized(tmp_path, **sizes):
    """A model and one of other table sizes; only headers are looked at."""
    ours = facts_for("bert", sizes.pop("task", "model"))
    theirs = facts_for("bert", ours.task, **sizes)
    folders = [
        write_hf(tmp_path / name, saved_state(f), config_for("bert", f)) for name, f in (("a", ours), ("b", theirs))
    ]
    return [open_checkpoint(folder) for folder in folders]


@pytest.mark.parametrize(
    ("sizes", "name", "agrees"),
    [
        ({"vocab_size": 64}, "vocab_size", True),
        ({"vocab_size": 60}, "vocab_size", False),
        ({"vocab_size": 64, "task": "masked_lm"}, "vocab_size", False),
        ({"type_vocab_size": 3}, "type_vocab_size", True),
        ({"type_vocab_size": 1}, "type_vocab_size", False),
        ({"max_position_embeddings": 40}, "usable_length", True),
        ({"max_position_embeddings": 30}, "usable_length", False),
    ],
    ids=str,
)
def test_target_may_take_more_but_not_less(sizes, name, agrees, tmp_path):
    verdict = compare_facts(*resized(tmp_path, **sizes))
    assert ([f.name for f in verdict.unequal], verdict.agrees) == ([name], agrees)


def test_rows_that_moved_along_with_the_scheme_are_the_same_function(tmp_path):
    source = small_model(tmp_path / "a", "bert", TASK)
    portkit.convert(source, tmp_path / "b", to="hf", head_style="roberta", verify="none")
    verdict = compare_facts(open_checkpoint(source), open_checkpoint(tmp_path / "b"))
    assert verdict.agrees
    assert {f.name for f in verdict.unequal} == {"family", "positions", "head_style"}
    assert "the rows moved along: equal for right-padded input without the pad id inside" in str(
        fact(verdict, "positions")
    )


def test_positions_that_did_not_move_along_fail(tmp_path):
    """The classic: RoBERTa's table read as BERT's, every position two rows too early."""
    facts = facts_for("roberta", "token_classification")
    roberta = write_hf(tmp_path / "a", saved_state(facts), config_for("roberta", facts))
    state = {name.replace("roberta.", "bert."): array for name, array in saved_state(facts).items()}
    config = config_for("bert", facts_for("bert", "token_classification"), layer_norm_eps=1e-5, pad_token_id=1)
    bert = write_hf(tmp_path / "b", state, config)
    verdict = compare_facts(open_checkpoint(roberta), open_checkpoint(bert))
    assert [f.name for f in verdict.facts if not f.holds] == ["positions"]
    assert "padding from row 2 in the source, absolute from row 0 in the target" in str(fact(verdict, "positions"))


@pytest.mark.parametrize(("family", "agrees"), [("bert", True), ("roberta", False)])
def test_pad_id_matters_where_positions_are_counted_without_it(family, agrees, tmp_path):
    verdict = compare_facts(*pair(tmp_path, family, theirs={"pad_token_id": 5}))
    assert verdict.agrees == agrees
    assert fact(verdict, "pad_token_id").status == DIFFERS


def test_other_task_fails(tmp_path):
    a = small_model(tmp_path / "a", "bert", "masked_lm")
    b = small_model(tmp_path / "b", "bert", "model")
    verdict = compare_facts(open_checkpoint(a), open_checkpoint(b))
    assert not verdict.agrees
    assert fact(verdict, "task").status == DIFFERS


def test_pooler_on_one_side_is_named(tmp_path):
    a = small_model(tmp_path / "a")
    b = small_model(tmp_path / "b", has_pooler=False)
    verdict = compare_facts(open_checkpoint(a), open_checkpoint(b))
    assert verdict.agrees
    assert [f.name for f in verdict.unequal] == ["has_pooler"]


# ---------------------------------------------------------------- in a conversion


def test_what_a_dialect_fixes_overrules_the_config_and_is_announced(tmp_path):
    facts = facts_for("bert", "model", hidden_act="relu")
    source = write_hf(tmp_path / "a", saved_state(facts), config_for("bert", facts))
    result = portkit.convert(source, tmp_path / "burn", to="burn", dialect="bert-burn", verify="facts")
    found = fact(result.facts, "hidden_act")
    assert (found.source, found.target, found.announced, result.proved) == ("relu", "gelu", True, True)
    assert "dialect bert-burn computes nothing else" in found.note
    unannounced = compare_facts(open_checkpoint(source), open_checkpoint(result.path))
    assert not unannounced.agrees


def test_verdict_for_json(tmp_path):
    verdict = compare_facts(*pair(tmp_path, theirs={"layer_norm_eps": 1e-5}))
    found = json.loads(json.dumps(verdict.as_dict()))
    assert (found["agrees"], found["compared"]) == (False, len(verdict.facts))
    (epsilon,) = [f for f in found["facts"] if f["name"] == "layer_norm_eps"]
    assert epsilon == {
        "name": "layer_norm_eps", "source": 1e-12, "target": 1e-5, "status": "differs", "matters": True, "note": "",
        "announced": False,
    }  # fmt: skip
