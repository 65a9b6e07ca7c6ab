"""The checker, checked: honest models pass, and every fault that a forward pass can see does not."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from models import class_name, hf_config, hf_state, lazy, random_logical, small_facts

from portkit.errors import MissingRuntimeError, RuntimeFailedError
from portkit.render import render_forward
from portkit.runtimes.outputs import OutputsOn
from portkit.runtimes.reference import run_reference
from portkit.runtimes.transformers_runtime import run_transformers_tensors, transformers_available
from portkit.verify.agreement import Run
from portkit.verify.coverage import coverage_of
from portkit.verify.forward import Side, compare_runs
from portkit.verify.inputs import choose_inputs


def transformers(facts, logical, attention="eager", dtype="float32"):
    return run_transformers_tensors(
        hf_config(facts),
        lazy(hf_state(logical, facts)),
        choose_inputs(facts),
        task=facts.task,
        class_name=class_name(facts),
        has_pooler=facts.has_pooler,
        attention=attention,
        dtype=dtype,
    )


def not_installed():
    raise MissingRuntimeError("no such framework")


def side(facts, logical, inputs, run=not_installed, runtime="Burn", dtype="float32"):
    return Side(Run(runtime, dtype), run, partial(run_reference, facts, lazy(logical), inputs))


def judge(facts, logical, target, source_run=not_installed, dtype="float32", **options):
    inputs = choose_inputs(facts)
    source = side(facts, logical, inputs, source_run, "transformers", dtype)
    return compare_runs(inputs, source, target(inputs), coverage_of(facts, inputs), **options)


def test_verdict_says_where_each_side_was_computed():
    facts = small_facts()
    logical = random_logical(facts)

    def target(inputs):
        on = OutputsOn(run_reference(facts, lazy(logical), inputs, np.float32), "wgpu: an adapter, Vulkan")
        return side(facts, logical, inputs, lambda: on)

    verdict = judge(facts, logical, target, device="wgpu")
    assert verdict.agrees
    assert (verdict.source_device, verdict.target_device) == ("cpu", "wgpu: an adapter, Vulkan")
    assert verdict.as_dict()["target_device"] == verdict.target_device
    line = "  computed     in float32: reference, not transformers on cpu, Burn on wgpu: an adapter, Vulkan"
    assert line in render_forward(verdict)


def transposed(name):
    return lambda t: t | {name: np.ascontiguousarray(t[name].T)}


def zeroed(name):
    return lambda t: t | {name: np.zeros_like(t[name])}


def swapped(first, second):
    def swap(t):
        names = {name: name.replace(*pair) for pair in ((first, second), (second, first)) for name in t}
        return t | {other: t[name] for name, other in names.items() if other != name}

    return swap


def rows_shifted(t):
    return t | {"embeddings.position.table": np.roll(t["embeddings.position.table"], 1, axis=0)}


def through_float16(t):
    return {name: array.astype(np.float16).astype(np.float32) for name, array in t.items()}


WEIGHT_FAULTS = {
    "query transposed": (transposed("layer.1.attention.query.kernel"), "hidden_states.2"),
    "value transposed": (transposed("layer.2.attention.value.kernel"), "hidden_states.3"),
    "attention output transposed": (transposed("layer.0.attention.out.kernel"), "hidden_states.1"),
    "pooler transposed": (transposed("pooler.kernel"), "pooled_output"),
    "query and key swapped": (swapped("layer.1.attention.query", "layer.1.attention.key"), "hidden_states.2"),
    "norms swapped": (swapped("layer.1.attention.norm", "layer.1.mlp.norm"), "hidden_states.2"),
    "layers swapped": (swapped("layer.0.", "layer.1."), "hidden_states.1"),
    "query bias dropped": (zeroed("layer.1.attention.query.bias"), "hidden_states.2"),
    "value bias dropped": (zeroed("layer.0.attention.value.bias"), "hidden_states.1"),
    "classifier bias dropped": (zeroed("classifier.bias"), "logits"),
    "positions shifted": (rows_shifted, "hidden_states.0"),
    "token types dropped": (zeroed("embeddings.type.table"), "hidden_states.0"),
    "weights through float16": (through_float16, "hidden_states.0"),
}
FACT_FAULTS = {
    "epsilon": ({"layer_norm_eps": 1e-5}, "hidden_states.0"),
    "tanh instead of erf": ({"hidden_act": "gelu_tanh"}, "hidden_states.1"),
    "position scheme": ({"position_scheme": "padding"}, "hidden_states.0"),
}


@pytest.mark.parametrize("fault", WEIGHT_FAULTS)
def test_faults_of_weights_are_seen_where_they_are(fault):
    damage, place = WEIGHT_FAULTS[fault]
    facts = small_facts(task="sequence_classification")
    logical = random_logical(facts)
    verdict = judge(facts, logical, partial(side, facts, damage(logical)))
    assert not verdict.agrees
    assert verdict.first_divergence == place
    assert verdict.worst.ratio > 80


@pytest.mark.parametrize("fault", FACT_FAULTS)
def test_faults_of_facts_are_seen_where_they_are(fault):
    changes, place = FACT_FAULTS[fault]
    facts = small_facts(task="sequence_classification", max_position_embeddings=50)
    logical = random_logical(facts)
    inputs = choose_inputs(replace(facts, max_position_embeddings=49))  # one row less, so that both schemes can run
    source = side(facts, logical, inputs)
    target = side(replace(facts, **changes), logical, inputs)
    verdict = compare_runs(inputs, source, target, coverage_of(facts, inputs))
    assert not verdict.agrees
    assert verdict.first_divergence == place
    assert verdict.worst.ratio > 80


def test_a_dropped_key_bias_is_not_seen_by_any_forward_pass():
    facts = small_facts()
    logical = random_logical(facts)
    verdict = judge(facts, logical, partial(side, facts, zeroed("layer.1.attention.key.bias")(logical)))
    assert verdict.agrees  # which is why tensors are also compared bit for bit


@pytest.mark.hf
@pytest.mark.skipif(not transformers_available(), reason="transformers is not installed")
@pytest.mark.parametrize("family", ["bert", "roberta"])
@pytest.mark.parametrize("task", ["masked_lm", "sequence_classification"])
@pytest.mark.parametrize("seed", range(3))
def test_honest_runs_pass(family, task, seed):
    facts = small_facts(family, task)
    logical = random_logical(facts, seed)
    eager = partial(transformers, facts, logical)
    for run in (partial(transformers, facts, logical, "sdpa"), not_installed):
        verdict = judge(facts, logical, partial(side, facts, logical, run=run), eager)
        assert verdict.agrees, str(verdict)
        assert verdict.worst.ratio < 3, str(verdict)


def test_missing_runtimes_are_replaced_and_said():
    facts = small_facts()
    logical = random_logical(facts)
    verdict = judge(facts, logical, partial(side, facts, logical))
    assert verdict.agrees
    assert verdict.source.runtime == "reference, not transformers"
    assert verdict.target.runtime == "reference, not Burn"
    assert verdict.reference == "numpy float64"
    assert verdict.worst.ratio == pytest.approx(1)


def test_runtimes_that_ran_are_named_and_failures_pass_through():
    facts = small_facts()
    logical, inputs = random_logical(facts), choose_inputs(facts)
    outputs = run_reference(facts, lazy(logical), inputs, np.float32)
    verdict = judge(facts, logical, partial(side, facts, logical, run=lambda: outputs), lambda: outputs)
    assert (verdict.source.runtime, verdict.target.runtime) == ("transformers", "Burn")

    def failing():
        raise RuntimeFailedError("Burn failed to run the model")

    with pytest.raises(RuntimeFailedError, match="Burn failed"):
        judge(facts, logical, partial(side, facts, logical, run=failing))


def test_pooled_output_that_one_side_lacks_by_design_is_not_compared():
    bert = small_facts(task="sequence_classification")
    roberta = replace(bert, head_style="roberta", has_pooler=False)
    logical = random_logical(bert)
    for ours, theirs in ((bert, roberta), (roberta, bert)):
        verdict = judge(ours, logical, partial(side, theirs, logical), dropped=("pooled_output",))
        assert verdict.agrees
        assert verdict.dropped == ("pooled_output",)
        assert verdict.agreements[-1].output == "logits"
        not_said = judge(ours, logical, partial(side, theirs, logical))
        assert "the target gives another output" in str(not_said.problems[0])


@pytest.mark.parametrize("changes", [{"hidden_act": "gelu_tanh"}, {"layer_norm_eps": 1e-5}], ids=str)
def test_facts_that_are_not_the_sources_function_fail_even_if_the_target_follows_them(changes):
    facts = small_facts(task="sequence_classification")
    misread = replace(facts, **changes)
    logical, inputs = random_logical(facts), choose_inputs(facts)
    truth = run_reference(facts, lazy(logical), inputs, np.float32)
    verdict = judge(misread, logical, partial(side, misread, logical), lambda: truth)
    assert not verdict.agrees
    assert len(verdict.problems) == 1
    assert "the source does not compute what its facts say" in str(verdict.problems[0])


def test_reference_that_is_asked_for_runs_and_is_named():
    facts = small_facts()
    logical = random_logical(facts)
    verdict = judge(facts, logical, partial(side, facts, logical, run=None), None)
    assert verdict.agrees
    assert verdict.source.runtime == "reference, not transformers"
    assert verdict.target.stood_in


def test_framework_that_must_run_is_not_replaced():
    facts = small_facts()
    logical, inputs = random_logical(facts), choose_inputs(facts)
    strict = replace(side(facts, logical, inputs), stand_in=False)
    with pytest.raises(MissingRuntimeError, match="no such framework"):
        compare_runs(inputs, side(facts, logical, inputs), strict, coverage_of(facts, inputs))


# ---------------------------------------------------------------- other dtypes than float32


@pytest.mark.hf
@pytest.mark.skipif(not transformers_available(), reason="transformers is not installed")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_honest_runs_pass_in_every_dtype_with_the_noise_of_that_dtype(family, dtype):
    facts = small_facts(family, "sequence_classification")
    logical = random_logical(facts)
    eager, sdpa = (partial(transformers, facts, logical, kind, dtype) for kind in ("eager", "sdpa"))
    for run in (sdpa, not_installed):
        verdict = judge(facts, logical, partial(side, facts, logical, run=run, dtype=dtype), eager, dtype)
        assert verdict.agrees, str(verdict)
        assert verdict.worst.ratio < 3, str(verdict)
    scale = {"float16": 1e-3, "bfloat16": 1e-2, "float64": 1e-15}[dtype]
    assert 0.05 * scale < verdict.agreements[2].noise < 5 * scale


@pytest.mark.hf
@pytest.mark.skipif(not transformers_available(), reason="transformers is not installed")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_wide_target_of_a_narrow_source_is_not_excused_by_the_sources_noise(dtype):
    """A float32 target that lost what bfloat16 cannot show must still fail: the noise is that of its own dtype."""
    facts = small_facts(task="sequence_classification")
    logical = random_logical(facts)
    narrow = partial(transformers, facts, logical, dtype=dtype)
    honest = judge(facts, logical, partial(side, facts, logical), narrow, dtype)
    assert honest.agrees
    assert (honest.source.dtype, honest.target.dtype) == (dtype, "float32")
    worse = judge(facts, logical, partial(side, replace(facts, hidden_act="gelu_tanh"), logical), narrow, dtype)
    assert worse.first_divergence == "hidden_states.1"


@pytest.mark.hf
@pytest.mark.skipif(not transformers_available(), reason="transformers is not installed")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_faults_are_seen_in_16_bits_too_where_they_exceed_its_noise(dtype):
    facts = small_facts(task="sequence_classification")
    logical = random_logical(facts)
    damaged = transposed("layer.1.attention.query.kernel")(logical)
    run = partial(transformers, facts, damaged, dtype=dtype)
    narrow = partial(transformers, facts, logical, dtype=dtype)
    verdict = judge(facts, logical, partial(side, facts, damaged, run=run, dtype=dtype), narrow, dtype)
    assert verdict.first_divergence == "hidden_states.2"


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_source_in_16_bits_whose_facts_are_not_its_function_fails(dtype):
    facts = small_facts(task="sequence_classification")
    misread = replace(facts, position_scheme="padding", max_position_embeddings=38)
    logical = random_logical(misread)
    inputs = choose_inputs(facts)
    truth = run_reference(facts, lazy(logical), inputs, dtype)
    source = side(misread, logical, inputs, lambda: truth, "transformers", dtype)
    verdict = compare_runs(inputs, source, side(misread, logical, inputs, dtype=dtype), coverage_of(facts, inputs))
    assert not verdict.agrees
    assert "the source does not compute what its facts say" in str(verdict.problems[0])


# ---------------------------------------------------------------- a target that was said to be another function


def test_announced_function_is_the_one_that_the_target_is_measured_against():
    facts = small_facts(task="sequence_classification")
    tanh = replace(facts, hidden_act="gelu_tanh")
    logical, inputs = random_logical(facts), choose_inputs(facts)
    promised = partial(run_reference, tanh, lazy(logical), inputs)
    told = {"announced": {"hidden_act": "gelu in the source, gelu_tanh in the target"}, "promised": promised}
    verdict = judge(facts, logical, partial(side, tanh, logical), **told)
    assert verdict.agrees
    assert verdict.announced == ("hidden_act: gelu in the source, gelu_tanh in the target",)
    last = verdict.agreements[-1]
    assert last.max_abs > 10 * last.limit  # how far the two functions are apart is still reported
    broken = transposed("layer.1.attention.query.kernel")(logical)
    assert judge(facts, logical, partial(side, tanh, broken), **told).first_divergence == "hidden_states.2"
    assert judge(facts, logical, partial(side, facts, logical), **told).first_divergence == "hidden_states.1"
