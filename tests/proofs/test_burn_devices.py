"""Burn on a GPU through wgpu; without hardware, on Mesa's software Vulkan. And what the cpu's build says to it."""

from __future__ import annotations

import os
import subprocess

import pytest
from click.testing import CliRunner
from hf_folders import small_model
from models import small_facts

import portkit
from portkit.cli import main
from portkit.errors import RuntimeFailedError
from portkit.proofs.agreement import Run
from portkit.proofs.inputs import choose_inputs
from portkit.runtimes.burn_runtime import burn_available, find_burn, run_burn


def devices():
    """What the program that the proofs run says to `devices`: one line for each."""
    done = subprocess.run([find_burn(), "devices"], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def wgpu():
    """The words for the machine's wgpu device; without one the tests skip, or fail where it was promised."""
    if not os.environ.get("PORTKIT_TEST_GPU"):
        pytest.skip("Burn runs on wgpu with PORTKIT_TEST_GPU=1, which `make test-gpu` sets")
    said = devices()
    found = next((line for line in said if line.startswith("wgpu: ")), None)
    return found or pytest.fail("\n".join(said))


@pytest.mark.gpu
@pytest.mark.hf
@pytest.mark.real
def test_minilm_agrees_on_wgpu(wgpu, real, tmp_path):
    proof = portkit.convert(real("minilm"), tmp_path / "burn", to="burn", device="wgpu").forward
    assert proof.agrees
    assert proof.runs == (Run("transformers"), Run("Burn", device=wgpu))
    last = {a.output: a.max_abs for a in proof.agreements}
    assert last["hidden_states.6"] < 1e-5
    assert last["pooled_output"] < 1e-5


@pytest.mark.gpu
@pytest.mark.hf
@pytest.mark.parametrize(
    ("family", "task", "changes"),
    [
        ("bert", "pre_training", {"hidden_act": "gelu_tanh"}),
        ("roberta", "sequence_classification", {"hidden_act": "relu"}),
        ("roberta", "masked_lm", {}),
        ("bert", "question_answering", {}),
    ],
)
def test_tasks_agree_on_wgpu(wgpu, tmp_path, family, task, changes):
    source = small_model(tmp_path / "hf", family, task, **changes)
    proof = portkit.convert(source, tmp_path / "burn", to="burn", device="wgpu").forward
    assert proof.agrees
    assert proof.runs == (Run("transformers"), Run("Burn", device=wgpu))


@pytest.mark.gpu
@pytest.mark.hf
def test_command_names_the_device(wgpu, tmp_path):
    source = small_model(tmp_path / "hf")
    words = ["convert", str(source), str(tmp_path / "burn"), "--to", "burn", "--device", "wgpu"]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    sides = f"transformers (float32, cpu) against Burn (float32, {wgpu})"
    assert f"proof forward  {sides}, both measured against " in done.output


@pytest.fixture
def without(request):
    """The name of a device that the program is built without."""
    if not burn_available() or not any(f'"{request.param}" is not in this build' in line for line in devices()):
        pytest.skip(f"there is no portkit-burn built without {request.param}: `make burn` builds one")
    return request.param


@pytest.mark.burn
@pytest.mark.parametrize("without", ["wgpu", "cuda"], indirect=True)
def test_another_build_says_how_to_get_the_device(without, tmp_path):
    with pytest.raises(RuntimeFailedError, match=f"cargo install --path burn --features {without}"):
        run_burn(tmp_path, choose_inputs(small_facts()), device=without)


@pytest.mark.burn
@pytest.mark.parametrize("without", ["wgpu"], indirect=True)
def test_command_leaves_no_folder_without_the_device(without, tmp_path):
    words = ["convert", str(small_model(tmp_path / "hf")), str(tmp_path / "burn"), "--to", "burn", "--device", without]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 3
    assert 'device "wgpu" is not in this build' in done.output
    assert not (tmp_path / "burn").exists()
