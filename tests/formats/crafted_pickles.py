"""Torch files made by hand, so that they can say what torch.save never would."""

from __future__ import annotations

import io
import pickle
import struct
import zipfile
from collections import OrderedDict
from typing import TYPE_CHECKING

import torch
from torch._utils import _rebuild_tensor_v2

if TYPE_CHECKING:
    from pathlib import Path

MAGIC = 0x1950A86A20F9469CFC6C
MACHINE = {"protocol_version": 1001, "little_endian": True, "type_sizes": {"short": 2, "int": 4, "long": 4}}


class Storage:
    """A storage that the pickle declares: its key, its number of elements, its kind, and where it was."""

    def __init__(self, key: str, count: int, kind: type = torch.FloatStorage, location: str = "cpu") -> None:
        self.id = ("storage", kind, key, location, count)


class Tensor:
    """A view of a declared storage."""

    def __init__(self, storage: Storage, size: tuple[int, ...], stride: tuple[int, ...], offset: int = 0) -> None:
        self.arguments = (storage, offset, size, stride, False, OrderedDict())

    def __reduce__(self):
        return _rebuild_tensor_v2, self.arguments


class Call:
    """A call that happens when the pickle is loaded without care."""

    def __init__(self, function, *arguments) -> None:
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments


def put(folder: Path, data: bytes) -> Path:
    """A weight file with these bytes."""
    path = folder / "model.bin"
    path.write_bytes(data)
    return path


def floats(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


def legacy_file(tree: object, storages: dict[str, tuple[int, bytes]]) -> bytes:
    """The form before torch 1.6; each storage has the count that its data claims, and the data."""
    parts = [pickle.dumps(value, 2) for value in (MAGIC, 1001, MACHINE)]
    parts += [_dumps(tree, (None,)), pickle.dumps(list(storages), 2)]
    parts += [struct.pack("<q", count) + data for count, data in storages.values()]
    return b"".join(parts)


def zip_file(tree: object, records: dict[str, bytes], *, compression: int = 0, order: str = "little") -> bytes:
    """The archive of torch 1.6 and newer."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        archive.writestr("archive/data.pkl", _dumps(tree, ()))
        archive.writestr("archive/byteorder", order)
        for key, data in records.items():
            archive.writestr(f"archive/data/{key}", data)
        archive.writestr("archive/version", "3\n")
    return buffer.getvalue()


def _dumps(tree: object, more: tuple[object, ...]) -> bytes:
    class Pickler(pickle.Pickler):
        def persistent_id(self, value):
            return (*value.id, *more) if isinstance(value, Storage) else None

    buffer = io.BytesIO()
    Pickler(buffer, 2).dump(tree)
    return buffer.getvalue()
