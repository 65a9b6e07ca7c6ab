from __future__ import annotations

import struct

import cbor2
import numpy as np
import pytest
from burn_samples import FIXTURES, any_names, assert_same_tensors, sample, tensors
from burnpack_files import HEADER, craft, entry, write
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from portkit.formats.burnpack import BurnpackExtras, read_burnpack, read_extras, write_burnpack
from portkit.tensors import TensorSpec

REAL = FIXTURES / "mnist-0.22.0-pre.bpk"
quick = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def path(tmp_path):
    return tmp_path / "m.bpk"


def test_the_file_that_burn_wrote_is_written_again_byte_for_byte(path):
    found = read_burnpack(REAL)
    specs = [tensor.spec for tensor in found.tensors.values()]
    arrays = (tensor.read() for tensor in found.tensors.values())
    write_burnpack(path, specs, arrays, extras=read_extras(REAL))
    assert path.read_bytes() == REAL.read_bytes()


def test_the_file_that_burn_wrote():
    found = read_burnpack(REAL)
    assert (found.format, found.metadata, found.notes) == ("burnpack", {}, ())
    assert [*found.tensors] == sorted(found.tensors)
    assert len(found.tensors) == 18
    assert found.tensors["fc3.weight"].spec == TensorSpec("fc3.weight", (128, 10), "F32")
    assert found.extras.param_ids["conv1.conv.bias"] == 0x83EB859ADFFB2071
    assert found.extras.blob_order[:2] == ("conv1.conv.weight", "conv1.conv.bias")
    variance = found.tensors["conv1.norm.running_var"].read()
    assert (variance > 0).all()  # no other reading of the bytes gives that
    tensor = found.tensors["fc1.weight"]
    data = REAL.read_bytes()[slice(*tensor.at)]
    np.testing.assert_array_equal(tensor.read(), np.frombuffer(data, "<f4").reshape(1600, 128))


@quick
@given(pairs=tensors(any_names), metadata=st.dictionaries(any_names, any_names, max_size=3))
def test_what_is_written_is_read(path, pairs, metadata):
    metadata.pop("_pad", None)
    found = read_burnpack(write(path, pairs, metadata=metadata))
    assert_same_tensors(found, pairs)
    assert found.metadata == metadata
    assert not found.notes


@quick
@given(pairs=tensors(any_names), pad=st.integers(0, 300))
@example(pairs=[sample()], pad=0)
def test_burn_019_and_newer_agree_on_what_is_written(path, pairs, pad):
    data = write(path, pairs, metadata={"k": "x" * pad}).read_bytes()
    magic, version, size = HEADER.unpack_from(data)
    start = HEADER.size + size
    assert (data[:4], magic, version) == (b"\x4e\x52\x55\x42", b"NRUB", 1)
    assert start % 256 == 0  # so that padding to 256, as 0.20 and newer expect, is none, as 0.19 expects
    index = cbor2.loads(data[HEADER.size : start])
    fields = [*index["tensors"].values()]
    assert [*index["tensors"]] == sorted(index["tensors"])
    offsets = [field["data_offsets"] for field in fields]
    assert offsets == sorted(offsets)
    assert all(begin % 256 == 0 for begin, _ in offsets)
    assert len(data) == start + max((end for _, end in offsets), default=0)
    assert all([*field] == ["dtype", "shape", "data_offsets"] for field in fields)


def test_every_length_of_the_padding_can_be_made(path):
    ends = set()
    for length in range(300):
        data = write(path, [sample()], metadata={"k": "x" * length}).read_bytes()
        ends.add((HEADER.size + HEADER.unpack_from(data)[2]) % 256)
    assert ends == {0}


@quick
@given(pairs=tensors(any_names), aligned=st.booleans(), padded=st.booleans(), data=st.data())
def test_a_file_is_written_again_byte_for_byte(path, pairs, aligned, padded, data):
    names = [spec.name for spec, _ in pairs]
    extras = BurnpackExtras(
        data.draw(st.dictionaries(st.sampled_from(names), st.integers(0, 2**64 - 1))) if names else {},
        tuple(data.draw(st.permutations(names))),
        {"f": ("Float", data.draw(st.floats(allow_nan=False))), "i": ("Int", -3), "b": ("Bool", True)},
        aligned,
        padded,
    )
    first = write(path, pairs, metadata={"z": "1", "a": "2"}, extras=extras).read_bytes()
    found = read_burnpack(path)
    assert found.metadata == {"z": "1", "a": "2"}
    write(path, pairs[::-1], extras=read_extras(path))
    assert path.read_bytes() == first


def test_the_form_of_burn_019_is_read(path):
    pairs = [sample("a", (3,)), sample("b", (5, 2), "F16"), sample("c", ())]
    found = read_burnpack(write(path, pairs, extras=BurnpackExtras(aligned=False)))
    assert_same_tensors(found, pairs)
    assert not found.extras.aligned
    assert found.notes == ("tensors are not aligned, as Burn 0.19 writes: newer ones misread this file",)
    assert found.tensors["b"].at[0] == found.tensors["a"].at[1]


@pytest.mark.parametrize("spelling", ["Bool", {"Bool": "Native"}, {"Bool": "U8"}])
def test_bools_of_one_byte(path, spelling):
    craft(path, {"tensors": {"a": entry((3,), (0, 3), spelling)}}, b"\x01\x00\x02")
    tensor = read_burnpack(path).tensors["a"]
    assert tensor.spec.dtype == "BOOL"
    np.testing.assert_array_equal(tensor.read(), [True, False, True])


def test_bools_of_four_bytes(path):
    craft(path, {"tensors": {"a": entry((), (0, 4), {"Bool": "U32"})}}, b"\x00\x01\x00\x00")
    tensor = read_burnpack(path).tensors["a"]
    assert (tensor.spec, tensor.read().tolist()) == (TensorSpec("a", (), "BOOL"), True)


def test_flex32_is_f32(path):
    craft(path, {"tensors": {"a": entry(dtype="Flex32")}}, struct.pack("<2f", 1.5, -2))
    found = read_burnpack(path)
    assert found.tensors["a"].spec.dtype == "F32"
    np.testing.assert_array_equal(found.tensors["a"].read(), np.float32([1.5, -2]))
    assert found.notes == ("Flex32, read as F32: a",)


def test_scalars_and_what_burn_ignores_are_noted(path):
    craft(path, {"tensors": {}, "scalars": {"step": {"UInt": 7}, "lr": {"Float": 0.5}}, "extra": [1]})
    found = read_burnpack(path)
    assert found.extras.scalars == {"step": ("UInt", 7), "lr": ("Float", 0.5)}
    assert found.notes == (
        "sections that Burn ignores: extra",
        "scalar step = UInt 7",
        "scalar lr = Float 0.5",
    )


def test_a_shared_param_id_is_noted(path):
    write(path, [sample("a"), sample("b")], extras=BurnpackExtras({"a": 5, "b": 5}))
    assert read_burnpack(path).notes == ("1 tensors have a param_id that another tensor has too",)
