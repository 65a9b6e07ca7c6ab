"""What is refused for its names, and with which words: what, where, expected, found, what to do next."""

from __future__ import annotations

import json

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
from refusal import changed, refused, without
from safetensors.numpy import load_file, save_file

import portkit
from portkit.errors import RefusedError, UnknownModelError


def test_tensor_inside_the_encoder_is_another_architecture(tmp_path):
    name = "encoder.layer.0.attention.self.distance_embedding.weight"
    source = changed(tmp_path, {name: np.ones((9, 8), np.float32)})
    words = (f"{name}: part of the encoder that no row explains: this is another architecture", f"--drop '{name}'")
    refused(RefusedError, *words, source=source, tmp_path=tmp_path)


def test_residue_does_not_keep_a_part_of_the_encoder(tmp_path):
    source = changed(
        tmp_path, {"encoder.layer.0.attention.self.distance_embedding.weight": np.ones((9, 8), np.float32)}
    )
    refused(RefusedError, "this is another architecture", source=source, tmp_path=tmp_path, residue=True)


def test_foreign_heads_are_all_named_with_the_two_ways_out(tmp_path):
    heads = {"cls.species.weight": np.ones((4, 24), np.float32), "probe.bias": np.ones(3, np.float32)}
    source = changed(tmp_path, heads)
    words = (
        "tensors of the source have no place in the target (2 problems)",
        "cls.species.weight: no row explains it",
        "probe.bias: no row explains it",
    )
    hint = "--drop 'cls.species.*' leaves it out, --residue keeps it beside the weights"
    refused(RefusedError, *words, hint, source=source, tmp_path=tmp_path)


def test_dropped_heads_are_recorded_and_the_rest_converts(tmp_path):
    source = changed(tmp_path, {"cls.species.weight": np.ones((4, 24), np.float32)})
    result = portkit.convert(source, tmp_path / "out", to="hf", drop=("cls.*",), verify="tensors")
    assert result.plan.dropped == {"cls.species.weight": "--drop 'cls.*'"}
    assert_same_state(read_state(tmp_path / "out"), saved_state(facts_for("bert", "model")))


def test_residue_keeps_foreign_heads_as_they_were(tmp_path):
    head = np.arange(96, dtype=np.float16).reshape(4, 24)
    source = changed(tmp_path, {"cls.species.weight": head})
    portkit.convert(source, tmp_path / "out", to="burn", residue=True, verify="tensors")
    kept = load_file(tmp_path / "out" / "portkit.residue.safetensors")
    assert_same_state(kept, {"cls.species.weight": head})


def test_drop_that_matches_nothing_is_a_mistake(tmp_path):
    source = changed(tmp_path, {"cls.species.weight": np.ones((4, 24), np.float32)})
    words = (
        "nothing to drop",
        "--drop 'cls.spices.weight': matches no tensor that could be dropped",
        "did you mean 'cls.species.weight'?",
    )
    refused(RefusedError, *words, source=source, tmp_path=tmp_path, drop=("cls.spices.weight", "cls.species.*"))


def test_prefix_that_fits_twice_lists_both(tmp_path):
    two = {
        f"{tower}.{n}": a for tower in ("query", "document") for n, a in saved_state(facts_for("bert", "model")).items()
    }
    source = write_hf(tmp_path / "hf", two, config_for("bert", facts_for("bert", "model")))
    words = (
        "more than one model is in the file",
        "the prefix fits twice",
        "'document.'",
        "'query.'",
        "--strip-prefix 'query.'",
    )
    refused(UnknownModelError, *words, source=source, tmp_path=tmp_path)


def test_strip_prefix_reads_one_of_two_models(tmp_path):
    state = saved_state(facts_for("bert", "model"))
    two = {**{f"query.{n}": a for n, a in state.items()}, **{f"document.{n}": a + 1 for n, a in state.items()}}
    source = write_hf(tmp_path / "hf", two, config_for("bert", facts_for("bert", "model")))
    chosen = {"open_with": {"strip_prefix": "query."}, "drop": ("document.*",)}
    portkit.convert(source, tmp_path / "out", to="hf", verify="tensors", **chosen)
    assert_same_state(read_state(tmp_path / "out"), state)


def test_unknown_prefix_is_named(tmp_path):
    state = {f"student.{n}": a for n, a in saved_state(facts_for("bert", "model")).items()}
    source = write_hf(tmp_path / "hf", state, config_for("bert", facts_for("bert", "model")))
    words = ("the backbone's names start with 'student.'", "--strip-prefix 'student.' reads the model below it")
    refused(UnknownModelError, *words, source=source, tmp_path=tmp_path)


def test_missing_layer_is_listed_by_name(tmp_path):
    source = without(tmp_path, lambda name: ".layer.1." in name)
    words = (
        "no model fits the names; nearest is bert, task model",
        "encoder.layer.1.attention.self.query.weight: missing",
    )
    refused(UnknownModelError, *words, "and 4 more", source=source, tmp_path=tmp_path)


def test_a_tensor_of_another_name_is_named_beside_the_one_that_is_missing(tmp_path):
    old, new = ("encoder.layer.0.attention.self.query.weight", "encoder.layer.0.attention.self.q.weight")
    source = small_model(tmp_path / "whole")
    state = {new if name == old else name: array for name, array in read_state(source).items()}
    write_hf(tmp_path / "source", state, config_for("bert", facts_for("bert", "model")))
    words = (f"{old}: missing", "the rest: 1 tensors that no row explains", new, "--mapping FILE")
    refused(UnknownModelError, *words, source=tmp_path / "source", tmp_path=tmp_path)


def test_a_gap_in_the_layers_is_told_in_the_names_of_its_own_layout(tmp_path):
    portkit.convert(small_model(tmp_path / "hf"), tmp_path / "burn", to="burn", form="safetensors", verify="none")
    weights = tmp_path / "burn" / "model.safetensors"
    state = load_file(weights)
    save_file({name.replace("layers.2.", "layers.99."): array for name, array in state.items()}, weights)
    refused(UnknownModelError, "encoder.layers.2.mha.key.bias: missing", source=tmp_path / "burn", tmp_path=tmp_path)


@pytest.mark.parametrize(
    ("family", "config"),
    [
        ("bert", {"position_scheme": "padding"}),
        ("bert", {"position_offset": 2}),
        ("roberta", {"position_scheme": "absolute"}),
    ],
)
def test_positions_that_burn_would_start_elsewhere_are_refused(family, config, tmp_path):
    portkit.convert(small_model(tmp_path / "hf", family), tmp_path / "burn", to="burn", verify="none")
    path = tmp_path / "burn" / "config.json"
    path.write_text(json.dumps({**read_config(tmp_path / "burn"), **config}), encoding="utf-8")
    words = f"config.json {next(iter(config))}: another function than the table describes"
    refused(RefusedError, words, source=tmp_path / "burn", tmp_path=tmp_path)


def test_missing_last_layer_contradicts_the_config(tmp_path):
    source = without(tmp_path, lambda name: ".layer.2." in name)
    words = ("config.json num_hidden_layers: contradicts the weights", "expected 3", "found    2 layers")
    refused(RefusedError, *words, source=source, tmp_path=tmp_path)


def test_classifier_without_its_pooler_is_named_by_architectures(tmp_path):
    source = without(tmp_path, lambda name: ".pooler." in name, task="sequence_classification")
    words = (
        "config.json and weights name different models",
        "architectures BertForSequenceClassification: tensor 'bert.pooler.dense.weight' is not in the file",
        "--task token_classification reads it so",
    )
    refused(UnknownModelError, *words, source=source, tmp_path=tmp_path)


def test_wrong_model_type_is_told_by_the_head(tmp_path):
    source = changed(tmp_path, {}, task="masked_lm", config={"model_type": "roberta", "architectures": None})
    words = (
        "config.json model_type: says 'roberta', the weights are another family's",
        "names of bert, task masked_lm",
        "--family bert reads it as one",
    )
    refused(UnknownModelError, *words, source=source, tmp_path=tmp_path)


def test_family_without_a_table(tmp_path):
    source = changed(tmp_path, {}, config={"model_type": "electra"})
    words = (
        "config.json model_type: 'electra' has no table",
        "families with a table: bert, camembert, roberta, xlm-roberta",
    )
    refused(UnknownModelError, *words, source=source, tmp_path=tmp_path)


def test_misspelt_family_gets_a_suggestion(tmp_path):
    source = small_model(tmp_path / "hf")
    refused(
        UnknownModelError, "did you mean 'roberta'?", source=source, tmp_path=tmp_path, open_with={"family": "robreta"}
    )


def test_family_that_cannot_be_told(tmp_path):
    source = changed(
        tmp_path, {}, config={"model_type": None, "architectures": None, "pad_token_id": 7, "type_vocab_size": 2}
    )
    words = (
        "the family cannot be told",
        "no model_type, and the names fit several families",
        "say which with --family",
    )
    refused(UnknownModelError, *words, source=source, tmp_path=tmp_path)


def test_names_of_no_model_at_all(tmp_path):
    state = {"conv.weight": np.ones((3, 3), np.float32)}
    source = write_hf(tmp_path / "hf", state, config_for("bert", facts_for("bert", "model")))
    refused(UnknownModelError, "no word embeddings among the names", source=source, tmp_path=tmp_path)


def test_already_converted_folder_is_not_taken_for_hugging_face(tmp_path):
    portkit.convert(small_model(tmp_path / "hf"), tmp_path / "burn", to="burn", form="safetensors", verify="tensors")
    words = (
        "the folder is of another layout",
        "--from: no model of layout 'hf'",
        "these are the names of layout 'burn'",
        "already converted? leave --from out",
    )
    refused(UnknownModelError, *words, source=tmp_path / "burn", tmp_path=tmp_path, open_with={"layout": "hf"})
