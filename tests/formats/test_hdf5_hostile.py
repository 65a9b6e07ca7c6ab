"""HDF5 files, archives and shards of Keras that lie, lead elsewhere or are broken."""

from __future__ import annotations

import json
import zipfile

import h5py
import numpy as np
import pytest
from keras_variables import h5_write

from portkit.errors import UnreadableError
from portkit.formats import hdf5_guard, keras_archive
from portkit.formats.hdf5 import read_hdf5
from portkit.formats.hdf5_shards import read_hdf5_shards
from portkit.formats.keras_archive import read_keras_archive

ONES = np.ones(3, np.float32)
ONE, TWO = "model_00000.weights.h5", "model_00001.weights.h5"
FAR = 32015  # the number of a filter that HDF5 does not bring along


def loop(file):
    file["a/b"] = ONES
    file["a/c"] = file["a"]


def unknown_filter(file):
    plan = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plan.set_chunk((3,))
    plan.set_filter(FAR, h5py.h5z.FLAG_OPTIONAL)
    h5py.h5d.create(file.id, b"x", h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple((3,)), plan)


HOSTILE = {
    "a circle": (loop, r"a/c: groups that lead back to themselves, or without end"),
    "a soft link": (
        lambda file: file.update({"x": h5py.SoftLink("/y"), "y": ONES}),
        r"x: points elsewhere\s+expected the data itself\s+found    SoftLink\s+hint     never followed",
    ),
    "a link to a file": (
        lambda file: file.update({"x": h5py.ExternalLink("/etc/passwd", "/y")}),
        r"x: points elsewhere\s+expected the data itself\s+found    ExternalLink",
    ),
    "numbers in a file": (
        lambda file: file.create_dataset("x", (3,), "f4", external=[("/etc/passwd", 0, 12)]),
        r"x: its numbers lie in another file\s+expected the data itself",
    ),
    "an unknown filter": (unknown_filter, rf"x: an unknown HDF5 filter, number {FAR}"),
    "no numbers": (
        lambda file: file.create_dataset("x", (3,), "f4", chunks=(3,)),
        r"x: declared and never written\s+expected 12 bytes\s+found    none",
    ),
    "many of few": (
        lambda file: file.create_dataset("x", (1 << 20,), "f4", chunks=(4,)).write_direct(ONES, dest_sel=np.s_[:3]),
        r"x: declares far more than it stores\s+expected at most 16512 bytes\s+found    4194304",
    ),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_what_leads_elsewhere_or_lies_is_refused(tmp_path, monkeypatch, case):
    monkeypatch.setattr(hdf5_guard, "FREE_BYTES", 1 << 20)
    change, words = HOSTILE[case]
    with h5py.File(tmp_path / "x.h5", "w") as file:
        change(file)
    with pytest.raises(UnreadableError, match=words):
        read_hdf5(tmp_path / "x.h5")


def test_a_file_that_is_cut_short_is_broken(tmp_path):
    path = h5_write(tmp_path / "x.h5", {"a": np.ones(3000, np.float32)})
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(UnreadableError, match=r"the HDF5 file is broken[\s\S]*copied or downloaded to the end"):
        read_hdf5(path)


@pytest.fixture
def shards(tmp_path):
    """A function that writes two shards, of one group each, and an index that says what it is given."""

    def write(weight_map, first=None):
        h5_write(tmp_path / ONE, first or {"a/vars/0": ONES})
        h5_write(tmp_path / TWO, {"b/vars/0": ONES + 1})
        index = tmp_path / "model.weights.json"
        index.write_text(json.dumps({"weight_map": weight_map}), encoding="utf-8")
        return index

    return write


def test_shards_are_one(shards):
    assert list(read_hdf5_shards(shards({"/a/vars": ONE, "/b/vars": [TWO]})).tensors) == ["a/vars/0", "b/vars/0"]


@pytest.mark.parametrize(
    ("weight_map", "words"),
    [
        ({}, r"no index of Keras weights\s+expected a weight_map of groups and files"),
        ([ONE], "no index of Keras weights"),
        ({"/a/vars": 3}, r"the weight_map names something that is no file\s+expected text or a list of texts"),
        ({"/a/vars": "../x.h5"}, r"\.\./x\.h5: leaves the folder\s+expected a plain file name"),
        ({"/a/vars": "gone.h5"}, r"gone\.h5: the shard is missing\s+hint     fetch it"),
        ({"/a/vars": TWO, "/b/vars": [ONE, TWO]}, f"{ONE}: holds a/vars/0, which the index does not place there"),
        (
            {"/a/vars": ONE, "/b/vars": TWO, "/c/vars": TWO},
            rf"/c/vars: no shard holds variables of this group\s+expected {TWO}",
        ),
    ],
)
def test_an_index_that_does_not_fit_its_shards_is_refused(shards, weight_map, words):
    with pytest.raises(UnreadableError, match=words):
        read_hdf5_shards(shards(weight_map))


def test_a_variable_in_two_shards_is_refused(shards):
    index = shards({"/a/vars": ONE, "/b/vars": [ONE, TWO]}, {"a/vars/0": ONES, "b/vars/0": ONES})
    with pytest.raises(UnreadableError, match=rf"{TWO}: holds b/vars/0 a second time\s+found    {ONE}"):
        read_hdf5_shards(index)


def test_a_huge_index_is_not_read(shards):
    index = shards({})
    with index.open("r+b") as file:
        file.truncate(1 << 30)
    with pytest.raises(UnreadableError, match=r"too large for an index[\s\S]*found    1073741824"):
        read_hdf5_shards(index)


@pytest.fixture
def archive(tmp_path):
    weights = h5_write(tmp_path / "w.h5", {"a": ONES})
    with zipfile.ZipFile(tmp_path / "x.keras", "w") as file:
        file.writestr("config.json", '{"module": "keras_hub"}')
        file.write(weights, "model.weights.h5")
    return tmp_path / "x.keras"


def test_an_archive_is_read(archive):
    assert list(read_keras_archive(archive).tensors) == ["a"]


def test_an_archive_that_claims_too_much_is_refused(archive, monkeypatch):
    monkeypatch.setattr(keras_archive, "MAX_CONFIG", 9)
    with pytest.raises(UnreadableError, match="a member declares more than it can hold"):
        read_keras_archive(archive)


def test_a_damaged_archive_is_refused(archive):
    archive.write_bytes(archive.read_bytes()[:-9])
    with pytest.raises(UnreadableError, match=r"a damaged \.keras archive"):
        read_keras_archive(archive)
