"""`portkit verify --self-test`: the matrix, the line for a machine, JSON, exit codes."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from hf_folders import small_model

import portkit
import portkit.api
from portkit.cli import main
from portkit.errors import RefusedError

TASK = "sequence_classification"


def run(*words, code=0):
    result = CliRunner().invoke(main, ["verify", *map(str, words)])
    assert result.exit_code == code, (result.output, result.exception)
    return result.stdout or result.stderr


@pytest.fixture
def source(tmp_path):
    return small_model(tmp_path / "a", "bert", TASK)


def test_matrix(source):
    lines = run("--self-test", source).splitlines()
    rows = {line[:72].rstrip(): line[72:].split() for line in lines}
    assert rows["no fault"] == ["-", "-", "-", "1"]
    assert rows["query and key swapped"][:3] == ["seen", "-", "seen"]
    assert rows["key bias lost"][:3] == ["seen", "-", "-"]
    assert rows["another epsilon"][:3] == ["-", "seen", "seen"]
    assert rows["program: attends to padding"][:3] == ["-", "-", "seen"]
    assert float(rows["another epsilon"][3]) > 80
    assert "masked_lm.transform bias lost" in next(line for line in lines if line.startswith("left out"))
    assert lines[-1] == "portkit verify --self-test: PASS faults=86/86 tensors=76/76 facts=4/4 forward=81/81"


def test_pair_of_two_layouts_as_json(source, tmp_path):
    portkit.convert(source, tmp_path / "b", to="burn", verify="none")
    said = json.loads(run("--self-test", source, tmp_path / "b", "--json"))
    assert said["holds"] is True
    assert said["sound"]["seen_by"] == []
    assert len(said["faults"]) > 80
    (key,) = (f for f in said["faults"] if f["fault"] == "key bias lost")
    assert (key["seen_by"], key["expected"], key["right"]) == (["tensors"], ["tensors"], True)
    assert "softmax" in key["because"]


def test_missed_fault_is_marked(source, monkeypatch):
    monkeypatch.setattr("portkit.proofs.agreement.LIMIT", 500.0)
    text = run("--self-test", source, code=1)
    (line,) = (line for line in text.splitlines() if line.startswith("another epsilon"))
    assert line.split()[2:5] == ["-", "seen", "MISSED"]
    assert "portkit verify --self-test: FAIL faults=84/86" in text


def test_pair_that_differs_says_what_to_do(source, tmp_path):
    other = small_model(tmp_path / "b", "bert", TASK, layer_norm_eps=1e-5)
    text = run("--self-test", source, other, code=1)
    assert "a proof objects to the pair as it is" in text
    assert "give one folder, which is then proved against itself" in text
    assert text.splitlines()[-1].startswith("portkit verify --self-test: FAIL faults=0/0")


@pytest.mark.parametrize(
    "option", [("--device", "cuda"), ("--runtime", "own"), ("--proofs", "facts"), ("--junit", "x")]
)
def test_options_of_no_use_are_refused(source, option):
    assert f"{option[0]}: is of no use with --self-test" in run("--self-test", source, *option, code=2)


def test_without_a_target_there_is_nothing_to_verify(source):
    assert "TARGET: is missing" in run(source, code=2)


def test_two_folders_are_needed_without_it(tmp_path):
    result = CliRunner().invoke(main, ["verify", str(tmp_path)])
    assert result.exit_code == 2
    assert "nothing to compare with" in result.output


def test_sentences_too_short_to_show_attention(tmp_path):
    source = small_model(tmp_path / "a", "roberta", "model", max_position_embeddings=5)
    with pytest.raises(
        RefusedError, match=r"the self-test needs longer sentences(.|\n)*too short to show what attention does"
    ) as error:
        portkit.api.self_test(source)
    assert "expected 4 tokens or more" in str(error.value)
    longer = small_model(tmp_path / "b", "roberta", "model", max_position_embeddings=6)
    assert portkit.api.self_test(longer).holds
