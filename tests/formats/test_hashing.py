"""The SHA-256 that a writer returns is that of the file, in whatever order its parts were written."""

from __future__ import annotations

import hashlib
import threading

import numpy as np
import pytest

from portkit.errors import PortkitError
from portkit.formats import hashing as module
from portkit.formats.burnpack import write_burnpack
from portkit.formats.hashing import Follower, hashing
from portkit.formats.hdf5 import write_hdf5
from portkit.formats.named_mpk import write_named_mpk
from portkit.formats.safetensors_file import write_safetensors
from portkit.formats.write import write_at_offsets
from portkit.tensors import TensorSpec

WRITERS = {
    "safetensors": write_safetensors,
    "bpk": write_burnpack,
    "mpk": write_named_mpk,
    "h5": write_hdf5,
}
SHAPES = {"z.weight": (700, 1100), "a.weight": (1, 3), "m.bias": (0,), "b.table": (50_000, 7), "y.bias": (5,)}


def of(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def arrays():
    return [np.random.default_rng(0).standard_normal(shape, np.float32) for shape in SHAPES.values()]


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("form", WRITERS)
def test_every_writer_returns_the_hash_of_its_file(tmp_path, form, order):
    names = {name.replace(".", "/") if form == "h5" else name: shape for name, shape in SHAPES.items()}
    specs = [TensorSpec(name, shape, "F32") for name, shape in names.items()]
    path = tmp_path / f"model.{form}"
    assert WRITERS[form](path, specs[::order], arrays()[::order]) == of(path)


@pytest.mark.parametrize("offsets", [[0, 8, 20], [20, 8, 0], [8, 20, 0], [8, 0, 20]])
def test_only_what_is_final_is_said_to_be(tmp_path, offsets):
    specs = [TensorSpec(str(i), (1,), "F64") for i in range(3)]
    said = []
    with (tmp_path / "x").open("w+b") as file:

        def reached(end):
            said.append((end, file.seek(0) or file.read(end)))

        places = {spec.name: offset for spec, offset in zip(specs, offsets, strict=True)}
        write_at_offsets(file, 0, specs, [np.array([i + 1.0]) for i in range(3)], places, reached)
    whole = (tmp_path / "x").read_bytes()
    assert [end for end, _ in said] == sorted(end for end, _ in said)
    assert len(said) == 3
    assert all(whole.startswith(there) for _, there in said)  # a gap at the end is not there yet


def test_a_follower_reads_no_further_than_it_was_told(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"abcdef")
    follower = Follower(path)
    follower.reached(2)
    follower.reached(4)
    follower.stop()
    assert follower.sha256 == hashlib.sha256(b"abcd").hexdigest()


def test_bytes_that_wait_in_a_buffer_are_hashed_too(tmp_path):
    with (tmp_path / "x").open("wb") as file, hashing(file) as follower:
        file.write(b"abc")
    assert follower.sha256 == of(tmp_path / "x")


def test_a_file_that_cannot_be_read_has_no_hash(tmp_path):
    follower = Follower(tmp_path / "nothing")
    follower.stop()
    with pytest.raises(FileNotFoundError):
        _ = follower.sha256


def test_what_could_not_be_read_for_want_of_memory_has_no_hash(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_CHUNK", 1 << 62)
    (tmp_path / "x").write_bytes(b"abc")
    follower = Follower(tmp_path / "x")
    follower.stop()
    with pytest.raises(MemoryError):
        _ = follower.sha256


def test_a_failure_of_the_writer_leaves_no_thread(tmp_path):
    before = threading.active_count()
    with pytest.raises(PortkitError, match="no array came"):
        write_safetensors(tmp_path / "x", [TensorSpec("a", (1,), "F32")], [])
    assert threading.active_count() == before
