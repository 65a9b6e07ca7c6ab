from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
from contextlib import suppress

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save

from portkit.errors import UnreadableError
from portkit.formats.sniff import identify

RECORD = msgpack.packb({"metadata": {"version": "0.17.0"}, "item": {}, "_b": []})
LEGACY = bytes.fromhex("80028a0a6cfc9c46f9206aa850192e")


def zip_of(*names: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in names:
            archive.writestr(name, b"x")
    return buffer.getvalue()


def tar_of(name: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.addfile(tarfile.TarInfo(name))
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (save({"a": np.zeros(3, np.float32)}), "safetensors"),
        (save({}), "safetensors"),
        (LEGACY + b"\x80\x02M\xe9\x03.", "pytorch"),
        (b"\x80\x03" + LEGACY[2:], "pytorch"),
        (zip_of("archive/data.pkl", "archive/data/0"), "pytorch"),
        (b"NRUB\x01\0" + bytes(300), "burnpack"),
        (RECORD, "named_mpk"),
        (gzip.compress(RECORD, mtime=0), "named_mpk"),
    ],
)
def test_weight_files_are_told_by_their_bytes(tmp_path, data, kind):
    path = tmp_path / "model.anything"
    path.write_bytes(data)
    assert identify(path) == kind


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "the file is empty"),
        (
            b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n",
            "a git-lfs pointer(.|\n)*git lfs pull",
        ),
        (b"<!DOCTYPE html><title>Sign in</title>", "a web page(.|\n)*download the file again"),
        (b"\n  <html>", "a web page"),
        (b'{"weight_map": {}}', r"a JSON file(.|\n)*\*\.index\.json"),
        (b'\xef\xbb\xbf[\n "a"]', "a JSON file"),
        (gzip.compress(b"hello", mtime=0), "a gzip stream that holds no Burn record(.|\n)*unpack it first"),
        (b"\x1f\x8b\xff\xff\xff", "a gzip stream that holds no Burn record"),
        (
            zip_of("config.json", "weights.h5"),
            "a zip archive, but none of torch or Keras(.|\n)*config.json, weights.h5",
        ),
        (
            zip_of("archive/data.pkl")[:-9],
            "a damaged or truncated zip archive(.|\n)*copied or downloaded to the end",
        ),
        (zip_of(), "an empty zip archive"),
        (tar_of("storages"), "a tar archive(.|\n)*load it with torch and save it again"),
        (b"\x80\x04\x95\x10\0\0\0\0\0\0\0}\x94.", "a Python pickle that torch.save did not write"),
        (b"\x80\x02}q\0.", "a Python pickle that torch.save did not write"),
        (msgpack.packb({"params": {}}), "a MessagePack map, but no Burn record(.|\n)*Flax"),
        (b"GGUF\x03\0\0\0", "a GGUF file"),
        (b"\x93NUMPY\x01\0v\0", "a NumPy array"),
        (bytes(64), "zeros where a header should be(.|\n)*never finished"),
        (b"\x28\xb5\x2f\xfd\0", "zstd-compressed(.|\n)*unpack it first"),
        (b"abc", "not a weight file that portkit reads(.|\n)*of no known kind; it begins with b'abc'"),
    ],
)
def test_other_files_are_named(tmp_path, data, words):
    path = tmp_path / "model.safetensors"
    path.write_bytes(data)
    with pytest.raises(UnreadableError, match=words):
        identify(path)


def test_what_is_no_file_is_said(tmp_path):
    with pytest.raises(UnreadableError, match=r"not a file(.|\n)*a folder"):
        identify(tmp_path)
    with pytest.raises(UnreadableError, match=r"cannot be read(.|\n)*No such file"):
        identify(tmp_path / "model.safetensors")


@given(
    st.binary(max_size=40),
    st.sampled_from([b"", RECORD[:3], LEGACY[:5], b"PK\x03\x04", b"\x1f\x8b", b"{", b"\x80"]),
)
def test_any_bytes_are_identified_or_refused(tmp_path_factory, data, start):
    path = tmp_path_factory.getbasetemp() / "anything"
    path.write_bytes(start + data)
    with suppress(UnreadableError):
        assert identify(path) in {"safetensors", "pytorch", "burnpack", "named_mpk", "hdf5", "keras"}
