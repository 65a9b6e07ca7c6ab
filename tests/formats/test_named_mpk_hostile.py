from __future__ import annotations

import gzip
import re

import pytest
from burn_samples import FIXTURES, assert_read_or_refused, damage, sample
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from named_mpk_files import HALF, craft, param, refused, write

from portkit.errors import PortkitError, RefusedError, UnreadableError, UsageError
from portkit.formats import source as source_module
from portkit.formats.named_mpk import read_named_mpk, write_named_mpk
from portkit.tensors import TensorSpec

REAL = FIXTURES / "modern-lstm-0.17.0.mpk"
quick = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def path(tmp_path):
    return tmp_path / "m.mpk"


RECORDS = {
    "nothing": (b"", "the file ends before its data"),
    "a number": (b"\x07", "not a record of Burn\n *expected a map with 'metadata' and 'item'\n *found *int"),
    "no item": (b"\x81\xa8metadata\x80", "not a record of Burn\n.*\n *found *.'metadata'"),
    "no metadata": (b"\x81\xa4item\x80", "not a record of Burn"),
    "metadata that is text": (b"\x82\xa8metadata\xa1a\xa4item\x80", "not a record of Burn"),
    "an item that is nil": (b"\x82\xa8metadata\x80\xa4item\xc0", "the record's item is not a module"),
    "bytes left over": (b"\x80\x00\x00", "bytes follow the record\n *expected nothing\n *found *2 bytes"),
    "a map cut short": (b"\x82\xa8metadata\x80", "the file ends before its data"),
    "2**32 entries": (b"\xdf\xff\xff\xff\xff", "the file ends before its data\n *expected map of 4294967295"),
    "2**32 elements": (
        b"\xdd\xff\xff\xff\xff\x01",
        "the file ends before its data\n *expected array of 4294967295",
    ),
    "2**32 bytes": (b"\xc6\xff\xff\xff\xff", "the file ends before its data\n *expected bin of 4294967295"),
    "2**32 numbers": (
        b"\x81\xa5value\xdd\xff\xff\xff\xff\x01",
        "the file ends before .*\n.*numbers\n *found *1",
    ),
    "an extension": (
        b"\x81\xa4item\xd4\x01\x00",
        "m.mpk: item .byte .*: this kind of value is never written",
    ),
    "the byte without meaning": (b"\xc1", "this kind of value is never written\n *found *byte 0xc1"),
    "text that is not UTF-8": (b"\x81\xa1\xff\x01", "a text is not UTF-8"),
    "a long text": (b"\xdb\x00\x01\x00\x01" + b"a" * 65537, "a text is too long\n *expected at most 65536"),
    "a number as key": (b"\x81\x01\x01", "a key of a map is not text\n *found *int"),
    "a list as key": (b"\x81\x90\x01", "a key of a map is not text\n *found *list"),
    "a key with a dot": (b"\x81\xa3a.b\x01", "no field name\n *expected a name without dots\n *found *'a.b'"),
    "a key of digits": (b"\x81\xa210\x01", "no field name"),
    "an empty key": (b"\x81\xa0\x01", "no field name"),
    "a key twice": (
        b"\x81\xa4item\x82\xa1a\x01\xa1a\x01",
        "m.mpk: item .byte .*a key stands twice .*\n *found *'a'",
    ),
    "65 levels": (b"\x91" * 64 + b"\x90", "nested too deeply\n *expected at most 64 levels"),
    "a million levels": (b"\x91" * 1_000_000, "nested too deeply"),
    "numbers and text": (b"\x81\xa5value\x92\x01\xa1a", "the numbers of a parameter are broken"),
    "numbers and a list": (
        b"\x81\xa5value\x92\x01\x90",
        "numbers of a parameter are not of one kind|are broken",
    ),
    "floats and integers": (
        b"\x81\xa5value\x92\x01\xca\x00\x00\x00\x00",
        "not of one kind\n.*\n *found *float, int",
    ),
    "floats of two sizes": (b"\x81\xa5value\x92\xca" + bytes(4) + b"\xcb" + bytes(8), "not of one kind"),
}


@pytest.mark.parametrize("case", RECORDS)
def test_what_is_no_record_is_refused(path, case):
    data, what = RECORDS[case]
    path.write_bytes(data)
    refused(path, what)


def test_a_flood_of_small_parts_is_refused(path):
    path.write_bytes(b"\xdd" + (200_001).to_bytes(4, "big") + b"\xc0" * 200_001)
    refused(path, "too many parts")


def test_a_long_key_above_many_parts_is_refused(path):
    craft(path, {"k" * 60_000: [None] * 10_000})
    message = refused(path, "names in the record are too long\n *expected at most 16777216 characters")
    assert len(message) < 1000


def test_no_more_wrong_parameters_are_told_than_one_reads(path):
    refused(craft(path, {f"p{i}": param(f"{i}", dtype="X") for i in range(100)}), "20 problems")


PARAMETERS = {
    "no bytes": (
        {"id": "x", "param": {"shape": [2], "dtype": "F32"}},
        "not a tensor of Burn\n.*\n *found *.'shape'",
    ),
    "no dtype": ({"id": "x", "param": {"shape": [2], "bytes": bytes(8)}}, "not a tensor of Burn"),
    "no shape": (
        {"id": "x", "param": {"dtype": "F32", "bytes": bytes(8)}},
        "the shape is wrong\n.*\n *found *None",
    ),
    "bytes as text": (param(bytes="abcdefgh"), "not a tensor of Burn"),
    "nil": ({"id": "x", "param": None}, "the parameter holds no tensor\n *expected a map\n *found *NoneType"),
    "an id of bytes": (param(5), "the parameter's id is not text\n *found *5"),
    "an empty id": (param(""), "the parameter's id is not text"),
    "another shape": (
        param(shape=[3]),
        "shape and size disagree\n *" + re.escape("expected 12 bytes for (3,) F32\n    found    8 bytes"),
    ),
    "a negative size": (param(shape=[-2]), "the shape is wrong\n *expected a list of sizes\n *found *.-2."),
    "a size that is a float": (param(shape=[2.0]), "the shape is wrong"),
    "a size that is a bool": (param(shape=[True]), "the shape is wrong"),
    "a shape that is a number": (param(shape=2), "the shape is wrong"),
    "a huge shape": (param(shape=[2**63, 2**63]), "the shape is impossible"),
    "a huge shape of nothing": (param(shape=[2**62, 0], bytes=b""), "the shape is impossible"),
    "an unknown dtype": (param(dtype="F33"), "unknown dtype\n.*\n *found *'F33'"),
    "a dtype that is nil": (param(dtype=None), "unknown dtype"),
    "quantised": (param(dtype={"QFloat": {"scheme": 1}}), "the tensor is quantised \\(QFloat\\)"),
    "without id": (
        {"param": {"bytes": bytes(8)}},
        "layers.0.w.param.bytes: data that belongs to no parameter",
    ),
    "old, too few": (
        {"id": "x", "param": {"value": [1.0], "shape": [2]}},
        "shape and size disagree\n *expected 2 numbers\n *found *1 numbers",
    ),
    "old, no numbers": (
        {"id": "x", "param": {"value": "a", "shape": [2]}},
        "the parameter's value is not a list of numbers",
    ),
    "old, huge": ({"id": "x", "param": {"value": [1.0], "shape": [2**63, 2**63]}}, "the shape is impossible"),
    "old, without id": ({"value": [1.0]}, "layers.0.w.value: data that belongs to no parameter"),
}


@pytest.mark.parametrize("case", PARAMETERS)
def test_a_wrong_parameter_is_refused(path, case):
    node, what = PARAMETERS[case]
    assert "m.mpk: layers.0.w" in refused(craft(path, {"layers": [{"w": node}]}), what)


def test_a_record_that_is_one_parameter_is_refused(path):
    refused(craft(path, param()), "the record's item is not a module")


def test_one_id_twice_is_refused(path):
    what = "m.mpk: b: two parameters have one id\n *expected ids of their own\n *found *x, the id of a too"
    refused(craft(path, {"a": param("x"), "b": param("x")}), what)


def test_all_wrong_parameters_are_told_at_once(path):
    message = refused(craft(path, {"b": param("x", dtype="X"), "a": param("y", shape=[3])}), "2 problems")
    assert message.index("m.mpk: a: shape") < message.index("m.mpk: b: unknown dtype")


def test_an_old_number_that_does_not_fit_is_refused(path):
    old = {"id": "x", "param": {"value": [70000], "shape": [1]}}
    tensor = read_named_mpk(craft(path, {"a": old}, HALF)).tensors["a"]
    with pytest.raises(UnreadableError, match=r"m.mpk: a: a number does not fit\n *expected F16"):
        tensor.read()


def test_broken_gzip_is_refused(path):
    data = bytearray(gzip.compress(REAL.read_bytes()))
    path.write_bytes(data[:-20])
    refused(path, "the gzip stream cannot be unpacked\n *found *Compressed file ended")
    data[5000] ^= 255
    path.write_bytes(data)
    refused(path, "the gzip stream cannot be unpacked")
    path.write_bytes(b"\x1f\x8b")
    refused(path, "the gzip stream cannot be unpacked")


def test_a_gzip_bomb_is_refused(path, monkeypatch):
    monkeypatch.setattr(source_module, "GZIP_FREE_BYTES", 1 << 20)
    path.write_bytes(gzip.compress(bytes(4 << 20)))
    refused(
        path,
        "the gzip stream unpacks to far more than weights do\n *expected at most 1048576 bytes from .*\n.*\n *hint .*gunzip",
    )


CONFLICTS = {
    "a name that continues another": (["a", "a.b"], {}, "a.b: one name is the beginning of another"),
    "a name that another continues": (["a.b", "a"], {}, "a: one name is the beginning of another"),
    "a constant with a tensor's name": (["a"], {"a": None}, "a: a constant has the name of a tensor"),
    "a constant above tensors": (["a.b"], {"a": None}, "a: one name is the beginning of another"),
    "an empty part": (["a..b"], {}, "a..b: a part of the name is empty"),
    "no name": ([""], {}, "a part of the name is empty"),
    "a vector with a hole": (
        ["l.0.a", "l.2.a"],
        {},
        "l: the numbers of a vector have a hole\n *expected 0 to 1",
    ),
    "a vector that starts at 1": (["l.1"], {}, "l: the numbers of a vector have a hole"),
    "numbers and names": (["l.0", "l.a"], {}, "l: the numbers of a vector have a hole\n.*\n *found *0, a"),
    "a number with a zero before": (["l.00"], {}, "the numbers of a vector have a hole"),
    "one name twice": (["a", "a"], {}, "a: is announced twice"),
}


@pytest.mark.parametrize("case", CONFLICTS)
def test_names_that_make_no_tree_are_not_written(path, case):
    found, constants, what = CONFLICTS[case]
    with pytest.raises(PortkitError, match=what):
        write(path, [sample(name) for name in found], constants=constants)
    assert not path.exists()


def test_vectors_of_more_than_ten_are_in_order_of_number(path):
    pairs = [sample(f"l.{i}", (1,), seed=i) for i in range(12)]
    assert [*read_named_mpk(write(path, sorted(pairs, key=lambda pair: pair[0].name))).tensors] == [
        f"l.{i}" for i in range(12)
    ]


def test_unknown_settings_are_refused(path):
    with pytest.raises(UsageError, match="unknown settings 'Full': Burn has FullPrecisionSettings, Half"):
        write(path, [], settings="Full")


def test_what_the_format_cannot_hold_is_not_written(path):
    with pytest.raises(RefusedError, match="a: Burn has no such dtype"):
        write(path, [sample("a", (2,), "F8_E5M2")])
    with pytest.raises(PortkitError, match=r"a: too large for MessagePack\n *expected 4294967295 bytes"):
        write_named_mpk(path, [TensorSpec("a", (1 << 30,), "F32")], iter(()))


SMALL = [
    sample("l.0.weight", (3, 2)),
    sample("l.1.weight", (2,), "BF16"),
    sample("c", (0, 3)),
    sample("d", ()),
]
OLD_ITEM = {"a": {"id": "x", "param": {"value": [1.5, 2.5, 3.5], "shape": [3]}}, "n": None, "b": param("y")}


@settings(quick, max_examples=500)
@given(data=st.data(), old=st.booleans())
def test_damage_is_read_or_refused(path, data, old):
    if old:
        valid = craft(path, OLD_ITEM, _b=[]).read_bytes()
    else:
        valid = write(path, SMALL, constants={"l.0.gelu": None, "act": {"Gelu": None}}).read_bytes()
    assert_read_or_refused(read_named_mpk, path, data.draw(damage(valid, len(valid))))


@settings(quick, max_examples=100)
@given(data=st.data())
def test_damaged_gzip_is_read_or_refused(path, data):
    valid = gzip.compress(write(path, SMALL).read_bytes(), mtime=0)
    assert_read_or_refused(read_named_mpk, path, data.draw(damage(valid, len(valid))))


@quick
@given(
    body=st.binary(max_size=400),
    start=st.sampled_from([b"", b"\x82\xa8metadata\x80\xa4item", b"\x81\xa5value"]),
)
def test_noise_is_refused(path, body, start):
    assert_read_or_refused(read_named_mpk, path, start + body)
