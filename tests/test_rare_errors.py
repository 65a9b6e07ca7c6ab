"""Errors that no other test meets: rare requests, odd tables, models that a target cannot take."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from hf_folders import config_for, facts_for, saved_state, small_model, write_hf
from keras_variables import h5_write, small
from refusal import refused

import portkit
from portkit.api import verify
from portkit.axes import Signature, parse_pattern, parse_signature
from portkit.errors import RefusedError, RuntimeFailedError, TableError, UnknownModelError, UnreadableError, UsageError
from portkit.formats import burnpack_index
from portkit.formats.hdf5_shards import read_hdf5_shards
from portkit.proofs.inputs import choose_inputs
from portkit.runtimes import keras_program
from portkit.table.check import check_tables
from portkit.table.expr import evaluate
from portkit.table.load import load_tables
from portkit.table.schema import Place

# ---------------------------------------------------------------- requests


def test_a_size_of_nothing(tmp_path):
    words = ("no such size", "--max-shard-size: must be above 0", "found    0")
    refused(UsageError, *words, source=small_model(tmp_path / "hf"), tmp_path=tmp_path, to="hf", max_shard_size=0)


def test_two_options_that_exclude_each_other(tmp_path):
    words = ("these do not go together", "--force and --keep-failed: a folder that failed would replace the one")
    refused(UsageError, *words, source=tmp_path / "hf", tmp_path=tmp_path, force=True, keep_failed=True)


# ---------------------------------------------------------------- files


def test_a_huge_config_is_not_read(tmp_path):
    source = small_model(tmp_path / "hf")
    with (source / "config.json").open("r+b") as file:
        file.truncate((64 << 20) + 1)
    words = ("config.json: too large for a config", "at most 67108864 bytes")
    refused(UnreadableError, *words, source=source, tmp_path=tmp_path)


def test_a_legacy_file_whose_config_is_none(tmp_path):
    stored = {v.file: array for v, array in small().items()}
    path = h5_write(tmp_path / "x.weights.h5", stored, model_config="{")
    refused(
        UnreadableError, "x.weights.h5: its model_config is not valid JSON", source=path, tmp_path=tmp_path, to="hf"
    )


def test_a_flood_of_tensors(monkeypatch):
    monkeypatch.setattr(burnpack_index, "MAX_TENSORS", 1)
    with pytest.raises(UnreadableError, match=r"x\.bpk: too many tensors\s+expected at most 1\s+found    2"):
        burnpack_index.parse_entries({"a": {}, "b": {}}, "x.bpk")


@pytest.mark.parametrize("front", ["module.", ""])
def test_names_that_are_one_after_unwrapping(tmp_path, front):
    """With and without a prefix that no other layout knows: the layout that would read it says why it does not."""
    state = {f"{front}{name}": array for name, array in saved_state(facts_for("bert", "model")).items()}
    name = "encoder.layer.0.output.dense.bias"
    more = {f"{front}_orig_mod.{name}": state[f"{front}{name}"] + 1}
    source = write_hf(tmp_path / "hf", state | more, config_for("bert", facts_for("bert", "model")))
    words = (
        "cannot tell which weights to read",
        f"{name}: two stored tensors have the same name after unwrapping",
        f"found    {front}_orig_mod.{name}, {front}{name}",
    )
    refused(UnknownModelError, *words, source=source, tmp_path=tmp_path)


@pytest.mark.parametrize(
    ("weight_map", "words"),
    [
        ({"/a/vars": 3}, r"the weight_map names something that is no file\s+expected text or a list of texts"),
        ({"/b/vars": "x.h5"}, r"x\.h5: holds a/vars/0, which the index does not place there"),
    ],
)
def test_an_index_of_keras_that_does_not_fit(tmp_path, weight_map, words):
    h5_write(tmp_path / "x.h5", {"a/vars/0": np.ones(3, np.float32)})
    (tmp_path / "model.weights.json").write_text(json.dumps({"weight_map": weight_map}), encoding="utf-8")
    with pytest.raises(UnreadableError, match=words):
        read_hdf5_shards(tmp_path / "model.weights.json")


# ---------------------------------------------------------------- targets


def test_a_decoder_of_its_own_where_the_target_ties(tmp_path):
    facts = facts_for("bert", "masked_lm")
    own = {"cls.predictions.decoder.weight": saved_state(facts)["bert.embeddings.word_embeddings.weight"] * 2}
    config = config_for("bert", facts, tie_word_embeddings=False)
    source = write_hf(tmp_path / "hf", saved_state(facts) | own, config)
    words = (
        "the target cannot be filled from the source",
        "keras always takes embeddings.word.table in its place, and the source has numbers of its own",
    )
    refused(RefusedError, *words, source=source, tmp_path=tmp_path, to="keras")


def test_an_activation_without_a_word_in_the_target(tmp_path):
    table = tmp_path / "mine.toml"
    words = 'gelu_tanh = { burn = ["gelu_tanh"] }'  # what KerasHub always computes
    gelu, relu = 'gelu = { hf = ["gelu"], burn = ["gelu"] }', 'relu = { hf = ["relu"] }'
    table.write_text(
        'family = "mine"\nextends = "bert"\nwithout = ["values.hidden_act"]\n[hf]\nmodel_type = "mine"\n'
        f"[values.hidden_act]\n{words}\n{gelu}\n{relu}\n",
        encoding="utf-8",
    )
    facts = facts_for("bert", "model")
    config = config_for("bert", facts, model_type="mine", hidden_act="relu")
    source = write_hf(tmp_path / "hf", saved_state(facts), config)
    said = ("the target computes another function", "config.json hidden_act: burn has no word for 'relu'")
    refused(RefusedError, *said, source=source, tmp_path=tmp_path, open_with={"mappings": (table,)})


def test_a_pooler_that_the_older_burn_has_no_module_for(tmp_path):
    source = small_model(tmp_path / "hf")
    options = {"form": "mpk", "dialect": "linear-pooler", "verify": "none"}
    portkit.convert(source, tmp_path / "burn", to="burn", **options)
    verdict = verify(source, tmp_path / "burn", proofs=("forward",), runtime=("reference", "own"))
    words = "portkit-burn-legacy has no module for the pooler of linear-pooler"
    assert (verdict.errors["forward"].title, verdict.exit_code) == (words, 3)


def test_a_class_that_keras_hub_lacks(monkeypatch, tmp_path):
    monkeypatch.setattr(keras_program, "_import_keras", lambda _device: (None, SimpleNamespace()))
    inputs = choose_inputs(facts_for("bert", "model"))
    with pytest.raises(
        RuntimeFailedError, match=r"KerasHub cannot run this model[\s\S]*NoModel: no such class in Keras"
    ):
        keras_program.forward(tmp_path, "NoModel", inputs, "cpu")


# ---------------------------------------------------------------- tables


@pytest.mark.parametrize("text", ["", "h ->", "-> h", "h -> n!"])
def test_a_signature_that_is_none(text):
    with pytest.raises(TableError, match=r"cannot read a signature[\s\S]*not a signature\s+expected letters or sizes"):
        parse_signature(text)


@pytest.mark.parametrize("token", ["(in", "both", "(x)"])
def test_a_pattern_that_is_none(token):
    with pytest.raises(TableError, match=r"cannot read a pattern[\s\S]*: unknown token .*\s+expected in, out, \(in\)"):
        parse_pattern(f"(out) {token}", Signature(("h",), ("n",)))


def test_a_config_that_does_not_fit():
    with pytest.raises(
        TableError, match=r"the config does not fit the table[\s\S]*h: no usable value\s+expected a whole"
    ):
        evaluate("h / 2", {"h": "many"})


def test_no_tables_at_all():
    with pytest.raises(TableError, match=r"the mapping tables are wrong[\s\S]*nothing to check"):
        check_tables(replace(load_tables(), families={}))


def test_a_tensor_folded_into_none(tmp_path):
    table = tmp_path / "mine.toml"
    cell = '[rows.backbone."embeddings.type"]\nkeras = { absorbed_by = "pooler.kernel" }'
    table.write_text(f'family = "mine"\nextends = "roberta"\n{cell}', encoding="utf-8")
    words = r"embeddings\.type\.table is absorbed by 'pooler\.kernel', which is no stored tensor of the model"
    with pytest.raises(TableError, match=words):
        check_tables(load_tables((table,)))


def test_a_layout_that_loses_an_axis():
    tables = load_tables()
    hf = tables.storages["hf"]
    leaf, _ = hf.parts["linear"]["kernel"]
    linear = {**hf.parts["linear"], "kernel": (leaf, "(out)")}
    storages = {**tables.storages, "hf": replace(hf, parts={**hf.parts, "linear": linear})}
    with pytest.raises(TableError, match=r"pooler\.kernel loses an axis on the way"):
        check_tables(replace(tables, storages=storages))


def test_a_tensor_with_neither_place_nor_reason():
    tables = load_tables()
    bert = tables.families["bert"]
    rows = [
        replace(r, places={**r.places, "hf": {"table": Place()}}) if r.name.endswith(".word") else r for r in bert.rows
    ]
    families = {**tables.families, "bert": replace(bert, rows=tuple(rows))}
    with pytest.raises(TableError, match=r"embeddings\.word\.table has neither a place nor a reason why not"):
        check_tables(replace(tables, families=families))
