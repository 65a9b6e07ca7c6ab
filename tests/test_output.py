"""An output folder appears whole or not at all, whatever ends the conversion; an old one is never lost."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hf_folders import small_model

import portkit
from portkit import execute, output
from portkit.api import ProofFailed
from portkit.errors import RefusedError, UnreadableError
from portkit.output import new_folder

# The command line, which stops for a long time after some tensors were written and says so.
SLOW = """
import signal, sys, time
from portkit import execute
from portkit.cli import main
signal.signal(signal.SIGINT, signal.default_int_handler)
honest = execute.arrays
def slow(*given):
    for number, array in enumerate(honest(*given)):
        if number == 20:
            print("half", flush=True)
            time.sleep(60)
        yield array
execute.arrays = slow
main(sys.argv[1:])
"""
LIMITED = """
import resource, sys
from portkit.cli import main
resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))
main(sys.argv[1:])
"""
FORMS = ("bpk", "safetensors", "mpk")


@pytest.fixture
def source(tmp_path):
    return small_model(tmp_path / "hf")


def convert_words(source: Path, target: Path, form: str = "bpk") -> list[str]:
    return ["convert", str(source), str(target), "--to", "burn", "--format", form, "--verify", "tensors", "--force"]


def stopped_in_the_middle(source: Path, target: Path, with_signal: int, form: str = "bpk") -> int:
    """Start a conversion, send a signal when some tensors are written; the exit code."""
    command = [sys.executable, "-c", SLOW, *convert_words(source, target, form)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with process:
        assert process.stdout.readline() == "half\n", process.stderr.read()
        assert leftovers(target)
        process.send_signal(with_signal)
    return process.returncode


def leftovers(target: Path) -> list[Path]:
    return list(target.parent.glob(f".{target.name}.portkit-*"))


def old_folder(target: Path) -> Path:
    target.mkdir()
    (target / "old.txt").write_text("old", encoding="utf-8")
    return target


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# ---------------------------------------------------------------- conversions that are ended


@pytest.mark.parametrize("form", FORMS)
def test_kill_leaves_no_half_folder_and_the_next_run_sweeps(form, source, tmp_path):
    target = tmp_path / "out"
    assert stopped_in_the_middle(source, target, signal.SIGKILL, form) == -signal.SIGKILL
    assert not target.exists()
    assert len(leftovers(target)) == 1
    portkit.convert(source, target, to="burn", form=form, verify="tensors")
    assert leftovers(target) == []
    assert "portkit.json" in names(target)


def test_kill_leaves_the_old_folder_as_it_was(source, tmp_path):
    target = old_folder(tmp_path / "out")
    stopped_in_the_middle(source, target, signal.SIGKILL)
    assert names(target) == ["old.txt"]


def test_interrupt_leaves_nothing(source, tmp_path):
    target = tmp_path / "out"
    assert stopped_in_the_middle(source, target, signal.SIGINT) == 1
    assert not target.exists()
    assert leftovers(target) == []


def test_interrupt_leaves_the_old_folder_as_it_was(source, tmp_path):
    target = old_folder(tmp_path / "out")
    stopped_in_the_middle(source, target, signal.SIGINT)
    assert names(target) == ["old.txt"]
    assert leftovers(target) == []


@pytest.mark.parametrize("form", FORMS)
def test_file_that_may_not_grow_is_an_error_in_words(form, source, tmp_path):
    target = old_folder(tmp_path / "out")
    command = [sys.executable, "-c", LIMITED, *convert_words(source, target, form)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 3, done.stderr
    assert "cannot write model." in done.stderr
    assert "File too large" in done.stderr
    assert "Traceback" not in done.stderr
    assert names(target) == ["old.txt"]
    assert leftovers(target) == []


@pytest.fixture
def tiny_disk(tmp_path):
    """A file system of 64 kB, where the system lets us have one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if done.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {done.stderr.strip()}")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.parametrize("form", FORMS)
def test_full_disk_is_an_error_in_words(form, source, tiny_disk):
    target = old_folder(tiny_disk / "out")
    with pytest.raises(portkit.PortkitError, match=r"cannot write model\.") as caught:
        portkit.convert(source, target, to="burn", form=form, force=True)
    assert "No space left on device" in str(caught.value)
    assert names(target) == ["old.txt"]
    assert leftovers(target) == []


@pytest.mark.parametrize("force", [False, True])
def test_failed_proof_leaves_no_new_folder(force, source, tmp_path, monkeypatch):
    honest = execute.arrays

    def one_number_off(*given):
        for number, array in enumerate(honest(*given)):
            yield np.nextafter(array, np.float32(9)) if number == 7 else array

    monkeypatch.setattr(execute, "arrays", one_number_off)
    target = old_folder(tmp_path / "out") if force else tmp_path / "out"
    with pytest.raises(ProofFailed, match="FAIL tensors=fail facts=skipped forward=skipped") as caught:
        portkit.convert(source, target, to="burn", verify="tensors", force=force)
    assert not caught.value.conversion.proved
    assert not force or names(target) == ["old.txt"]
    assert force or not target.exists()
    assert leftovers(target) == []


# ---------------------------------------------------------------- the folder itself


def test_force_replaces_the_old_folder_whole(source, tmp_path):
    target = old_folder(tmp_path / "out")
    portkit.convert(source, target, to="burn", verify="tensors", force=True)
    assert names(target) == ["config.json", "model.bpk", "portkit.json"]
    assert leftovers(target) == []


def test_force_can_replace_the_source_itself(source):
    portkit.convert(source, source, to="burn", verify="tensors", force=True)
    assert names(source) == ["config.json", "model.bpk", "portkit.json"]
    assert portkit.inspect(source).anatomy.layout == "burn"


def test_old_folder_is_there_until_the_new_one_is_complete(tmp_path):
    target = old_folder(tmp_path / "out")
    with new_folder(target, force=True) as folder:
        (folder / "new.txt").write_text("new", encoding="utf-8")
        assert names(target) == ["old.txt"]
    assert names(target) == ["new.txt"]


def test_without_an_exchange_the_old_folder_is_moved_away_first(tmp_path, monkeypatch):
    monkeypatch.setattr(output, "_exchange", lambda _a, _b: False)
    test_old_folder_is_there_until_the_new_one_is_complete(tmp_path)
    assert leftovers(tmp_path / "out") == []


def test_an_error_inside_leaves_nothing_and_stays_what_it_is(tmp_path):
    with pytest.raises(ZeroDivisionError), new_folder(tmp_path / "out"):
        raise ZeroDivisionError
    assert names(tmp_path) == []


def test_parents_are_made_and_the_mode_is_the_usual_one(tmp_path):
    before = os.umask(0o027)
    try:
        with new_folder(tmp_path / "a" / "b" / "out"):
            pass
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a" / "b" / "out").stat().st_mode) == 0o750


def test_leftover_of_a_living_process_is_not_swept(tmp_path):
    other = tmp_path / f".out.portkit-{os.getppid()}-abc"
    other.mkdir()
    with new_folder(tmp_path / "out"):
        pass
    assert names(tmp_path) == [other.name, "out"]


def test_folder_of_a_similar_name_is_not_swept(tmp_path):
    mine = tmp_path / ".out.portkit-notes"
    mine.mkdir()
    with new_folder(tmp_path / "out"):
        pass
    assert mine.exists()


@pytest.mark.parametrize(
    ("force", "words"), [(False, "is already there"), (True, "is a file, and the output is a folder")]
)
def test_file_in_the_way(force, words, tmp_path):
    (tmp_path / "out").write_text("mine", encoding="utf-8")
    with pytest.raises(RefusedError, match=words), new_folder(tmp_path / "out", force=force):
        pass
    assert (tmp_path / "out").read_text(encoding="utf-8") == "mine"


def test_parent_that_is_a_file(tmp_path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(UnreadableError, match="the output was not written"), new_folder(tmp_path / "file" / "out"):
        pass
