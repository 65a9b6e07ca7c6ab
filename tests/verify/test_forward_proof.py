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
from portkit.verify.forward import Side, compare_runs
from portkit.verify.inputs import choose_inputs, coverage_of


def transformers(facts, logical, attention="eager"):
    return run_transformers_tensors(
        hf_config(facts),
        lazy(hf_state(logical, facts)),
        choose_inputs(facts),
        task=facts.task,
        class_name=class_name(facts),
        has_pooler=facts.has_pooler,
        attention=attention,
    )


def not_installed():
    raise MissingRuntimeError("no such framework")


def side(facts, logical, inputs, run=not_installed, runtime="Burn"):
    return Side(runtime, run, partial(run_reference, facts, lazy(logical), inputs))


def judge(facts, logical, target, source_run=not_installed, **options):
    inputs = choose_inputs(facts)
    source = side(facts, logical, inputs, source_run, "transformers")
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
    assert verdict.source_runtime == "reference, not transformers"
    assert verdict.target_runtime == "reference, not Burn"
    assert verdict.reference == "numpy float64"
    assert verdict.worst.ratio == pytest.approx(1)


def test_runtimes_that_ran_are_named_and_failures_pass_through():
    facts = small_facts()
    logical, inputs = random_logical(facts), choose_inputs(facts)
    outputs = run_reference(facts, lazy(logical), inputs, np.float32)
    verdict = judge(facts, logical, partial(side, facts, logical, run=lambda: outputs), lambda: outputs)
    assert (verdict.source_runtime, verdict.target_runtime) == ("transformers", "Burn")

    def failing():
        raise RuntimeFailedError("Burn failed to run the model")

    with pytest.raises(RuntimeFailedError, match="Burn failed"):
        judge(facts, logical, partial(side, facts, logical, run=failing))


def test_invented_pooler_is_compared_and_must_be_zero():
    facts = small_facts()
    logical = random_logical(facts)
    logical |= {"pooler.kernel": np.zeros((24, 24), np.float32), "pooler.bias": np.zeros(24, np.float32)}
    inputs = choose_inputs(facts)
    without = run_reference(replace(facts, has_pooler=False), lazy(logical), inputs, np.float32)
    verdict = judge(facts, logical, partial(side, facts, logical), lambda: without, invented=("pooled_output",))
    assert verdict.agrees
    assert verdict.invented == ("pooled_output",)
    assert verdict.agreements[-1].output == "pooled_output"
    random_pooler = {**logical, "pooler.kernel": np.full((24, 24), 1e-20, np.float32)}
    verdict = judge(facts, logical, partial(side, facts, random_pooler), lambda: without, invented=("pooled_output",))
    assert verdict.first_divergence == "pooled_output"
    not_said = judge(facts, logical, partial(side, facts, logical), lambda: without)
    assert not not_said.agrees
    assert "the source gives another output" in str(not_said.problems[0])


def test_head_style_rewritten_compares_the_pooled_output_with_measured_noise():
    bert = small_facts(task="sequence_classification")
    roberta = replace(bert, head_style="roberta", has_pooler=False)
    logical, inputs = random_logical(bert), choose_inputs(bert)
    without = run_reference(roberta, lazy(logical), inputs, np.float32)
    verdict = judge(bert, logical, partial(side, bert, logical), lambda: without, invented=("pooled_output",))
    assert verdict.agrees
    back = judge(bert, logical, partial(side, roberta, logical), dropped=("pooled_output",))
    assert back.agrees
    assert back.dropped == ("pooled_output",)


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
