"""What the command asks of the system: threads only where it multiplies matrices, and memory once."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys

import pytest
from hf_folders import small_model

VARIABLE = "OPENBLAS_NUM_THREADS"
COMMAND = f"""
import os, sys
from portkit.cli import main
main(sys.argv[1:], standalone_mode=False)
print(os.environ.get("{VARIABLE}"), "numpy" in sys.modules)
"""


def chosen(*words: str, given: str | None = None) -> list[str]:
    """What the variable says after a command, and whether numpy was needed."""
    environment = {key: value for key, value in os.environ.items() if key != VARIABLE}
    environment |= {VARIABLE: given} if given else {}
    command = [sys.executable, "-c", COMMAND, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return done.stdout.splitlines()[-1].split()


@pytest.mark.parametrize(
    ("words", "threads"),
    [
        (("--verify", "none"), "1"),
        (("--verify", "tensors"), "1"),
        (("--dry-run",), "1"),
        (("--verify", "forward"), "None"),
        ((), "None"),
    ],
    ids=str,
)
def test_conversion(words, threads, tmp_path):
    source = small_model(tmp_path / "hf")
    assert chosen("convert", str(source), str(tmp_path / "out"), "--to", "burn", *words) == [threads, "True"]


def test_inspection(tmp_path):
    assert chosen("inspect", str(small_model(tmp_path / "hf"))) == ["1", "True"]


def test_what_the_user_says_counts(tmp_path):
    assert chosen("inspect", str(small_model(tmp_path / "hf")), given="3") == ["3", "True"]


def test_variable_is_that_of_this_numpy():
    ask = "import json, numpy; print(json.dumps(numpy.show_config('dicts')['Build Dependencies']['blas']['name']))"
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    if "openblas" not in json.loads(done.stdout):
        pytest.skip("this numpy is built with another library")
    count = "import numpy, os; print(len(os.listdir('/proc/self/task')))"
    done = subprocess.run(
        [sys.executable, "-c", count], capture_output=True, text=True, check=True, env={**os.environ, VARIABLE: "1"}
    )
    assert done.stdout == "1\n"


FAULTS = """
import resource, numpy
def work():
    for _ in range(20):
        [numpy.ones(1 << 20, numpy.uint8) for _ in range(9)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
before = work()
print(work() - before)
"""


def page_faults(first: str) -> int:
    """How often memory is fetched from the system again for blocks of a size that was freed before."""
    done = subprocess.run([sys.executable, "-c", first + FAULTS], capture_output=True, text=True, check=True)
    return int(done.stdout.split()[-1])


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another libc decides otherwise what it keeps")
def test_what_is_freed_is_kept_for_the_next_tensor():
    command = "from portkit.cli import main; main(['mappings', 'list'], standalone_mode=False)"
    assert page_faults(command) < 100
    assert page_faults("") > 10_000
