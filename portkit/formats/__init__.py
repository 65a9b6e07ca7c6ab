"""Containers of bytes. A format knows nothing of models: names, shapes and dtypes go in and come out."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from portkit.formats.container import Container


def open_container(path: Path) -> Container:
    """Open a weight file, or the index of a sharded one, by what its bytes say. Raises UnreadableError."""
    from portkit.formats.sharded import read_sharded
    from portkit.formats.sniff import identify

    if path.name.endswith(".index.json"):
        return read_sharded(path)
    if path.name.endswith(".weights.json"):
        from portkit.formats.hdf5_shards import read_hdf5_shards

        return read_hdf5_shards(path)
    return _reader(identify(path))(path)


def _reader(name: str) -> Callable[[Path], Container]:
    if name == "safetensors":
        from portkit.formats.safetensors_file import read_safetensors

        return read_safetensors
    if name == "pytorch":
        from portkit.formats.pytorch import read_pytorch

        return read_pytorch
    if name == "burnpack":
        from portkit.formats.burnpack import read_burnpack

        return read_burnpack
    if name == "hdf5":
        from portkit.formats.hdf5 import read_hdf5

        return read_hdf5
    if name == "keras":
        from portkit.formats.keras_archive import read_keras_archive

        return read_keras_archive
    from portkit.formats.named_mpk import read_named_mpk

    return read_named_mpk
