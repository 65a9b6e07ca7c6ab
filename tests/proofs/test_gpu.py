"""The forward proof on a GPU: full float32 whatever the caller's settings, and the device in the verdict.

Nothing here runs without a CUDA device; each test then says that it was skipped.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hf_folders import small_model
from models import class_name, hf_config, hf_state, lazy, random_logical, small_facts

import portkit
from portkit.api import verify
from portkit.proofs.agreement import compare_outputs
from portkit.proofs.inputs import choose_inputs
from portkit.runtimes.outputs import expected_outputs
from portkit.runtimes.reference import run_reference
from portkit.runtimes.transformers_runtime import run_transformers_tensors

pytestmark = [pytest.mark.gpu, pytest.mark.hf]
SIZES = {"hidden_size": 128, "num_attention_heads": 4, "intermediate_size": 256, "num_hidden_layers": 4}


@pytest.fixture
def gpu():
    """The name of the CUDA device."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("transformers", reason="transformers is not installed")
    if not torch.cuda.is_available():
        pytest.skip("torch sees no CUDA device")
    return torch.cuda.get_device_name()


def on(device, facts, logical, **options):
    return run_transformers_tensors(
        hf_config(facts),
        lazy(hf_state(logical, facts)),
        choose_inputs(facts),
        task=facts.task,
        class_name=class_name(facts),
        has_pooler=facts.has_pooler,
        device=device,
        **options,
    )


def worst(facts, logical, target, dtype="float32"):
    """The largest ratio of the target's distance to the noise of a CPU run in the same dtype."""
    inputs = choose_inputs(facts)
    exact = run_reference(facts, lazy(logical), inputs)
    source = on("cpu", facts, logical, dtype=dtype)
    agreements, problems = compare_outputs(exact, source, target, inputs.valid, dtype=dtype)
    assert not problems
    assert [item.output for item in agreements] == list(expected_outputs(facts))
    return max(item.ratio for item in agreements)


@pytest.mark.parametrize("family", ["bert", "roberta"])
@pytest.mark.parametrize("task", ["model", "masked_lm", "sequence_classification"])
def test_device_is_as_exact_as_the_cpu(gpu, family, task):
    facts = small_facts(family, task, **SIZES)
    logical = random_logical(facts)
    assert worst(facts, logical, on("cuda", facts, logical)) < 8


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_dtypes_have_their_own_noise(gpu, dtype):
    facts = small_facts(task="sequence_classification", **SIZES)
    logical = random_logical(facts)
    assert worst(facts, logical, on("cuda", facts, logical, dtype=dtype), dtype) < 8


def test_tf32_that_the_caller_allowed_is_not_used_and_allowed_again(gpu):
    import torch

    matmul = torch.backends.cuda.matmul
    before = matmul.allow_tf32
    matmul.allow_tf32 = True
    try:
        facts = small_facts(**SIZES)
        logical = random_logical(facts)
        assert worst(facts, logical, on("cuda", facts, logical)) < 8
        assert matmul.allow_tf32 is True
    finally:
        matmul.allow_tf32 = before


def test_tf32_would_have_been_seen(gpu):
    """The measure that the tests above rely on is fine enough: TF32 has 10 bits where float32 has 23."""
    import torch

    if torch.cuda.get_device_capability() < (8, 0):
        pytest.skip(f"{gpu} has no TF32")
    facts = small_facts(**SIZES)
    logical = random_logical(facts)
    coarse = {name: _with_tf32_digits(array) for name, array in logical.items()}
    assert worst(facts, logical, on("cuda", facts, coarse)) > 80


def _with_tf32_digits(array):
    """The numbers that a tensor core would multiply: the last 13 bits cut off."""
    bits = np.ascontiguousarray(array, np.float32).view(np.uint32) & np.uint32(0xFFFFE000)
    return bits.view(np.float32)


@pytest.mark.parametrize(
    "damage",
    [
        lambda facts, t: (facts, t | {"layer.1.attention.query.kernel": t["layer.1.attention.query.kernel"].T}),
        lambda facts, t: (facts, t | {"layer.0.attention.value.bias": 0 * t["layer.0.attention.value.bias"]}),
        lambda facts, t: (replace(facts, hidden_act="gelu_tanh"), t),
        lambda facts, t: (replace(facts, layer_norm_eps=1e-5), t),
    ],
    ids=["transposed", "bias dropped", "activation", "epsilon"],
)
def test_faults_are_seen_on_the_device(gpu, damage):
    facts = small_facts(task="sequence_classification", **SIZES)
    logical = random_logical(facts)
    other_facts, other = damage(facts, logical)
    assert worst(facts, logical, on("cuda", other_facts, other)) > 8


@pytest.mark.parametrize("device", ["cuda", "auto"])
def test_verdict_names_the_device_and_its_precision(gpu, device, tmp_path):
    source = small_model(tmp_path / "a", "bert", "sequence_classification")
    portkit.convert(source, tmp_path / "b", to="hf", verify="none")
    verdict = verify(source, tmp_path / "b", device=device)
    assert verdict.holds
    for run in verdict.forward.runs:
        assert run.device.startswith(f"cuda: {gpu}")
        assert str(run).startswith(f"transformers (float32, cuda: {gpu}")


def test_nothing_of_a_run_is_left_on_the_device(gpu):
    import torch

    facts = small_facts(**SIZES)
    run = partial(on, "cuda", facts, random_logical(facts))
    run()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    run()
    assert torch.cuda.memory_allocated() <= before
