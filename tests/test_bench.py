"""The benchmarks run, on a small model; how fast it goes, they say themselves."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from portkit.layouts.registry import LAYOUTS

BENCH = Path(__file__).parent.parent / "bench"
SCRIPT = BENCH / "convert.py"


@pytest.fixture(scope="module")
def bench():
    spec = importlib.util.spec_from_file_location("bench_convert", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where its dataclasses look for their types
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_every_direction_is_measured():
    command = [sys.executable, str(SCRIPT), "--sizes", "small", "--rounds", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    first, _, *lines = done.stdout.splitlines()
    assert first.startswith("1 rounds, ")
    found = {line[:24].strip(): [float(figure.rstrip("%")) for figure in line[24:].split()] for line in lines}
    there = {f"hf -> {name} ({form})" for name, layout in LAYOUTS.items() for form in layout.formats}
    assert set(found) == there | {f"{name} -> hf" for name in LAYOUTS if name != "hf"}
    assert {len(figures) for figures in found.values()} == {8}
    assert all(convert > 0 and ratio > 0 for _, _, convert, _, ratio, *_ in found.values())


def figures(script: str, *words: str) -> list[str]:
    """What a benchmark prints of a small model."""
    command = [sys.executable, str(BENCH / script), "--sizes", "small", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_every_benchmark_is_run_here():
    sized = {path.name for path in BENCH.glob("*.py") if '"--sizes"' in path.read_text(encoding="utf-8")}
    assert sized == {"convert.py", "diff.py", "proofs.py", "to_keras.py"}


def test_a_comparison_is_measured():
    first, *lines = figures("diff.py", "1")
    assert first.startswith("cmp ")
    assert [line.partition(":")[0] for line in lines] == [
        "a copy",
        "its conversion for Burn",
        "a model that differs in every number",
    ]


@pytest.mark.hf
def test_proofs_are_measured():
    _, _, *lines, last = figures("proofs.py", "--rounds", "1")
    found = {line[:16].strip(): [float(figure) for figure in line[16:].split()] for line in lines}
    assert list(found) == ["three proofs", "tensor proof", "opening alone", "cmp"]
    assert all(wall > 0 and peak > 0 for wall, _, peak in found.values())
    assert "times cmp elapsed" in last


@pytest.mark.keras
def test_kerashub_is_measured():
    pytest.importorskip("keras_hub")
    _, _, *lines, last = figures("to_keras.py", "--rounds", "1")
    found = [[float(figure) for figure in line[24:].split()] for line in lines]
    assert len(found) == 3
    assert all(theirs > 0 and ours > 0 for theirs, ours, _ in found)
    assert last == "both presets: equal: 39 tensors (bit for bit) and every field that decides the function"


def test_medians_of_a_pair_are_compared(bench):
    seconds = ((1, 2, 90), (2, 2.5, 70), (3, 15, 80))
    pairs = [(bench.Run(copy, copy / 4, 0), bench.Run(convert, convert / 2, peak)) for copy, convert, peak in seconds]
    found = bench.line("hf -> x", pairs, 20)
    assert found.split()[3:] == ["2.00", "0.50", "2.50", "1.25", "2.00", "56%", "91%", "70"]


def test_a_command_that_fails_is_not_measured(bench):
    with pytest.raises(RuntimeError, match="false failed"):
        bench.run(["false"])
