"""The hooks for pre-commit: pre-commit takes their definitions, and runs them on the files that they are for."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hf_folders import read_state, small_model, write_hf

import portkit

ROOT = Path(__file__).parent.parent
MANIFEST = ROOT / ".pre-commit-hooks.yaml"
HOOKS = {hook["id"]: hook for hook in yaml.safe_load(MANIFEST.read_text(encoding="utf-8"))}
BIN = Path(sys.executable).parent
TABLE = 'family = "mine"\nextends = "bert"\n[hf]\nmodel_type = "mine"\n[keras]\nmodel_type = "mine"\n[burn]\nmodel_type = "mine"\n'


class Repository:
    """A git repository with these hooks. Their program is the one that is installed here; pre-commit builds none."""

    def __init__(self, folder: Path, **changes: dict) -> None:
        self.folder = folder
        hooks = [{**hook, "language": "system", **changes.get(name, {})} for name, hook in HOOKS.items()]
        config = yaml.safe_dump({"repos": [{"repo": "local", "hooks": hooks}]})
        (folder / ".pre-commit-config.yaml").write_text(config, encoding="utf-8")
        self._run("git", "init", "--quiet")

    def check(self, hook: str) -> tuple[int, str]:
        """Exit code and report of one hook on all files."""
        self._run("git", "add", "--all")
        return self._run(str(BIN / "pre-commit"), "run", hook, "--all-files", "--color", "never")

    def _run(self, *words: str) -> tuple[int, str]:
        more = {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "PRE_COMMIT_HOME": str(self.folder.with_name("home"))}
        keep = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
        done = subprocess.run(words, cwd=self.folder, env=keep | more, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "repository").mkdir()
    return tmp_path / "repository"


def test_pre_commit_takes_the_definitions():
    done = subprocess.run(
        [BIN / "pre-commit", "validate-manifest", MANIFEST], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    assert set(HOOKS) == {"portkit-mappings-check", "portkit-golden-check"}


def test_tables_are_checked(folder):
    repository = Repository(folder)
    assert "Skipped" in repository.check("portkit-mappings-check")[1]
    (folder / "mappings").mkdir()
    table = folder / "mappings" / "a table.toml"
    table.write_text(TABLE, encoding="utf-8")
    code, said = repository.check("portkit-mappings-check")
    assert (code, "Passed" in said) == (0, True), said
    table.write_text(TABLE + "[task.model]\npooler = 'perhaps'\n", encoding="utf-8")
    code, said = repository.check("portkit-mappings-check")
    assert (code, "unknown pooler use" in said) == (1, True), said


def test_a_checkpoint_is_checked_against_its_golden(folder):
    checkpoint = small_model(folder / "a model")
    portkit.golden_record(checkpoint, folder / "a.golden.json")
    repository = Repository(folder, **{"portkit-golden-check": {"args": ["a.golden.json", "a model"]}})
    code, said = repository.check("portkit-golden-check")
    assert (code, "Passed" in said) == (0, True), said
    state = read_state(checkpoint)
    changed = state | {"embeddings.word_embeddings.weight": state["embeddings.word_embeddings.weight"] + 1}
    write_hf(checkpoint, changed, portkit.inspect(checkpoint).folder.config)
    code, said = repository.check("portkit-golden-check")
    assert (code, "embeddings.word.table" in said) == (1, True), said


@pytest.mark.parametrize(
    ("hook", "for_it", "not_for_it"),
    [
        (
            "portkit-mappings-check",
            ["mappings/mine.toml", "a/mappings/b.toml"],
            ["pyproject.toml", "mappings/layouts.toml", "mappings/x/y.toml", "mymappings/x.toml"],
        ),
        (
            "portkit-golden-check",
            [
                *("x.golden.json", "m/config.json", "m/model.safetensors", "m/model.safetensors.index.json"),
                *("m/model.bpk", "m/pytorch_model.bin", "m/model.mpk", "m/model.weights.h5"),
            ],
            ["README.md", "data.json", "m/tokenizer.json"],
        ),
    ],
)
def test_hooks_run_on_their_files_only(hook, for_it, not_for_it):
    chosen = [
        name
        for name in for_it + not_for_it
        if re.search(HOOKS[hook]["files"], name) and not re.search(HOOKS[hook].get("exclude", "^$"), name)
    ]
    assert chosen == for_it


@pytest.mark.parametrize("hook", HOOKS)
def test_entries_are_commands_of_portkit(hook):
    done = subprocess.run([*HOOKS[hook]["entry"].split(), "--help"], capture_output=True, text=True, check=False,
                          env=os.environ | {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"})  # fmt: skip
    assert done.returncode == 0
    assert done.stdout.startswith(f"Usage: {HOOKS[hook]['entry']} ")
