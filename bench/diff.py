"""Time a comparison against `cmp` on the same bytes, in one run: `python bench/diff.py [REPEATS] [--sizes base|small]`.

Makes a random BERT-base-sized checkpoint (109 M parameters, 438 MB), and compares it with a copy, with its conversion
for Burn, and with one that differs in every number. Prints the seconds of `cmp` on the copy, of `portkit diff` as a
whole process, and of its imports alone, each as processor time (elapsed time), the best of all repeats; and the peak
memory above a bare interpreter's. Everything is in the page cache.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from convert import CONFIG, SIZES, make

if TYPE_CHECKING:
    from collections.abc import Callable

IMPORTS = "import portkit.cli, portkit.difference.compare, portkit.difference.html, portkit.formats.safetensors_file"


def run(command: list[str]) -> tuple[float, float, float]:
    """Seconds of the processor, elapsed seconds, and peak memory in MB of a process that may exit with 0 or 1."""
    program = (
        "import resource,subprocess,sys; code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode; "
    )
    program += "r = resource.getrusage(resource.RUSAGE_CHILDREN); print(r.ru_utime + r.ru_stime, r.ru_maxrss); "
    program += "sys.exit(code > 1)"
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", program, *command], check=True, capture_output=True, text=True)
    used, peak = done.stdout.split()
    return float(used), time.perf_counter() - start, int(peak) / 1024


def best(command: list[str], repeats: int) -> tuple[float, float, float]:
    """The least of each over all repeats; the most of the memory."""
    used, elapsed, peak = zip(*(run(command) for _ in range(repeats)), strict=True)
    return min(used), min(elapsed), max(peak)


def copied(source: Path, target: Path) -> None:
    """The same again."""
    shutil.copytree(source, target)


def converted(source: Path, target: Path) -> None:
    """The same for Burn: every kernel lies the other way round."""
    words = (program(), "convert", str(source), str(target), "--to", "burn", "--verify", "none")
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


def changed(source: Path, target: Path) -> None:
    """Another low bit in every number."""
    shutil.copytree(source, target)
    data = bytearray((target / "model.safetensors").read_bytes())
    start = 8 + int.from_bytes(data[:8], "little")
    data[start::4] = bytes(b ^ 16 for b in data[start::4])
    (target / "model.safetensors").write_bytes(data)


OTHERS: dict[str, Callable[[Path, Path], None]] = {
    "a copy": copied,
    "its conversion for Burn": converted,
    "a model that differs in every number": changed,
}


def program() -> str:
    """The command beside this Python."""
    return str(Path(sys.executable).with_name("portkit"))


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("repeats", type=int, nargs="?", default=5)
    parser.add_argument("--sizes", choices=SIZES, default="base")
    options = parser.parse_args()
    repeats = options.repeats
    bare = run([sys.executable, "-c", "pass"])[2]
    imports = best([sys.executable, "-c", IMPORTS], repeats)
    with tempfile.TemporaryDirectory() as temporary:
        source, other = Path(temporary, "bert-base"), Path(temporary, "other")
        source.mkdir()
        make(source, CONFIG | SIZES[options.sizes])
        copied(source, other)
        cmp = best(["cmp", str(source / "model.safetensors"), str(other / "model.safetensors")], repeats)
        shutil.rmtree(other)
        print(f"cmp {cmp[0]:.2f} s ({cmp[1]:.2f} s), imports {imports[0]:.2f} s ({imports[1]:.2f} s)")
        for name, prepare in OTHERS.items():
            prepare(source, other)
            used, elapsed, peak = best([program(), "diff", str(source), str(other)], repeats)
            times = f"{(used - imports[0]) / cmp[0]:.1f} times cmp and imports"
            print(f"{name}: {used:.2f} s ({elapsed:.2f} s), {times}; peak {peak - bare:.0f} MB")
            shutil.rmtree(other)


if __name__ == "__main__":
    main()
