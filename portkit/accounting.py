"""Where every stored tensor of a source ends: moved, tied, kept in the residue, or dropped for a named reason."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from portkit.errors import Problem, RefusedError
from portkit.table.load import suggestion

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from portkit.checkpoint import Checkpoint
    from portkit.table.slots import Slot

UNEXPLAINED = "no row explains it"
Used = tuple[str, str, tuple[int, int]]  # stored name, logical name, rows cut off in front and behind


@dataclass(frozen=True)
class Kept:
    """A stored tensor that goes into the residue, whole or some of its rows."""

    source: str
    reason: str
    rows: tuple[int, int] | None = None
    layout: str = ""  # whose name it is; that of the source unless an earlier conversion kept it

    @property
    def name(self) -> str:
        """Its name in the residue."""
        return self.source if self.rows is None else f"{self.source}[{self.rows[0]}:{self.rows[1]}]"


@dataclass(frozen=True)
class Accounts:
    """The stored tensors that are not moved."""

    tied: Mapping[str, str]  # stored name -> the stored name whose numbers it shares
    kept: tuple[Kept, ...]
    dropped: Mapping[str, str]  # stored name -> reason


def account(
    source: Checkpoint,
    used: Sequence[Used],
    slots: Mapping[str, Slot],
    drop: Sequence[str],
    *,
    keep: bool,
    no_pooler: str = "",
) -> Accounts:
    """Sort what a conversion does not move. `keep` puts into the residue what the target cannot hold.

    `slots` are the target's: what its table ties there, and was not moved, shares the numbers of another tensor.
    `no_pooler` is the reason why the target has none.
    Raises RefusedError listing every tensor that would be lost without a word.
    """
    anatomy = source.anatomy
    moved = {stored for stored, _, _ in used}
    tied = {n: anatomy.stored[k] for k, names in anatomy.twins.items() for n in names if n not in source.dead}
    dropped = {**anatomy.ignored, **source.dead}
    rest = [n for n in source.folder.container.tensors if n not in moved and n not in tied and n not in dropped]
    dropped |= {n: f"--drop {p!r}" for n in rest if (p := next((p for p in drop if fnmatchcase(n, p)), None))}
    _check_patterns(drop, rest)
    rest = [n for n in rest if n not in dropped]
    tied |= {n: anatomy.stored[to] for n in rest if (to := _tied_to(slots, _logical(source, n)))}
    rest = [n for n in rest if n not in tied]
    inner = _inner(source)
    kept = [_kept_or_refused(source, n, inner, keep=keep, no_pooler=no_pooler) for n in rest]
    problems = [k for k in kept if isinstance(k, Problem)]
    if problems:
        raise RefusedError("tensors of the source have no place in the target", problems)
    rows = [_cut_rows(source, u) for u in used if sum(u[2])] if keep else []
    return Accounts(tied, (*(k for k in kept if isinstance(k, Kept)), *(r for r in rows if r)), dropped)


def _logical(source: Checkpoint, stored: str) -> str | None:
    return next((k for k, n in source.anatomy.stored.items() if n == stored), None)


def _tied_to(slots: Mapping[str, Slot], logical: str | None) -> str:
    """The logical tensor that the target reads instead of this one; nothing where it has a place of its own."""
    slot = slots.get(logical or "")
    return slot.place.tied if slot else ""


def _kept_or_refused(
    source: Checkpoint, stored: str, inner: Collection[str], *, keep: bool, no_pooler: str
) -> Kept | Problem:
    logical = _logical(source, stored)
    if logical is not None:
        reason = no_pooler if logical.startswith("pooler.") else ""
        return Kept(stored, reason or f"the target has no place for {logical}")
    if _changes_function(source, stored, inner):
        hint = (
            f"--drop {stored!r} reads the rest as a plain {source.anatomy.table.family}, which is then another function"
        )
        return Problem(stored, "part of the encoder that no row explains: this is another architecture", hint=hint)
    if keep:
        return Kept(stored, UNEXPLAINED)
    hint = f"--drop {_pattern(stored)!r} leaves it out, --residue keeps it beside the weights"
    return Problem(stored, UNEXPLAINED, hint=hint)


def _inner(source: Checkpoint) -> set[str]:
    """The modules of the backbone: `embeddings`, `encoder`."""
    slots = source.anatomy.slots.values()
    return {s.name.removeprefix(source.anatomy.prefix).partition(".")[0] for s in slots if s.row.group == "backbone"}


def _changes_function(source: Checkpoint, stored: str, inner: Collection[str]) -> bool:
    """Whether an unexplained tensor lies inside the embeddings or the encoder, where it takes part in the function."""
    clean = stored
    for part in (*source.anatomy.removed, source.anatomy.prefix):
        clean = clean.replace(part, "", 1) if part else clean
    return clean.partition(".")[0] in inner


def _pattern(stored: str) -> str:
    head, dot, _ = stored.rpartition(".")
    return f"{head}.*" if dot else stored


def _check_patterns(drop: Sequence[str], names: Sequence[str]) -> None:
    unused = [p for p in drop if not any(fnmatchcase(n, p) for n in names)]
    if unused:
        problems = [
            Problem(f"--drop {p!r}", "matches no tensor that could be dropped", hint=suggestion(p, names))
            for p in unused
        ]
        raise RefusedError("nothing to drop", problems)


def _cut_rows(source: Checkpoint, used: Used) -> Kept | None:
    """Rows of a table that the target does not have, unless they are those that the source's own layout added."""
    stored, logical, (front, _) = used
    own = source.growth(logical)[0]
    return Kept(stored, "position rows that no token reads in the target", (own, front)) if front > own else None
