"""`portkit verify`: what it prints, and its exit codes."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner
from hf_folders import config_for, facts_for, saved_state, small_model, write_hf

import portkit
from portkit.cli import main

TASK = "sequence_classification"


def run(*words, code=0):
    """What a command prints on stdout, or on stderr where it could not look."""
    result = CliRunner().invoke(main, ["verify", *map(str, words)])
    assert result.exit_code == code, (result.output, result.exception)
    return result.stderr if code == 2 or not result.stdout else result.stdout


@pytest.fixture
def pair(tmp_path):
    source = small_model(tmp_path / "a", "bert", TASK)
    portkit.convert(source, tmp_path / "b", to="hf", verify="none")
    return source, tmp_path / "b"


@pytest.fixture
def broken(tmp_path, pair):
    facts = facts_for("bert", TASK)
    state = saved_state(facts)
    name = "bert.encoder.layer.1.attention.self.query.weight"
    return write_hf(tmp_path / "c", state | {name: state[name].T}, config_for("bert", facts, layer_norm_eps=1e-5))


def test_report_ends_with_the_line_for_a_machine(pair):
    text = run(*pair, "--runtime", "reference")
    lines = text.splitlines()
    assert lines[0] == f"source  {pair[0]}: hf (safetensors), bert, {TASK}"
    assert "proof tensors  compared 57 of 57 tensors: equal, bit for bit" in lines
    assert "proof facts    compared 21 facts: equal" in lines
    assert "  not seen     1 vocabulary row never read; " in text
    assert "certified by the tensor proof alone" in text
    assert lines[-1].startswith("portkit verify: PASS tensors=pass facts=pass forward=pass (reference, not ")


def test_failed_proofs_are_one_and_say_where(pair, broken):
    text = run(pair[0], broken, "--runtime", "reference", code=1)
    assert "  DIFFERS      layer.1.attention.query.kernel: transposed" in text
    assert "  DIFFERS      layer_norm_eps differs: 1e-12 in the source, 1e-05 in the target" in text
    assert "parts at hidden_states.0, the output of the embeddings" in text
    assert text.splitlines()[-1].startswith("portkit verify: FAIL tensors=fail facts=fail forward=fail")


def test_proofs_are_chosen_and_the_others_named(pair):
    text = run(*pair, "--proofs", "forward, facts", "--runtime", "reference")
    assert "certified by no proof that was made" in text
    assert "proof tensors  not made" in text
    assert "tensors=skipped facts=pass forward=pass" in text.splitlines()[-1]


def test_proof_that_could_not_look_is_three(pair, tmp_path, monkeypatch):
    from portkit.errors import RuntimeFailedError
    from portkit.proofs import frameworks

    def failing(*_given, **_options):
        raise RuntimeFailedError("BertModel failed on cpu")

    monkeypatch.setattr(frameworks, "run_transformers_tensors", failing)
    text = run(*pair, code=3)
    assert "proof forward  could not look: BertModel failed on cpu" in text
    assert text.splitlines()[-1] == "portkit verify: ERROR tensors=pass facts=pass forward=error"


def test_nothing_to_open_is_three(pair, tmp_path):
    assert run(pair[0], tmp_path / "nowhere", code=3).startswith("portkit: cannot read the checkpoint (1 problem)")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--proofs", "tensor"), "did you mean 'tensors'?"),
        (("--proofs", ","), "none is asked for"),
        (("--runtime", "fast"), "'fast' is not one of"),
        (("--precision", "int8"), "'int8' is not one of"),
        (("--what",), "No such option"),
    ],
)
def test_wrong_usage_is_two(words, said, pair):
    assert said in run(*pair, *words, code=2)


def test_inputs_that_do_not_fit_are_two(pair, tmp_path):
    (tmp_path / "in.json").write_text('{"input_ids": [[1, 99]]}', encoding="utf-8")
    text = run(*pair, "--inputs", tmp_path / "in.json", code=2)
    assert "input_ids row 0, token 1: an id without a row in the source's table" in text


def test_inputs_and_text_reach_the_proof(pair, tmp_path):
    (tmp_path / "in.json").write_text('{"input_ids": [[1, 9, 4], [7]]}', encoding="utf-8")
    text = run(*pair, "--inputs", tmp_path / "in.json", "--proofs", "forward", "--runtime", "reference")
    assert "inputs       2 rows of 3, 1 tokens: 4 of 61 vocabulary rows, 3 of 37 positions" in text
    (tmp_path / "text").write_text("hello\n", encoding="utf-8")
    assert "holds no tokenizer" in run(*pair, "--text", tmp_path / "text", code=3)


def test_json_is_one_object(pair, broken):
    good = json.loads(run(*pair, "--runtime", "reference", "--json"))
    assert (good["verdict"], good["results"]["forward"]) == ("pass", "pass")
    bad = json.loads(run(pair[0], broken, "--runtime", "reference", "--json", code=1))
    assert (good["exit_code"], bad["exit_code"]) == (0, 1)
    assert bad["summary"].startswith("portkit verify: FAIL tensors=fail facts=fail forward=fail")


def test_folder_that_failed_its_own_conversion_is_warned_of(pair, tmp_path, monkeypatch):
    from portkit import execute

    honest = execute.arrays
    monkeypatch.setattr(execute, "arrays", lambda *given: (np.flip(array) for array in honest(*given)))
    with pytest.raises(Exception, match="portkit verify: FAIL tensors=fail"):
        portkit.convert(pair[0], tmp_path / "kept", to="hf", verify="tensors", keep_failed=True)
    text = run(pair[0], tmp_path / "kept", "--proofs", "tensors", code=1)
    assert "warning portkit.json says that this folder failed its proof: do not rely on it (target)" in text


def test_mapping_and_task_are_passed_on(pair, tmp_path):
    table = tmp_path / "mine.toml"
    table.write_text('family = "mine"\nextends = "bert"\n[hf]\nmodel_type = "mine"\n', encoding="utf-8")
    words = ("--mapping", table, "--family", "mine", "--task", TASK, "--proofs", "tensors,facts")
    assert f"hf (safetensors), mine, {TASK}" in run(*pair, *words)
