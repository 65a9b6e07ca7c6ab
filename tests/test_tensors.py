"""Bits are compared, not values."""

from __future__ import annotations

import tracemalloc

import ml_dtypes
import numpy as np
import pytest

from portkit.dense import PIECE_BYTES
from portkit.formats.safetensors_file import read_safetensors, write_safetensors
from portkit.tensors import TensorSpec, equal_bits, in_memory, same_bits, turned

NUMBERS = np.array([[1.5, -0.0, np.nan], [np.inf, 1e-42, 7.0]], np.float32)


@pytest.mark.parametrize("dtype", ["f4", "f2", "f8", ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, "i8", "u1", "?"])
def test_every_dtype_equals_itself(dtype):
    with np.errstate(all="ignore"):
        array = NUMBERS.astype(dtype)
    assert equal_bits(array, array.copy())
    assert equal_bits(array.T, array.T.copy())
    assert equal_bits(array[:0], array[:0])
    assert not equal_bits(array, array[::-1])


@pytest.mark.parametrize(
    ("place", "number"), [((0, 1), 0.0), ((0, 2), 1.0), ((1, 0), -np.inf), ((1, 1), 0.0), ((1, 2), 7.0000005)]
)
def test_one_other_number_is_seen(place, number):
    other = NUMBERS.copy()
    other[place] = number
    assert not equal_bits(NUMBERS, other)


def test_another_nan_is_another_number():
    other = NUMBERS.copy()
    other.view(np.uint32)[0, 2] += 1
    assert np.isnan(other[0, 2])
    assert not equal_bits(NUMBERS, other)


def test_shape_and_dtype_count():
    assert not equal_bits(NUMBERS, NUMBERS.reshape(3, 2))
    assert not equal_bits(NUMBERS, NUMBERS.view(np.int32))


SHAPES = [(), (1,), (7,), (3, 5), (2, 3, 5), (PIECE_BYTES // 4 + 3,), (3, PIECE_BYTES // 4), (2000, 211)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_last_bit_is_seen_with_any_strides(shape):
    a = np.random.default_rng(0).standard_normal(shape, np.float32).reshape(shape)
    b = a.copy()
    assert equal_bits(a, b)
    assert equal_bits(a.T, np.ascontiguousarray(b.T).reshape(a.T.shape))
    b.reshape(-1).view("u4")[-1] ^= 1
    assert not equal_bits(a, b)


def stored(path, *arrays):
    specs = [TensorSpec(str(i), array.shape, "F32") for i, array in enumerate(arrays)]
    write_safetensors(path, specs, arrays)
    return list(read_safetensors(path).tensors.values())


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_tensors_in_files_are_compared_to_their_last_byte(tmp_path, shape):
    array = np.arange(np.prod(shape), dtype="f4").reshape(shape)
    other = array.copy()
    other.reshape(-1)[-1] += 1
    a, b, c = stored(tmp_path / "a.safetensors", array, array, other)
    assert same_bits(a, b)
    assert same_bits(a, in_memory("x", array))
    assert same_bits(turned(TensorSpec("x", array.T.shape, "F32"), lambda: a.read().T), in_memory("x", array.T))
    assert not same_bits(a, c)
    assert not same_bits(a, in_memory("x", array.astype("i4")))
    assert not same_bits(a, in_memory("x", array.reshape(*shape, 1)))


@pytest.mark.parametrize("shape", [*SHAPES, (0, 3), (3, 0)], ids=str)
def test_pieces_from_a_file_are_those_of_the_array(tmp_path, shape):
    (tensor,) = stored(tmp_path / "a.safetensors", np.arange(np.prod(shape), dtype="f4").reshape(shape))
    found, expected = list(tensor.pieces()), list(in_memory("x", tensor.read()).pieces())
    assert len(found) == len(expected)
    assert all(map(equal_bits, found, expected))


def test_a_comparison_holds_pieces_and_no_tensor(tmp_path):
    array = np.zeros((20_000, 500), np.float32)
    a, b = stored(tmp_path / "a.safetensors", array, array)
    tracemalloc.start()
    assert same_bits(a, b)
    assert tracemalloc.get_traced_memory()[1] < 5 * PIECE_BYTES < array.nbytes
    tracemalloc.stop()
