"""HDF5 files that lie, point elsewhere, or are broken: one error of ours each, in words that say what it is."""

from __future__ import annotations

import subprocess
import sys

import h5py
import numpy as np
import pytest

from portkit.errors import UnreadableError
from portkit.formats import hdf5_guard, open_container
from portkit.formats.hdf5 import read_hdf5

ONES = np.ones((6, 5), np.float32)


def crafted(path, change):
    with h5py.File(path, "w") as file:
        file["layers/dense/vars/0"] = ONES
        change(file, path)
    return path


def virtual(file, path):
    layout = h5py.VirtualLayout((6, 5), "f4")
    layout[...] = h5py.VirtualSource(path.with_name("other.h5"), "a", (6, 5))
    file.create_virtual_dataset("virtual", layout)


def circle(file, path):
    file["layers/dense/again"] = file["layers"]


def deep(file, path):
    file["/".join(["a"] * 40)] = ONES


def declared(file, path):
    file.create_dataset("declared", (6, 5), "f4")


def half_written(file, path):
    file.create_dataset("half", (60, 50), "f4", chunks=(10, 10))[:10, :30] = 1


def unknown_filter(file, path):
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk((6, 5))
    plist.set_filter(32015, h5py.h5z.FLAG_OPTIONAL)  # zstd, which h5py does not have
    kind, space = h5py.h5t.py_create(np.dtype("f4")), h5py.h5s.create_simple((6, 5))
    h5py.Dataset(h5py.h5d.create(file.id, b"zstd", kind, space, dcpl=plist))[...] = ONES


HOSTILE = {
    "soft link": (lambda f, p: f.update(soft=h5py.SoftLink("/layers")), r"soft: points elsewhere(.|\n)*SoftLink"),
    "dangling link": (lambda f, p: f.update(soft=h5py.SoftLink("/none")), r"soft: points elsewhere(.|\n)*SoftLink"),
    "external link": (
        lambda f, p: f.update(away=h5py.ExternalLink("/etc/passwd", "/a")),
        r"away: points elsewhere(.|\n)*ExternalLink(.|\n)*never followed",
    ),
    "virtual dataset": (virtual, r"virtual: its numbers lie in another file(.|\n)*never followed"),
    "external storage": (
        lambda f, p: f.create_dataset("raw", (4,), "u1", external=[("/etc/hostname", 0, 4)]),
        r"raw: its numbers lie in another file(.|\n)*never followed",
    ),
    "circle": (circle, r"layers/dense/again: groups that lead back to themselves"),
    "deep": (deep, "groups that lead back to themselves, or without end"),
    "declared": (declared, r"declared: declared and never written(.|\n)*120 bytes(.|\n)*none"),
    "half written": (half_written, r"half: not wholly written(.|\n)*30 chunks(.|\n)*found +3"),
    "unknown filter": (unknown_filter, "zstd: an unknown HDF5 filter, number 32015"),
    "line break": (lambda f, p: f.update({"a\nb": ONES}), r"'a\\nb': a name that cannot be printed"),
    "escape": (lambda f, p: f.update({"\x1b[31m": ONES}), r"'\\x1b\[31m': a name that cannot be printed"),
    "no text": (lambda f, p: f.update({b"\xff\xfe": ONES}), r"a name that cannot be printed"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused(tmp_path, name):
    change, words = HOSTILE[name]
    with pytest.raises(UnreadableError, match=words) as caught:
        open_container(crafted(tmp_path / "x.h5", change))
    assert len(caught.value.problems) == 1
    str(caught.value).encode()


def test_all_problems_come_at_once(tmp_path):
    def change(file, path):
        declared(file, path)
        circle(file, path)
        file["soft"] = h5py.SoftLink("/layers")

    with pytest.raises(UnreadableError, match="3 problems"):
        open_container(crafted(tmp_path / "x.h5", change))


def packed_zeros(path, times):
    """A megabyte of zeros, deflated once or more."""
    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_chunk((1 << 18,))
    for _ in range(times):
        plist.set_deflate(9)
    with h5py.File(path, "w") as file:
        kind, space = h5py.h5t.py_create(np.dtype("f4")), h5py.h5s.create_simple((1 << 18,))
        h5py.Dataset(h5py.h5d.create(file.id, b"zeros", kind, space, dcpl=plist))[...] = 0
    return path


def test_bombs_are_told_from_honest_zeros(tmp_path, monkeypatch):
    monkeypatch.setattr(hdf5_guard, "FREE_BYTES", 1 << 16)
    honest = open_container(packed_zeros(tmp_path / "honest.h5", 1)).tensors["zeros"]
    assert not honest.read().any()
    with pytest.raises(UnreadableError, match=r"zeros: declares far more than it stores(.|\n)*found +1048576"):
        open_container(packed_zeros(tmp_path / "bomb.h5", 2))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x89HDF\r\n\x1a\n", "the HDF5 file is broken"),
        (b"\x89HDF\r\n\x1a\n" + bytes(2000), "the HDF5 file is broken"),
        (b"no HDF5 at all, " * 100, "not a weight file that portkit reads"),
        (b"", "the file is empty"),
    ],
)
def test_what_is_no_hdf5(tmp_path, data, words):
    (tmp_path / "x.h5").write_bytes(data)
    with pytest.raises(UnreadableError, match=words):
        open_container(tmp_path / "x.h5")


def test_truncated_files(tmp_path):
    whole = crafted(tmp_path / "x.h5", lambda file, path: file.update(last=ONES)).read_bytes()
    part = tmp_path / "part.h5"
    for size in [*range(8, 200, 16), *range(200, len(whole), 97), len(whole) - 1]:
        part.write_bytes(whole[:size])
        with pytest.raises(UnreadableError, match=r"part\.h5: the HDF5 file is broken"):
            read_hdf5(part)
    part.write_bytes(whole[:-1])
    with pytest.raises(UnreadableError, match="copied or downloaded to the end"):
        read_hdf5(part)


def test_numbers_that_are_damaged_are_found_where_the_file_has_a_checksum(tmp_path):
    path = crafted(tmp_path / "x.h5", lambda f, p: f.create_dataset("checked", data=ONES, fletcher32=True))
    data = bytearray(path.read_bytes())
    at = data.rindex(ONES[0].tobytes())
    data[at] ^= 1
    path.write_bytes(data)
    with pytest.raises(UnreadableError, match="the HDF5 file is broken"):
        open_container(path).tensors["checked"].read()


@pytest.mark.parametrize(("at", "value"), [(8, 255), (24, 255), (96, 1), (104, 1), (104, 0)])
def test_damaged_texts_do_not_hold_the_reader_for_ever(tmp_path, at, value):
    """The size of the whole, of the text, and of the free space behind it."""
    change = lambda file, path: file.attrs.update({"model_config": "x" * 60})  # noqa: E731
    path = crafted(tmp_path / "x.h5", change)
    data = bytearray(path.read_bytes())
    data[data.index(b"GCOL") + at] = value
    path.write_bytes(data)
    with pytest.raises(UnreadableError, match=r"the HDF5 file is broken\s+found    a damaged heap at byte \d+"):
        read_hdf5(path)


def test_heaps_of_another_width_are_not_read(tmp_path):
    plist = h5py.h5p.create(h5py.h5p.FILE_CREATE)
    plist.set_sizes(8, 4)
    made = h5py.h5f.create(str(tmp_path / "x.h5").encode(), h5py.h5f.ACC_TRUNC, fcpl=plist)
    with h5py.File(made) as file:
        file.attrs["model_config"] = "{}"
    with pytest.raises(
        UnreadableError,
        match=r"the HDF5 file has numbers of another width\s+expected \(8, 8\) bytes\s+found    \(8, 4\)",
    ):
        read_hdf5(tmp_path / "x.h5")


MUTATE = """
import random, resource, sys
from pathlib import Path
from portkit.errors import PortkitError
from portkit.formats import open_container

resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
source, target = Path(sys.argv[1]), Path(sys.argv[2])
whole, rng = source.read_bytes(), random.Random(int(sys.argv[3]))
start = max(whole.find(b"GCOL"), 0)
refused = 0
for _ in range(300):
    data = bytearray(whole)
    for _ in range(rng.choice([1, 2, 5])):
        at = (start + rng.randrange(rng.choice([100, 1000, len(data)]))) % len(data)
        data[at] = rng.choice([0, 255, data[at] ^ (1 << rng.randrange(8))])
    target.write_bytes(data)
    try:
        for tensor in open_container(target).tensors.values():
            assert tensor.read().shape == tensor.spec.shape
    except PortkitError:
        refused += 1
print(refused)
"""


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize(
    "options", [{}, {"compression": "gzip", "shuffle": True, "fletcher32": True}, {"compression": "lzf"}]
)
def test_changed_bytes_are_an_error_of_ours_or_none(tmp_path, options, legacy):
    """In a process of its own: the HDF5 library is C, and may crash, ask for all memory or never come back."""

    def change(file, path):
        if legacy:
            file.attrs["model_config"] = '{"class_name": "BertBackbone"}'
        for i in range(3):
            file.create_dataset(
                f"layers/dense_{i}/vars/0", data=np.random.default_rng(i).normal(size=(20, 6)), **options
            )

    source = crafted(tmp_path / "x.h5", change)
    words = [sys.executable, "-c", MUTATE, source, tmp_path / "changed.h5", str(len(options))]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert 0 < int(done.stdout) < 300
