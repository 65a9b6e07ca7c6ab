"""Time `portkit convert --to keras` against KerasHub itself: `python bench/to_keras.py [--rounds N] [--backend torch]`.

Makes a random BERT-base-sized checkpoint (109 M parameters, 438 MB) as a Hugging Face folder. Each round lets KerasHub
read it (`Backbone.from_preset`) and save a preset (`save_to_preset`), then portkit write one, without proofs; each as a
whole process with the files in the page cache. At the end `portkit diff` says whether both presets hold the same.

    bar     a tenth of the seconds, elapsed and on a processor, and a quarter of the peak memory
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

PROGRAM = """
import sys
if sys.argv[1] != "tensorflow":
    sys.modules["tensorflow"] = None  # Keras would import it for its data pipelines
import keras_hub
keras_hub.models.Backbone.from_preset(sys.argv[2]).save_to_preset(sys.argv[3])
"""


def commands(source: Path, folder: Path, backend: str) -> dict[str, list[str]]:
    """What is run by each of the two, which write `folder`/keras_hub and `folder`/portkit."""
    setting = ["env", f"KERAS_BACKEND={backend}", f"KERAS_HOME={folder}", "TF_CPP_MIN_LOG_LEVEL=3"]
    words = [str(source), str(folder / "keras_hub")]
    portkit = [PORTKIT, "convert", str(source), str(folder / "portkit"), "--to", "keras", "--verify", "none"]
    return {"keras_hub": [*setting, sys.executable, "-P", "-W", "ignore", "-c", PROGRAM, backend, *words],
            "portkit": portkit}  # fmt: skip


def measure(pair: dict[str, list[str]], folder: Path) -> tuple[Run, Run]:
    """Run both, each into a new folder."""
    found = []
    for name, command in pair.items():
        shutil.rmtree(folder / name, ignore_errors=True)
        found.append(run(command))
    return found[0], found[1]


def lines(pairs: list[tuple[Run, Run]]) -> list[str]:
    """A line for each figure: KerasHub's median, portkit's, and the median of their ratios."""
    titles = {"wall": "seconds elapsed", "cpu": "seconds on a processor", "peak": "peak memory, MB"}
    found = []
    for figure, title in titles.items():
        both = [(getattr(a, figure), getattr(b, figure)) for a, b in pairs]
        theirs, ours = (statistics.median(values) for values in zip(*both, strict=True))
        ratio = statistics.median(a / b for a, b in both)
        found.append(f"{title:24}{theirs:10.2f}{ours:10.2f}{ratio:10.1f}")
    return found


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--backend", choices=["torch", "tensorflow", "jax"], default="torch")
    parser.add_argument("--sizes", choices=SIZES, default="base")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "source").mkdir()
        make(folder / "source", CONFIG | SIZES[options.sizes])
        pair = commands(folder / "source", folder, options.backend)
        pairs = [measure(pair, folder) for _ in range(options.rounds)]
        presets = [str(folder / name) for name in pair]
        said = subprocess.run([PORTKIT, "diff", *presets], check=False, capture_output=True, text=True)
    print(f"{options.rounds} rounds, {os.cpu_count()} cores, {options.backend} backend")
    print(f"{'':24}{'KerasHub':>10}{'portkit':>10}{'ratio':>10}", *lines(pairs), sep="\n")
    print("both presets:", (said.stdout or said.stderr).splitlines()[-1])


if __name__ == "__main__":
    main()
