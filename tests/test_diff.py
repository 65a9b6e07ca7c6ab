"""`portkit.diff`: what it looks at, the state of every tensor and field, tolerance, ignoring, exit codes."""

from __future__ import annotations

import dataclasses
import json
import shutil
import tracemalloc

import numpy as np
import pytest
from diff_folders import LAYOUTS, edited, model
from hf_folders import config_for, facts_for, saved_state, write_hf
from safetensors.torch import load_file as load_torch

import portkit
from portkit.difference.result import STATES
from portkit.errors import RefusedError, UsageError

QUERY = "layer.1.attention.query.kernel"
CASTS = {"float16": "F16", "bfloat16": "BF16", "float64": "F64"}


def states(diff):
    return {state: len(diff.of(state)) for state in STATES if diff.of(state)}


def state_of(diff, name):
    (found,) = [t for t in diff.tensors if t.name == name]
    return found


def field_of(diff, name):
    (found,) = [f for f in diff.fields if f.name == name]
    return found


def plus(size):
    return lambda t: {QUERY: t[QUERY] + np.float32(size)}


# ---------------------------------------------------------------- equal


@pytest.mark.parametrize("form", ["bpk", "safetensors", "mpk"])
@pytest.mark.parametrize(("family", "task"), [("bert", "pre_training"), ("roberta", "sequence_classification")])
def test_a_converted_model_equals_its_source(tmp_path, family, task, form):
    a = model(tmp_path / "a", family=family, task=task)
    portkit.convert(a, tmp_path / "b", to="burn", form=form, verify="none")
    diff = portkit.diff(a, tmp_path / "b")
    assert (diff.equal, diff.exit_code, diff.differing) == (True, 0, ())
    assert states(diff) == {"equal": len(diff.tensors)}
    assert diff.compared == len(diff.tensors) == diff.b.tensors


def test_shards_and_pickles_are_compared_too(tmp_path):
    import torch

    a = model(tmp_path / "a")
    portkit.convert(a, tmp_path / "sharded", to="hf", max_shard_size=20_000, verify="none")
    assert (tmp_path / "sharded" / "model.safetensors.index.json").exists()
    (tmp_path / "pickle").mkdir()
    torch.save(load_torch(a / "model.safetensors"), tmp_path / "pickle" / "pytorch_model.bin")
    shutil.copy(a / "config.json", tmp_path / "pickle")
    for other in ("sharded", "pickle"):
        assert states(portkit.diff(a, tmp_path / other)) == {"equal": 55}


@pytest.mark.parametrize("dtype", CASTS)
def test_equal_after_a_cast_names_the_dtype(tmp_path, dtype):
    a = model(tmp_path / "a")
    portkit.convert(a, tmp_path / "b", to="hf", dtype=dtype, verify="none")
    diff = portkit.diff(a, tmp_path / "b")
    how = "the same numbers in both" if dtype == "float64" else f"equal once rounded to {CASTS[dtype]}"
    assert (states(diff), diff.exit_code) == ({"cast": 55}, 0)
    assert {t.note for t in diff.tensors} == {f"F32 in A, {CASTS[dtype]} in B: {how}"}
    assert {t.dtypes for t in diff.tensors} == {("F32", CASTS[dtype])}


def test_one_wrong_number_is_seen_through_a_cast(tmp_path):
    a = model(tmp_path / "a")
    portkit.convert(a, tmp_path / "b", to="hf", dtype="float64", verify="none")
    c = edited(
        tmp_path / "b", tmp_path / "c", lambda t: {QUERY: t[QUERY] + 1e-3 * (np.arange(576).reshape(24, 24) == 30)}
    )
    assert states(portkit.diff(a, c)) == {"cast": 54, "differs": 1}
    assert state_of(portkit.diff(a, c), QUERY).numbers.at == (1, 6)


def test_a_tie_is_the_same_as_a_copy(tmp_path):
    a = model(tmp_path / "a", task="masked_lm")
    portkit.convert(a, tmp_path / "b", to="burn", verify="none")
    diff = portkit.diff(a, tmp_path / "b")
    assert state_of(diff, "masked_lm.decoder.kernel").state == "equal"
    assert (diff.a.tensors, diff.b.tensors, diff.compared) == (58, 59, 59)


def test_what_is_not_compared_is_named(tmp_path):
    facts = facts_for("bert", "masked_lm")
    buffer = {"bert.embeddings.position_ids": np.arange(37)[None]}
    a = write_hf(tmp_path / "a", {**saved_state(facts), **buffer}, config_for("bert", facts))
    assert portkit.diff(a, model(tmp_path / "b", task="masked_lm")).a.skipped == {
        "bert.embeddings.position_ids": "buffer 0, 1, 2, …, which the framework makes itself",
        "masked_lm.decoder.kernel": "tied to embeddings.word.table",
    }


# ---------------------------------------------------------------- one function in two places


@pytest.mark.parametrize("target", LAYOUTS)
def test_two_head_styles_are_one_function(tmp_path, target):
    a = model(tmp_path / "a", task="sequence_classification")
    portkit.convert(a, tmp_path / "b", to=target, head_style="roberta", verify="none")
    diff = portkit.diff(a, tmp_path / "b")
    assert (states(diff), diff.exit_code) == ({"equal": 57}, 0)
    assert (diff.a.family, diff.b.family) == ("bert", "roberta")
    assert state_of(diff, "embeddings.position.table").note.startswith("row i of A is row i+1 of B")
    noted = {f.name for f in diff.fields if f.state == "noted"}
    assert noted == {"facts.family", "facts.head_style", "facts.position_scheme", "facts.first_position", "pooler"}


def test_a_change_is_seen_across_head_styles(tmp_path):
    a = model(tmp_path / "a", task="sequence_classification")
    portkit.convert(a, tmp_path / "b", to="hf", head_style="roberta", verify="none")
    c = edited(
        tmp_path / "b",
        tmp_path / "c",
        lambda t: {
            "embeddings.position.table": t["embeddings.position.table"]
            + 9.0 * (np.arange(38) == 7)[:, None].astype("f4")
        },
    )
    found = state_of(portkit.diff(a, c), "embeddings.position.table")
    assert (found.state, found.numbers.at[0], found.numbers.differing) == ("differs", 6, 24)


# ---------------------------------------------------------------- different


@pytest.mark.parametrize("layout", LAYOUTS)
def test_numbers_of_a_difference(tmp_path, layout):
    a = model(tmp_path / "a", layout)

    def change(t):
        kernel = t[QUERY].copy()
        kernel[3, 17] += 2
        kernel[5, 1] -= 1
        return {QUERY: kernel}

    diff = portkit.diff(a, edited(a, tmp_path / "b", change))
    found = state_of(diff, QUERY)
    assert (states(diff), diff.exit_code, diff.first.name) == ({"equal": 54, "differs": 1}, 1, QUERY)
    assert (found.numbers.at, found.numbers.differing, found.numbers.count) == ((3, 17), 2, 576)
    assert found.numbers.max_abs == pytest.approx(2)
    assert found.numbers.share == 2 / 576


def test_shapes_and_sides(tmp_path):
    diff = portkit.diff(model(tmp_path / "a"), model(tmp_path / "b", has_pooler=False, vocab_size=64))
    assert state_of(diff, "embeddings.word.table").shapes == ((61, 24), (64, 24))
    assert [t.name for t in diff.of("only in A")] == ["pooler.kernel", "pooler.bias"]
    assert field_of(diff, "facts.vocab_size").state == "differs"
    reverse = portkit.diff(tmp_path / "b", tmp_path / "a")
    assert [t.name for t in reverse.of("only in B")] == ["pooler.kernel", "pooler.bias"]


def test_tensors_come_in_the_order_of_the_model(tmp_path):
    a = model(tmp_path / "a", task="masked_lm")
    names = [t.name for t in portkit.diff(a, a).tensors]
    layers = [n.split(".")[1] for n in names if n.startswith("layer.")]
    assert names[0] == "embeddings.word.table"
    assert layers == sorted(layers)
    assert names[-1].startswith("masked_lm.")


def test_what_no_row_explains_is_compared_as_it_lies(tmp_path):
    facts = facts_for("bert", "model")
    head = np.random.default_rng(0).normal(size=(3, 24)).astype("f4")
    folders = [
        write_hf(tmp_path / name, {**saved_state(facts), **extra}, config_for("bert", facts))
        for name, extra in {
            "a": {"probe.weight": head, "lost.weight": head + 1},
            "b": {"probe.weight": head},
            "c": {"probe.weight": -head},
        }.items()
    ]
    a, b, c = folders
    assert [t.name for t in portkit.diff(a, b).of("only in A")] == ["unexplained.lost.weight"]
    assert str(state_of(portkit.diff(b, c), "unexplained.probe.weight").findings[0]).startswith("B is A with the sign")
    portkit.convert(a, tmp_path / "burn", to="burn", residue=True, verify="none")
    assert portkit.diff(a, tmp_path / "burn").equal  # kept beside the weights, and looked at there


ODD = {  # what no row explains may be anything
    "whole numbers": (np.arange(6), np.arange(6)[::-1].copy()),
    "a single number": (np.array(3.0, "f4"), np.array(-3.0, "f4")),
    "truths": (np.array([True, False, True]), np.array([True, True, True])),
    "nothing": (np.zeros((0, 3), "f4"), np.zeros((0, 4), "f4")),
    "infinities": (np.array([np.inf, -np.inf, 1, 2], "f4"), np.array([np.inf, np.inf, 1, 2], "f4")),
    "large numbers": (np.array([1e300, -1e300, 7.0]), np.array([-1e300, 1e300, 8.0])),
    "whole and broken numbers": (np.array([1, 2, 3]), np.array([1.0, 2.5, 3.0], "f4")),
    "other dimensions": (np.zeros((2, 3), "f4"), np.zeros(6, "f4")),
}


@pytest.mark.parametrize("kind", ODD)
def test_anything_can_be_compared(tmp_path, kind):
    facts = facts_for("bert", "model")
    a, b = (
        write_hf(tmp_path / name, {**saved_state(facts), "odd.thing": odd}, config_for("bert", facts))
        for name, odd in zip("ab", ODD[kind], strict=True)
    )
    diff = portkit.diff(a, b)
    assert diff.differing == ("unexplained.odd.thing",)
    assert diff.first.state == ("differs" if ODD[kind][0].shape == ODD[kind][1].shape else "shape")
    assert states(portkit.diff(a, a)) == {"equal": 56}
    json.dumps(diff.as_dict(), allow_nan=False)


def test_the_same_whole_numbers_in_another_dtype(tmp_path):
    facts = facts_for("bert", "model")
    a, b = (
        write_hf(tmp_path / d, {**saved_state(facts), "odd": np.arange(6, dtype=d)}, config_for("bert", facts))
        for d in ("i8", "f4")
    )
    assert states(portkit.diff(a, b)) == {"equal": 55, "cast": 1}
    assert portkit.diff(a, b).tensors[-1].note == "I64 in A, F32 in B: the same numbers in both"


@pytest.mark.parametrize(
    ("family", "changes", "name", "values"),
    [
        ("bert", {"layer_norm_eps": 1e-5}, "facts.layer_norm_eps", (1e-12, 1e-5)),
        ("bert", {"hidden_act": "gelu_tanh"}, "facts.hidden_act", ("gelu", "gelu_tanh")),
        ("bert", {"num_attention_heads": 4}, "facts.num_attention_heads", (3, 4)),
        ("roberta", {"pad_token_id": 5}, "facts.pad_token_id", (1, 5)),
    ],
)
def test_a_fact_alone_makes_a_difference(tmp_path, family, changes, name, values):
    diff = portkit.diff(model(tmp_path / "a", family=family), model(tmp_path / "b", family=family, **changes))
    found = field_of(diff, name)
    assert (found.a, found.b, found.state) == (*values, "differs")
    assert diff.exit_code == 1


def test_labels_make_a_difference_and_training_does_not(tmp_path):
    facts = facts_for("bert", "token_classification")
    a = write_hf(tmp_path / "a", saved_state(facts), config_for("bert", facts))
    changes = {"id2label": {str(i): n for i, n in enumerate("vwxyz")}, "hidden_dropout_prob": 0.2, "note": "mine"}
    b = write_hf(tmp_path / "b", saved_state(facts), config_for("bert", facts, **changes))
    diff = portkit.diff(a, b)
    assert diff.differing == ("labels",)
    assert field_of(diff, "labels").b == list("vwxyz")
    assert (
        field_of(diff, "config.hidden_dropout_prob").note == "for training only; the default of the family's class in A"
    )
    assert field_of(diff, "config.note").note == "portkit does not read this field"
    assert portkit.diff(a, b, ignore=["labels"]).exit_code == 0


def test_an_untrained_pooler_is_told_from_a_trained_one(tmp_path):
    a = model(tmp_path / "a")
    b = edited(a, tmp_path / "b", lambda t: {"pooler.bias": 0 * t["pooler.bias"]})
    found = field_of(portkit.diff(a, b), "pooler")
    assert (found.a, found.b) == ("in the backbone, looks trained", "in the backbone, looks never trained")


# ---------------------------------------------------------------- tolerance, ignoring, zero


def test_within_the_tolerance_is_a_state_of_its_own(tmp_path):
    a = model(tmp_path / "a")
    b = edited(a, tmp_path / "b", plus(1e-4))
    assert states(portkit.diff(a, b)) == {"equal": 54, "differs": 1}
    for tolerance in ({"atol": 1.1e-4}, {"rtol": 1e9}):
        diff = portkit.diff(a, b, **tolerance)
        assert (states(diff), diff.exit_code) == ({"equal": 54, "tolerated": 1}, 0)
        assert state_of(diff, QUERY).numbers.max_abs == pytest.approx(1e-4, rel=0.01)
    assert portkit.diff(a, b, atol=0.9e-4).exit_code == 1


def test_a_tolerance_lets_no_nan_through(tmp_path):
    a = model(tmp_path / "a")
    b = edited(
        a, tmp_path / "b", lambda t: {QUERY: np.where(t[QUERY] == t[QUERY].max(), np.nan, t[QUERY]).astype("f4")}
    )
    assert portkit.diff(a, b, atol=1e9, rtol=1e9).exit_code == 1
    assert portkit.diff(b, b).equal  # the same NaN is the same


@pytest.mark.parametrize("tolerance", [{"atol": -1.0}, {"rtol": float("nan")}, {"atol": float("inf")}])
def test_a_tolerance_that_is_none_is_refused(tmp_path, tolerance):
    (name,) = tolerance
    with pytest.raises(UsageError, match=rf"the tolerance makes no sense(.|\n)*--{name}: is no tolerance"):
        portkit.diff(tmp_path, tmp_path, **tolerance)


def test_ignored_names_are_left_out_and_counted(tmp_path):
    a = model(tmp_path / "a")
    b = edited(a, tmp_path / "b", plus(1), config={"layer_norm_eps": 1e-5})
    diff = portkit.diff(a, b, ignore=["layer.*.attention.query.kernel", "facts.layer_norm_eps"])
    assert (diff.equal, diff.compared, len(diff.ignored)) == (True, 52, 4)
    assert portkit.diff(a, b, ignore=["facts.*"]).differing == (QUERY,)


def test_a_pattern_that_matches_nothing_is_an_error(tmp_path):
    a = model(tmp_path / "a")
    with pytest.raises(
        UsageError, match=r"nothing to ignore(.|\n)*--ignore pooler\.kernal: matches no tensor and no field"
    ) as caught:
        portkit.diff(a, a, ignore=["pooler.kernal", "pooler.bias", "nothing.*"])
    assert "did you mean 'pooler.kernel'?" in str(caught.value)
    assert len(caught.value.problems) == 2


def test_nothing_compared_is_a_failure(tmp_path):
    a = model(tmp_path / "a")
    diff = portkit.diff(a, a, ignore=["*.kernel", "*.bias", "*.scale", "*.table"])
    assert (diff.compared, diff.equal, diff.exit_code) == (0, False, 3)


def test_contradictions_on_a_side_are_refused(tmp_path):
    a = model(tmp_path / "a")
    b = edited(a, tmp_path / "b", lambda _: {}, config={"hidden_size": 25, "num_attention_heads": 5})
    with pytest.raises(RefusedError, match=r"config\.json hidden_size: contradicts the weights"):
        portkit.diff(a, b)


# ---------------------------------------------------------------- reading options, the object


def test_each_side_is_read_in_its_own_way(tmp_path):
    a, b = model(tmp_path / "a"), model(tmp_path / "b")
    (b / "config.json").rename(tmp_path / "elsewhere.json")
    diff = portkit.diff(a, b, open_b={"config": tmp_path / "elsewhere.json", "family": "bert"})
    assert diff.equal


def test_the_result_is_frozen_and_goes_through_json(tmp_path):
    a = model(tmp_path / "a")
    b = edited(a, tmp_path / "b", lambda t: {QUERY: np.full_like(t[QUERY], np.nan)})
    diff = portkit.diff(a, b)
    with pytest.raises(dataclasses.FrozenInstanceError):
        diff.atol = 1
    said = json.loads(json.dumps(diff.as_dict(), allow_nan=False))
    assert (said["exit_code"], said["compared"], said["first"], said["differing"]) == (1, 55, QUERY, [QUERY])
    (tensor,) = [t for t in said["tensors"] if t["name"] == QUERY]
    assert (tensor["numbers"]["max_abs"], tensor["numbers"]["not_finite"], tensor["numbers"]["share"]) == (
        None,
        576,
        1.0,
    )


@pytest.mark.real
@pytest.mark.parametrize("name", ["minilm", "rxnfp-ft"])
def test_real_checkpoints_equal_their_conversions(real, tmp_path, name):
    source = real(name)
    portkit.convert(source, tmp_path / "burn", to="burn", verify="none", residue=True)
    diff = portkit.diff(source, tmp_path / "burn")
    assert (diff.exit_code, diff.compared) == (0, len(diff.tensors))
    assert diff.compared > 100


def test_one_pair_of_tensors_is_in_memory(tmp_path):
    sizes = {"hidden_size": 256, "num_attention_heads": 4, "intermediate_size": 1024, "num_hidden_layers": 5}
    a = model(tmp_path / "a", **sizes)
    portkit.convert(a, tmp_path / "burn", to="burn", form="safetensors", verify="none")
    b = edited(tmp_path / "burn", tmp_path / "b", lambda t: {n: x * np.float32(1.001) for n, x in t.items()})
    held = (a / "model.safetensors").stat().st_size
    for other, share in ((tmp_path / "burn", 0.3), (b, 0.5)):  # of one side; the largest pair is 0.13 of it
        tracemalloc.start()
        compared = portkit.diff(a, other).compared
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert (compared, peak < share * held) == (87, True), peak / held
