"""Explain one tensor of a checkpoint: through which row it is read, where it lies, and where it goes in each layout.

Only headers and tables are looked at, besides what opening any checkpoint checks.
"""

from __future__ import annotations

import difflib
import tomllib
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from portkit.axes import spell
from portkit.checkpoint import Checkpoint, open_checkpoint
from portkit.errors import Problem, UnknownTensorError
from portkit.homes import Columns, Home, columns_of, homes_of
from portkit.layouts.folder import RESIDUE
from portkit.table.load import tables_dir
from portkit.table.slots import logical_axes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from portkit.table.schema import Table, Tables
    from portkit.table.slots import Slot
    from portkit.tensors import LazyTensor

_CLOSE = 3  # names that an error suggests


@dataclass(frozen=True)
class Stored:
    """A tensor as it lies in its file; `at` is its byte range there, where the format has one."""

    name: str
    file: str
    shape: tuple[int, ...]
    dtype: str
    at: tuple[int, int] | None


@dataclass(frozen=True)
class Explanation:
    """All that tables and headers say about one tensor.

    `asked` is the name that was given and `found_as` what kind of name it is. `stored` is the tensor in the file that
    holds it or that it is tied to, None where there is none; `dimensions` are its own, `hub` the logical tensor's.
    `shared_by` names the logical tensors that are tied to it. `reason` says why it is absent, tied, ignored, unread
    or unexplained. What no row describes has no `logical` name, `row` and `homes`.
    """

    asked: str
    found_as: str
    stored: Stored | None
    reason: str = ""
    logical: str = ""
    row: str = ""
    tables: tuple[str, ...] = ()
    kind: str = ""
    signature: str = ""
    axes: Mapping[str, str] | None = None
    dimensions: str = ""
    hub: str = ""
    shared_by: tuple[str, ...] = ()
    homes: tuple[Home, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def explain_tensor(path: Path | str, tensor: str, **opening: Any) -> Explanation:  # noqa: ANN401
    """Explain a tensor by a name that the file, the hub or any other layout has for it; the file's own come first.

    `opening` are options of `open_checkpoint`, and its errors are raised too. Raises UnknownTensorError with the
    nearest names.
    """
    checkpoint = open_checkpoint(path, **opening)
    columns = columns_of(checkpoint)
    own = checkpoint.anatomy.layout
    if tensor in checkpoint.folder.container.tensors:
        return _stored_name(checkpoint, tensor, columns)
    if checkpoint.folder.residue is not None and tensor in checkpoint.folder.residue.tensors:
        return _residue(checkpoint, tensor)
    if tensor in columns[own]:
        return _of_row(checkpoint, tensor, "the logical name", tensor, columns)
    for layout in (own, *(name for name in columns if name != own)):
        for logical, slot in columns[layout].items():
            if tensor in slot.spellings:
                return _of_row(checkpoint, tensor, f"a name in {layout}", logical, columns)
    raise _unknown(checkpoint, tensor, columns)


# ---------------------------------------------------------------- what kind of name it is


def _stored_name(checkpoint: Checkpoint, name: str, columns: Columns) -> Explanation:
    anatomy = checkpoint.anatomy
    logical = next((k for k, stored in anatomy.stored.items() if stored == name), None)
    found_as = f"a stored name, in {anatomy.layout}"
    if logical is not None:
        return _of_row(checkpoint, name, found_as, logical, columns)
    twin = next((k for k, names in anatomy.twins.items() if name in names), None)
    stored = _stored(checkpoint, checkpoint.folder.container.tensors[name])
    if twin is not None:
        reason = checkpoint.dead.get(name) or f"another name of the same tensor: {anatomy.stored[twin]} is read"
        return replace(_of_row(checkpoint, name, found_as, twin, columns), stored=stored, reason=reason)
    ignored = anatomy.ignored.get(name)
    reason = (
        f"ignored: {ignored}"
        if ignored
        else "no row explains it: a conversion refuses it, unless --drop or --residue says otherwise"
    )
    return Explanation(name, found_as, stored, reason)


def _residue(checkpoint: Checkpoint, name: str) -> Explanation:
    assert checkpoint.folder.residue is not None
    kept = checkpoint.folder.record.get("kept")
    said = [k for k in kept if isinstance(k, dict) and k.get("name") == name] if isinstance(kept, list) else []
    reason = f"kept aside by an earlier conversion: {said[0].get('reason', '')}" if said else "kept aside"
    tensor = checkpoint.folder.residue.tensors[name]
    return Explanation(name, f"a name in {RESIDUE}", _stored(checkpoint, tensor), reason)


def _unknown(checkpoint: Checkpoint, name: str, columns: Columns) -> UnknownTensorError:
    known = dict.fromkeys([*checkpoint.folder.container.tensors, *columns[checkpoint.anatomy.layout]])
    known |= dict.fromkeys(n for column in columns.values() for slot in column.values() for n in slot.spellings)
    close = [repr(n) for n in difflib.get_close_matches(name, known, n=_CLOSE)]
    hint = f"did you mean {' or '.join(close)}?" if close else "a stored name, or a logical one: layer.0.mlp.up.kernel"
    what = f"no tensor of this {checkpoint.anatomy.table.family}, task {checkpoint.anatomy.task.name}, has this name"
    return UnknownTensorError("unknown tensor", [Problem(name, what, f"one of {len(known)} names", hint=hint)])


# ---------------------------------------------------------------- a tensor that a row describes


def _of_row(checkpoint: Checkpoint, asked: str, found_as: str, logical: str, columns: Columns) -> Explanation:
    slot = columns[checkpoint.anatomy.layout][logical]
    there = logical in checkpoint.anatomy.slots
    tensor = checkpoint.stored(logical) if there else None
    table, signature = checkpoint.anatomy.table, slot.row.signature
    letters = dict.fromkeys([*signature.inputs, *signature.outputs])
    return Explanation(
        asked=asked,
        found_as=found_as,
        stored=_stored(checkpoint, tensor) if tensor else None,
        reason=_reason(checkpoint, logical, slot, tensor),
        logical=logical,
        row=slot.row.address,
        tables=_tables_of(table, checkpoint.tables, slot),
        kind=slot.row.kind,
        signature=f"{' '.join(signature.inputs)} -> {' '.join(signature.outputs)}",
        axes={a: f"{table.axes[a]} = {checkpoint.sizes[a]}" for a in letters if a in checkpoint.sizes},
        hub=spell(logical_axes(slot, checkpoint.tables.storages["logical"])),
        shared_by=_shared_by(checkpoint, logical),
        dimensions=spell(checkpoint.axes(logical)) if there else "",
        homes=tuple(homes_of(checkpoint, logical, columns)),
    )


def _reason(checkpoint: Checkpoint, logical: str, slot: Slot, tensor: LazyTensor | None) -> str:
    """Why a logical tensor is not stored under a name of its own; nothing where it is."""
    if logical in checkpoint.anatomy.stored:
        return ""
    if tensor is not None:
        return f"not stored: its numbers are those of {slot.place.tied}, to which it is tied"
    return f"not stored: {slot.place.absent or 'the file has no such tensor, and the task does not need one'}"


def _shared_by(checkpoint: Checkpoint, logical: str) -> tuple[str, ...]:
    anatomy = checkpoint.anatomy
    return tuple(k for k, slot in anatomy.slots.items() if slot.place.tied == logical and k not in anatomy.stored)


def _stored(checkpoint: Checkpoint, tensor: LazyTensor) -> Stored:
    file = tensor.file or checkpoint.folder.weights.name
    return Stored(tensor.name, file, tensor.spec.shape, tensor.spec.dtype, tensor.at)


# ---------------------------------------------------------------- which files say something about a row


def _tables_of(table: Table, tables: Tables, slot: Slot) -> tuple[str, ...]:
    """The table files that hold the row, the family's own first, then those that it extends."""
    found = []
    family = table.family
    while family in tables.families:
        source = tables.families[family].source
        toml = tomllib.loads(_file_of(source).read_text(encoding="utf-8"))
        if slot.row.name in toml.get("rows", {}).get(slot.row.group, {}):
            found.append(source)
        family = str(toml.get("extends"))
    return tuple(found)


def _file_of(source: str) -> Path:
    path = Path(source)
    return path if path.exists() else tables_dir() / path.name
