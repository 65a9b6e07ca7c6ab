"""What an earlier conversion kept beside the weights, as far as it can go back into a model.

A residue holds tensors of the model under their logical names, whole or some rows (`embeddings.position.table[0:2]`),
and tensors that no row explains under their stored names. The first kind goes back wherever a layout has a place for
it, the second only into the layout that it came from.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from portkit.tensors import FLOATS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from portkit.layouts.folder import Folder
    from portkit.tensors import LazyTensor

_ROWS = re.compile(r"(.+)\[(\d{1,9}):(\d{1,9})\]")


@dataclass(frozen=True)
class Spare:
    """Logical tensors of a residue, in canonical orientation.

    `whole` are entire tensors, `rows` the first rows of tables; `foreign` maps the stored name of a tensor that no row
    explains to the layout that it came from; `task` is the one whose head was kept aside.
    """

    whole: Mapping[str, LazyTensor] = field(default_factory=dict)
    rows: Mapping[str, LazyTensor] = field(default_factory=dict)
    foreign: Mapping[str, str] = field(default_factory=dict)
    task: str = ""

    def front(self, logical: str, count: int, width: int) -> LazyTensor | None:
        """The tensor that holds the first `count` rows of a table of that width; None where nothing does."""
        for tensor in (self.whole.get(logical), self.rows.get(logical)):
            fits = tensor is not None and tensor.spec.dtype in FLOATS and tensor.spec.shape[1:] == (width,)
            if tensor is not None and fits and tensor.spec.shape[0] >= count:
                return tensor
        return None


def spare_of(folder: Folder) -> Spare:
    """What the residue beside some weights holds. The record says which names are logical."""
    if folder.residue is None:
        return Spare()
    said = {str(k.get("name")): k for k in _dicts(folder.record.get("kept"))}
    whole, rows, foreign = {}, {}, {}
    for name, tensor in folder.residue.tensors.items():
        entry = said.get(name, {})
        part = _ROWS.fullmatch(name)
        if not entry.get("logical"):
            foreign[name] = str(entry.get("layout", ""))
        elif str(entry.get("reason", "")).startswith("--"):  # left out on request: it stays out
            continue
        elif part is None:
            whole[name] = tensor
        elif part[2] == "0":
            rows[part[1]] = tensor
    return Spare(whole, rows, foreign, str(folder.record.get("head", "")))


def _dicts(value: object) -> list[dict[str, Any]]:
    return [v for v in value if isinstance(v, dict)] if isinstance(value, list) else []
