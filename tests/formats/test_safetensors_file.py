from __future__ import annotations

import itertools
import json
import random
import tracemalloc
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import save, save_file

from portkit.errors import PortkitError, UnreadableError
from portkit.formats.safetensors_file import read_safetensors, write_safetensors
from portkit.tensors import NUMPY_DTYPES, TensorSpec, dtype_name

F32 = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}


def specs_of(arrays):
    return [TensorSpec(name, array.shape, dtype_name(array.dtype)) for name, array in arrays.items()]


def write(path, arrays, **metadata):
    write_safetensors(path, specs_of(arrays), iter(arrays.values()), metadata=metadata)


def file_of(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def bits(array):
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def assert_same(found, wanted):
    assert (found.dtype, found.shape, found.flags.c_contiguous) == (wanted.dtype, wanted.shape, True)
    np.testing.assert_array_equal(bits(found), bits(wanted))


def random_array(rng, dtype, shape):
    size = NUMPY_DTYPES[dtype].itemsize * int(np.prod(shape, dtype=int))
    data = rng.integers(0, 2 if dtype == "BOOL" else 256, size).astype(np.uint8)
    return data.view(NUMPY_DTYPES[dtype]).reshape(shape)


shapes = st.lists(st.integers(0, 4), max_size=3).map(tuple)
names = (
    st.text(min_size=1, max_size=6)
    .filter(lambda name: name.isprintable() or "\n" in name)
    .filter(lambda name: not any("\ud800" <= letter <= "\udfff" for letter in name))
)
tensors = st.dictionaries(names, st.tuples(st.sampled_from(list(NUMPY_DTYPES)), shapes), max_size=6)


@settings(max_examples=80, deadline=None)
@given(tensors, st.integers(0, 2**32 - 1))
def test_files_are_the_librarys_to_the_byte_and_read_back(tmp_path_factory, plan, seed):
    folder = tmp_path_factory.getbasetemp()
    rng = np.random.default_rng(seed)
    arrays = {name: random_array(rng, dtype, shape) for name, (dtype, shape) in plan.items()}
    write(folder / "ours", arrays, format="pt")
    assert (folder / "ours").read_bytes() == save(arrays, {"format": "pt"})
    container = read_safetensors(folder / "ours")
    assert (container.format, dict(container.metadata)) == ("safetensors", {"format": "pt"})
    assert sorted(container.tensors) == sorted(arrays)
    for name, tensor in container.tensors.items():
        assert (tensor.name, tensor.file) == (name, "ours")
        assert_same(tensor.read(), arrays[name])


def test_every_dtype_lies_where_the_library_puts_it(tmp_path):
    rng = np.random.default_rng(0)
    arrays = {f"{name}{size}": random_array(rng, name, (size,)) for name in NUMPY_DTYPES for size in (3, 2)}
    write(tmp_path / "ours", arrays)
    save_file(arrays, tmp_path / "theirs")
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()


def test_byte_ranges_are_those_of_the_file(tmp_path):
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    write(tmp_path / "m", {"b": array, "a": array + 1})
    container = read_safetensors(tmp_path / "m")
    assert list(container.tensors) == ["a", "b"]  # the order of the header
    first, end = container.tensors["b"].at
    np.testing.assert_array_equal(np.frombuffer((tmp_path / "m").read_bytes()[first:end], np.float32), array.ravel())


def test_the_library_reads_what_is_written(tmp_path):
    arrays = {"x": np.asfortranarray(np.arange(6.0).reshape(2, 3)), "scalar": np.array(2, ">i4")}
    write(tmp_path / "m", arrays, a="1", b="2")
    with safe_open(tmp_path / "m", framework="np") as file:
        assert file.metadata() == {"a": "1", "b": "2"}
        np.testing.assert_array_equal(file.get_tensor("x"), arrays["x"])
        np.testing.assert_array_equal(file.get_tensor("scalar"), 2)


def test_one_array_is_in_memory_at_a_time(tmp_path):
    spec = [TensorSpec(str(number), (1 << 18,), "F32") for number in range(40)]
    tracemalloc.start()
    write_safetensors(tmp_path / "m", spec, (np.full(1 << 18, 3, np.float32) for _ in spec))
    for tensor in read_safetensors(tmp_path / "m").tensors.values():
        assert tensor.read()[-1] == 3
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 << 20  # three of forty


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "the file is empty"),
        (b"version https://git-lfs.github.com/spec/v1\n", "a git-lfs pointer(.|\n)*git lfs pull"),
        (b"<html>not found</html>", "a web page"),
        (bytes(16), "zeros where a header should be"),
        (b"NRUB\x01\0" + bytes(300), "not a safetensors file(.|\n)*burnpack"),
        (
            file_of({"a": F32}, bytes(4))[:-1],
            "the header promises 73 bytes, the file has 72(.|\n)*to the end",
        ),
        (file_of({"a": F32})[:20], "the header promises 61 bytes for itself alone, the file has 20"),
        ((1 << 40).to_bytes(8, "little") + b"{}", "promises 1099511627776 bytes for itself alone"),
        (file_of(b"{oops}"), "the header is not valid JSON"),
        (file_of(b'{"a\xff": 1}'), "the header is not valid JSON(.|\n)*utf-8"),
        (file_of(b"{" + b'"a":{' * 5000), "the header is not valid JSON"),
        (file_of(b'{"a":1,"b":2,"a":3}'), "the header has a name twice(.|\n)*'a'"),
        (file_of({"a": F32, "b": F32}, bytes(4)), "refuses the header(.|\n)*invalid offset"),
        (
            file_of({"a": F32, "b": {**F32, "data_offsets": [8, 12]}}, bytes(12)),
            "refuses the header(.|\n)*`b`",
        ),
        (file_of({"a": {**F32, "shape": [2]}}, bytes(4)), "refuses the header(.|\n)*invalid shape"),
        (file_of({"a": {**F32, "shape": [2**40, 2**40]}}, bytes(4)), "refuses the header(.|\n)*overflow"),
        (file_of({"a": F32}, bytes(9)), "refuses the header(.|\n)*not fully covered"),
        (file_of({"a": {**F32, "dtype": "Q8"}}, bytes(4)), "refuses the header(.|\n)*unknown variant `Q8`"),
        (file_of({"a": 1}), "refuses the header(.|\n)*invalid type"),
        (file_of({"__metadata__": {"step": 1}}), "refuses the header(.|\n)*expected a string"),
        (
            file_of(
                {
                    "c": {"dtype": "C64", "shape": [1], "data_offsets": [0, 8]},
                    "f": {**F32, "dtype": "F8_E8M0", "shape": [4], "data_offsets": [8, 12]},
                },
                bytes(12),
            ),
            r"2 problems(.|\n)*: c: stored as C64, which portkit does not read(.|\n)*: f: stored as F8_E8M0",
        ),
        (
            file_of({"a": {**F32, "shape": [2**61, 0], "data_offsets": [0, 0]}}),
            "a shape that no array can have",
        ),
        (file_of({"a": {**F32, "shape": [1] * 65}}, bytes(4)), "a shape that no array can have"),
    ],
)
def test_broken_files_are_refused_with_the_reason(tmp_path, data, words):
    path = tmp_path / "model.safetensors"
    path.write_bytes(data)
    with pytest.raises(UnreadableError, match=words):
        read_safetensors(path)


def test_a_header_of_many_megabytes_is_not_parsed(tmp_path):
    path = tmp_path / "m"
    with path.open("wb") as file:
        file.write((40 << 20).to_bytes(8, "little") + b"{")
        file.truncate((40 << 20) + 8)
    with pytest.raises(UnreadableError, match=r"the header is too large(.|\n)*at most 33554432 bytes"):
        read_safetensors(path)


def test_a_file_that_changes_after_it_was_opened(tmp_path):
    write(tmp_path / "m", {"a": np.ones(1000, np.float32)})
    tensor = read_safetensors(tmp_path / "m").tensors["a"]
    with (tmp_path / "m").open("r+b") as file:
        file.truncate(500)
    with pytest.raises(UnreadableError, match=r"the file ends before its data\n *expected *4000 bytes at"):
        tensor.read()
    (tmp_path / "m").unlink()
    with pytest.raises(UnreadableError, match="the file cannot be read"):
        tensor.read()


@pytest.mark.parametrize(
    ("names", "arrays", "words"),
    [
        ("a", [np.zeros(2, np.float32)], "a: the array is not what was announced"),
        ("a", [np.zeros(1, np.float64)], "a: the array is not what was announced"),
        ("ab", [np.zeros(1, np.float32)], "b: no array came"),
        ("a", [np.zeros(1, np.float32)] * 2, "more arrays than the 1"),
        ("aa", [np.zeros(1, np.float32)] * 2, "a: is announced twice"),
        (["__metadata__"], [np.zeros(1, np.float32)], "__metadata__: the format keeps this name for itself"),
        (["\ud800"], [np.zeros(1, np.float32)], "no UTF-8 form"),
    ],
)
def test_a_failed_write_leaves_the_old_file(tmp_path, names, arrays, words):
    (tmp_path / "m").write_bytes(b"old")
    with pytest.raises(PortkitError, match=words):
        write_safetensors(tmp_path / "m", [TensorSpec(name, (1,), "F32") for name in names], arrays)
    assert [path.name for path in tmp_path.iterdir()] == ["m"]
    assert (tmp_path / "m").read_bytes() == b"old"


def test_mutated_files_are_read_or_refused(tmp_path):
    path = tmp_path / "m"
    whole = save({"a": np.ones((2, 3), np.float32), "b": np.zeros((), np.int64)}, {"format": "pt"})
    header = 8 + int.from_bytes(whole[:8], "little")
    rng = random.Random(1)
    for turn in itertools.chain(range(len(whole)), [None] * 800):
        data = bytearray(whole[:turn] if turn is not None else whole)
        for _ in range(0 if turn is not None else rng.randint(1, 3)):
            data[rng.randrange(header)] = rng.randrange(256)
        path.write_bytes(data)
        with suppress(PortkitError):
            for tensor in read_safetensors(path).tensors.values():
                assert tensor.read().nbytes <= len(whole)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.recursive(st.none() | st.integers() | st.text(max_size=3), lambda inner: st.lists(inner, max_size=3)),
    st.sampled_from(["dtype", "shape", "data_offsets"]),
)
def test_headers_with_strange_values(tmp_path, value, key):
    (tmp_path / "m").write_bytes(file_of({"a": {**F32, key: value}}, bytes(4)))
    with suppress(UnreadableError):
        assert list(read_safetensors(tmp_path / "m").tensors) == ["a"]
