"""Bits are compared, not values."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from portkit.tensors import equal_bits

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
