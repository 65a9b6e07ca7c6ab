"""Burnpack files for tests: written by the writer, and made by hand."""

from __future__ import annotations

import struct

import cbor2
import pytest

from portkit.errors import UnreadableError
from portkit.formats.burnpack import read_burnpack, write_burnpack

HEADER = struct.Struct("<4sHI")


def write(path, pairs, **options):
    write_burnpack(path, [spec for spec, _ in pairs], (array for _, array in pairs), **options)
    return path


def craft(path, index, data=b"", start=None, magic=b"NRUB", version=1, size=None):
    """A file with this index (CBOR bytes or what becomes CBOR), aligned unless `start` says otherwise."""
    cbor = index if isinstance(index, bytes) else cbor2.dumps(index)
    head = HEADER.pack(magic, version, len(cbor) if size is None else size) + cbor
    path.write_bytes(head.ljust(-(-len(head) // 256) * 256 if start is None else start, b"\0") + data)
    return path


def entry(shape=(2,), offsets=(0, 8), dtype="F32", **more):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets), **more}


def refused(path, what):
    with pytest.raises(UnreadableError, match=what) as caught:
        read_burnpack(path)
    assert path.name in str(caught.value)
    return str(caught.value)
