"""All nine directions between the three layouts, and the chains through them: what goes out comes back, bit for bit."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hf_folders import (
    assert_same_state,
    config_for,
    facts_for,
    read_config,
    read_state,
    saved_state,
    small_model,
    write_hf,
)

import portkit
from portkit.errors import RefusedError

TASKS = ("model", "masked_lm", "sequence_classification")
FAMILIES = ("bert", "roberta", "xlm-roberta")
LAYOUTS = ("hf", "keras", "burn")


def chain(source: Path, folder: Path, *layouts: str, **options: object) -> Path:
    """Convert through some layouts, one after the other; the last folder."""
    for step, layout in enumerate(layouts):
        target = folder / f"{step}-{layout}"
        portkit.convert(source, target, to=layout, verify="tensors", **options)
        source = target
    return source


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize(
    "layouts",
    [
        ("keras", "hf"),
        ("keras", "burn", "hf"),
        ("burn", "keras", "hf"),
        ("keras", "keras", "hf"),
        ("keras", "burn", "keras", "hf"),
    ],
    ids="-".join,
)
def test_chains_come_back_bit_for_bit(tmp_path, family, task, layouts):
    source = small_model(tmp_path / "hf", family, task)
    back = chain(source, tmp_path, *layouts)
    assert_same_state(read_state(back), read_state(source))
    before, after = read_config(source), read_config(back)
    before.pop("num_labels", None)  # transformers 5 writes the names of the labels only
    assert {k: after[k] for k in before} == before


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("first", LAYOUTS)
@pytest.mark.parametrize("second", LAYOUTS)
def test_every_direction_is_proved(tmp_path, family, task, first, second):
    start = chain(small_model(tmp_path / "start", family, task), tmp_path / "a", first)
    result = portkit.convert(start, tmp_path / "end", to=second, verify="tensors")
    assert result.tensors.equal
    assert result.tensors.compared > 50


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_the_fold_comes_back_in_every_dtype(tmp_path, dtype):
    facts = facts_for("roberta", "model")
    source = write_hf(tmp_path / "hf", saved_state(facts, dtype=dtype), config_for("roberta", facts))
    back = chain(source, tmp_path, "keras", "hf")
    assert_same_state(read_state(back), read_state(source))
    assert not (back / "portkit.residue.safetensors").exists()
    assert portkit.diff(source, back).equal


def test_a_fold_whose_parts_are_back_is_dropped_by_that_name(tmp_path):
    keras = chain(small_model(tmp_path / "hf", "roberta", "sequence_classification"), tmp_path, "keras")
    back = portkit.convert(keras, tmp_path / "back", to="hf", verify="tensors")
    assert list(back.plan.dropped.values()) == ["folded out of tables that came back from the residue"]
    assert (back.plan.kept, back.plan.carried) == ((), ())


def test_without_a_residue_the_way_back_is_a_model_that_computes_the_same(tmp_path):
    source = small_model(tmp_path / "hf", "roberta", "model")
    there = portkit.convert(source, tmp_path / "keras", to="keras", residue=False)
    dropped = set(there.plan.dropped)
    assert dropped == {
        "embeddings.position_embeddings.weight", "embeddings.token_type_embeddings.weight",
        "pooler.dense.weight", "pooler.dense.bias",
    }  # fmt: skip
    back = portkit.convert(tmp_path / "keras", tmp_path / "back", to="hf", verify="tensors")
    said = " ".join(back.warnings)
    assert "embeddings.type.table is made of zeros" in said
    assert "its first 2 rows, which no token reads, are made of zeros" in said
    before, after = read_state(source), read_state(tmp_path / "back")
    folded = before["embeddings.position_embeddings.weight"] + before["embeddings.token_type_embeddings.weight"][0]
    np.testing.assert_array_equal(after["embeddings.position_embeddings.weight"][2:], folded[2:])
    assert not after["embeddings.token_type_embeddings.weight"].any()


def test_positions_trained_in_keras_stay_folded_on_the_way_back(tmp_path):
    import h5py

    source = small_model(tmp_path / "hf", "roberta", "model")
    keras = chain(source, tmp_path, "keras")
    path = "layers/token_and_position_embedding/position_embedding/vars/0"
    with h5py.File(keras / "model.weights.h5", "r+") as file:
        file[path][3, 4] += 1
        trained = file[path][()]
    back = portkit.convert(keras, tmp_path / "back", to="hf", verify="tensors")
    state, before = read_state(tmp_path / "back"), read_state(source)
    np.testing.assert_array_equal(state["embeddings.position_embeddings.weight"][2:], trained)
    np.testing.assert_array_equal(
        state["embeddings.position_embeddings.weight"][:2], before["embeddings.position_embeddings.weight"][:2]
    )
    assert not state["embeddings.token_type_embeddings.weight"].any()
    assert any("folded into another table" in w for w in back.warnings)


def test_facts_of_the_original_come_back_only_with_its_weights(tmp_path):
    import h5py

    source = small_model(tmp_path / "hf", "bert", "model", layer_norm_eps=1e-6, hidden_act="relu")
    there = portkit.convert(source, tmp_path / "keras", to="keras", verify="tensors")
    assert {n: (c.source, c.target) for n, c in there.plan.changes.items()} == {
        "hidden_act": ("relu", "gelu_tanh"),
        "layer_norm_eps": (1e-6, 1e-12),
    }
    same = portkit.convert(tmp_path / "keras", tmp_path / "same", to="hf", verify="tensors")
    assert read_config(tmp_path / "same")["hidden_act"] == "relu"
    assert any("the record restores hidden_act relu, layer_norm_eps 1e-06" in w for w in same.warnings)
    with h5py.File(tmp_path / "keras" / "model.weights.h5", "r+") as file:
        file["layers/dense/vars/1"][0] += 1
    portkit.convert(tmp_path / "keras", tmp_path / "trained", to="hf", verify="tensors")
    config = read_config(tmp_path / "trained")
    assert (config["hidden_act"], config["layer_norm_eps"]) == ("gelu_new", 1e-12)


def test_strict_refuses_another_function(tmp_path):
    source = small_model(tmp_path / "hf", "bert", "masked_lm")
    with pytest.raises(RefusedError, match="keras always has hidden_act gelu_tanh, the source has gelu"):
        portkit.convert(source, tmp_path / "keras", to="keras", strict=True)


@pytest.mark.parametrize(
    "task", ["token_classification", "question_answering", "multiple_choice", "next_sentence", "pre_training"]
)
def test_a_head_that_keras_lacks_is_refused_or_kept_aside(tmp_path, task):
    source = small_model(tmp_path / "hf", "bert", task)
    with pytest.raises(
        RefusedError, match=f"the target cannot hold the model(.|\n)*has no class for {task}(.|\n)*--task backbone"
    ):
        portkit.convert(source, tmp_path / "keras", to="keras")
    pooler = "keep" if task in ("multiple_choice", "next_sentence", "pre_training") else "synthesize"
    there = portkit.convert(
        source, tmp_path / "keras", to="keras", verify="tensors", pooler=pooler, open_with={"task": "backbone"}
    )
    assert there.plan.kept
    back = portkit.convert(tmp_path / "keras", tmp_path / "back", to="hf", verify="tensors")
    assert back.plan.model.task.name == task
    assert_same_state(read_state(tmp_path / "back"), read_state(source))


def test_a_pooler_is_made_only_where_no_head_reads_it(tmp_path):
    from dataclasses import replace

    mlm = portkit.convert(
        small_model(tmp_path / "mlm", "bert", "masked_lm"), tmp_path / "k1", to="keras", verify="tensors"
    )
    assert mlm.plan.pooler.origin == "synthesised"
    assert "never reads it" in mlm.plan.pooler.evidence
    facts = replace(facts_for("bert", "model"), has_pooler=False)
    bare = write_hf(tmp_path / "bare", saved_state(facts), config_for("bert", facts))
    with pytest.raises(
        RefusedError,
        match=r"the target needs a pooler(.|\n)*always has a pooler, and the source has none(.|\n)*--pooler synthesize",
    ):
        portkit.convert(bare, tmp_path / "k2", to="keras")
    portkit.convert(bare, tmp_path / "k3", to="keras", verify="tensors", pooler="synthesize")
    back = portkit.convert(tmp_path / "k3", tmp_path / "back", to="hf", verify="tensors")
    assert not back.plan.pooler.present
    assert "zeros that stood for a pooler" in json.dumps(dict(back.plan.dropped))
    assert_same_state(read_state(tmp_path / "back"), read_state(bare))


def test_labels_survive_keras(tmp_path):
    facts = facts_for("bert", "sequence_classification")
    names = {str(i): f"class {i}" for i in range(facts.num_labels)}
    source = write_hf(tmp_path / "hf", saved_state(facts), config_for("bert", facts, id2label=names))
    assert read_config(chain(source, tmp_path, "keras", "hf"))["id2label"] == names


def test_a_preset_without_a_tokenizer_is_said(tmp_path):
    keras = chain(small_model(tmp_path / "hf", "bert", "model"), tmp_path, "keras")
    back = portkit.convert(keras, tmp_path / "back", to="hf", verify="none")
    assert any(w.startswith("no tokenizer goes along: it is read from a preset's folder") for w in back.warnings)


def test_a_pad_id_of_its_own_survives_keras(tmp_path):
    source = small_model(tmp_path / "hf", "roberta", "model", pad_token_id=4)
    back = chain(source, tmp_path, "keras", "hf")
    assert_same_state(read_state(back), read_state(source))
    assert read_config(back)["pad_token_id"] == 4
