"""Logical tensors of two folders, bit for bit: counts first, and what is not compared is named."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hf_folders import config_for, facts_for, saved_state, small_model, write_hf

import portkit
from portkit.checkpoint import open_checkpoint
from portkit.proofs.tensors import prove_tensors
from portkit.tensors import LazyTensor

TASK = "sequence_classification"


def pair(tmp_path, changes=None, task=TASK, family="bert", **facts):
    """A folder, and one whose state was changed; `facts` are those of the second."""
    one, other = facts_for(family, task), facts_for(family, task, **facts)
    state = saved_state(one)
    second = {**(saved_state(other) if facts else state), **(changes or {})}
    second = {name: array for name, array in second.items() if array is not None}
    a = write_hf(tmp_path / "a", state, config_for(family, one))
    b = write_hf(tmp_path / "b", second, config_for(family, other))
    return open_checkpoint(a), open_checkpoint(b)


QUERY = "bert.encoder.layer.1.attention.self.query.weight"
WITHOUT_POOLER = {"pooler.dense.weight": None, "pooler.dense.bias": None}
KEY_BIAS = "bert.encoder.layer.1.attention.self.key.bias"


def stored(name, task=TASK):
    return saved_state(facts_for("bert", task))[name].copy()


def test_equal_bit_for_bit(tmp_path):
    verdict = prove_tensors(*pair(tmp_path))
    assert verdict.equal
    assert (verdict.compared, verdict.expected, dict(verdict.rest)) == (57, 57, {})
    assert str(verdict) == "compared 57 of 57 tensors: equal, bit for bit"


@pytest.mark.parametrize("to", ["burn", "hf"])
@pytest.mark.parametrize("task", ["model", "masked_lm", TASK])
def test_another_layout_is_undone(to, task, tmp_path):
    source = small_model(tmp_path / "a", "roberta", task)
    portkit.convert(source, tmp_path / "b", to=to, verify="none")
    for a, b in ((source, tmp_path / "b"), (tmp_path / "b", source)):
        verdict = prove_tensors(open_checkpoint(a), open_checkpoint(b))
        assert verdict.equal
        assert not verdict.casts


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_cast_is_named_and_the_way_back_is_no_cast(dtype, tmp_path):
    source = small_model(tmp_path / "a")
    portkit.convert(source, tmp_path / "b", to="hf", dtype=dtype, verify="none")
    a, b = open_checkpoint(source), open_checkpoint(tmp_path / "b")
    name = {"float16": "F16", "bfloat16": "BF16", "float64": "F64"}[dtype]
    verdict = prove_tensors(a, b)
    assert verdict.equal
    assert dict(verdict.casts) == {f"F32 -> {name}": verdict.compared}
    back = prove_tensors(b, a)
    if dtype == "float64":
        assert back.equal
    else:
        assert f"equal only after the cast F32 -> {name}: the target has more digits" in back.differing.values()


def test_one_bit_is_seen_and_counted(tmp_path):
    bias = stored(KEY_BIAS)
    bias.view(np.uint32)[3] ^= 1
    verdict = prove_tensors(*pair(tmp_path, {KEY_BIAS: bias}))
    assert not verdict.equal
    assert list(verdict.differing) == ["layer.1.attention.key.bias"]
    assert verdict.differing["layer.1.attention.key.bias"].startswith("1 of 24 numbers differ, by ")


def test_minus_zero_is_not_zero(tmp_path):
    zero = np.zeros(24, np.float32)
    a, b = pair(tmp_path, {KEY_BIAS: -zero})
    write_hf(tmp_path / "a", saved_state(facts_for("bert", TASK)) | {KEY_BIAS: zero}, dict(a.folder.config))
    verdict = prove_tensors(open_checkpoint(tmp_path / "a"), b)
    assert verdict.differing["layer.1.attention.key.bias"] == "24 of 24 numbers differ, by 0 at most"


def test_nan_equals_the_same_nan(tmp_path):
    bias = np.full(24, np.nan, np.float32)
    a, b = pair(tmp_path, {KEY_BIAS: bias})
    assert "numbers differ, by nan at most" in prove_tensors(a, b).differing["layer.1.attention.key.bias"]
    assert prove_tensors(b, b).equal


def test_transposed_square_matrix_is_called_so(tmp_path):
    verdict = prove_tensors(*pair(tmp_path, {QUERY: stored(QUERY).T}))
    assert dict(verdict.differing) == {"layer.1.attention.query.kernel": "transposed"}


def test_differences_are_listed_with_a_few_names(tmp_path):
    changes = {name: array + 1 for name, array in saved_state(facts_for("bert", TASK)).items()}
    verdict = prove_tensors(*pair(tmp_path, changes))
    assert len(verdict.differing) == 57
    assert str(verdict).startswith("compared 57 of 57 tensors: 57 differ (embeddings.word.table, ")
    assert str(verdict).endswith(", …)")


def test_layer_on_one_side_only_fails(tmp_path):
    verdict = prove_tensors(*pair(tmp_path, num_hidden_layers=4))
    assert not verdict.equal
    assert len(verdict.missing) == 16
    assert verdict.missing["layer.3.mlp.up.kernel"] == "only in the target"
    assert "compared 57 of 73 tensors" in str(verdict)


def test_other_task_fails_by_its_head(tmp_path):
    a = open_checkpoint(small_model(tmp_path / "a", "bert", "masked_lm"))
    b = open_checkpoint(small_model(tmp_path / "b", "bert", "token_classification"))
    verdict = prove_tensors(a, b)
    assert {name.partition(".")[0] for name in verdict.missing} == {"masked_lm", "classifier"}


# ---------------------------------------------------------------- what needs no counterpart


@pytest.mark.parametrize("swap", [False, True])
def test_pooler_that_no_head_reads_may_be_on_one_side(swap, tmp_path):
    a, b = pair(tmp_path, WITHOUT_POOLER, task="model")
    verdict = prove_tensors(*((b, a) if swap else (a, b)))
    assert verdict.equal
    where = "only in the target" if swap else "only in the source"
    reason = f"{where}; no head reads it, only the pooled output depends on it"
    assert dict(verdict.rest) == {"pooler.bias": reason, "pooler.kernel": reason}


@pytest.mark.parametrize("swap", [False, True])
def test_bert_and_roberta_style_are_the_same_tensors(swap, tmp_path):
    source = small_model(tmp_path / "a", "bert", TASK, pad_token_id=2)
    portkit.convert(source, tmp_path / "b", to="hf", head_style="roberta", verify="none")
    sides = [open_checkpoint(source), open_checkpoint(tmp_path / "b")]
    verdict = prove_tensors(*(sides[::-1] if swap else sides))
    assert verdict.equal
    assert verdict.compared == 57
    side = "source" if swap else "target"
    assert list(verdict.rest) == [f"embeddings.position.table rows 0:3 ({side})"]


def test_shifted_positions_differ_between_styles(tmp_path):
    source = small_model(tmp_path / "a", "bert", TASK)
    portkit.convert(source, tmp_path / "b", to="hf", head_style="roberta", verify="none")
    b = open_checkpoint(tmp_path / "b")
    name = "roberta.embeddings.position_embeddings.weight"
    state = {n: t.read() for n, t in b.folder.container.tensors.items()}
    state[name] = np.roll(state[name], 1, axis=0)
    write_hf(tmp_path / "b", state, dict(b.folder.config))
    verdict = prove_tensors(open_checkpoint(source), open_checkpoint(tmp_path / "b"))
    assert list(verdict.differing) == ["embeddings.position.table"]


@pytest.mark.parametrize(
    ("table", "field", "rows"),
    [("position", "max_position_embeddings", 37), ("type", "type_vocab_size", 2), ("word", "vocab_size", 61)],
)
def test_rows_that_the_target_has_in_addition_are_named(table, field, rows, tmp_path):
    names = {"position": "position", "type": "token_type", "word": "word"}
    name = f"bert.embeddings.{names[table]}_embeddings.weight"
    facts = facts_for("bert", TASK)
    state = saved_state(facts)
    longer = np.concatenate([state[name], np.ones((3, 24), np.float32)])
    a = write_hf(tmp_path / "a", state, config_for("bert", facts))
    b = write_hf(tmp_path / "b", {**state, name: longer}, config_for("bert", facts, **{field: rows + 3}))
    more, fewer = open_checkpoint(b), open_checkpoint(a)
    verdict = prove_tensors(fewer, more)
    assert verdict.equal
    reason = "the source has no such rows"
    assert dict(verdict.rest) == {f"embeddings.{table}.table rows {rows}:{rows + 3} (target)": reason}
    back = prove_tensors(more, fewer)
    assert back.differing == {
        f"embeddings.{table}.table": f"shape ({rows + 3}, 24) in the source, ({rows}, 24) in the target"
    }


def test_buffers_and_foreign_heads_are_named_and_strangers_in_the_encoder_fail(tmp_path):
    probe = {"probe.weight": np.ones((2, 24), np.float32)}
    buffer = {"bert.embeddings.position_ids": np.arange(37)[None]}
    verdict = prove_tensors(*pair(tmp_path, probe | buffer))
    assert verdict.equal
    assert verdict.rest["probe.weight (target)"] == "no row of the table explains it"
    assert "buffer" in verdict.rest["bert.embeddings.position_ids (target)"]
    stranger = {"bert.encoder.layer.1.attention.self.distance_embedding.weight": np.ones((73, 8), np.float32)}
    verdict = prove_tensors(*pair(tmp_path / "more", stranger))
    assert not verdict.equal
    (reason,) = verdict.missing.values()
    assert reason == "inside the encoder, and no row of the table explains it"


# ---------------------------------------------------------------- with the plan of a conversion


def test_plan_demands_what_it_moved(tmp_path):
    source, without = pair(tmp_path, WITHOUT_POOLER, task="model")
    plan = portkit.convert(source.folder.path, tmp_path / "c", to="hf", verify="none").plan
    assert prove_tensors(plan.source, open_checkpoint(tmp_path / "c"), plan).equal
    verdict = prove_tensors(plan.source, without, plan)
    assert dict(verdict.missing) == dict.fromkeys(("pooler.bias", "pooler.kernel"), "only in the source")


def test_made_pooler_must_be_zeros(tmp_path):
    random, source = pair(tmp_path, WITHOUT_POOLER, task="model")
    options = {"to": "hf", "pooler": "synthesize", "verify": "none"}
    plan = portkit.convert(source.folder.path, tmp_path / "c", **options).plan
    verdict = prove_tensors(plan.source, open_checkpoint(tmp_path / "c"), plan)
    assert verdict.equal
    assert verdict.rest["pooler.kernel"] == "zeros, made because the target has a place for it"
    verdict = prove_tensors(plan.source, random, plan)
    assert set(verdict.differing) == {"pooler.kernel", "pooler.bias"}
    assert set(verdict.differing.values()) == {"made as zeros, and is not zero"}


def test_nothing_compared_is_a_failure(tmp_path, monkeypatch):
    a, b = pair(tmp_path)
    empty = {"logical": lambda _self: dict[str, LazyTensor]()}
    monkeypatch.setattr(type(a), "logical", empty["logical"])
    verdict = prove_tensors(a, b)
    assert not verdict.equal
    assert str(verdict) == "compared 0 of 0 tensors: nothing to compare"


def test_verdict_for_json(tmp_path):
    verdict = prove_tensors(*pair(tmp_path, {QUERY: stored(QUERY).T}))
    assert json.loads(json.dumps(verdict.as_dict())) == {
        "equal": False,
        "compared": 57,
        "expected": 57,
        "differing": {"layer.1.attention.query.kernel": "transposed"},
        "missing": {},
        "rest": {},
        "casts": {},
    }
    assert replace(verdict, differing={}).equal
