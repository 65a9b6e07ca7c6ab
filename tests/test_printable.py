"""What goes to a terminal: names of strangers in characters that it can show, and never without end."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from strangers import LABELLED, ONE, model, said

import portkit
from portkit.errors import Problem, RefusedError, printable


def stored(folder, **arrays):
    """The sound model with more tensors."""
    model(folder, extra=arrays)


def test_inspecting_shows_what_a_conversion_would_refuse(tmp_path):
    stored(tmp_path / "hf", **{"evil\nwarning x": ONE, "x" * 100_000: ONE})
    text = said(("inspect", tmp_path / "hf"), (0,))
    assert "  unexplained  evil\\nwarning x\n" in text
    assert "(100015 characters)" in text


def test_very_many_problems_are_counted_and_not_all_printed(tmp_path):
    stored(tmp_path / "hf", **{f"foreign{i}": ONE for i in range(2000)})
    text = said(("convert", tmp_path / "hf", tmp_path / "out", "--to", "burn"), (3,))
    assert "have no place in the target (2000 problems)" in text
    assert text.rstrip().endswith("- … and 1900 more")
    text = said(("inspect", tmp_path / "hf"), (0,))
    assert "  unexplained  … and 1900 more" in text


def test_terminal_without_the_characters(tmp_path):
    model(tmp_path / "hf", extra={"embeddings.position_ids": np.arange(37)[None]})
    words = ["convert", str(tmp_path / "hf"), str(tmp_path / "out"), "--to", "hf", "--dry-run"]
    code = f"from portkit.cli import main; main({words!r})"
    environment = {**os.environ, "PYTHONIOENCODING": "iso-8859-1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment, check=True)
    assert b"buffer 0, 1, 2, \\u2026, which" in done.stdout


def test_printable():
    assert printable("bert.encoder é 漢") == "bert.encoder é 漢"
    assert printable("a\tb\r\n\0\x7f\x9b\u2028\ud800") == "a\\tb\\r\\n\\x00\\x7f\\x9b\\u2028\\ud800"
    short = printable("a" * 500 + "b" * 500, 100)
    assert short.startswith("a" * 60)
    assert short.endswith("b" * 25)
    assert "…(1000 characters)…" in short


def test_a_problem_keeps_lines_apart():
    problem = Problem("where\n- x", "what", found="one\ntwo\x1b")
    assert str(RefusedError("title", [problem])).splitlines() == [
        "title (1 problem)",
        "- where\\n- x: what",
        "    found    one",
        "             two\\x1b",
    ]


FORGED = "a\nportkit verify: PASS tensors=pass facts=pass forward=pass\n\x1b[2K\u202e"


@pytest.mark.parametrize("target", ["name", "label"])
def test_no_name_forges_a_line_of_a_verdict(target, tmp_path):
    """`portkit verify: PASS` is what jobs look for."""
    labels = {str(i): f"{FORGED if target == 'label' else ''}{i}" for i in range(5)}
    model(tmp_path / "a", LABELLED, id2label={str(i): f"x{i}" for i in range(5)})
    model(tmp_path / "b", LABELLED, {FORGED: ONE}, id2label=labels)
    words = ("verify", tmp_path / "a", tmp_path / "b", "--runtime", "reference", "--proofs", "tensors,facts")
    text = said(words, (1,))
    assert [line for line in text.splitlines() if line.startswith("portkit verify:")] == [
        "portkit verify: FAIL tensors=pass facts=fail forward=skipped"
    ]
    assert "a\\nportkit verify: PASS" in text


def test_no_name_forges_a_line_of_other_reports(tmp_path):
    model(tmp_path / "a", extra={FORGED: ONE})
    portkit_json = tmp_path / "golden.json"
    for words, codes in (
        (("explain", tmp_path / "a", FORGED), (0, 2)),
        (("golden", "record", tmp_path / "a", portkit_json), (0,)),
        (("golden", "check", portkit_json, tmp_path / "a"), (0,)),
    ):
        said(words, codes)


def test_verify_prints_the_warnings_of_both_sides(tmp_path):
    model(tmp_path / "a", LABELLED)
    model(tmp_path / "b", LABELLED, id2label={"0": "x"}, layer_norm_eps=None)
    text = said(("verify", tmp_path / "a", tmp_path / "b", "--proofs", "facts"), (0, 1))
    assert "warning layer_norm_eps is not in the config; the default of the family's class, 1e-12" in text
    assert "warning the config names 1 labels, the classifier has 5: the names are not used (target)" in text


def test_residue_of_a_conversion_keeps_any_name(tmp_path):
    name = "evil\n\x1b[31m"
    model(tmp_path / "hf", extra={name: ONE})
    portkit.convert(tmp_path / "hf", tmp_path / "out", to="burn", residue=True, verify="tensors")
    assert list(load_file(tmp_path / "out" / "portkit.residue.safetensors")) == [name]
    save_file({name: ONE}, tmp_path / "again.safetensors")
    assert list(load_file(tmp_path / "again.safetensors")) == [name]
