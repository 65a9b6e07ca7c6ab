"""The figures of a difference, against plain numpy and against numbers that are known."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
from numpy.testing import assert_allclose

from portkit.difference.blocks import BLOCK, blocks
from portkit.difference.measure import Tolerance, measure

DTYPES = {"float64": "f8", "float32": "f4", "float16": "f2", "bfloat16": ml_dtypes.bfloat16}
SHAPES = [(), (1,), (7,), (3, 5), (2, 3, 5), (BLOCK + 3,), (3, BLOCK + 1), (BLOCK // 100, 211)]


def two(shape, dtype="f4", seed=0):
    rng = np.random.default_rng(seed)
    a = np.asarray(rng.normal(size=shape))
    return a.astype(dtype), (a + 0.1 * rng.normal(size=shape)).astype(dtype)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_figures_are_those_of_numpy(shape, dtype):
    a, b = two(shape, DTYPES[dtype])
    wide = a.astype("f8"), b.astype("f8")
    found = measure(a, b)
    apart = np.abs(wide[0] - wide[1])
    assert (found.count, found.not_finite) == (a.size, 0)
    assert found.differing == np.count_nonzero(wide[0] != wide[1])
    assert found.max_abs == apart.max()
    assert apart[found.at] == apart.max()
    assert (found.left, found.right) == (wide[0][found.at], wide[1][found.at])
    assert_allclose(found.squares, np.square(apart).sum(), rtol=1e-9)
    assert_allclose(found.relative, np.sqrt(np.square(apart).sum() / np.square(wide[0]).sum()), rtol=1e-9)
    assert_allclose(found.std, [x.std() for x in wide], rtol=1e-6, atol=1e-9)
    if a.size > 2:
        assert_allclose(found.correlation, np.corrcoef(wide[0].ravel(), wide[1].ravel())[0, 1], rtol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
def test_ulp_counts_the_numbers_between(dtype):
    kind = np.dtype(DTYPES[dtype])
    bits = f"u{kind.itemsize}"
    one = np.ones(1, kind)
    for steps in (1, 2, 1000 if kind.itemsize > 2 else 50):
        assert measure(one, (one.view(bits) + np.array(steps, bits)).view(kind)).ulp == steps
    smallest = np.array([1], bits).view(kind)
    assert measure(smallest, -smallest).ulp == 3  # over 0 and -0
    assert measure(np.zeros(1, kind), -np.zeros(1, kind)).ulp == 1
    assert measure(one, -one).ulp > 2 ** (8 * kind.itemsize - 3)


def test_integers_have_no_ulp():
    found = measure(np.array([1, 5, 9]), np.array([1, 7, 9]))
    assert (found.ulp, found.max_abs, found.at, found.differing) == (None, 2.0, (1,), 1)


def test_what_is_not_finite_is_counted_and_found():
    a = np.array([1, np.nan, np.inf, 4, np.nan], "f4")
    b = np.array([1, np.nan, 3, 4.5, 2], "f4")
    found = measure(a, b, Tolerance(atol=1e9))
    assert (found.differing, found.not_finite, found.beyond, found.at) == (3, 2, 2, (2,))
    assert math.isinf(found.max_abs)
    assert found.squares == 0.25


@pytest.mark.parametrize("tolerance", [Tolerance(), Tolerance(0.05), Tolerance(0.0, 0.05), Tolerance(0.02, 0.03)])
def test_tolerance_is_that_of_allclose(tolerance):
    a, b = two((40, 30))
    close = np.isclose(a.astype("f8"), b.astype("f8"), atol=tolerance.atol, rtol=tolerance.rtol)
    assert 0 < measure(a, b, tolerance).beyond == np.count_nonzero(~close)


def test_a_zero_side_has_nothing_to_relate_to():
    zeros, ones = np.zeros((3, 4), "f4"), np.ones((3, 4), "f4")
    assert math.isinf(measure(zeros, ones).relative)
    assert measure(zeros, zeros).relative == 0
    assert measure(zeros, ones).correlation is None


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_blocks_cover_everything_once(shape):
    a, b = two(shape)
    found = list(blocks(a, b))
    assert sum(x.size for _, x, _ in found) == a.size
    assert_allclose(np.concatenate([x.ravel() for _, x, _ in found]), a.ravel())
    assert [start for start, _, _ in found] == list(np.cumsum([0, *(len(x) for _, x, _ in found)])[:-1])
