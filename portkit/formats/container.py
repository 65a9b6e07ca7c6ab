"""What reading a file of any format gives: its tensors by name, unread, and its small print."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from portkit.tensors import LazyTensor


@dataclass(frozen=True)
class Container:
    """One file, opened: names as stored, in the order of the file's own index. No tensor has been read."""

    format: str  # "burnpack", "named_mpk", "safetensors", "pytorch" or "hdf5"
    tensors: Mapping[str, LazyTensor]
    metadata: Mapping[str, str]
    notes: tuple[str, ...] = ()  # what a person should know of this file, one sentence each
