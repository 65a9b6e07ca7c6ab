from __future__ import annotations

import io
import tracemalloc
from itertools import accumulate

import ml_dtypes
import numpy as np
import pytest

from portkit.errors import PortkitError, UnwritableError
from portkit.formats.write import replacing, write_at_offsets
from portkit.tensors import TensorSpec

PAIR = [TensorSpec("a", (2,), "I16"), TensorSpec("b", (1,), "I16")]
ARRAYS = [np.array([1, 2], "<i2"), np.array([3], "<i2")]


def one_after_the_other(specs):
    ends = accumulate((spec.nbytes for spec in specs), initial=0)
    return {spec.name: end for spec, end in zip(specs, ends, strict=False)}


def written(specs, arrays, start=0, offsets=None):
    file = io.BytesIO()
    write_at_offsets(file, start, specs, arrays, offsets or one_after_the_other(specs))
    return file.getvalue()


def test_arrays_lie_one_after_the_other():
    assert written(PAIR, ARRAYS, 1) == b"\0\1\0\2\0\3\0"


def test_arrays_lie_where_they_are_told_to():
    assert written(PAIR, ARRAYS, 2, {"a": 4, "b": 0}) == b"\0\0\3\0\0\0\1\0\2\0"


def test_bytes_are_little_endian_and_row_major():
    rows = np.arange(6, dtype=">i2").reshape(2, 3)
    spec = TensorSpec("a", (3, 2), "I16")
    assert written([spec], [rows.T]) == np.array([0, 3, 1, 4, 2, 5], "<i2").tobytes()


def test_brain_floats_and_scalars_are_written():
    specs = [TensorSpec("a", (2,), "BF16"), TensorSpec("b", (), "F32"), TensorSpec("c", (0, 2), "F32")]
    arrays = [np.array([1, 2], ml_dtypes.bfloat16), np.array(1, ">f4"), np.empty((0, 2), "<f4")]
    assert written(specs, arrays) == b"\x80\x3f\x00\x40\x00\x00\x80\x3f"


def test_an_array_of_another_shape_is_a_fault():
    with pytest.raises(
        PortkitError, match=r"a: the array is not what .*\n *expected *\(2,\) I16\n *found *\(2, 1\) int16"
    ):
        written(PAIR, [ARRAYS[0].reshape(2, 1)])


def test_an_array_of_another_dtype_is_a_fault():
    with pytest.raises(PortkitError, match=r"a: the array is not what .*\n.*\n *found *\(2,\) uint16"):
        written(PAIR, [ARRAYS[0].view("<u2")])


def test_a_missing_array_is_a_fault():
    with pytest.raises(PortkitError, match="b: no array came"):
        written(PAIR, ARRAYS[:1])


def test_an_array_too_many_is_a_fault():
    with pytest.raises(PortkitError, match="more arrays than the 1 that were announced"):
        written(PAIR[:1], ARRAYS)


@pytest.mark.parametrize("transposed", [False, True])
def test_one_array_is_held_at_a_time(tmp_path, transposed):
    specs = [TensorSpec(str(i), (2048, 4096), "F32") for i in range(3)]  # 32 MiB each
    shape = (4096, 2048) if transposed else (2048, 4096)
    arrays = (np.full(shape, i, "<f4").T if transposed else np.full(shape, i, "<f4") for i in range(3))
    tracemalloc.start()
    with (tmp_path / "x").open("wb") as file:
        write_at_offsets(file, 0, specs, arrays, one_after_the_other(specs))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (tmp_path / "x").stat().st_size == 3 * specs[0].nbytes
    assert peak < specs[0].nbytes + (9 << 20)


def test_a_failure_leaves_the_old_file_and_no_new_one(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"old")
    specs = [TensorSpec("a", (1,), "I8")]

    def interrupted():
        raise KeyboardInterrupt
        yield

    with pytest.raises(KeyboardInterrupt), replacing(path) as file:
        write_at_offsets(file, 0, specs, interrupted(), {"a": 0})
    assert [(found.name, found.read_bytes()) for found in tmp_path.iterdir()] == [("x", b"old")]


def test_what_the_system_refuses_is_told(tmp_path):
    with (
        pytest.raises(UnwritableError, match=r"no/x: cannot be written\n *found *No such file"),
        replacing(tmp_path / "no" / "x"),
    ):
        pytest.fail("there is nothing to write to")
