"""The catalogue of faults, put into written folders of every layout: exactly the proofs that can see one see it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hf_folders import config_for, facts_for, saved_state, write_hf

import portkit
from portkit.api import verify
from portkit.checkpoint import open_checkpoint
from portkit.execute import write_model
from portkit.faults.catalogue import load_faults
from portkit.faults.inject import inject
from portkit.faults.operations import OPERATIONS
from portkit.faults.self_test import run_self_test, short_inputs
from portkit.moves import Options
from portkit.plan import make_plan
from portkit.proofs import PROOFS
from portkit.runtimes.burn_runtime import burn_available
from portkit.runtimes.keras_runtime import keras_available
from portkit.tensors import equal_bits

HEAD = "sequence_classification"
LAYOUTS = ("hf", "keras", "burn")
PAIRS = [(family, HEAD, layout) for family in ("bert", "roberta") for layout in LAYOUTS]
PAIRS += [("bert", "masked_lm", layout) for layout in LAYOUTS]
PAIRS += [("bert", "pre_training", "hf"), ("bert", "question_answering", "hf"), ("roberta", "masked_lm", "burn")]
NAMES = [fault.name for fault in load_faults()]
TELLING = (  # one of each kind, for the frameworks themselves
    "query and key swapped", "value: heads interleaved, (d n) for (n d)", "attention.out matrix transposed", "key bias lost",
    "attention.query bias lost", "a layer's two norms swapped", "positions shifted by 1", "pooler bias doubled",
    "every tensor rounded to F16", "another number of heads", "another epsilon", "tanh GELU for erf GELU, or back",
)  # fmt: skip


def write_sound(folder, family, task, layout):
    """A random model in a layout, whose classes have names of their own."""
    facts = facts_for(family, task)
    labels = {"id2label": {str(i): f"class {i}" for i in range(facts.num_labels)}} if "class" in task else {}
    source = write_hf(folder / "source", saved_state(facts), config_for(family, facts, **labels))
    if layout == "hf":
        return source
    portkit.convert(source, folder / layout, to=layout, verify="none")
    return folder / layout


def write_faulty(faulty, folder):
    """A checkpoint that is in memory, through the writers of its layout."""
    folder.mkdir()
    write_model(make_plan(faulty.checkpoint, Options(to=faulty.checkpoint.anatomy.layout)), folder)
    return folder


def faults_in(sound, names=NAMES):
    """The faults of these names that a folder of this checkpoint can hold, in memory."""
    inputs = short_inputs(sound.facts, sound.facts)
    folders = [f for f in load_faults() if f.name in names and not (f.program or f.inputs)]
    found = [(fault, inject(fault, sound, inputs)) for fault in folders]
    return [(fault, faulty) for fault, faulty in found if faulty is not None], inputs


# ---------------------------------------------------------------- the catalogue


def test_catalogue_is_large_and_well_formed():
    faults = load_faults()
    assert len(faults) >= 100
    assert len(set(NAMES)) == len(NAMES)
    assert {step.op for fault in faults for step in fault.steps} == set(OPERATIONS)
    for fault in faults:
        assert "{" not in fault.name
        assert fault.seen_by, "a fault that nothing sees is none"
        assert fault.seen_by <= {*PROOFS}
        assert ("forward" in fault.seen_by) == (not fault.because), fault.name
        assert [
            bool(fault.steps),
            bool(fault.config),
            bool(fault.labels),
            bool(fault.program),
            bool(fault.inputs),
        ].count(True) == 1


@pytest.mark.parametrize("layout", LAYOUTS)
def test_memory_holds_what_the_written_folder_holds(layout, tmp_path):
    sound = open_checkpoint(write_sound(tmp_path, "roberta", HEAD, layout))
    names = (
        "query and key swapped",
        "positions shifted by 1",
        "another number of heads",
        "another pad id, from which positions are counted",
    )
    found, _ = faults_in(sound, names)
    assert len(found) == (3 if layout == "keras" else 4)
    for fault, faulty in found:
        back = open_checkpoint(write_faulty(faulty, tmp_path / fault.name))
        assert back.facts == faulty.facts
        ours, theirs = faulty.checkpoint.logical(), back.logical()
        assert ours.keys() == theirs.keys()
        assert all(equal_bits(ours[name].read(), theirs[name].read()) for name in ours)


@pytest.mark.parametrize(("family", "task", "layout"), PAIRS, ids=["-".join(pair) for pair in PAIRS])
def test_exactly_the_proofs_that_can_see_a_fault_see_it(family, task, layout, tmp_path):
    sound = open_checkpoint(write_sound(tmp_path, family, task, layout))
    found, inputs = faults_in(sound)
    wrong = {}
    for fault, faulty in found:
        folder = write_faulty(faulty, tmp_path / fault.name.replace("/", " "))
        verdict = verify(sound, folder, runtime="reference", inputs=inputs)
        seen_by = {proof for proof, result in verdict.results.items() if result == "fail"}
        if seen_by != fault.seen_by or verdict.errors:
            wrong[fault.name] = (seen_by, verdict.errors)
    assert len(found) > 60
    assert wrong == {}


def test_every_fault_can_be_put_somewhere(tmp_path):
    put = set()
    for family, task, layout in (p for p in PAIRS if p[2] == "hf" or p[1] == "masked_lm"):
        sound = open_checkpoint(write_sound(tmp_path / family / task / layout, family, task, layout))
        inputs = short_inputs(sound.facts, sound.facts)
        put |= {fault.name for fault in load_faults() if inject(fault, sound, inputs) is not None}
    assert put == {*NAMES}


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_dtypes(dtype, tmp_path):
    facts = facts_for("bert", HEAD)
    sound = open_checkpoint(write_hf(tmp_path / "a", saved_state(facts, dtype=dtype), config_for("bert", facts)))
    result = run_self_test(sound, sound)
    assert result.wrong == ()
    assert ("every tensor rounded to F16" in result.left_out) == (dtype is np.float16)


# ---------------------------------------------------------------- what could make it pass for nothing


def test_a_fault_that_changes_nothing_is_left_out(tmp_path):
    facts, name = facts_for("bert", "model"), "encoder.layer.0.attention.self.query.weight"
    state = saved_state(facts)
    symmetric = write_hf(tmp_path / "a", state | {name: state[name] + state[name].T}, config_for("bert", facts))
    sound = open_checkpoint(symmetric)
    result = run_self_test(sound, sound)
    assert "attention.query matrix transposed" in result.left_out
    assert "MLP: each matrix is the other one transposed" not in result.left_out
    assert result.holds


def test_a_wrong_expectation_is_found(tmp_path):
    sound = open_checkpoint(write_sound(tmp_path, "bert", "model", "hf"))
    faults = {fault.name: fault for fault in load_faults()}
    hidden = replace(faults["query and key swapped"], seen_by=frozenset({"tensors"}))
    claimed = replace(faults["key bias lost"], seen_by=frozenset({"tensors", "forward"}))
    result = run_self_test(sound, sound, (hidden, claimed, faults["another epsilon"]))
    assert [finding.name for finding in result.wrong] == ["query and key swapped", "key bias lost"]
    assert result.exit_code == 1
    assert result.summary == "portkit verify --self-test: FAIL faults=1/3 tensors=2/2 facts=1/1 forward=1/2"


def test_a_blind_proof_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr("portkit.proofs.agreement.LIMIT", 1e9)
    sound = open_checkpoint(write_sound(tmp_path, "bert", "model", "hf"))
    result = run_self_test(sound, sound)
    assert {f.name for f in result.wrong} == {f.name for f in result.findings if "forward" in f.expected}


def test_a_pair_that_differs_as_it_is_tests_nothing(tmp_path):
    sound = open_checkpoint(write_sound(tmp_path, "bert", "model", "hf"))
    inputs = short_inputs(sound.facts, sound.facts)
    (fault,) = (f for f in load_faults() if f.name == "another epsilon")
    result = run_self_test(sound, inject(fault, sound, inputs).checkpoint)
    assert (result.findings, result.exit_code) == ((), 1)
    assert result.sound.seen_by == {"facts", "forward"}


def test_the_forward_proof_says_which_queries_it_cannot_see(tmp_path):
    """Deep in a random model all tokens are alike, so that a swapped query changes nothing: the coverage says so."""
    facts = facts_for("bert", "model", num_hidden_layers=12)
    sound = open_checkpoint(write_hf(tmp_path / "a", saved_state(facts, seed=3), config_for("bert", facts)))
    lost = next(fault for fault in load_faults() if fault.name == "attention.query matrix times 1.01")
    deep = replace(lost, steps=(replace(lost.steps[0], at="layer.{last}.attention.query.kernel"),))
    result = run_self_test(sound, sound, (lost, deep))
    assert [finding.right for finding in result.findings] == [True, False]
    coverage = verify(sound, sound, proofs=("forward",), runtime="reference").forward.coverage
    seen, there = coverage.heads
    assert 6 <= seen < there == 36
    assert (
        f"query and key of {there - seen} of the heads, which look at one token only or at all alike"
        in coverage.bits_alone
    )


# ---------------------------------------------------------------- the frameworks themselves


@pytest.mark.hf
def test_transformers_shows_the_same(tmp_path):
    in_frameworks(tmp_path, "hf", TELLING)


@pytest.mark.burn
@pytest.mark.skipif(not burn_available(), reason="portkit-burn is not installed")
def test_burn_shows_the_same(tmp_path):
    in_frameworks(tmp_path, "burn", TELLING)


@pytest.mark.keras
@pytest.mark.skipif(not keras_available(), reason="KerasHub is not installed")
def test_keras_shows_the_same(tmp_path):
    in_frameworks(tmp_path, "keras", ("query and key swapped", "key bias lost"))


def in_frameworks(tmp_path, layout, names):
    """The reference for the sound side, the framework itself for the faulty one."""
    sound = open_checkpoint(write_sound(tmp_path, "bert", HEAD, layout))
    found, inputs = faults_in(sound, names)
    assert len(found) == len(names)
    for fault, faulty in found:
        folder = write_faulty(faulty, tmp_path / fault.name)
        verdict = verify(sound, folder, runtime=("reference", "own"), inputs=inputs)
        seen_by = {proof for proof, result in verdict.results.items() if result == "fail"}
        assert (fault.name, seen_by, dict(verdict.errors)) == (fault.name, {*fault.seen_by}, {})
