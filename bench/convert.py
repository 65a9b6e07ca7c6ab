"""Time a conversion against copying the same bytes, in one run: `python bench/convert.py [REPEATS]`.

Makes a random BERT-base-sized checkpoint (109 M parameters, 438 MB), then prints the seconds of `cp`, of
`portkit convert --verify none` as a whole process, their ratio, and the peak memory above a bare interpreter's.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

CONFIG = {
    "model_type": "bert", "architectures": ["BertModel"], "vocab_size": 30522, "hidden_size": 768,
    "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072, "max_position_embeddings": 512,
    "type_vocab_size": 2, "layer_norm_eps": 1e-12, "hidden_act": "gelu", "pad_token_id": 0,
}  # fmt: skip


def make(folder: Path) -> None:
    """Write the checkpoint with transformers' names."""
    from safetensors.numpy import save_file

    rng = np.random.default_rng(0)
    save_file({n: rng.standard_normal(s, np.float32) for n, s in shapes().items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")


def shapes() -> dict[str, tuple[int, ...]]:
    """Names and shapes, from the project's own table."""
    from portkit.table.load import load_tables
    from portkit.table.slots import expand, sizes_of

    tables = load_tables()
    bert = tables.families["bert"]
    sizes = sizes_of({k: v for k, v in bert.axes.items() if k != "c"}, CONFIG)
    slots = expand(bert, tables.storages["hf"], bert.tasks["model"], layers=12, pooler=True)
    return {s.name: s.shape(sizes) for s in slots.values()}


def run(command: list[str]) -> tuple[float, float]:
    """Seconds of a process and its peak memory in MB."""
    program = "import resource,subprocess,sys; subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL); "
    program += "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", program, *command], check=True, capture_output=True, text=True)
    return time.perf_counter() - start, int(done.stdout) / 1024


def main() -> None:
    """Print the figures of every repeat and the best."""
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with tempfile.TemporaryDirectory() as temporary:
        source = Path(temporary, "bert-base")
        source.mkdir()
        make(source)
        bare = run([sys.executable, "-c", "pass"])[1]
        program = Path(sys.executable).with_name("portkit")
        best = {"copy": 1e9, "convert": 1e9}
        for _ in range(repeats):
            target = Path(temporary, "out")
            copying, _memory = run(["cp", "-r", str(source), str(target)])
            shutil.rmtree(target)
            converting, peak = run(
                [str(program), "convert", str(source), str(target), "--to", "burn", "--verify", "none"]
            )
            shutil.rmtree(target)
            best = {"copy": min(best["copy"], copying), "convert": min(best["convert"], converting)}
            print(f"cp {copying:.2f} s, convert {converting:.2f} s, peak {peak - bare:.0f} MB above the interpreter")
        copy, convert = best["copy"], best["convert"]
        print(f"best: cp {copy:.2f} s, convert {convert:.2f} s: {convert / copy:.2f} times")


if __name__ == "__main__":
    main()
