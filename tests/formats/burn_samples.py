"""Tensors and damage for the tests of the two formats of Burn."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
from hypothesis import strategies as st

from portkit.errors import PortkitError
from portkit.tensors import NUMPY_DTYPES, TensorSpec

FIXTURES = Path(__file__).parents[1] / "fixtures" / "burn"
DTYPES = sorted(set(NUMPY_DTYPES) - {"F8_E4M3", "F8_E5M2"})  # Burn has no 8-bit floats

shapes = st.lists(st.integers(0, 5), max_size=4).map(tuple)
field_names = st.from_regex("[a-z_][a-z0-9_]{0,5}", fullmatch=True)
any_names = st.text(st.characters(codec="utf-8"), max_size=8)


@st.composite
def tensors(draw, names):
    """Specs with unique names, in any order, and their arrays of random bits."""
    chosen = draw(st.lists(names, unique=True, max_size=6))
    specs = [TensorSpec(name, draw(shapes), draw(st.sampled_from(DTYPES))) for name in chosen]
    return [(spec, random_array(spec, seed)) for seed, spec in enumerate(specs)]


def random_array(spec, seed=0):
    data = np.random.default_rng(seed).integers(0, 256, spec.nbytes, np.uint8)
    if spec.dtype == "BOOL":
        data &= 1
    return data.view(NUMPY_DTYPES[spec.dtype]).reshape(spec.shape)


def sample(name="a", shape=(2, 3), dtype="F32", seed=0):
    spec = TensorSpec(name, shape, dtype)
    return spec, random_array(spec, seed)


def assert_same_tensors(container, pairs):
    assert container.tensors.keys() == {spec.name for spec, _ in pairs}
    for spec, array in pairs:
        tensor = container.tensors[spec.name]
        assert tensor.spec == spec
        found = tensor.read()
        assert (found.shape, found.dtype, found.tobytes()) == (array.shape, array.dtype, array.tobytes())
        assert found.flags.c_contiguous


@st.composite
def damage(draw, data, header):
    """The bytes, with some of the header's changed, and perhaps cut or continued."""
    changed = bytearray(data)
    changes = st.tuples(st.integers(0, header - 1), st.integers(0, 255))
    for at, byte in draw(st.lists(changes, max_size=4)):
        changed[at] = byte
    end = draw(st.one_of(st.just(len(data)), st.integers(0, len(data))))
    return bytes(changed[:end]) + draw(st.binary(max_size=300))


def assert_read_or_refused(read, path, data):
    """All of the file is read, or refused by an error of portkit's own, within the memory of a small file."""
    path.write_bytes(data)
    tracemalloc.start()
    try:
        for tensor in read(path).tensors.values():
            assert tensor.read().shape == tensor.spec.shape
    except PortkitError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 20 * len(data) + (2 << 20)
