from __future__ import annotations

import math

import numpy as np
import pytest

from portkit.runtimes.erf import erf


@pytest.mark.parametrize("scale", [1e-300, 1e-8, 1e-3, 0.05, 1, 2, 5])
def test_erf_is_math_erf_to_a_unit_in_the_last_place(scale):
    x = np.random.default_rng(0).normal(0, scale, 40_000)
    expected = np.array([math.erf(value) for value in x])
    np.testing.assert_allclose(erf(x), expected, rtol=1e-15, atol=1e-15)
    np.testing.assert_allclose(erf(x), expected, rtol=1e-15, atol=0)


def test_erf_keeps_shape_dtype_sign_and_nan():
    x = np.array([[0.0, -0.0, np.inf], [-np.inf, np.nan, 1e30]], np.float32)
    result = erf(x)
    assert result.dtype == np.float32
    np.testing.assert_array_equal(result, np.array([[0, 0, 1], [-1, np.nan, 1]], np.float32))
    assert np.signbit(result[0, 1])


def test_erf_of_nothing_is_nothing():
    assert erf(np.zeros((0, 3))).shape == (0, 3)
