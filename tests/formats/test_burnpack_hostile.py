from __future__ import annotations

import re
import struct

import cbor2
import pytest
from burn_samples import assert_read_or_refused, damage, sample
from burnpack_files import HEADER, craft, entry, refused, write
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from portkit.errors import PortkitError, RefusedError, UnreadableError
from portkit.formats.burnpack import BurnpackExtras, read_burnpack

quick = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def path(tmp_path):
    return tmp_path / "m.bpk"


HEADERS = {
    "no file": (None, "cannot be read"),
    "empty": (b"", "too short for Burnpack"),
    "nine bytes": (b"NRUB\x01\0\0\0\0", "too short for Burnpack"),
    "another magic": (b"BURN\x01\0\0\0\0\0", "not a Burnpack file"),
    "version 2": (b"NRUB\x02\0\0\0\0\0", "unknown Burnpack version\n *expected 1\n *found *2"),
    "metadata larger than the file": (
        b"NRUB\x01\0\x05\0\0\0abcd",
        "cannot be that large\n *expected at most 4 ",
    ),
    "no metadata": (b"NRUB\x01\0\0\0\0\0", "the CBOR ends inside an item"),
}


@pytest.mark.parametrize("case", HEADERS)
def test_a_wrong_header_is_refused(path, case):
    data, what = HEADERS[case]
    if data is not None:
        path.write_bytes(data)
    refused(path, what)


def test_metadata_beyond_burns_limit_is_refused_before_it_is_read(path):
    with path.open("wb") as file:
        file.write(HEADER.pack(b"NRUB", 1, 200 << 20))
        file.truncate(300 << 20)  # a hole: takes no room on the disk
    assert str(100 << 20) in refused(path, "the metadata cannot be that large")


def nested(levels, end=b"\x80"):
    return b"\xa1\x67tensors" + b"\x81" * (levels - 2) + end


CBOR = {
    "2**60 entries": (b"\xa1\x67tensors\xbb" + struct.pack(">Q", 1 << 60), "announces more items than bytes"),
    "2**60 bytes of text": (b"\xa1\x7b" + struct.pack(">Q", 1 << 60), "ends inside an item"),
    "half of a map": (b"\xa2\x67tensors\xa0", "announces more items than bytes|ends inside an item"),
    "129 levels": (nested(129), "nested too deeply\n *expected at most 128"),
    "bytes left over": (
        b"\xa1\x67tensors\xa0\x00\x00",
        "bytes follow the CBOR value\n *expected nothing\n *found *2",
    ),
    "an endless map": (b"\xbf\x67tensors\xa0\xff", "indefinite length"),
    "an endless text": (b"\xa1\x7f\x67tensors\xff\xa0", "indefinite length"),
    "a tag": (b"\xa1\x67tensors\xc2\x41\x01", "Burn never writes\n *found *major 6"),
    "undefined": (b"\xa1\x67tensors\xf7", "Burn never writes"),
    "a reserved length": (b"\xa1\x67tensors\x1c", "Burn never writes"),
    "a break": (b"\xff", "indefinite length"),
    "a number as key": (
        b"\xa1\x01\xa0",
        "a key of a CBOR map is not text\n *expected text\n *found *major type 0",
    ),
    "text that is not UTF-8": (b"\xa1\x61\xff\xa0", "the metadata is not CBOR"),
    "a list": (b"\x80", "the metadata is not a map\n *found *list"),
    "one name twice": (b"\xa1\x67tensors\xa2\x61a\xa0\x61a\xa0", "has a key twice\n *found *'a'"),
    "no tensors": (b"\xa0", "the metadata has no map 'tensors'"),
    "tensors in a list": (b"\xa1\x67tensors\x80", "the metadata has no map 'tensors'\n *found *list"),
}


@pytest.mark.parametrize("case", CBOR)
def test_cbor_that_burn_never_writes_is_refused(path, case):
    cbor, what = CBOR[case]
    refused(craft(path, cbor), what)


def test_128_levels_are_not_too_deep(path):
    refused(craft(path, nested(128)), "the metadata has no map 'tensors'")


def test_a_flood_of_small_items_is_refused(path):
    refused(craft(path, b"\x9a" + struct.pack(">I", 2_000_001) + b"\x00" * 2_000_001), "too many items")


FIELDS = {
    "an entry that is no map": (3, "the entry of the tensor is not a map\n *found *int"),
    "no dtype": (
        {"shape": [2], "data_offsets": [0, 8]},
        "the entry has no 'dtype'\n *found *.'shape', 'data_offsets'",
    ),
    "no shape": ({"dtype": "F32", "data_offsets": [0, 8]}, "the entry has no 'shape'"),
    "no offsets": ({"dtype": "F32", "shape": [2]}, "the entry has no 'data_offsets'"),
    "an unknown dtype": (entry(dtype="F33"), "unknown dtype\n *expected one of F64, .*\n *found *'F33'"),
    "a dtype that is a list": (entry(dtype=["F32"]), "unknown dtype"),
    "an unknown bool": (entry(dtype={"Bool": "U64"}), "unknown dtype"),
    "a bool of a list": (entry(dtype={"Bool": []}), "unknown dtype"),
    "quantised": (
        entry(dtype={"QFloat": {"scheme": 1}}),
        "the tensor is quantised \\(QFloat\\)\n *expected plain numbers\n *hint *dequantise",
    ),
    "a negative size": (entry((-2,)), "'shape' is wrong\n *expected .*none negative\n *found *.-2."),
    "a size that is a float": (entry((2.0,)), "'shape' is wrong"),
    "a size that is a bool": (entry((True,)), "'shape' is wrong"),
    "a shape that is text": ({**entry(), "shape": "2"}, "'shape' is wrong"),
    "a huge shape": (entry((2**63, 2**63)), "the shape is impossible"),
    "a huge shape of nothing": (entry((2**62, 0), (0, 0)), "the shape is impossible"),
    "many axes": (entry((1,) * 33, (0, 4)), "the shape is impossible\n *expected at most 32 axes"),
    "three offsets": (entry(offsets=(0, 8, 8)), "'data_offsets' is no range"),
    "offsets backwards": (entry(offsets=(8, 0)), "'data_offsets' is no range\n.*\n *found *.8, 0."),
    "a negative offset": (entry(offsets=(-8, 0)), "'data_offsets' is wrong"),
    "another size": (
        entry((3,)),
        "shape and size disagree\n *" + re.escape("expected 12 bytes for (3,) F32\n    found    8 at [0, 8]"),
    ),
    "a param_id that is text": (entry(param_id="1"), "'param_id' is wrong"),
    "a negative param_id": (entry(param_id=-1), "'param_id' is wrong"),
}


@pytest.mark.parametrize("case", FIELDS)
def test_a_wrong_entry_is_refused(path, case):
    fields, what = FIELDS[case]
    assert "m.bpk: the.name" in refused(craft(path, {"tensors": {"the.name": fields}}, bytes(8)), what)


def test_all_wrong_entries_are_told_at_once(path):
    craft(path, {"tensors": {"b": entry(dtype="X"), "a": entry((3,)), "c": entry()}}, bytes(8))
    message = refused(path, r"2 problems")
    assert message.index("m.bpk: a: shape") < message.index("m.bpk: b: unknown dtype")


SECTIONS = {
    "metadata of numbers": ({"metadata": {"a": 1}}, "the section 'metadata' is wrong"),
    "metadata in a list": ({"metadata": []}, "the section 'metadata' is wrong"),
    "scalars in a list": ({"scalars": []}, "the section 'scalars' is not a map"),
    "a scalar without kind": ({"scalars": {"a": 1}}, "m.bpk: a: the scalar is wrong"),
    "a scalar of another kind": ({"scalars": {"a": {"Int": "1"}}}, "the scalar is wrong"),
    "a scalar below zero": ({"scalars": {"a": {"UInt": -1}}}, "the scalar is wrong"),
}


@pytest.mark.parametrize("case", SECTIONS)
def test_a_wrong_section_is_refused(path, case):
    section, what = SECTIONS[case]
    refused(craft(path, {"tensors": {}, **section}), what)


RANGES = {
    "overlap": ((0, 8), (4, 12), 12, "b: the tensor overlaps another\n *expected a start of 8 or more"),
    "the same bytes": ((0, 8), (0, 8), 8, "b: the tensor overlaps another"),
    "a hole": (
        (0, 8),
        (512, 520),
        520,
        "b: bytes before the tensor belong to none\n.*\n *found *512, where a ends at 8",
    ),
    "a hole at the start": (
        (256, 264),
        (264, 272),
        272,
        "a: bytes before the tensor .*\n.*\n *found *256, where the start",
    ),
}


@pytest.mark.parametrize("case", RANGES)
def test_bytes_of_two_tensors_or_of_none_are_refused(path, case):
    first, second, size, what = RANGES[case]
    refused(craft(path, {"tensors": {"a": entry(offsets=first), "b": entry(offsets=second)}}, bytes(size)), what)


@pytest.mark.parametrize(
    ("size", "what"),
    [
        (8, "8 too many or 207 too many\n *hint *trailing bytes"),
        (-1, "1 too few or 198 too many\n *hint *a file of Burn 0.20 and newer that was cut short"),
        (-200, "200 too few or 1 too few\n *hint *the file is cut short"),
    ],
)
def test_a_length_that_fits_neither_form_is_refused(path, size, what):
    index = {"tensors": {"a": entry()}}
    assert HEADER.size + len(cbor2.dumps(index)) == 57
    craft(path, index, bytes(8))
    path.write_bytes(path.read_bytes()[: 264 + size].ljust(264 + size, b"\0"))
    message = refused(
        path, "the file's length does not fit its index\n *expected 264 bytes .* or 65 bytes .*\n *found *.*" + what
    )
    assert f"{264 + size} bytes, " in message


def test_an_aligned_file_cut_to_the_length_of_the_other_form_is_refused(path):
    pairs = [sample("a", (3,)), sample("b", (3,))]
    data = write(path, pairs, extras=BurnpackExtras(padded=False)).read_bytes()
    end = HEADER.size + HEADER.unpack_from(data)[2]
    path.write_bytes(data[: end + 256 + 12])  # the length that Burn 0.19 would expect
    refused(
        path,
        "b: bytes before the tensor belong to none\n *expected no gap, as in Burn 0.19\n(.*\n)*.*cut short",
    )


def test_an_unaligned_file_continued_to_the_length_of_the_other_form_is_refused(path):
    data = write(path, [sample("a", (30,))], extras=BurnpackExtras(aligned=False)).read_bytes()
    end = HEADER.size + HEADER.unpack_from(data)[2]
    path.write_bytes(data.ljust(-(-end // 256) * 256 + 120, b"\0"))
    refused(path, "the padding between metadata and tensors holds data\n.*\n *hint *a file of Burn 0.19 with")


def test_a_file_that_shrinks_after_it_was_opened(path):
    tensor = read_burnpack(write(path, [sample("a")])).tensors["a"]
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(UnreadableError, match="the file ends before its data"):
        tensor.read()
    path.unlink()
    with pytest.raises(UnreadableError, match=r"cannot be read\n *found *No such file"):
        tensor.read()


def test_a_folder_is_refused(tmp_path):
    with pytest.raises(UnreadableError, match=r"not a file(.|\n)*a folder"):
        read_burnpack(tmp_path)


def test_a_dtype_that_burn_lacks_is_not_written(path):
    with pytest.raises(
        RefusedError, match=r"cannot write the tensors(.|\n)*a: Burn has no such dtype\n(.*\n)* *found *F8_E4M3"
    ):
        write(path, [sample("a", (2,), "F8_E4M3")])
    assert not path.exists()


def test_one_name_twice_is_not_written(path):
    with pytest.raises(PortkitError, match="a: is announced twice"):
        write(path, [sample("a"), sample("a")])


SMALL = [
    sample("a.weight", (3, 2)),
    sample("b.bias", (2,), "BF16"),
    sample("c", (0, 3)),
    sample("d", (), "BOOL"),
]


@settings(quick, max_examples=500)
@given(data=st.data(), aligned=st.booleans())
def test_damage_is_read_or_refused(path, data, aligned):
    extras = BurnpackExtras({"b.bias": 9}, scalars={"s": ("Int", 1)}, aligned=aligned)
    valid = write(path, SMALL, metadata={"format": "burnpack"}, extras=extras).read_bytes()
    header = HEADER.size + HEADER.unpack_from(valid)[2]
    assert_read_or_refused(read_burnpack, path, data.draw(damage(valid, header)))


@quick
@given(body=st.binary(max_size=400))
def test_noise_is_refused(path, body):
    assert_read_or_refused(read_burnpack, path, HEADER.pack(b"NRUB", 1, len(body)) + body)
