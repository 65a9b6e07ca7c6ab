"""Time a comparison against `cmp` on the same bytes, in one run: `python bench/diff.py [REPEATS]`.

Makes a random BERT-base-sized checkpoint (109 M parameters, 438 MB), a copy, the same for Burn, and one that differs in
every number. Prints the seconds of `cmp`, of `portkit diff` as a whole process, of its imports alone, and the peak memory
above a bare interpreter's. Everything is in the page cache.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from convert import make, run

IMPORTS = "import portkit.cli, portkit.difference.compare, portkit.difference.html, portkit.formats.safetensors_file"


def folders(root: Path) -> dict[str, Path]:
    """The checkpoint and what it is compared with."""
    source = root / "bert-base"
    source.mkdir()
    make(source)
    found = {"itself, copied": root / "copy", "itself, for Burn": root / "burn", "another model": root / "other"}
    shutil.copytree(source, found["itself, copied"])
    convert = [program(), "convert", source, found["itself, for Burn"], "--to", "burn", "--verify", "none"]
    subprocess.run([*map(str, convert)], check=True, stdout=subprocess.DEVNULL)
    shutil.copytree(source, found["another model"])
    changed(found["another model"] / "model.safetensors")
    return found


def changed(path: Path) -> None:
    """Turn one low bit of every number."""
    data = bytearray(path.read_bytes())
    start = 8 + int.from_bytes(data[:8], "little")
    data[start::4] = bytes(b ^ 16 for b in data[start::4])
    path.write_bytes(data)


def program() -> str:
    """The command beside this Python."""
    return str(Path(sys.executable).with_name("portkit"))


def differing(command: list[str]) -> list[str]:
    """The command, with exit code 1 taken for success: two models that differ are a result."""
    return ["sh", "-c", '"$@" || [ $? = 1 ]', "sh", *command]


def main() -> None:
    """Print the best of all repeats."""
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        others = folders(root)
        source = root / "bert-base"
        files = [str(folder / "model.safetensors") for folder in (source, others["itself, copied"])]
        bare = run([sys.executable, "-c", "pass"])[1]
        cmp = min(run(["cmp", *files])[0] for _ in range(repeats))
        imports = min(run([sys.executable, "-c", IMPORTS])[0] for _ in range(repeats))
        print(f"cmp {cmp:.2f} s, imports {imports:.2f} s")
        for name, other in others.items():
            runs = [run(differing([program(), "diff", str(source), str(other)])) for _ in range(repeats)]
            seconds, peak = min(s for s, _ in runs), max(p for _, p in runs)
            times = (seconds - imports) / cmp
            print(
                f"diff with {name}: {seconds:.2f} s, without imports {times:.1f} times cmp, peak {peak - bare:.0f} MB more"
            )


if __name__ == "__main__":
    main()
