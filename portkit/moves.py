"""The moves of a plan: for each tensor of the target, where its numbers come from and what is done to its rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from portkit.checks import same_bits
from portkit.dense import dense
from portkit.errors import Problem, RefusedError
from portkit.tensors import LazyTensor, TensorSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from portkit.checkpoint import Checkpoint
    from portkit.config import Config
    from portkit.pooler import Pooler
    from portkit.table.slots import Slot

POSITIONS = "embeddings.position.table"
_DTYPES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16", "float64": "F64"}


@dataclass(frozen=True)
class Options:
    """What a user may ask of a conversion; the defaults lose nothing and invent nothing."""

    to: str
    form: str | None = None
    dialect: str | None = None
    pooler: str = "keep"
    head_style: str = "keep"
    dtype: str | None = None
    drop: tuple[str, ...] = ()
    residue: bool = False
    strict: bool = False


@dataclass(frozen=True)
class Move:
    """One target tensor and where its numbers come from.

    `source` is the stored name in the source, or nothing for zeros that are made. `cut` and `grow` are rows taken
    from and put around the logical table, front and back.
    """

    logical: str
    source: str
    target: TensorSpec
    slot: Slot
    how: str  # "moved", "copied" (from the tensor it is tied to) or "zeros"
    cut: tuple[int, int] = (0, 0)
    grow: tuple[int, int] = (0, 0)


def make_moves(
    source: Checkpoint,
    slots: Mapping[str, Slot],
    config: Config,
    sizes: Mapping[str, int],
    options: Options,
    pooler: Pooler,
) -> list[Move]:
    """One move for every tensor of the target. Raises RefusedError listing all that cannot be filled."""
    moves, problems = [], []
    untied = {k for k, s in slots.items() if s.place.tied and not _is_tied(source, k, s.place.tied)}
    for logical, slot in slots.items():
        if slot.place.absent:
            problems += (
                []
                if logical.startswith("pooler.")
                else [Problem(logical, f"{options.to} has no place for it", found=slot.place.absent)]
            )
        elif slot.place.tied and logical not in untied:
            continue
        elif logical.startswith("pooler.") and pooler.origin == "synthesised":
            moves.append(Move(logical, "", _spec(slot, slot.name, sizes, (0, 0), options, "F32"), slot, "zeros"))
        elif (tensor := source.stored(logical)) is None:
            problems.append(
                Problem(
                    logical,
                    "the target needs it and the source has none",
                    hint=f"{slot.name} would be random",
                )
            )
        else:
            move = _move(source, logical, slot, tensor.spec, config, sizes, options)
            kernel = logical.rpartition(".")[0] + ".kernel"
            moves += [move, _overruling(move)] if slot.place.overruled_by and kernel in untied else [move]
    if problems:
        raise RefusedError("the target cannot be filled from the source", problems)
    return moves


def _move(
    source: Checkpoint,
    logical: str,
    slot: Slot,
    spec: TensorSpec,
    config: Config,
    sizes: Mapping[str, int],
    options: Options,
) -> Move:
    how = "moved" if logical in source.anatomy.stored else "copied"
    cut, own = source.growth(logical), slot.growth(config.values)
    grow = own
    if logical == POSITIONS:
        shift = config["max_position_embeddings"] - source.config["max_position_embeddings"]
        cut, grow = (cut[0] + max(-shift, 0), cut[1]), (grow[0] + max(shift, 0), grow[1])
    target = _spec(slot, slot.name, sizes, own, options, spec.dtype)
    return Move(logical, spec.name, target, slot, how, cut, grow)


def _overruling(move: Move) -> Move:
    """The same numbers under the name that an untied model's forward pass reads."""
    return replace(move, target=replace(move.target, name=move.slot.place.overruled_by), how="copied")


def _spec(
    slot: Slot, name: str, sizes: Mapping[str, int], growth: tuple[int, int], options: Options, dtype: str
) -> TensorSpec:
    asked = options.dtype or ("float32" if options.to == "burn" else None)
    return TensorSpec(name, slot.shape(sizes, growth), _DTYPES[asked] if asked else dtype)


def _is_tied(source: Checkpoint, logical: str, to: str) -> bool:
    """Whether a kernel that may be tied to a table is: not stored, or not said to be untied and of the same numbers."""
    if logical not in source.anatomy.stored:
        return True
    if source.config.values.get("tie_word_embeddings") is False:
        return False
    tensors = source.logical()
    return same_bits(_turned(tensors[logical]), tensors[to])


def _turned(tensor: LazyTensor) -> LazyTensor:
    """A decoder's kernel [in, out] as rows of a table [out, in]."""
    spec = replace(tensor.spec, shape=tensor.spec.shape[::-1])
    return LazyTensor(spec, lambda: dense(tensor.read().T))
