from __future__ import annotations

import gzip
import re

import msgpack
import numpy as np
import pytest
from burn_samples import (
    FIXTURES,
    assert_same_tensors,
    field_names,
    sample,
    tensors,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from named_mpk_files import HALF, craft, param, write

from portkit.formats.named_mpk import NamedMpkExtras, param_id, read_named_mpk, tree_order, write_named_mpk
from portkit.tensors import TensorSpec

REAL = FIXTURES / "modern-lstm-0.17.0.mpk"
quick = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def path(tmp_path):
    return tmp_path / "m.mpk"


def rewrite(path, found, names):
    specs = [found.tensors[name].spec for name in names]
    arrays = (found.tensors[name].read() for name in names)
    write_named_mpk(path, specs, arrays, extras=found.extras)


@pytest.mark.parametrize("order", [1, -1])
def test_the_file_that_burn_wrote_is_written_again_byte_for_byte(path, order):
    found = read_named_mpk(REAL)
    rewrite(path, found, [*found.tensors][::order])
    assert path.read_bytes() == REAL.read_bytes()


def test_the_file_that_burn_wrote():
    found = read_named_mpk(REAL)
    assert (found.format, found.notes) == ("named_mpk", ())
    assert (found.metadata["version"], found.metadata["settings"]) == ("0.17.0", "HalfPrecisionSettings")
    assert len(found.tensors) == 42
    assert [*found.tensors][-2:] == ["fc.weight", "fc.bias"]
    assert found.tensors["fc.weight"].spec == TensorSpec("fc.weight", (64, 1), "F16")
    assert found.extras.ids["fc.bias"] == "1nferte7ffol4"
    assert found.extras.constants["stacked_lstm.layers.1.norm_c.epsilon"] is None
    raw = msgpack.unpackb(REAL.read_bytes())["item"]["reverse_lstm"]["layers"][1]["norm_x"]["gamma"]["param"]
    gamma = found.tensors["reverse_lstm.layers.1.norm_x.gamma"]
    np.testing.assert_array_equal(gamma.read(), np.frombuffer(raw["bytes"], "<f2"))
    assert REAL.read_bytes()[slice(*gamma.at)] == raw["bytes"]


def test_a_gzipped_file_is_the_same(tmp_path):
    path = tmp_path / "m.mpk.gz"
    path.write_bytes(gzip.compress(REAL.read_bytes()))
    found, plain = read_named_mpk(path), read_named_mpk(REAL)
    assert_same_tensors(found, [(tensor.spec, tensor.read()) for tensor in plain.tensors.values()])
    assert (found.metadata, found.extras) == (plain.metadata, plain.extras)
    kept = found.tensors["fc.weight"]
    del found
    assert kept.read().shape == (64, 1)  # the unpacked file lives as long as a tensor of it


names = st.lists(field_names, min_size=1, max_size=3).map(".".join)


def are_leaves(pairs):
    found = [spec.name for spec, _ in pairs]
    return not any(b.startswith(f"{a}.") for a in found for b in found)


@quick
@given(pairs=tensors(names).filter(are_leaves))
def test_what_is_written_is_read(path, pairs):
    found = read_named_mpk(write(path, pairs))
    assert_same_tensors(found, pairs)
    assert [*found.tensors] == [*msgpack_order(path)]
    assert found.extras.ids == {spec.name: param_id(spec.name) for spec, _ in pairs}
    assert found.metadata["version"] == "0.21.0"


def msgpack_order(path):
    def walk(node, trail):
        if set(node) == {"id", "param"}:
            yield ".".join(trail)
        else:
            for key, child in node.items():
                yield from walk(child, [*trail, key])

    return walk(msgpack.unpackb(path.read_bytes())["item"], [])


def test_what_burn_expects_is_written(path):
    names = ["encoder.layers.1.pwff.weight", "encoder.layers.0.pwff.weight", "pooler.bias"]
    constants = {f"encoder.layers.{i}.pwff.gelu": None for i in range(2)}
    constants["encoder.layers.0.pwff.activation"] = {"Gelu": None}
    pairs = [sample(name, (2,), seed=i) for i, name in enumerate(names)]
    record = msgpack.unpackb(write(path, pairs, constants=constants).read_bytes())
    weights = [
        {"id": param_id(spec.name), "param": {"bytes": array.tobytes(), "shape": [2], "dtype": "F32"}}
        for spec, array in pairs
    ]
    first = {"weight": weights[1], "gelu": None, "activation": {"Gelu": None}}
    layers = [{"pwff": first}, {"pwff": {"weight": weights[0], "gelu": None}}]
    assert record["item"] == {"encoder": {"layers": layers}, "pooler": {"bias": weights[2]}}
    assert record["_b"] == []
    assert [*record] == ["metadata", "item", "_b"]
    module = "burn_core::record"
    assert record["metadata"] == {
        "float": "f32",
        "int": "i32",
        "format": f"{module}::file::NamedMpkFileRecorder<{module}::settings::FullPrecisionSettings>",
        "version": "0.21.0",
        "settings": "FullPrecisionSettings",
    }
    assert read_named_mpk(path).extras.constants == {
        "encoder.layers.0.pwff.gelu": None,
        "encoder.layers.0.pwff.activation.Gelu": None,
        "encoder.layers.1.pwff.gelu": None,
    }


def test_the_order_of_the_tree_is_that_of_the_bytes(path):
    names = ["b", "l.10.w", "l.2.w", "a.norm", "a.b.c", "l.2.b", *(f"l.{i}.w" for i in (0, 1, *range(3, 10)))]
    ordered = tree_order(names)
    assert ordered[:4] == ["a.b.c", "a.norm", "b", "l.0.w"]
    assert ordered[-3:] == ["l.8.w", "l.9.w", "l.10.w"]
    found = read_named_mpk(write(path, [sample(name) for name in ordered], constants={"a.gelu": None}))
    assert [*found.tensors] == ordered
    starts = [tensor.at[0] for tensor in found.tensors.values()]
    assert starts == sorted(starts)


@quick
@given(pairs=tensors(names).filter(are_leaves))
def test_any_tree_in_its_order_is_written_without_going_back(path, pairs):
    pairs = {spec.name: (spec, array) for spec, array in pairs}
    ordered = tree_order(pairs)
    found = read_named_mpk(write(path, [pairs[name] for name in ordered]))
    assert [*found.tensors] == ordered


def test_parameter_ids_are_those_of_burn():
    ids = {param_id(f"layer.{i}") for i in range(1000)}
    assert len(ids) == 1000
    assert all(re.fullmatch("[0-9a-v]{13}", identity) for identity in ids)
    assert param_id("layer.0") == param_id("layer.0")


@pytest.mark.parametrize("size", [63, 64, 16383, 16384])
def test_the_heads_of_payloads_are_the_shortest(path, size):
    pairs = [sample("a", (size,), "F32")]
    data = write(path, pairs).read_bytes()
    assert data == msgpack.packb(msgpack.unpackb(data))
    assert_same_tensors(read_named_mpk(path), pairs)


@quick
@given(
    pairs=tensors(field_names.map("m.{}".format)),
    constants=st.dictionaries(
        field_names.map("c.{}".format),
        st.one_of(
            st.none(),
            st.booleans(),
            st.integers(-(2**63), 2**64 - 1),
            st.text(max_size=40),
            st.just({}),
            st.just([]),
        ),
        max_size=4,
    ),
    data=st.data(),
)
def test_a_record_is_written_again_byte_for_byte(path, pairs, constants, data):
    order = data.draw(st.permutations([spec.name for spec, _ in pairs] + [*constants]))
    extras = NamedMpkExtras({spec.name: f"id{i}" for i, (spec, _) in enumerate(pairs)}, constants, tuple(order))
    first = write(path, pairs, extras=extras, settings="DoublePrecisionSettings", version="0.14.0").read_bytes()
    found = read_named_mpk(path)
    assert found.extras.constants == constants
    rewrite(path, found, data.draw(st.permutations([*found.tensors])))
    assert path.read_bytes() == first


OLD = {
    "f32": ([1.5, -2.0], None, "F32", np.float32([1.5, -2])),
    "f16 as its bits": ([15360, 49152], HALF, "F16", np.float16([1, -2])),
    "i32": ([1, -70000], None, "I32", np.int32([1, -70000])),
    "i64": ([1, -70000], {"float": "f64", "int": "i64"}, "I64", np.int64([1, -70000])),
    "bool": ([True, False], None, "BOOL", np.array([True, False])),
}


@pytest.mark.parametrize("case", OLD)
def test_numbers_of_burn_013_are_read(path, case):
    value, metadata, dtype, expected = OLD[case]
    craft(path, {"a": {"id": "9f0e", "param": {"value": value, "shape": [1, 2]}}}, metadata)
    found = read_named_mpk(path)
    assert found.tensors["a"].spec == TensorSpec("a", (1, 2), dtype)
    np.testing.assert_array_equal(found.tensors["a"].read(), expected.reshape(1, 2))
    assert found.notes == ("1 tensors are stored number by number, as Burn up to 0.13 wrote them",)


def test_doubles_of_burn_013_are_read(path):
    record = {
        "metadata": {"float": "f64"},
        "item": {"a": {"id": "x", "param": {"value": [0.1], "shape": []}}},
    }
    path.write_bytes(msgpack.packb(record))
    assert read_named_mpk(path).tensors["a"].read() == np.float64(0.1)


@pytest.mark.parametrize("count", [0, 1, 15, 16, 5000, 70000])
def test_many_numbers_of_burn_013_are_read(path, count):
    values = [float(i) for i in range(count)]
    old = {"id": "x", "param": {"value": values, "shape": [count]}}
    craft(path, {"a": old, "b": param("y")})
    found = read_named_mpk(path)
    np.testing.assert_array_equal(found.tensors["a"].read(), np.arange(count, dtype="<f4"))
    assert found.tensors["b"].read().tolist() == [0, 0]


def test_a_field_that_is_called_value_is_a_field(path):
    item = {
        "mha": {"value": {"weight": param("a")}},
        "m": {"value": [{"weight": param("b")}]},
        "n": {"value": None},
    }
    found = read_named_mpk(craft(path, item))
    assert [*found.tensors] == ["mha.value.weight", "m.value.0.weight"]
    assert found.extras.constants == {"n.value": None}


@pytest.mark.parametrize("spelling", ["Bool", {"Bool": "Native"}])
def test_bools_are_read(path, spelling):
    tensor = read_named_mpk(craft(path, {"a": param(dtype=spelling, shape=[8])})).tensors["a"]
    assert (tensor.spec.dtype, tensor.read().any()) == ("BOOL", False)


@pytest.mark.parametrize("more", [{}, {"_b": None}, {"_b": []}])
def test_the_last_section_may_be_missing(path, more):
    assert not read_named_mpk(craft(path, {}, **more)).notes


def test_enum_variants_are_parts_of_the_path_and_empty_maps_are_kept(path):
    item = {"norm": {"Layer": {"gamma": param()}}, "act": "Relu", "empty": {}, "none": []}
    found = read_named_mpk(craft(path, item, {"float": "f32", "deep": {"a": 1}}, extra=1))
    assert [*found.tensors] == ["norm.Layer.gamma"]
    assert found.extras.constants == {"act": "Relu", "empty": {}, "none": []}
    assert found.metadata == {"float": "f32", "deep.a": "1"}
    assert found.notes == ("sections that Burn ignores: extra",)
