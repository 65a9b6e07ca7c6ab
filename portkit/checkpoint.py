"""A checkpoint in logical words: opened, identified, config read, shapes checked, before any tensor is moved."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from portkit.anatomy import Anatomy, identify
from portkit.axes import Axes, flip, move, shape_of
from portkit.candidates import Wanted
from portkit.checks import dtype_problems, label_count, tie_problems, twin_problems
from portkit.config import Config, read_config
from portkit.errors import PortkitError, Problem, RefusedError, UnreadableError, UsageError
from portkit.facts import Facts
from portkit.fold import unfolded
from portkit.layouts.folder import Folder, open_folder
from portkit.layouts.registry import layout_of
from portkit.memory import without_field
from portkit.sizes import inferred_fields, sizes_or_problems
from portkit.spare import Spare, spare_of
from portkit.table.expr import evaluate
from portkit.table.load import load_tables, suggestion
from portkit.table.schema import Place
from portkit.table.slots import Slot, expand, logical_axes
from portkit.tensors import Array, LazyTensor, TensorSpec, in_memory, turned

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from portkit.table.schema import Dialect, Table, Tables, Task


@dataclass(frozen=True)
class Checkpoint:
    """Everything that is known of a checkpoint before its tensors are moved.

    `sizes` is the size of every letter of the table, `dead` the stored tensors that no forward pass reads, with the
    reason, `spare` what an earlier conversion kept beside the weights, `borrowed` what of it counts as the model's.
    `whole` is the same file with all of its heads, where less was asked for.
    """

    folder: Folder
    tables: Tables
    anatomy: Anatomy
    config: Config
    facts: Facts
    sizes: Mapping[str, int]
    dead: Mapping[str, str]
    spare: Spare
    borrowed: Mapping[str, LazyTensor] = field(default_factory=dict)
    whole: Checkpoint | None = None

    def stored(self, logical: str) -> LazyTensor | None:
        """The stored tensor that holds a logical one, its own or the one it is tied to."""
        slot = self.anatomy.slots.get(logical)
        name = self.anatomy.stored.get(logical) or (self.anatomy.stored.get(slot.place.tied) if slot else None)
        return self.folder.container.tensors[name] if name else None

    def axes(self, logical: str) -> Axes:
        """The axes in which `stored(logical)` lies in the file, in the roles of the logical tensor."""
        slot = self.anatomy.slots[logical]
        if logical in self.anatomy.stored or not slot.place.tied:
            return slot.axes
        return flip(self.anatomy.slots[slot.place.tied].axes)

    def growth(self, logical: str) -> tuple[int, int]:
        """Rows that the file has in front of and behind the logical ones."""
        return self.anatomy.slots[logical].growth(self.config.values)

    def logical(self) -> dict[str, LazyTensor]:
        """Every stored tensor under its logical name, in canonical orientation, read on demand.

        Rows of a table that the layout does not store are zeros.
        """
        own = {name: self._logical(name, slot) for name, slot in self.anatomy.slots.items() if self.stored(name)}
        return {**own, **self.borrowed}

    def forward_tensors(self) -> dict[str, LazyTensor]:
        """What a forward pass reads: `logical`, and zeros for a table whose rows another one has absorbed."""
        hub = self.tables.storages["logical"]
        tensors = self.logical()
        for name in unfolded(self.anatomy.slots) - tensors.keys():
            shape = shape_of(logical_axes(self.anatomy.slots[name], hub), self.sizes)
            tensors[name] = in_memory(name, np.zeros(shape, np.float32))
        return tensors

    def aside(self) -> dict[str, str]:
        """Logical name -> stored name of what the file holds besides what was asked for."""
        stored = self.whole.anatomy.stored if self.whole else {}
        return {logical: name for logical, name in stored.items() if logical not in self.anatomy.stored}

    def completed(self, names: Collection[str]) -> Checkpoint:
        """The same checkpoint with these tensors of its residue in the place of its own, or of what it lacks."""
        hub = self.tables.storages["logical"]
        slots = {
            n: replace(s, axes=logical_axes(s, hub), place=Place(name=n)) if n in names else s
            for n, s in self.anatomy.slots.items()
        }
        borrowed = {n: self.spare.whole[n] for n in names}
        return replace(self, anatomy=replace(self.anatomy, slots=slots), borrowed=borrowed)

    def _logical(self, name: str, slot: Slot) -> LazyTensor:
        tensor = self.stored(name)
        assert tensor is not None
        axes = logical_axes(slot, self.tables.storages["logical"])
        front, back = self.growth(name)
        if not (front or back) and axes == self.axes(name):
            return tensor.renamed(name)

        def view() -> Array:
            array = tensor.read()
            rows = array[max(front, 0) : array.shape[0] - back] if front or back else array
            rows = np.concatenate([np.zeros((-front, *rows.shape[1:]), rows.dtype), rows]) if front < 0 else rows
            return move(rows, self.axes(name), axes, self.sizes)

        return turned(TensorSpec(name, shape_of(axes, self.sizes), tensor.spec.dtype), view)


def open_checkpoint(
    path: Path | str,
    *,
    layout: str | None = None,
    family: str | None = None,
    task: str | None = None,
    strip_prefix: str | None = None,
    config: Path | None = None,
    mappings: tuple[Path, ...] = (),
) -> Checkpoint:
    """Open a folder or weight file of any layout.

    Raises UsageError for an unknown layout, UnreadableError, UnknownModelError, or RefusedError where the config
    contradicts the weights.
    """
    tables = load_tables(mappings)
    if layout is not None and layout not in tables.layouts:
        problem = Problem("--from", f"{layout!r} is no layout", hint=suggestion(layout, tables.layouts))
        raise UsageError("unknown choice", [problem])
    folder = open_folder(Path(path), tables, config)
    names = tuple(folder.container.tensors)
    if not names:
        raise UnreadableError("cannot read the checkpoint", [Problem(str(folder.weights), "holds no tensors")])
    wanted = Wanted(layout, family, task, strip_prefix)
    anatomy = identify(names, folder.config, folder.container.format, tables, wanted)
    return _bind(folder, tables, anatomy)


def facts_of(table: Table, task: Task, config: Mapping[str, object], layout: str, *, has_pooler: bool) -> Facts:
    """The facts of a model as a layout's framework computes it, from its table and its logical config."""
    scheme = str({**table.facts, **table.layouts[layout].fixed}["position_scheme"])
    names = Facts.__dataclass_fields__.keys() & config.keys()
    return Facts(
        family=table.family,
        task=task.name,
        head_style=task.head_style,
        has_pooler=has_pooler,
        position_offset=reserved_positions(table, config) if scheme == "absolute" else 0,
        position_scheme=scheme,
        **{n: config[n] for n in names},  # type: ignore[arg-type]
    )


def reserved_positions(table: Table, config: Mapping[str, object]) -> int:
    """Rows of the position table before the one that a first token reads."""
    return evaluate(table.facts["reserved_positions"], config)  # type: ignore[arg-type]


def _bind(folder: Folder, tables: Tables, anatomy: Anatomy) -> Checkpoint:
    where = folder.config_path.name
    _raise(
        dtype_problems(folder.container, anatomy),
        "the weights are not plain floating-point numbers",
        UnreadableError,
    )
    raw, dialect = layout_of(anatomy.layout).logical_raw(folder.config, anatomy.table)
    anatomy = _in_dialect(anatomy, dialect, tables) if dialect else anatomy
    if tables.storages[anatomy.layout].infers:
        raw = {**inferred_fields(folder.container, anatomy), **raw}
    problems: list[Problem] = []
    known = without_field(folder, anatomy.table, anatomy.layout)
    config = read_config(anatomy.table, anatomy.layout, raw, where, problems, known)
    _raise(problems, "config.json cannot be used")
    config = replace(config, values={**config.values, "num_labels": label_count(folder.container, anatomy)})
    _raise(tie_problems(anatomy, config), "config.json and weights contradict each other")
    sizes, problems = sizes_or_problems(folder.container, anatomy, config, where)
    _raise(problems, "config.json and weights contradict each other")
    problems, dead = twin_problems(folder.container, anatomy)
    _raise(problems, "two tensors claim the same place")
    facts = facts_of(anatomy.table, anatomy.task, config.values, anatomy.layout, has_pooler=anatomy.has_pooler)
    whole = _bind(folder, tables, anatomy.whole) if anatomy.whole else None
    return Checkpoint(folder, tables, anatomy, config, facts, sizes, dead, spare_of(folder), whole=whole)


def _in_dialect(anatomy: Anatomy, dialect: Dialect, tables: Tables) -> Anatomy:
    """The same anatomy with the places that a dialect has: the rows that it adds, where it keeps the pooler."""
    slots = expand(
        anatomy.table,
        tables.storages[anatomy.layout],
        anatomy.task,
        layers=anatomy.layers,
        prefix=anatomy.prefix,
        pooler=anatomy.has_pooler,
        dialect=dialect,
    )
    return replace(anatomy, dialect=dialect, slots=slots)


def _raise(problems: list[Problem], title: str, kind: type[PortkitError] = RefusedError) -> None:
    if problems:
        raise kind(title, problems)
