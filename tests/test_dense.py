"""Copies of views: the same numbers, row by row, without a copy where none is needed."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from portkit.axes import move, parse_pattern, parse_signature
from portkit.dense import PIECE_BYTES, dense, pieces

DTYPES = (np.float32, np.float16, np.float64, ml_dtypes.bfloat16, ">f4", bool, "<i8")
VIEWS = {
    "transposed, as wide as a strip": lambda a: a[:48, :32].T,
    "transposed, wider than strips": lambda a: a[:33, :17].T,
    "transposed, narrower than a strip": lambda a: a[:3, :29].T,
    "one row": lambda a: a[:, :1].T[:, ::2],
    "one column": lambda a: a[:, 5:6],
    "every third number of a line": lambda a: a[7, ::3],
    "heads in front": lambda a: a[:60].reshape(3, 4, 5, 70).transpose(0, 2, 1, 3),
    "a kernel of heads": lambda a: a[:60].reshape(12, 5, 70).transpose(2, 0, 1),
    "backwards": lambda a: a[::-1, ::-1],
    "nothing": lambda a: a[:0, ::2].T,
}


def numbers(dtype: str) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 200, (64, 70)).astype(dtype)


def same(found: np.ndarray, view: np.ndarray) -> bool:
    expected = np.array(view, order="C")
    return (found.shape, found.dtype, found.tobytes()) == (expected.shape, expected.dtype, expected.tobytes())


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dense_is_what_numpy_makes_of_it(view, dtype):
    given = VIEWS[view](numbers(dtype))
    found = dense(given)
    assert found.flags.c_contiguous
    assert same(found, given)


def test_what_is_dense_is_not_copied():
    array = numbers("f4")
    assert dense(array) is array
    assert dense(array[3]).base is array
    assert all(np.shares_memory(piece, array) for piece in pieces(array))


@pytest.mark.parametrize("shape", [(1500, 700), (700, 1500), (3, 400_000), (1, 700_000), (2_000_000,), ()])
@pytest.mark.parametrize("turned", [False, True])
def test_pieces_are_the_rows_in_order(shape, turned):
    array = np.random.default_rng(0).standard_normal(shape, np.float32)
    view = array.T if turned else array
    found = list(pieces(view))
    assert b"".join(piece.tobytes() for piece in found) == view.tobytes()
    assert all(piece.flags.c_contiguous for piece in found)
    assert len(found) > 1 or view.size < 1_000_000 or len(view) <= 16


def test_a_piece_takes_about_a_megabyte():
    wide = np.zeros((5000, 3000), np.float32).T
    assert max(piece.nbytes for piece in pieces(wide)) <= PIECE_BYTES


def test_nothing_has_no_pieces():
    assert list(pieces(np.zeros((0, 3)))) == list(pieces(np.zeros((3, 0)))) == []


def test_a_move_copies_nothing():
    signature = parse_signature("h -> n d")
    there, here = (parse_pattern(text, signature) for text in ("(out) (in)", "in out"))
    array = np.random.default_rng(0).standard_normal((15, 7))
    moved = move(array, there, here, {"h": 7, "n": 3, "d": 5})
    assert moved.shape == (7, 3, 5)
    assert np.shares_memory(moved, array)
    assert np.array_equal(dense(moved), array.reshape(3, 5, 7).transpose(2, 0, 1))
