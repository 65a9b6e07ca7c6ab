"""Records of Burn for tests: written by the writer, and made by hand."""

from __future__ import annotations

import msgpack
import pytest

from portkit.errors import UnreadableError
from portkit.formats.named_mpk import read_named_mpk, write_named_mpk

HALF = {"float": "half::binary16::f16", "int": "i16"}


def write(path, pairs, **options):
    write_named_mpk(path, [spec for spec, _ in pairs], (array for _, array in pairs), **options)
    return path


def param(identity="x", **tensor):
    return {"id": identity, "param": {"bytes": bytes(8), "shape": [2], "dtype": "F32", **tensor}}


def craft(path, item, metadata=None, **more):
    """A record with this item; f32 numbers are written as such."""
    record = {"metadata": metadata or {"float": "f32", "int": "i32"}, "item": item, **more}
    path.write_bytes(msgpack.packb(record, use_single_float=True))
    return path


def refused(path, what):
    with pytest.raises(UnreadableError, match=what) as caught:
        read_named_mpk(path)
    assert path.name in str(caught.value)
    return str(caught.value)
