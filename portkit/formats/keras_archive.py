"""`.keras` archives: a zip with config.json and model.weights.h5, which h5py reads inside the archive."""

from __future__ import annotations

import json
import lzma
import zipfile
import zlib
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, BinaryIO, cast

from portkit.errors import unreadable
from portkit.formats.hdf5 import read_hdf5
from portkit.formats.strict_json import parse_object

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from portkit.errors import UnreadableError
    from portkit.formats.container import Container

CONFIG = "config.json"
WEIGHTS = "model.weights.h5"
MAX_CONFIG = 64 << 20
_DAMAGED = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, NotImplementedError, EOFError)  # while unpacking
_BROKEN = (*_DAMAGED, RuntimeError, ValueError, OSError, KeyError)


def read_keras_archive(path: Path) -> Container:
    """The weights of an archive; the metadata's `model_config` is its config.json, as in legacy `.h5` files.

    Raises UnreadableError when the archive, its config or its weights are broken, or packed to hide their size.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            info, weights = archive.getinfo(CONFIG), archive.getinfo(WEIGHTS)
            if info.file_size > MAX_CONFIG or weights.file_size > 1032 * max(weights.compress_size, 1):
                raise unreadable(path, "a member declares more than it can hold")
            config = parse_object(archive.read(info), path, CONFIG)
    except _BROKEN as error:
        raise _damaged(path, error) from error
    container = read_hdf5(path, partial(_member, path))
    return replace(container, metadata={**container.metadata, "model_config": json.dumps(config)})


@contextmanager
def _member(path: Path) -> Iterator[BinaryIO]:
    try:
        with zipfile.ZipFile(path) as archive, archive.open(WEIGHTS) as member:
            yield cast("BinaryIO", member)
    except _DAMAGED as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> UnreadableError:
    return unreadable(path, "a damaged .keras archive", found=str(error)[:200])
