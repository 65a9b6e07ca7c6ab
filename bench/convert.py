"""Time conversions against copying the same bytes: `python bench/convert.py [--rounds N] [--sizes base|small]`.

Makes a random BERT and converts it into every layout and format, and back. Each round runs `cp -r` of the source
folder and then `portkit convert`, each as a whole process with the files in the page cache; the medians of a pair are
compared, so that another load of the machine slows both. A first round is not counted.

    bar     2 times the seconds of `cp` + 0.5 s; memory: the largest tensor + 200 MB above a bare interpreter's
    goal    1.25 times the seconds of `cp` + 0.25 s
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

CONFIG = {
    "model_type": "bert", "architectures": ["BertModel"], "vocab_size": 30522, "hidden_size": 768,
    "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072, "max_position_embeddings": 512,
    "type_vocab_size": 2, "layer_norm_eps": 1e-12, "hidden_act": "gelu", "pad_token_id": 0,
}  # fmt: skip
SIZES = {
    "base": {},
    "small": {"vocab_size": 31, "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3,
              "intermediate_size": 20, "max_position_embeddings": 17},
}  # fmt: skip
PORTKIT = str(Path(sys.executable).with_name("portkit"))
# Modules are compiled in the first round, as they are when a package is installed, whatever the shell says.
ENVIRONMENT = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
MEASURED = """
import json, os, sys, time
quiet = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
start = time.perf_counter()
child = os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ, file_actions=quiet)
_, status, usage = os.wait4(child, 0)
seconds = time.perf_counter() - start
print(json.dumps([status, seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024]))
"""


@dataclass(frozen=True)
class Run:
    """A process that ended: seconds from start to end, seconds on a processor, peak memory in MB."""

    wall: float
    cpu: float
    peak: float


@dataclass(frozen=True)
class Case:
    """A conversion: what is read, and the words of the command that say what is written."""

    name: str
    source: Path
    words: tuple[str, ...]


def make(folder: Path, config: dict[str, object]) -> None:
    """Write a random checkpoint with transformers' names; shapes are those of the project's own table."""
    import numpy as np

    from portkit.formats.safetensors_file import write_safetensors
    from portkit.table.load import load_tables
    from portkit.table.slots import expand, sizes_of
    from portkit.tensors import TensorSpec

    tables = load_tables()
    bert = tables.families["bert"]
    sizes = sizes_of({k: v for k, v in bert.axes.items() if k != "c"}, config)
    layers = int(str(config["num_hidden_layers"]))
    slots = expand(bert, tables.storages["hf"], bert.tasks["model"], layers=layers, pooler=True)
    specs = [TensorSpec(slot.name, slot.shape(sizes), "F32") for slot in slots.values()]
    rng = np.random.default_rng(0)
    write_safetensors(folder / "model.safetensors", specs, (rng.standard_normal(s.shape, np.float32) for s in specs))
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")


def cases(source: Path, folder: Path) -> list[Case]:
    """Into every layout and format, and back from what the first of them wrote."""
    from portkit.layouts.registry import LAYOUTS

    there = [
        Case(f"hf -> {name} ({form})", source, ("--to", name, "--format", form))
        for name, layout in LAYOUTS.items()
        for form in layout.formats
    ]
    back = []
    for name in LAYOUTS.keys() - {"hf"}:
        run([PORTKIT, "convert", str(source), str(folder / name), "--to", name, "--verify", "none"])
        back.append(Case(f"{name} -> hf", folder / name, ("--to", "hf")))
    return [*there, *back]


def run(command: list[str]) -> Run:
    """Run a command to its end. Raises RuntimeError when it fails.

    It is started by a small process of its own: the peak memory of a child is never below that of who started it.
    """
    start = [sys.executable, "-c", MEASURED, *command]
    done = subprocess.run(start, check=True, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)
    status, *figures = json.loads(done.stdout)
    if status:
        raise RuntimeError(f"{' '.join(command)} failed")
    return Run(*figures)


def measure(case: Case, target: Path, proof: str) -> tuple[Run, Run]:
    """Copy the source, convert it, and remove both."""
    convert = [PORTKIT, "convert", str(case.source), str(target), *case.words, "--verify", proof]
    pair = []
    for command in (["cp", "-r", str(case.source), str(target)], convert):
        pair.append(run(command))
        shutil.rmtree(target)
    return pair[0], pair[1]


def line(name: str, pairs: list[tuple[Run, Run]], bare: float) -> str:
    """The medians of one case: seconds and processor seconds, their ratio, the share of bar and goal that is used."""
    copy, convert, copy_cpu, cpu, ratio = (
        statistics.median(values)
        for values in zip(*((a.wall, b.wall, a.cpu, b.cpu, b.wall / a.wall) for a, b in pairs), strict=True)
    )
    peak = max(convert.peak for _, convert in pairs) - bare
    used = convert / (2 * copy + 0.5), convert / (1.25 * copy + 0.25)
    return (
        f"{name:24}{copy:7.2f}{copy_cpu:7.2f}{convert:9.2f}{cpu:7.2f}{ratio:8.2f}"
        f"{used[0]:8.0%}{used[1]:8.0%}{peak:8.0f}"
    )


def main() -> None:
    """Print a line for every conversion."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--sizes", choices=SIZES, default="base")
    parser.add_argument("--verify", default="none", help="as for portkit convert")
    parser.add_argument("--only", default="", help="conversions whose line holds this text")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "source").mkdir()
        make(folder / "source", CONFIG | SIZES[options.sizes])
        chosen = [case for case in cases(folder / "source", folder) if options.only in case.name]
        found: dict[Case, list[tuple[Run, Run]]] = {case: [] for case in chosen}
        for counted in [False] + [True] * options.rounds:
            for case in chosen:
                pair = measure(case, folder / "target", options.verify)
                found[case] += [pair] if counted else []
        bare = run([sys.executable, "-c", "pass"]).peak
    print(f"{options.rounds} rounds, {os.cpu_count()} cores, --verify {options.verify}")
    print(f"{'':24}{'cp s':>7}{'cpu s':>7}{'convert':>9}{'cpu s':>7}{'ratio':>8}{'of bar':>8}{'of goal':>8}{'MB':>8}")
    for case, pairs in found.items():
        print(line(case.name, pairs, bare))


if __name__ == "__main__":
    main()
