"""The GitHub action: its steps run in bash here as a runner would run them, with names that no shell may read."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from action_runner import ACTION, EXPRESSION, INSTALL, ROOT, STEPS, Runner
from hf_folders import config_for, facts_for, saved_state, small_model, write_hf

import portkit

ODD = "-a $(touch pwned) `touch pwned`; touch pwned #\"'"  # a name that would do something in a shell's text


@pytest.fixture
def runner(tmp_path):
    runner = Runner(tmp_path)
    yield runner
    assert not list(tmp_path.rglob("pwned"))


@pytest.fixture
def source(runner):
    return small_model(runner.workspace / ODD).name


def broken(folder: Path) -> None:
    facts = facts_for("bert", "model")
    state = saved_state(facts)
    name = "encoder.layer.1.attention.self.query.weight"
    write_hf(folder, state | {name: state[name].T}, config_for("bert", facts))


def results(xml: str) -> dict[str, str]:
    return {case.get("name"): case[0].tag if len(case) else "pass" for case in ET.fromstring(xml).iter("testcase")}


def test_an_equal_pair_passes(runner, source):
    small_model(runner.workspace / "$(touch pwned)")
    words = {"source": source, "target": "$(touch pwned)", "arguments": "--runtime\nreference\n"}
    assert runner.run(command="verify", **words) == 0, runner.said
    assert runner.outputs["run"]["exit-code"] == "0"
    assert "\n    portkit verify: PASS tensors=pass facts=pass forward=pass" in runner.summary.read_text(
        encoding="utf-8"
    )
    assert set(results(runner.report("junit.xml")).values()) == {"pass"}
    assert "equal" in runner.report("diff.html")


def test_a_difference_fails_and_is_reported(runner, source):
    broken(runner.workspace / "b b")
    assert runner.run(command="verify", source=source, target="b b", arguments="--proofs\ntensors") == 1
    assert "### portkit verify: exit code 1\n\n    portkit verify: FAIL tensors=fail" in runner.summary.read_text()
    assert results(runner.report("junit.xml"))["tensors"] == "failure"
    assert "layer.1.attention.query.kernel" in runner.report("diff.html")
    assert "layer.1.attention.query.kernel: transposed" in runner.said


def test_what_cannot_be_read_fails(runner, source):
    assert runner.run(command="verify", source=source, target="nowhere") == 3
    assert "exit code 3\n\n    portkit: cannot read the checkpoint (1 problem)" in runner.summary.read_text()
    assert results(runner.report("junit.xml")) == {"open": "error"}


def test_a_conversion_is_made_and_reported(runner, source):
    (runner.workspace / source / "config.json").rename(runner.workspace / "$(touch pwned) *")
    arguments = "--verify\ntensors\n\n--config\n$(touch pwned) *\n"
    page = "--a-config\n$(touch pwned) *"
    words = {"to": "burn", "arguments": arguments, "html-arguments": page}
    assert runner.run(command="convert", source=source, target="-o", **words) == 0, runner.said
    assert (runner.workspace / "-o" / "model.bpk").is_file()
    assert "\n    wrote -o (proved: tensors)" in runner.summary.read_text(encoding="utf-8")
    assert results(runner.report("junit.xml")) == {"tensors": "pass", "facts": "skipped", "forward": "skipped"}
    assert "equal" in runner.report("diff.html")


def test_a_conversion_that_is_refused_fails(runner, source):
    words = {"to": "hf", "arguments": "--pooler\nrequire"}
    masked = small_model(runner.workspace / "masked", "bert", "masked_lm").name
    assert runner.run(command="convert", source=masked, target="out", **words) == 3
    assert not (runner.workspace / "out").exists()
    assert "exit code 3\n\n    portkit: " in runner.summary.read_text(encoding="utf-8")


@pytest.mark.parametrize(("other", "code"), [(small_model, 0), (broken, 1)])
def test_two_are_compared(runner, source, other, code):
    other(runner.workspace / "b")
    assert runner.run(command="diff", source=source, target="b") == code
    assert f"### portkit diff: exit code {code}\n" in runner.summary.read_text(encoding="utf-8")
    assert "<html" in runner.report("diff.html")


@pytest.mark.parametrize(("other", "code"), [(small_model, 0), (broken, 1)])
def test_a_golden_is_checked(runner, source, other, code):
    golden = f"{ODD}.json"
    portkit.golden_record(runner.workspace / source, runner.workspace / golden)
    other(runner.workspace / "b")
    assert runner.run(command="golden", source=golden, target="b") == code, runner.said
    assert "reproduced, at most" in runner.said if code == 0 else "NOT reproduced, parts at" in runner.said
    assert f"### portkit golden: exit code {code}\n\n    compared " in runner.summary.read_text(encoding="utf-8")
    assert sorted(p.name for p in Path(runner.outputs["run"]["reports"]).iterdir()) == ["errors.txt", "report.txt"]


def test_the_page_is_left_out_on_request(runner, source):
    small_model(runner.workspace / "b")
    words = {"html": "false", "arguments": "--proofs\nfacts"}
    assert runner.run(command="verify", source=source, target="b", **words) == 0
    assert sorted(p.name for p in Path(runner.outputs["run"]["reports"]).iterdir()) == [
        "errors.txt",
        "junit.xml",
        "report.txt",
    ]


def test_a_page_that_cannot_be_made_is_a_warning(runner, source):
    small_model(runner.workspace / "b")
    words = {"arguments": "--proofs\nfacts", "html-arguments": "--a-task\nmasked_lm"}
    assert runner.run(command="verify", source=source, target="b", **words) == 0
    assert "::warning::portkit: no page was made, see diff.txt in the artifact" in runner.said
    assert runner.report("diff.txt").startswith("portkit: ")


@pytest.mark.parametrize("command", ["inspect", "", "verify; touch pwned", "$(touch pwned)", "--help"])
def test_no_other_command_is_run(runner, source, command):
    assert runner.run(command=command, source=source, target="b") == 2
    assert "::error::portkit: the command is convert, verify, diff or golden" in runner.said


def test_reports_give_the_runner_no_commands(runner, source):
    small_model(runner.workspace / "::add-mask::x")
    assert runner.run(command="diff", source=source, target="::add-mask::x") == 0
    token = re.search(r"^::stop-commands::(\w{12})$", runner.said, re.MULTILINE)[1]
    before, between, after = re.split(rf"^::.*{token}(?:::)?$", runner.said, flags=re.MULTILINE)
    assert "::add-mask::x" in between
    assert not (before + after).strip()


@pytest.fixture
def install(runner):
    """Runs the step that installs, with a `python` that writes down its words and makes the folder it is asked for."""
    shims = runner.temp / "shims"
    shims.mkdir()
    words = runner.temp / "words"
    code = f'printf "%s\\n" "$@" >> "{words}"; if [ "$2" = venv ]; then mkdir -p "$3/bin"; cp "$0" "$3/bin/python"; fi'
    (shims / "python").write_text(f"#!/bin/bash\n{code}\n", encoding="utf-8")
    (shims / "python").chmod(0o755)
    (step,) = [step for step in STEPS if step.get("name") == INSTALL]

    def run(**inputs: str) -> tuple[int, list[str]]:
        path = f"{shims}{os.pathsep}{os.environ['PATH']}"
        result = runner.step(step, {"extras": "hf", "burn": "false", **inputs}, PATH=path)
        return result, words.read_text(encoding="utf-8").splitlines() if words.exists() else []

    return run


@pytest.mark.parametrize(("extras", "end"), [("", ""), ("hf", "[hf]"), ("hf,keras", "[hf,keras]")])
def test_portkit_is_installed_from_the_action(runner, install, extras, end):
    quiet = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    there = ["-m", "venv", str(runner.temp / "portkit")]
    assert install(extras=extras) == (0, [*there, *quiet, f"{ROOT}{end}"])
    assert install(extras=extras, burn="true")[1][-1] == f"{ROOT}/burn"


@pytest.mark.parametrize("extras", ["hf] --index-url=x [", "$(touch pwned)", "hf keras", "../x"])
def test_other_extras_are_refused(install, extras):
    assert install(extras=extras) == (2, [])


def test_extras_and_their_default_are_those_of_the_project():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert {"hf", "keras"} <= set(extras)
    assert ACTION["inputs"]["extras"]["default"] in extras


def test_nothing_from_outside_is_the_text_of_a_script():
    scripts = [step["run"] for step in STEPS if "run" in step]
    assert len(scripts) == 5
    assert not [script for script in scripts if "${{" in script]
    assert {step["shell"] for step in STEPS if "run" in step} == {"bash"}
    values = [value for step in STEPS for value in (*step.get("env", {}).values(), *step.get("with", {}).values())]
    assert values
    assert not [value for value in values if not EXPRESSION.fullmatch(value)]


def test_every_input_is_read_and_explained():
    text = (ROOT / "action.yml").read_text(encoding="utf-8")
    assert set(re.findall(r"\$\{\{ inputs\.([\w-]+) \}\}", text)) == set(ACTION["inputs"])
    assert all(spec["description"] for spec in (*ACTION["inputs"].values(), *ACTION["outputs"].values()))
    for step, name in re.findall(r"\$\{\{ steps\.(\w+)\.outputs\.([\w-]+) \}\}", text):
        (script,) = [s["run"] for s in STEPS if s.get("id") == step]
        assert f'"{name}=' in script


def test_other_actions_are_pinned():
    used = [step["uses"] for step in STEPS if "uses" in step]
    assert [name.partition("@")[0] for name in used] == ["actions/setup-python", "actions/upload-artifact"]
    assert all(re.fullmatch(r"[\w-]+/[\w-]+@(v\d+|[0-9a-f]{40})", name) for name in used)
