"""The error function in double precision, which numpy lacks.

Around each point of a fine grid erf is its Taylor polynomial; its derivatives are Hermite polynomials H_n:
erf^(n+1)(x) = 2/sqrt(pi) (-1)^n H_n(x) exp(-x^2). The grid's own values come from math.erf.
"""

from __future__ import annotations

import math
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_STEPS_PER_UNIT = 256  # the sixth-order remainder is then below 1e-17
_TERMS = 6
_SATURATED = 6.0  # erf(6) = 1 - 2e-17, which rounds to 1
_BLOCK = 1 << 15  # elements at a time: temporaries stay in the cache

Float = TypeVar("Float", bound=np.floating[Any])


def erf(x: NDArray[Float]) -> NDArray[Float]:
    """The error function of every element, computed in float64, in the shape and dtype of `x`; NaN stays."""
    flat = np.ravel(x)
    result = np.empty_like(flat)
    for start in range(0, flat.size, _BLOCK):
        block = slice(start, start + _BLOCK)
        result[block] = _erf(flat[block].astype(np.float64))
    return result.reshape(x.shape)


def _erf(x: NDArray[np.float64]) -> NDArray[np.float64]:
    magnitude = np.minimum(np.abs(x), _SATURATED)
    nearest = np.rint(np.fmin(magnitude, _SATURATED) * _STEPS_PER_UNIT).astype(np.intp)  # fmin: NaN has no index
    distance = magnitude - nearest / _STEPS_PER_UNIT
    terms = _taylor_terms()
    value = terms[-1][nearest]
    for coefficient in terms[-2::-1]:
        value = value * distance + coefficient[nearest]
    signed: NDArray[np.float64] = np.copysign(value, x)
    return signed


@cache
def _taylor_terms() -> NDArray[np.float64]:
    """Coefficients of the powers of the distance, [terms, grid points]."""
    x = np.arange(int(_SATURATED * _STEPS_PER_UNIT) + 1) / _STEPS_PER_UNIT
    slope = 2 / math.sqrt(math.pi) * np.exp(-x * x)
    terms = [np.array([math.erf(point) for point in x])]
    before, hermite = np.zeros_like(x), np.ones_like(x)
    for n in range(_TERMS - 1):
        terms.append((-1) ** n * slope * hermite / math.factorial(n + 1))
        before, hermite = hermite, 2 * x * hermite - 2 * n * before
    return np.stack(terms)
