"""Keras' weights in several HDF5 files, and inside a `.keras` archive: whole ones are read, the others named."""

from __future__ import annotations

import io
import json
import zipfile
from contextlib import suppress

import h5py
import numpy as np
import pytest

from portkit.errors import PortkitError, UnreadableError
from portkit.formats import hdf5_shards, open_container
from portkit.formats.keras_archive import read_keras_archive

VALUES = {
    "layers/dense/vars/0": np.arange(12, dtype=np.float32).reshape(3, 4),
    "layers/dense/vars/1": np.arange(4, dtype=np.float32) + 20,
    "layers/norm/vars/0": np.arange(5, dtype=np.float32) - 7,
}
FIRST, SECOND = "model_00000.weights.h5", "model_00001.weights.h5"
SHARDS = {
    FIRST: {"layers/dense/vars/0": VALUES["layers/dense/vars/0"]},
    SECOND: {name: VALUES[name] for name in ("layers/dense/vars/1", "layers/norm/vars/0")},
}
MAP = {"/layers/dense/vars": [FIRST, SECOND], "/layers/norm/vars": SECOND}


def h5(arrays):
    memory = io.BytesIO()
    with h5py.File(memory, "w") as file:
        for name, array in arrays.items():
            file[name] = array
    return memory.getvalue()


def sharded(folder, places=MAP, shards=SHARDS):
    for name, arrays in shards.items():
        (folder / name).write_bytes(h5(arrays))
    index = folder / "model.weights.json"
    index.write_text(json.dumps({"metadata": {"total_size": 84.0}, "weight_map": places}))
    return index


def assert_values(container):
    assert sorted(container.tensors) == sorted(VALUES)
    for name, array in VALUES.items():
        np.testing.assert_array_equal(container.tensors[name].read(), array, strict=True)


def test_shards_are_one_container(tmp_path):
    container = open_container(sharded(tmp_path))
    assert_values(container)
    assert {name: tensor.file for name, tensor in container.tensors.items()} == {
        name: file for file, arrays in SHARDS.items() for name in arrays
    }
    assert container.tensors["layers/norm/vars/0"].at is not None


@pytest.mark.parametrize(
    ("places", "shards", "words"),
    [
        ({**MAP, "/a/vars": "../x.h5"}, SHARDS, r"\.\./x\.h5: leaves the folder"),
        ({**MAP, "/a/vars": ["a/x.h5", "..", ""]}, SHARDS, r"3 problems(.|\n)*a/x\.h5: leaves the folder"),
        ({**MAP, "/a/vars": "..\\x.h5"}, SHARDS, "leaves the folder"),
        ({**MAP, "/a/vars": "model_00002.weights.h5"}, SHARDS, r"model_00002.weights.h5: the shard is missing"),
        ({**MAP, "/a/vars": FIRST}, SHARDS, r"/a/vars: no shard holds variables of this group"),
        ({"/layers/dense/vars": [FIRST, SECOND]}, SHARDS, r"holds layers/norm/vars/0, which the index does not place"),
        ({**MAP, "/layers/dense/vars": FIRST}, SHARDS, r"00001.*: holds layers/dense/vars/1, which the index does not"),
        (MAP, {**SHARDS, FIRST: {**SHARDS[FIRST], **SHARDS[SECOND]}}, r"holds layers/dense/vars/1 a second time"),
        ({}, SHARDS, "no index of Keras weights"),
        ([FIRST], SHARDS, "no index of Keras weights"),
        ({"/layers/dense/vars": 3}, SHARDS, "names something that is no file"),
        ({"/layers/dense/vars": [FIRST, None]}, SHARDS, "names something that is no file"),
        ({"/layers/dense/vars": []}, SHARDS, r"/layers/dense/vars: no shard holds variables"),
    ],
)
def test_indexes_that_do_not_fit_are_refused(tmp_path, places, shards, words):
    with pytest.raises(UnreadableError, match=words):
        open_container(sharded(tmp_path, places, shards))


@pytest.mark.parametrize(
    ("text", "words"),
    [("", "not valid JSON"), ("[]", "not valid JSON"), ('{"weight_map": 1, "weight_map": 2}', "a name twice")],
)
def test_indexes_that_are_no_json(tmp_path, text, words):
    index = sharded(tmp_path)
    index.write_text(text)
    with pytest.raises(UnreadableError, match=words):
        open_container(index)


def test_a_huge_index_is_not_read(tmp_path, monkeypatch):
    index = sharded(tmp_path)
    monkeypatch.setattr(hdf5_shards, "MAX_INDEX", index.stat().st_size - 1)
    with pytest.raises(UnreadableError, match=r"too large for an index(.|\n)*at most"):
        open_container(index)


def test_a_broken_shard_is_named(tmp_path):
    index = sharded(tmp_path)
    (tmp_path / SECOND).write_bytes((tmp_path / SECOND).read_bytes()[:-9])
    with pytest.raises(UnreadableError, match=rf"{SECOND}: the HDF5 file is broken"):
        open_container(index)


# ---------------------------------------------------------------- .keras archives

CONFIG = {"class_name": "BertBackbone", "config": {"num_layers": 2}}


def archive(path, members, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(path, "w", compression) as file:
        for name, data in members.items():
            file.writestr(name, data)
    return path


def members(**changed):
    whole = {"metadata.json": "{}", "config.json": json.dumps(CONFIG), "model.weights.h5": h5(VALUES)}
    return {name: data for name, data in (whole | changed).items() if data is not None}


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA])
def test_archives_are_read(tmp_path, compression):
    container = open_container(archive(tmp_path / "x.keras", members(), compression))
    assert_values(container)
    assert json.loads(container.metadata["model_config"]) == CONFIG
    assert {tensor.at for tensor in container.tensors.values()} == {None}


@pytest.mark.parametrize("name", ["config.json", "model.weights.h5"])
def test_a_missing_member_is_named(tmp_path, name):
    path = archive(tmp_path / "x.keras", members(**{name: None}))
    with pytest.raises(UnreadableError, match=r"a zip archive, but none of torch or Keras(.|\n)*found +metadata"):
        open_container(path)
    with pytest.raises(UnreadableError, match=rf"a damaged \.keras archive(.|\n)*{name}"):
        read_keras_archive(path)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"config.json": "{"}, "config.json is not valid JSON"),
        ({"config.json": b"\xff\xfe\xfa"}, "config.json is not valid JSON"),
        ({"config.json": "[" * 100_000}, "config.json is not valid JSON"),
        ({"config.json": '["x"]'}, r"config.json is not valid JSON(.|\n)*an object(.|\n)*a list"),
        ({"config.json": '{"a": 1, "a": 2}'}, "config.json has a name twice"),
        ({"model.weights.h5": b"no HDF5"}, "the HDF5 file is broken"),
        ({"model.weights.h5": h5(VALUES)[:3000]}, "the HDF5 file is broken"),
    ],
)
@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_broken_members_are_refused(tmp_path, changed, words, compression):
    with pytest.raises(UnreadableError, match=words):
        open_container(archive(tmp_path / "x.keras", members(**changed), compression))


def test_bombs_are_refused(tmp_path):
    path = archive(tmp_path / "x.keras", members(), zipfile.ZIP_DEFLATED)
    data = bytearray(path.read_bytes())
    at = data.rindex(b"model.weights.h5") - 46 + 24  # the size in the central directory
    data[at : at + 4] = (0x7FFFFFFF).to_bytes(4, "little")
    path.write_bytes(data)
    with pytest.raises(UnreadableError, match="a member declares more than it can hold"):
        open_container(path)
    whole = archive(tmp_path / "y.keras", members(**{"config.json": " " * (65 << 20)}), zipfile.ZIP_DEFLATED)
    with pytest.raises(UnreadableError, match="a member declares more than it can hold"):
        open_container(whole)


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_damaged_archives_are_an_error_of_ours(tmp_path, compression):
    whole = archive(tmp_path / "x.keras", members(), compression).read_bytes()
    path = tmp_path / "y.keras"
    rng = np.random.default_rng(0)
    refused = 0
    for i in range(120):
        data = bytearray(whole)
        if i % 3:
            for at in rng.integers(0, len(data), 3):
                data[at] = rng.integers(256)
        else:
            del data[rng.integers(4, len(data)) :]
        path.write_bytes(data)
        with suppress(UnreadableError):
            for tensor in open_container(path).tensors.values():
                tensor.read()
            refused -= 1
        refused += 1
    assert 40 <= refused <= 120


def test_an_archive_of_another_class_is_named(tmp_path):
    from portkit.checkpoint import open_checkpoint

    for config in ({"class_name": "Functional", "config": {"layers": []}}, {"class_name": "Sequential", "config": {}}):
        path = archive(tmp_path / "x.keras", members(**{"config.json": json.dumps(config)}))
        with pytest.raises(PortkitError, match=rf"'{config['class_name']}' has no table"):
            open_checkpoint(path)
