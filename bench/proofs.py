"""Time the proofs between a Hugging Face folder and its port: `python bench/proofs.py [--rounds N]`.

The three proofs are made of all-MiniLM-L6-v2 (23 M parameters) and its conversion for Burn, by `portkit verify` as a
whole process, imports and both frameworks included. The tensor proof alone is made of a random BERT-base-sized
checkpoint (438 MB) and its conversion, beside `cmp` of the source with a copy of it; imports and opening are taken off.
Everything is in the page cache; a first round is not counted; medians.

    bar     20 s on two cores for the three proofs; 2 times the seconds of `cmp` for the tensor proof
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from convert import CONFIG, PORTKIT, SIZES, Run, make, run

SCRIPT = Path(__file__).resolve().parent.parent / "scripts" / "checkpoints.py"
IMPORTS = "import portkit.cli, portkit.api, portkit.junit, portkit.render_proofs, portkit.proofs.pair"


def minilm() -> Path:
    """The real checkpoint, fetched where it is not there."""
    done = subprocess.run([sys.executable, str(SCRIPT), "minilm"], check=True, stdout=subprocess.PIPE, text=True)
    return Path(done.stdout.strip())


def converted(source: Path, target: Path) -> Path:
    """The same for Burn."""
    run([PORTKIT, "convert", str(source), str(target), "--to", "burn", "--verify", "none"])
    return target


def verify(source: Path, target: Path, *words: str) -> list[str]:
    """The command that makes the proofs. The words choose which."""
    return [PORTKIT, "verify", str(source), str(target), *words]


def opening(source: Path, target: Path) -> list[str]:
    """A process that imports the same, opens both checkpoints, and proves nothing."""
    opened = "from portkit.checkpoint import open_checkpoint; import sys; [open_checkpoint(p) for p in sys.argv[1:]]"
    return [sys.executable, "-c", f"{IMPORTS}; {opened}", str(source), str(target)]


def medians(commands: dict[str, list[str]], rounds: int) -> dict[str, Run]:
    """Each command's median seconds and largest peak; they take turns, so that another load slows all."""
    found: dict[str, list[Run]] = {name: [] for name in commands}
    for counted in [False] + [True] * rounds:
        for name, command in commands.items():
            seen = run(command)
            found[name] += [seen] if counted else []
    return {name: _median(runs) for name, runs in found.items()}


def _median(runs: list[Run]) -> Run:
    wall, cpu = (statistics.median(values) for values in zip(*((r.wall, r.cpu) for r in runs), strict=True))
    return Run(wall, cpu, max(r.peak for r in runs))


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--sizes", choices=SIZES, default="base", help="small: a small random model in place of both")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        source, copy = folder / "source", folder / "copy"
        source.mkdir()
        make(source, CONFIG | SIZES[options.sizes])
        shutil.copytree(source, copy)
        real = minilm() if options.sizes == "base" else source
        commands = {
            "three proofs": verify(real, converted(real, folder / "real-burn")),
            "tensor proof": verify(source, converted(source, folder / "burn"), "--proofs", "tensors"),
            "opening alone": opening(source, folder / "burn"),
            "cmp": ["cmp", str(source / "model.safetensors"), str(copy / "model.safetensors")],
        }
        found = medians(commands, options.rounds)
    print(f"{options.rounds} rounds, {os.cpu_count()} cores")
    print(f"{'':16}{'elapsed':>9}{'cpu s':>9}{'MB':>9}")
    for name, seen in found.items():
        print(f"{name:16}{seen.wall:9.3f}{seen.cpu:9.3f}{seen.peak:9.0f}")
    proof, opened, cmp = (found[name] for name in ("tensor proof", "opening alone", "cmp"))
    wall, cpu = (proof.wall - opened.wall) / cmp.wall, (proof.cpu - opened.cpu) / cmp.cpu
    print(f"the tensor proof without opening takes {wall:.2f} times cmp elapsed, {cpu:.2f} times on a processor")


if __name__ == "__main__":
    main()
