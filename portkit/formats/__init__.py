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
    from portkit.formats.named_mpk import read_named_mpk

    return read_named_mpk
