"""What the record beside some weights remembers of the checkpoint that they came from.

A layout may have no field for a fact, or fix it to another value. Then only the record knows what the original had, and
for what decides the function only as long as the weights are the ones that were written with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from portkit.config import label_names
from portkit.formats.hashing import sha256_of
from portkit.layouts.folder import RESIDUE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from portkit.layouts.folder import Folder
    from portkit.table.schema import Table


def without_field(folder: Folder, table: Table, layout: str) -> dict[str, Any]:
    """Config fields that the layout has no name for and does not fix: the pad id of a KerasHub model."""
    fixed = table.layouts[layout].fixed
    named = [f.name for f in table.config.values() if not f.name_in(layout) and f.name not in fixed]
    return {n: v for n, v in _facts(folder).items() if n in named}


def overruled(folder: Folder, table: Table, layout: str) -> dict[str, Any]:
    """Config fields that the layout fixes, as the original had them; those of the function only for its weights.

    Reads the weights' files once, to compare their digests with the record's.
    """
    fixed = table.layouts[layout].fixed
    said = {n: v for n, v in _facts(folder).items() if n in fixed and n in table.config}
    if not said:
        return {}
    same = folder.digests.items() <= _written(folder).items()
    return {n: v for n, v in said.items() if same or table.config[n].use == "size"}


def changed_files(folder: Folder) -> tuple[str, ...]:
    """The weights' files and the residue that are not, byte for byte, those that the record describes. Reads them."""
    residue = {RESIDUE: sha256_of(folder.home / RESIDUE)} if folder.residue else {}
    written = _written(folder)
    return tuple(name for name, digest in {**folder.digests, **residue}.items() if written.get(name) != digest)


def labels(folder: Folder) -> tuple[str, ...] | None:
    """Names of the classes: those that the record tells, else from the config of any layout on the way."""
    told = folder.record.get("labels")
    if isinstance(told, list) and told and all(isinstance(name, str) for name in told):
        return tuple(told)
    configs = folder.record.get("configs")
    found = [label_names(c) for c in configs.values() if isinstance(c, dict)] if isinstance(configs, dict) else []
    return next((names for names in found if names), None)


def _written(folder: Folder) -> dict[str, str]:
    """File name -> SHA-256 of what the conversion wrote, as the record says."""
    files = folder.record.get("files")
    entries = [f for f in files if isinstance(f, dict)] if isinstance(files, list) else []
    return {str(f.get("name")): str(f.get("sha256")) for f in entries}


def _facts(folder: Folder) -> Mapping[str, Any]:
    """The facts of the first checkpoint on the way, as far as this record knows them."""
    original = folder.record.get("original")
    return original if isinstance(original, dict) else {}
