"""JUnit XML: a case for each proof and output, in the form that both common schemas allow."""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from click.testing import CliRunner
from hf_folders import config_for, facts_for, saved_state, small_model, write_hf
from junitparser import Error, Failure, JUnitXml, Skipped

from portkit.cli import main

TASK = "sequence_classification"
PROOFS = ["tensors", "facts", "forward"]
OUTPUTS = [*(f"hidden_states.{i}" for i in range(4)), "pooled_output", "logits"]
# What Ant's schema and that of Jenkins' xUnit plugin demand of each element: attributes, children in this order.
ATTRIBUTES = {
    "testsuites": set(),
    "testsuite": {
        "name", "package", "id", "hostname", "timestamp", "time", "tests", "failures", "errors", "skipped",
    },
    "testcase": {"classname", "name", "time"},
    "failure": {"message", "type"},
    "error": {"message", "type"},
    "skipped": {"message"},
    "properties": set(), "system-out": set(), "system-err": set(),
}  # fmt: skip


def report(tmp_path, *words, code):
    path = tmp_path / "reports" / "proofs.xml"
    result = CliRunner().invoke(main, ["verify", *map(str, words), "--junit", str(path)])
    assert result.exit_code == code, result.output
    check_form(path)
    (suite,) = JUnitXml.fromfile(str(path))
    return suite


def check_form(path):
    root = ET.parse(path).getroot()
    (suite,) = root
    assert (root.tag, suite.tag) == ("testsuites", "testsuite")
    kinds = [child.tag for child in suite]
    cases = kinds.count("testcase")
    assert kinds == ["properties", *["testcase"] * cases, "system-out", "system-err"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", suite.get("timestamp"))
    for element in root.iter():
        assert set(element.attrib) == ATTRIBUTES[element.tag]
        assert element.tag != "testcase" or len(element) <= 1
    counts = {"failures": "failure", "errors": "error", "skipped": "skipped"}
    assert suite.get("tests") == str(cases)
    for name, tag in counts.items():
        assert suite.get(name) == str(len(list(suite.iter(tag))))


def results(suite):
    kinds = {Failure: "fail", Error: "error", Skipped: "skipped"}
    return {case.name: kinds[type(case.result[0])] if case.result else "pass" for case in suite}


@pytest.fixture
def source(tmp_path):
    return small_model(tmp_path / "a", "bert", TASK)


def test_every_proof_and_output_is_a_case(source, tmp_path):
    suite = report(tmp_path, source, source, "--runtime", "reference", code=0)
    assert results(suite) == dict.fromkeys([*PROOFS, *OUTPUTS], "pass")
    assert {case.classname for case in suite} == {"portkit.verify", "portkit.proofs.forward"}


def test_failures_carry_the_report(source, tmp_path):
    facts = facts_for("bert", TASK)
    state = saved_state(facts)
    name = "bert.encoder.layer.1.attention.self.query.weight"
    broken = write_hf(tmp_path / "b", state | {name: state[name].T}, config_for("bert", facts))
    suite = report(tmp_path, source, broken, "--runtime", "reference", code=1)
    failed = [name for name, result in results(suite).items() if result == "fail"]
    assert failed == ["tensors", "forward", "hidden_states.2", "hidden_states.3", "pooled_output", "logits"]
    failures = {case.name: case.result[0] for case in suite if case.result}
    assert "1 differ (layer.1.attention.query.kernel)" in failures["tensors"].message
    assert "layer.1.attention.query.kernel: transposed" in failures["tensors"].text
    assert failures["hidden_states.2"].message.startswith("the output of layer 1: difference ")


def test_skipped_proofs_are_skipped(source, tmp_path):
    suite = report(tmp_path, source, source, "--proofs", "facts", code=0)
    assert results(suite) == {"tensors": "skipped", "facts": "pass", "forward": "skipped"}


def test_what_cannot_be_opened_is_an_error(source, tmp_path):
    suite = report(tmp_path, source, tmp_path / "nowhere", code=3)
    assert results(suite) == {"open": "error"}
    (case,) = suite
    assert "no such file or folder" in case.result[0].text


def test_proof_that_cannot_look_is_an_error(source, tmp_path, monkeypatch):
    from portkit.errors import RuntimeFailedError
    from portkit.proofs import frameworks

    def failing(*_given, **_options):
        raise RuntimeFailedError("BertModel failed on cpu")

    monkeypatch.setattr(frameworks, "run_transformers_tensors", failing)
    suite = report(tmp_path, source, source, code=3)
    assert results(suite) == {"tensors": "pass", "facts": "pass", "forward": "error"}


def test_names_from_strangers_files_are_escaped(tmp_path):
    facts = facts_for("bert", "model")
    odd = 'a<b>&"c\x07\x1b[31m.weight'
    state = saved_state(facts) | {f"encoder.{odd}": np.ones((2, 2), np.float32)}
    folder = write_hf(tmp_path / "a", state, config_for("bert", facts))
    suite = report(tmp_path, folder, folder, "--proofs", "tensors", code=1)
    text = next(case.result[0].text for case in suite if case.result)
    assert 'a<b>&"c\ufffd\ufffd[31m.weight' in text


def test_file_that_cannot_be_written_is_three(source, tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    words = ["verify", str(source), str(source), "--proofs", "facts", "--junit", str(tmp_path / "file" / "x.xml")]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 3
    assert "the JUnit file was not written" in result.stderr


def converted(source, tmp_path, *words, code):
    path = tmp_path / "converted.xml"
    command = ["convert", str(source), str(tmp_path / "out"), "--to", "hf", "--junit", str(path), *words]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == code, result.output
    check_form(path)
    (suite,) = JUnitXml.fromfile(str(path))
    return results(suite)


def test_a_conversion_writes_its_proofs(source, tmp_path):
    assert converted(source, tmp_path, code=0) == dict.fromkeys([*PROOFS, *OUTPUTS], "pass")


def test_a_conversion_whose_proof_fails_writes_which(source, tmp_path, monkeypatch):
    from portkit import execute

    def moved(plan, step, seen, original=execute._moved):
        return original(plan, step, seen) + (step.logical == "layer.1.mlp.up.bias")

    monkeypatch.setattr(execute, "_moved", moved)
    assert converted(source, tmp_path, "--verify", "tensors", code=1)["tensors"] == "fail"
    assert not (tmp_path / "out").exists()


def test_a_conversion_that_is_refused_is_an_error(tmp_path):
    assert converted(tmp_path / "nowhere", tmp_path, code=3) == {"open": "error"}


def test_a_conversion_without_proofs_skips_them(source, tmp_path):
    assert converted(source, tmp_path, "--verify", "none", code=0) == dict.fromkeys(PROOFS, "skipped")
