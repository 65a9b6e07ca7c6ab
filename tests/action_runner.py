"""Runs the steps of action.yml in bash, as GitHub's runner would."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).parent.parent
ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
STEPS = ACTION["runs"]["steps"]
INSTALL = "Install portkit"
EXPRESSION = re.compile(r"\$\{\{ (?:(inputs)|steps\.(\w+)\.outputs|(github))\.([\w-]+) \}\}")


class Runner:
    """Runs the steps in a workspace, one after the other; what a runner keeps between them lies beside it."""

    def __init__(self, folder: Path) -> None:
        self.workspace, self.temp = folder / "workspace", folder / "the runner's temp"
        (self.temp / "portkit" / "bin").mkdir(parents=True)
        self.workspace.mkdir()
        program = Path(sys.executable).with_name("portkit")
        (self.temp / "portkit" / "bin" / "portkit").symlink_to(program)  # as if it were installed
        self.summary = self.temp / "summary"
        self.outputs: dict[str, dict[str, str]] = {}
        self.said = ""

    def run(self, skip: str = INSTALL, **inputs: str) -> int:
        """The exit code of the first step that fails, after which none is run; else 0."""
        given = {name: spec.get("default", "") for name, spec in ACTION["inputs"].items()} | inputs
        for step in STEPS:
            if "run" in step and step["name"] != skip:
                code = self.step(step, given)
                if code:
                    return code
        return 0

    def step(self, step: dict, inputs: dict[str, str], **more: str) -> int:
        values = {name: self._value(text, inputs) for name, text in step.get("env", {}).items()}
        output = self.temp / "output"
        output.write_text("", encoding="utf-8")
        script = self.temp / "script.sh"
        script.write_text(step["run"], encoding="utf-8")
        kept = {"RUNNER_TEMP": self.temp, "GITHUB_OUTPUT": output, "GITHUB_STEP_SUMMARY": self.summary}
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", script],
            env=os.environ | {k: str(v) for k, v in kept.items()} | values | more,
            cwd=self.workspace,
            capture_output=True,
            text=True,
            check=False,
        )
        self.said += done.stdout + done.stderr
        lines = output.read_text(encoding="utf-8").splitlines()
        self.outputs[step.get("id", "")] = dict(line.split("=", 1) for line in lines)
        return done.returncode

    def _value(self, text: str, inputs: dict[str, str]) -> str:
        is_input, step, _, name = EXPRESSION.fullmatch(text).groups()
        return inputs[name] if is_input else self.outputs[step][name] if step else str(ROOT)

    def report(self, name: str) -> str:
        return Path(self.outputs["run"]["reports"], name).read_text(encoding="utf-8")
