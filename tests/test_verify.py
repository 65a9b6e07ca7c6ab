"""Two existing folders and the three proofs between them, through the library."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from hf_folders import config_for, facts_for, saved_state, small_model, write_hf
from safetensors.numpy import save_file

import portkit
from portkit.api import verify
from portkit.checkpoint import open_checkpoint
from portkit.errors import MissingRuntimeError, RuntimeFailedError, UnreadableError, UsageError
from portkit.proofs import frameworks
from portkit.runtimes import burn_runtime

TASK = "sequence_classification"
QUERY = "bert.encoder.layer.1.attention.self.query.weight"
KEY_BIAS = "bert.encoder.layer.1.attention.self.key.bias"


@pytest.fixture
def source(tmp_path):
    return small_model(tmp_path / "a", "bert", TASK)


def changed(tmp_path, state=None, **config):
    """A folder like the source's, but for some tensors or config fields."""
    facts = facts_for("bert", TASK)
    return write_hf(tmp_path / "b", saved_state(facts) | (state or {}), config_for("bert", facts, **config))


def by_reference(source, target, **options):
    return verify(source, target, runtime="reference", **options)


# ---------------------------------------------------------------- folders of the same function


@pytest.mark.hf
@pytest.mark.parametrize("to", ["hf", "burn"])
@pytest.mark.parametrize(("family", "task"), [("bert", "masked_lm"), ("roberta", TASK), ("bert", "model")])
def test_converted_folder_is_proved_in_both_directions(to, family, task, tmp_path):
    source = small_model(tmp_path / "a", family, task)
    portkit.convert(source, tmp_path / "b", to=to, verify="none")
    for ours, theirs in ((source, tmp_path / "b"), (tmp_path / "b", source)):
        verdict = verify(ours, theirs)
        assert verdict.holds
        assert verdict.exit_code == 0
        assert verdict.summary.startswith("portkit verify: PASS tensors=pass facts=pass forward=pass")


@pytest.mark.hf
@pytest.mark.parametrize("swap", [False, True])
def test_bert_and_roberta_style_of_one_function(swap, tmp_path):
    source = small_model(tmp_path / "a", "bert", TASK)
    portkit.convert(source, tmp_path / "b", to="hf", head_style="roberta", verify="none")
    verdict = verify(*((tmp_path / "b", source) if swap else (source, tmp_path / "b")))
    assert verdict.holds
    assert verdict.tensors.compared == 57
    assert verdict.forward.dropped == ("pooled_output",)
    assert [a.output for a in verdict.forward.agreements][-1] == "logits"


@pytest.mark.parametrize("swap", [False, True])
def test_extra_pooler(swap, tmp_path):
    facts = facts_for("bert", "model")
    state, config = saved_state(facts), config_for("bert", facts)
    bare = {name: array for name, array in state.items() if not name.startswith("pooler.")}
    folders = [write_hf(tmp_path / "a", state, config), write_hf(tmp_path / "b", bare, config)]
    verdict = by_reference(*(folders[::-1] if swap else folders))
    assert verdict.holds
    assert set(verdict.tensors.rest) == {"pooler.kernel", "pooler.bias"}
    assert verdict.forward.dropped == ("pooled_output",)


def test_padded_position_rows(tmp_path):
    facts = facts_for("bert", "model")
    state, name = saved_state(facts), "embeddings.position_embeddings.weight"
    longer = np.concatenate([state[name], np.zeros((5, 24), np.float32)])
    a = write_hf(tmp_path / "a", state, config_for("bert", facts))
    b = write_hf(tmp_path / "b", state | {name: longer}, config_for("bert", facts, max_position_embeddings=42))
    verdict = by_reference(a, b)
    assert verdict.holds
    assert list(verdict.tensors.rest) == ["embeddings.position.table rows 37:42 (target)"]
    assert verdict.forward.coverage.lengths[0] == 37
    assert by_reference(b, a).results == {"tensors": "fail", "facts": "fail", "forward": "pass"}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_cast_folder(dtype, source, tmp_path):
    portkit.convert(source, tmp_path / "b", to="hf", dtype=dtype, verify="none")
    verdict = by_reference(source, tmp_path / "b")
    assert verdict.holds
    assert by_reference(tmp_path / "b", source).results["tensors"] == "fail"


# ---------------------------------------------------------------- each proof sees what only it can


@pytest.mark.parametrize(
    ("state", "config", "failing"),
    [
        ({KEY_BIAS: np.zeros(24, np.float32)}, {}, {"tensors"}),
        ({QUERY: np.zeros((24, 24), np.float32)}, {}, {"tensors", "forward"}),
        ({}, {"num_attention_heads": 4}, {"facts", "forward"}),
        ({}, {"layer_norm_eps": 1e-5}, {"facts", "forward"}),
        ({}, {"id2label": {str(i): name for i, name in enumerate("abcde")}}, set()),
        ({}, {"hidden_dropout_prob": 0.9}, set()),
    ],
    ids=["key bias", "query", "heads", "epsilon", "labels named", "dropout"],
)
def test_faults_fail_the_proofs_that_can_see_them(state, config, failing, source, tmp_path):
    verdict = by_reference(source, changed(tmp_path, state, **config))
    assert {name for name, result in verdict.results.items() if result == "fail"} == failing
    assert verdict.exit_code == (1 if failing else 0)


def test_swapped_labels_are_seen_by_the_facts_alone(tmp_path):
    names = [{"id2label": {str(i): n for i, n in enumerate(order)}} for order in ("abcde", "bacde")]
    facts = facts_for("bert", TASK)
    a, b = (
        write_hf(tmp_path / str(i), saved_state(facts), config_for("bert", facts, **n)) for i, n in enumerate(names)
    )
    assert by_reference(a, b).results == {"tensors": "pass", "facts": "fail", "forward": "pass"}


def test_other_task_fails_everywhere(tmp_path):
    a, b = small_model(tmp_path / "a", "bert", "masked_lm"), small_model(tmp_path / "b", "bert", "token_classification")
    verdict = by_reference(a, b)
    assert set(verdict.results.values()) == {"fail"}
    assert "the target gives another output" in str(verdict.forward.problems[0])


# ---------------------------------------------------------------- what was asked for, and what could be done


def test_skipped_proofs_are_named_and_never_passed(source, tmp_path):
    verdict = verify(source, changed(tmp_path), proofs=("tensors",))
    assert verdict.summary == "portkit verify: PASS tensors=pass facts=skipped forward=skipped"
    assert (verdict.facts, verdict.forward) == (None, None)
    assert verdict.holds


def test_proof_that_cannot_look_is_an_error_beside_the_others(source, tmp_path, monkeypatch):
    def failing(*_given, **_options):
        raise RuntimeFailedError("Burn failed to run the model")

    monkeypatch.setattr(frameworks, "run_burn", failing)
    portkit.convert(source, tmp_path / "b", to="burn", verify="none")
    verdict = verify(source, tmp_path / "b")
    assert verdict.results == {"tensors": "pass", "facts": "pass", "forward": "error"}
    assert not verdict.holds
    assert (verdict.exit_code, verdict.verdict) == (3, "error")
    assert str(verdict.errors["forward"]) == "Burn failed to run the model"


def test_failure_outweighs_an_error(source, tmp_path, monkeypatch):
    def failing(*_given, **_options):
        raise RuntimeFailedError("BertForSequenceClassification failed on cpu")

    monkeypatch.setattr(frameworks, "run_transformers_tensors", failing)
    verdict = verify(source, changed(tmp_path, layer_norm_eps=1e-5))
    assert verdict.results == {"tensors": "pass", "facts": "fail", "forward": "error"}
    assert (verdict.exit_code, verdict.verdict) == (1, "fail")


@pytest.mark.parametrize("proofs", [(), ("tensor",), ("tensors", "everything")])
def test_unknown_proofs_and_none_are_refused(proofs, source, tmp_path):
    with pytest.raises(UsageError, match=r"no such proof[\s\S]*(none is asked for|there is none)"):
        verify(source, changed(tmp_path), proofs=proofs)


@pytest.mark.parametrize("options", [{"runtime": "quick"}, {"precision": "float8"}, {"runtime": ("auto", "quick")}])
def test_unknown_ways_to_run_are_refused(options, source, tmp_path):
    with pytest.raises(UsageError, match="unknown choice"):
        verify(source, changed(tmp_path), **options)


def test_folder_that_cannot_be_opened_is_raised(source, tmp_path):
    with pytest.raises(UnreadableError, match="no such file or folder"):
        verify(source, tmp_path / "nowhere")


# ---------------------------------------------------------------- runtimes


def test_reference_in_place_of_both_frameworks_is_said(source, tmp_path):
    portkit.convert(source, tmp_path / "b", to="burn", verify="none")
    verdict = verify(source, tmp_path / "b", runtime="reference", proofs=("forward",))
    line = "portkit verify: PASS tensors=skipped facts=skipped forward=pass"
    assert verdict.summary == f"{line} (reference, not transformers; reference, not Burn)"


def test_missing_framework_is_replaced_unless_it_must_run(source, tmp_path, monkeypatch):
    def missing(*_given, **_options):
        raise MissingRuntimeError("cannot run the model in Burn")

    monkeypatch.setattr(frameworks, "run_burn", missing)
    portkit.convert(source, tmp_path / "b", to="burn", verify="none")
    replaced = verify(source, tmp_path / "b", proofs=("forward",), runtime=("reference", "auto"))
    assert replaced.forward.target.runtime == "reference, not Burn"
    strict = verify(source, tmp_path / "b", proofs=("forward",), runtime=("reference", "own"))
    assert strict.results["forward"] == "error"


@pytest.mark.burn
@pytest.mark.skipif(not burn_runtime.burn_available(), reason="portkit-burn is not installed")
def test_two_burn_folders_run_in_burn(source, tmp_path):
    portkit.convert(source, tmp_path / "b", to="burn", verify="none")
    portkit.convert(source, tmp_path / "c", to="burn", form="safetensors", verify="none")
    verdict = verify(tmp_path / "b", tmp_path / "c", runtime="own")
    assert verdict.holds
    assert [run.runtime for run in verdict.forward.runs] == ["Burn", "Burn"]


@pytest.mark.hf
@pytest.mark.parametrize("precision", ["float16", "bfloat16", "float64"])
def test_precision_is_what_each_side_can_compute_in(precision, source, tmp_path):
    portkit.convert(source, tmp_path / "b", to="burn", verify="none")
    verdict = verify(source, tmp_path / "b", precision=precision, proofs=("forward",))
    assert verdict.holds
    assert [run.dtype for run in verdict.forward.runs] == [precision, "float32"]


# ---------------------------------------------------------------- inputs


def test_inputs_of_ones_own(source, tmp_path):
    save_file({"input_ids": np.array([[3, 4, 5]])}, tmp_path / "in.safetensors")
    verdict = by_reference(source, changed(tmp_path), inputs=tmp_path / "in.safetensors")
    coverage = verdict.forward.coverage
    assert (coverage.lengths, coverage.vocabulary, coverage.positions) == ((3,), (3, 61), (3, 37))
    assert "34 position rows never read" in coverage.bits_alone
    assert "1 token-type row never read" in coverage.bits_alone


def test_inputs_must_fit_both(source, tmp_path):
    save_file({"input_ids": np.array([[3, 61]])}, tmp_path / "in.safetensors")
    with pytest.raises(UsageError, match="an id without a row in the source's table"):
        by_reference(source, changed(tmp_path), inputs=tmp_path / "in.safetensors")


def test_inputs_and_text_together_are_refused(source, tmp_path):
    with pytest.raises(UsageError, match=r"cannot take both(.|\n)*each is the whole batch"):
        by_reference(source, changed(tmp_path), inputs=tmp_path / "in", text=tmp_path / "text")


def test_heads_that_attend_to_one_token_only_are_not_counted(tmp_path):
    """With queries a hundred times too large every softmax is one-hot: the proof says how little it then shows."""
    facts = facts_for("bert", "model")
    state = saved_state(facts)
    loud = {name: array * 1e6 if ".query." in name else array for name, array in state.items()}
    folder = write_hf(tmp_path / "a", loud, config_for("bert", facts))
    quiet = write_hf(tmp_path / "b", state, config_for("bert", facts))
    assert by_reference(quiet, quiet).forward.coverage.heads == (9, 9)
    seen = by_reference(folder, folder).forward.coverage
    assert seen.heads[0] < 9
    assert any(text.startswith("query and key of ") for text in seen.bits_alone)


# ---------------------------------------------------------------- the object


def test_opened_checkpoints_are_taken_as_they_are(source, tmp_path):
    a, b = open_checkpoint(source), open_checkpoint(changed(tmp_path))
    verdict = by_reference(a, b)
    assert verdict.source is a
    assert verdict.target is b
    assert verdict.holds


def test_how_to_open_each_side(tmp_path):
    facts = facts_for("bert", "model")
    config = config_for("bert", facts, model_type=None, architectures=None, type_vocab_size=2, pad_token_id=None)
    a = write_hf(tmp_path / "a", saved_state(facts), config)
    with pytest.raises(portkit.PortkitError):
        by_reference(a, a, open_target={"family": "nothing"})
    verdict = by_reference(a, a, open_source={"family": "bert"}, open_target={"family": "bert"}, proofs=("tensors",))
    assert verdict.holds


def test_verification_is_frozen(source):
    verdict = by_reference(source, source, proofs=("facts",))
    with pytest.raises(FrozenInstanceError):
        verdict.facts = None


def test_as_json(source, tmp_path):
    found = json.loads(json.dumps(by_reference(source, changed(tmp_path)).as_dict(), allow_nan=False))
    assert found["verdict"] == "pass"
    assert found["results"] == {"tensors": "pass", "facts": "pass", "forward": "pass"}
    assert set(found["proofs"]) == {"tensors", "facts", "forward"}
    assert found["source"]["layout"] == "hf"
    assert found["proofs"]["forward"]["coverage"]["heads"] == [9, 9]
    assert found["proofs"]["forward"]["target"]["stood_in"] is True
