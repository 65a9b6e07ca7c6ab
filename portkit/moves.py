"""The moves of a plan: for each tensor of the target, where its numbers come from and what is done to its rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from portkit.axes import shape_of
from portkit.casts import cast
from portkit.common import POSITIONS
from portkit.errors import Problem, RefusedError
from portkit.fold import absorbed, fold, folded_dtype, unfolded
from portkit.table.slots import logical_axes
from portkit.tensors import FLOAT_NAMES, FLOATS, LazyTensor, TensorSpec, equal_bits
from portkit.ties import untied

if TYPE_CHECKING:
    from collections.abc import Mapping

    from portkit.checkpoint import Checkpoint
    from portkit.config import Config
    from portkit.pooler import Pooler
    from portkit.table.slots import Slot


@dataclass(frozen=True)
class Options:
    """What a user may ask of a conversion; the defaults lose nothing and invent nothing.

    `residue`: None keeps beside the weights what the target has no place for, True also what no row explains, False
    nothing at all. `labels` names the classes of a source that only counts them.
    """

    to: str
    form: str | None = None
    dialect: str | None = None
    pooler: str = "keep"
    head_style: str = "keep"
    dtype: str | None = None
    drop: tuple[str, ...] = ()
    residue: bool | None = None
    labels: tuple[str, ...] = ()
    strict: bool = False


@dataclass(frozen=True)
class Move:
    """One target tensor and where its numbers come from.

    `source` is the stored name in the source, that in its residue for what is restored, or nothing for zeros that are
    made. `cut` and `grow` are rows taken from and put around the table, front and back; the rows in front are those
    that the residue has under `front`, else zeros. `absorbs` is a logical table whose first row is added to each row.
    """

    logical: str
    source: str
    target: TensorSpec
    slot: Slot
    how: str  # "moved", "copied" (from the tensor it is tied to), "restored" (from the residue) or "zeros"
    cut: tuple[int, int] = (0, 0)
    grow: tuple[int, int] = (0, 0)
    front: str = ""
    absorbs: str = ""


def make_moves(
    source: Checkpoint,
    slots: Mapping[str, Slot],
    config: Config,
    sizes: Mapping[str, int],
    options: Options,
    pooler: Pooler,
) -> list[Move]:
    """One move for every tensor of the target. Raises RefusedError listing all that cannot be filled."""
    filler = _Filler(source, slots, config, sizes, options, pooler.origin == "synthesised")
    moves, problems = [], []
    for logical, slot in slots.items():
        found = filler.fill(logical, slot)
        problems += [found] if isinstance(found, Problem) else []
        moves += found if isinstance(found, list) else []
    if problems:
        raise RefusedError("the target cannot be filled from the source", problems)
    return moves


class _Filler:
    """Finds the numbers for one target tensor after the other."""

    def __init__(
        self,
        source: Checkpoint,
        slots: Mapping[str, Slot],
        config: Config,
        sizes: Mapping[str, int],
        options: Options,
        synthesised: bool,
    ) -> None:
        self.source, self.config, self.sizes, self.options = source, config, sizes, options
        self.synthesised = synthesised
        self.untied = untied(source, slots)
        self.absorbs = absorbed(slots.values())
        self.restored = _intact_folds(source) if not self.absorbs else set()

    def fill(self, logical: str, slot: Slot) -> list[Move] | Problem:
        """The moves that fill one place of the target; none where nothing is stored there."""
        if slot.place.absent:
            optional = logical.startswith("pooler.") or slot.place.absorbed_by
            where = f"{self.options.to} has no place for it"
            return [] if optional else Problem(logical, where, found=slot.place.absent)
        if slot.place.tied and logical not in self.untied:
            return []
        if not slot.name:
            what = (
                f"{self.options.to} always takes {slot.place.tied} in its place, and the source has numbers of its own"
            )
            return Problem(logical, what, hint="the two differ: with the other one this is another function")
        if logical.startswith("pooler.") and self.synthesised:
            return [self._made(logical, slot)]
        if self.source.stored(logical) is None or logical in self.restored:
            return self._not_in_the_file(logical, slot)
        return self._moved(logical, slot)

    def _not_in_the_file(self, logical: str, slot: Slot) -> list[Move] | Problem:
        spare = self.source.spare.whole.get(logical)
        folded = logical in unfolded(self.source.anatomy.slots)
        if spare is not None and (logical in self.restored or not folded):
            wrong = self._unfit(logical, slot, spare)
            return wrong or self._twice(self._restored(logical, slot, spare))
        if folded:
            return [self._made(logical, slot)]
        return Problem(logical, "the target needs it and the source has none", hint=f"{slot.name} would be random")

    def _made(self, logical: str, slot: Slot) -> Move:
        dtype = next(iter(self.source.logical().values())).spec.dtype
        return Move(logical, "", self._spec(slot, (0, 0), dtype), slot, "zeros")

    def _restored(self, logical: str, slot: Slot, spare: LazyTensor) -> Move:
        own, shift = slot.growth(self.config.values), self._shift(logical)
        spec = self._spec(slot, own, spare.spec.dtype)
        more = own[0] + shift
        return Move(logical, spare.name, spec, slot, "restored", (max(-more, 0), 0), (max(more, 0), own[1]))

    def _unfit(self, logical: str, slot: Slot, spare: LazyTensor) -> Problem | None:
        """What is wrong with a tensor of the residue, which anyone may have written."""
        sizes = self.source.sizes if logical == POSITIONS else self.sizes
        shape = shape_of(logical_axes(slot, self.source.tables.storages["logical"]), sizes)
        if spare.spec.shape == shape and spare.spec.dtype in FLOATS:
            return None
        hint = "without portkit.residue.safetensors nothing comes back from it"
        return Problem(f"residue {spare.name}", "does not fit the model", f"{shape} of floats", str(spare.spec), hint)

    def _shift(self, logical: str) -> int:
        """How many more rows the target's family reserves in front of a table."""
        rows = "max_position_embeddings"
        return int(self.config[rows] - self.source.config[rows]) if logical == POSITIONS else 0

    def _moved(self, logical: str, slot: Slot) -> list[Move]:
        source, tensor = self.source, self.source.stored(logical)
        assert tensor is not None
        (front, back), own, shift = source.growth(logical), slot.growth(self.config.values), self._shift(logical)
        more, lacking = own[0] + shift - front, shift + max(-front, 0)
        width = tensor.spec.shape[-1]
        kept = source.spare.front(logical, lacking, width) if 0 < lacking == more else None
        row = self.absorbs.get(logical, "")
        row = row if source.stored(row) else ""
        spec = self._spec(slot, own, tensor.spec.dtype)
        move = Move(
            logical,
            tensor.name,
            replace(spec, dtype=folded_dtype(spec.dtype)) if row else spec,
            slot,
            "moved" if logical in source.anatomy.stored else "copied",
            (max(-more, 0), back),
            (max(more, 0), own[1]),
            kept.name if kept else "",
            row,
        )
        return self._twice(move)

    def _twice(self, move: Move) -> list[Move]:
        """A bias of an untied kernel goes under both of its names."""
        kernel = move.logical.rpartition(".")[0] + ".kernel"
        return [move, _overruling(move)] if move.slot.place.overruled_by and kernel in self.untied else [move]

    def _spec(self, slot: Slot, growth: tuple[int, int], dtype: str) -> TensorSpec:
        asked = self.options.dtype or self.source.tables.storages[self.options.to].dtype
        return TensorSpec(slot.name, slot.shape(self.sizes, growth), FLOAT_NAMES[asked] if asked else dtype)


def _intact_folds(source: Checkpoint) -> set[str]:
    """Tables whose stored rows are still, bit for bit, what folding the spare tensors gives, with what they absorbed.

    Reads the stored table and the two spare ones. Where someone trained on after the conversion, nothing is intact.
    """
    intact: set[str] = set()
    spare = source.spare
    for table, row in absorbed(source.anatomy.slots.values()).items():
        stored, originals = source.stored(table), (spare.whole.get(table), spare.whole.get(row))
        if stored is None or originals[0] is None or originals[1] is None:
            continue
        first = max(-source.growth(table)[0], 0)
        if not _foldable(originals[0], originals[1], stored, first):
            continue
        folded = fold(originals[0].read()[first:], originals[1].read()[0])
        if equal_bits(cast(folded, stored.spec.dtype), stored.read()):
            intact |= {table, row}
    return intact


def _foldable(table: LazyTensor, row: LazyTensor, stored: LazyTensor, first: int) -> bool:
    """Whether two tensors of a residue are of the shapes that fold into what is stored."""
    rows, width = stored.spec.shape
    return (
        table.spec.shape == (rows + first, width)
        and row.spec.shape[1:] == (width,)
        and row.spec.shape[0] > 0
        and {table.spec.dtype, row.spec.dtype} <= {*FLOATS}
    )


def _overruling(move: Move) -> Move:
    """The same numbers under the name that an untied model's forward pass reads."""
    how = "restored" if move.how == "restored" else "copied"
    return replace(move, target=replace(move.target, name=move.slot.place.overruled_by), how=how)
