"""docs/ci.md: every command in it is run, and its workflows are those of the action and the hooks."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
import yaml
from action_runner import ACTION, ROOT, Runner
from click.testing import CliRunner
from hf_folders import small_model

from portkit.cli import main

TEXT = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
SCRIPT, APART, GOLDEN = re.findall(r"^```sh\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
WORKFLOW, GITLAB, HOOKS = (
    yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
)


def bash(script: str, folder: Path) -> subprocess.CompletedProcess:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    words = ["bash", "--noprofile", "--norc", "-c", script]
    return subprocess.run(
        words, cwd=folder, env=os.environ | {"PATH": path}, capture_output=True, text=True, check=False
    )


@pytest.fixture
def model(tmp_path):
    return small_model(tmp_path / "model")


@pytest.fixture
def ported(model):
    words = ["convert", str(model), f"{model}-burn", "--to", "burn", "--verify", "none"]
    assert CliRunner().invoke(main, words).exit_code == 0
    return model


def test_the_script_ports_and_reports(ported):
    done = bash(SCRIPT, ported.parent)  # over what an earlier run wrote
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("portkit verify: PASS tensors=pass facts=pass forward=pass (reference, not ")
    reports = ported.parent / "reports"
    assert {p.name for p in reports.iterdir()} == {"convert.xml", "convert.txt", "verify.xml", "diff.html", "diff.txt"}
    assert ET.parse(reports / "verify.xml").getroot()[0].get("failures") == "0"


def test_the_script_stops_at_what_it_cannot_read(tmp_path):
    done = bash(SCRIPT, tmp_path)
    assert (done.returncode, done.stdout) == (3, "")
    assert ET.parse(tmp_path / "reports" / "convert.xml").getroot()[0].get("errors") == "1"


def test_exit_codes_are_taken_apart(ported):
    assert bash(APART, ported.parent).stdout == "the port is the model\n"
    (ported / "model.safetensors").unlink()
    assert bash(APART, ported.parent).returncode == 3
    small_model(ported, layer_norm_eps=1e-5)
    done = bash(APART, ported.parent)
    assert (done.returncode, done.stdout) == (0, "they differ, see verdict.json\n")


def test_a_golden_is_recorded_and_checked(ported):
    done = bash(f"set -e\n{GOLDEN}", ported.parent)
    assert done.returncode == 0, done.stderr
    assert "reproduced" in (ported.parent / "golden.txt").read_text(encoding="utf-8")


def test_the_workflow_ports_and_verifies(tmp_path):
    (job,) = WORKFLOW["jobs"].values()
    uses = [step["with"] for step in job["steps"] if "portkit" in step["uses"]]
    assert [inputs["command"] for inputs in uses] == ["convert", "verify"]
    assert len({inputs["artifact"] for inputs in uses}) == len(uses)
    required = {name for name, spec in ACTION["inputs"].items() if spec.get("required")}
    runner = Runner(tmp_path)
    small_model(runner.workspace / "model")
    for inputs in uses:
        assert required <= set(inputs) <= set(ACTION["inputs"])
        assert runner.run(**inputs) == 0, runner.said


def test_the_job_for_gitlab_ports_and_reports(model):
    (job,) = GITLAB.values()
    done = bash("set -eo pipefail\n" + "\n".join(job["script"]), model.parent)
    assert done.returncode == 0, done.stderr
    assert list(model.parent.glob(job["artifacts"]["reports"]["junit"]))
    assert {p.name for p in (model.parent / job["artifacts"]["paths"][0]).iterdir()} == {"convert.xml", "diff.html"}
    (install,) = job["before_script"]
    assert install == 'pip install "./portkit[hf]"'


def test_hooks_are_those_of_the_project():
    known = {hook["id"] for hook in yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))}
    (repository,) = HOOKS["repos"]
    assert {hook["id"] for hook in repository["hooks"]} == known
    assert all(f"`{name}`" in TEXT for name in known)


def test_every_input_and_output_of_the_action_is_explained():
    section = TEXT.partition("## GitHub Actions")[2].partition("\n## ")[0]
    assert not [name for name in (*ACTION["inputs"], *ACTION["outputs"]) if f"`{name}`" not in section]


def test_links_lead_somewhere_and_the_readme_leads_here():
    links = re.findall(r"\]\(([^)#]+)", TEXT)
    assert links
    assert all((ROOT / "docs" / link).exists() for link in links)
    assert "(docs/ci.md)" in (ROOT / "README.md").read_text(encoding="utf-8")
