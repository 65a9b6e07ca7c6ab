"""Names of the classes: kept where there are some, and given by a user where nobody named them."""

from __future__ import annotations

import pytest
from hf_folders import config_for, facts_for, read_config, saved_state, small_model, write_hf

import portkit
from portkit.cli import main
from portkit.errors import UsageError

NAMES = ("good", "bad", "fair", "so, so", "none")


def ids(names):
    return {str(i): name for i, name in enumerate(names)}


@pytest.fixture
def unnamed(tmp_path):
    """A preset, which has no place for names, of a model that only counts its classes."""
    source = small_model(tmp_path / "hf", "bert", "sequence_classification")
    portkit.convert(source, tmp_path / "preset", to="keras", verify="none")
    return tmp_path / "preset"


@pytest.mark.parametrize("to", ["hf", "burn"])
def test_a_user_names_what_nobody_named(unnamed, tmp_path, to):
    made = portkit.convert(unnamed, tmp_path / "named", to=to, labels=list(NAMES), verify="facts")
    assert made.facts.agrees
    assert read_config(tmp_path / "named")["id2label"] == ids(NAMES)
    assert read_config(tmp_path / "named")["label2id"] == {name: i for i, name in enumerate(NAMES)}


def test_names_wait_in_the_record_of_a_layout_without_a_place_for_them(unnamed, tmp_path):
    portkit.convert(unnamed, tmp_path / "again", to="keras", labels=NAMES, verify="facts")
    portkit.convert(tmp_path / "again", tmp_path / "burn", to="burn", verify="facts")
    portkit.convert(tmp_path / "burn", tmp_path / "back", to="hf", verify="facts")
    assert read_config(tmp_path / "back")["id2label"] == ids(NAMES)


def test_the_command_takes_them_with_commas_between(unnamed, tmp_path):
    words = [unnamed, tmp_path / "named", "--to", "hf", "--verify", "none", "--labels", "a, b,c ,d,e"]
    main(["convert", *map(str, words)], standalone_mode=False)
    assert read_config(tmp_path / "named")["id2label"] == ids("abcde")


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ("abc", r"a name for each class, in the order of their ids\n *expected 5\n *found *3"),
        ("aabcd", r"each name must stand once, and none be empty(.|\n)*found *a, a, b, c, d"),
        (["", *"abcd"], "none be empty"),
    ],
)
def test_names_that_do_not_fit_are_refused(unnamed, tmp_path, names, words):
    with pytest.raises(UsageError, match=f"the classes cannot be named so(.|\n)*{words}"):
        portkit.convert(unnamed, tmp_path / "out", to="hf", labels=names)
    assert not (tmp_path / "out").exists()


def test_names_that_are_there_stay(tmp_path):
    facts = facts_for("bert", "sequence_classification")
    source = write_hf(tmp_path / "hf", saved_state(facts), config_for("bert", facts, id2label=ids(NAMES)))
    with pytest.raises(UsageError, match=r"the classes have names\n *found *good, bad(.|\n)*edit id2label"):
        portkit.convert(source, tmp_path / "out", to="burn", labels="abcde")
    portkit.convert(source, tmp_path / "out", to="burn", labels=NAMES, verify="facts")
    assert read_config(tmp_path / "out")["id2label"] == ids(NAMES)


def test_a_model_without_classes_takes_no_names(tmp_path):
    source = small_model(tmp_path / "hf", "bert", "masked_lm")
    with pytest.raises(UsageError, match="the target has no classes to name"):
        portkit.convert(source, tmp_path / "out", to="burn", labels="ab")
