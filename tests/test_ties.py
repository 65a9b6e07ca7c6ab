"""What is tied is said by a table's row, whatever it is called."""

from __future__ import annotations

import numpy as np
import pytest
from hf_folders import assert_same_state, config_for, facts_for, read_config, read_state, saved_state, write_hf
from models import hf_state, random_logical

import portkit
from portkit.errors import RefusedError
from portkit.record import warnings_of

OTHER_DECODER = """
family  = "mine"
extends = "bert"
without = ["task.pre_training"]

[hf]
model_type = "mine"

[task]
masked_lm.rows = ["backbone", "words"]

[rows.words.words]
linear    = "h -> v"
hf.kernel = { at = "words.weight", tied = "embeddings.word.table" }
hf.bias   = "words.bias"
burn      = "words"
"""


def test_the_row_says_what_is_tied_whatever_its_name(tmp_path):
    facts, table = facts_for("bert", "masked_lm"), tmp_path / "mine.toml"
    table.write_text(OTHER_DECODER, encoding="utf-8")
    state = {n: a for n, a in saved_state(facts).items() if not n.startswith("cls.")}
    state["words.bias"] = np.arange(61, dtype=np.float32)
    folder = write_hf(tmp_path / "hf", state, config_for("bert", facts, model_type="mine"))
    options = {"open_with": {"mappings": (table,)}, "verify": "tensors"}
    portkit.convert(folder, tmp_path / "burn", to="burn", **options)
    back = portkit.convert(tmp_path / "burn", tmp_path / "back", to="hf", **options)
    assert back.plan.tied == {"words.weight": "bert.embeddings.word_embeddings.weight"}
    assert_same_state(read_state(tmp_path / "back"), state)


# ---------------------------------------------------------------- a decoder of its own, as each transformers has it

HEADS = {"bert": "cls.predictions", "roberta": "lm_head"}


def with_decoder(folder, family, without=(), **config):
    """A masked LM whose decoder has numbers of its own, without some tensors of its head."""
    facts = facts_for(family, "masked_lm")
    own = np.random.default_rng(9).normal(0, 0.2, (24, 61)).astype(np.float32)
    state = hf_state({**random_logical(facts), "masked_lm.decoder.kernel": own}, facts)
    kept = {n: a for n, a in state.items() if n not in [f"{HEADS[family]}.{name}" for name in without]}
    return write_hf(folder, kept, config_for(family, facts, **config))


@pytest.mark.hf
@pytest.mark.parametrize("family", HEADS)
@pytest.mark.parametrize(
    ("without", "config"),
    [
        ((), {"tie_word_embeddings": False}),
        (("bias",), {"tie_word_embeddings": False}),
        (("decoder.bias",), {"tie_word_embeddings": False}),
        ((), {"tie_word_embeddings": True}),
    ],
)
def test_a_decoder_of_its_own_is_proved_both_ways(family, without, config, tmp_path):
    source = with_decoder(tmp_path / "hf", family, without, **config)
    assert portkit.convert(source, tmp_path / "burn", to="burn").forward.agrees
    back = portkit.convert(tmp_path / "burn", tmp_path / "back", to="hf")
    assert back.forward.agrees
    assert read_config(tmp_path / "back")["tie_word_embeddings"] is False
    assert read_state(tmp_path / "back").keys() >= {f"{HEADS[family]}.{n}" for n in ("decoder.weight", "decoder.bias")}


@pytest.mark.parametrize("family", HEADS)
def test_an_untied_decoder_of_the_same_numbers_goes_where_all_are_tied(family, tmp_path):
    facts = facts_for(family, "masked_lm")
    state = saved_state(facts)
    words = next(array for name, array in state.items() if name.endswith("word_embeddings.weight"))
    state |= {f"{HEADS[family]}.decoder.weight": words, f"{HEADS[family]}.decoder.bias": state[f"{HEADS[family]}.bias"]}
    source = write_hf(tmp_path / "hf", state, config_for(family, facts, tie_word_embeddings=False))
    portkit.convert(source, tmp_path / "keras", to="keras", verify="tensors")
    portkit.convert(tmp_path / "keras", tmp_path / "back", to="hf", verify="tensors")
    assert read_config(tmp_path / "back")["tie_word_embeddings"] is True
    assert f"{HEADS[family]}.decoder.weight" not in read_state(tmp_path / "back")
    assert portkit.diff(source, tmp_path / "back").equal


def test_a_decoder_that_is_nowhere_is_refused(tmp_path):
    source = with_decoder(tmp_path / "hf", "bert", ("decoder.weight",), tie_word_embeddings=False)
    words = r"decoder\.weight: is not in the file, and tie_word_embeddings is false: it would be random\s+hint\s+set"
    with pytest.raises(RefusedError, match=words):
        portkit.inspect(source)


@pytest.mark.parametrize(
    ("without", "tied", "words"),
    [
        ((), True, "decoder.weight is not embeddings.word.table, to which tie_word_embeddings would tie it"),
        (("decoder.bias",), False, "cls.predictions.bias is read as cls.predictions.decoder.bias too"),
    ],
)
def test_what_two_versions_of_transformers_read_otherwise_is_a_warning(without, tied, words, tmp_path):
    seen = portkit.inspect(with_decoder(tmp_path / "hf", "bert", without, tie_word_embeddings=tied))
    assert [w for w in warnings_of(seen) if words in w]
    whole = portkit.inspect(with_decoder(tmp_path / "whole", "bert", tie_word_embeddings=False))
    assert [w for w in warnings_of(whole) if words in w] == []


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("family", HEADS)
def test_a_head_with_a_decoder_of_its_own_comes_back_from_the_residue(family, tied, tmp_path):
    source = with_decoder(tmp_path / "hf", family, tie_word_embeddings=tied)
    options = {"open_with": {"task": "backbone"}, "pooler": "synthesize" if family == "bert" else "keep"}
    portkit.convert(source, tmp_path / "keras", to="keras", verify="tensors", **options)
    back = portkit.convert(tmp_path / "keras", tmp_path / "back", to="hf", verify="tensors")
    assert read_config(tmp_path / "back")["tie_word_embeddings"] is False
    expected, found = read_state(source), read_state(tmp_path / "back")
    dead = f"{HEADS[family]}.bias"
    assert_same_state(found, {**expected, dead: expected[f"{HEADS[family]}.decoder.bias"]})
    portkit.convert(tmp_path / "keras", tmp_path / "burn", to="burn", verify="tensors")
    assert read_config(tmp_path / "burn")["lm_head_eps"] == read_config(source)["layer_norm_eps"]
    assert back.plan.model.facts.task == "masked_lm"
