"""Where every stored tensor of a source ends: moved, tied, kept in the residue, or dropped for a named reason."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from portkit.errors import Problem, RefusedError
from portkit.table.load import suggestion

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from portkit.checkpoint import Checkpoint
    from portkit.table.slots import Slot

UNEXPLAINED = "no row explains it"


@dataclass(frozen=True)
class Kept:
    """A tensor that goes into the residue: a logical one in canonical orientation, or a stored one as it is.

    `rows` are those of a logical table, when it is not all of them. `layout` is whose stored name it is; that of the
    source unless an earlier conversion kept it.
    """

    source: str
    reason: str
    rows: tuple[int, int] | None = None
    layout: str = ""
    logical: str = ""

    @property
    def name(self) -> str:
        """Its name in the residue."""
        name = self.logical or self.source
        return name if self.rows is None else f"{name}[{self.rows[0]}:{self.rows[1]}]"


@dataclass(frozen=True)
class Used:
    """What a conversion does with a stored tensor: rows cut off in front, and the logical table that it takes in."""

    stored: str
    logical: str
    cut: int
    absorbs: str


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
    keep: bool | None,
    needless: Mapping[str, str],
    no_pooler: str = "",
) -> Accounts:
    """Sort what a conversion does not move.

    `slots` are the target's: what its table ties there, and was not moved, shares the numbers of another tensor.
    What the target has no place for is kept, unless `keep` is False; then it is dropped by that name. What no row
    explains is kept only where `keep` is True. `needless` gives a reason to drop for logical names, `no_pooler` the
    reason why the target has none.
    Raises RefusedError listing every tensor that would be lost without a word.
    """
    anatomy = source.anatomy
    moved = {u.stored for u in used}
    whole = source.whole.anatomy if source.whole else anatomy
    dead = {**source.dead, **(source.whole.dead if source.whole else {})}
    tied = {n: whole.stored[k] for k, names in whole.twins.items() for n in names if n not in dead}
    dropped = {**anatomy.ignored, **dead}
    rest = [n for n in source.folder.container.tensors if n not in moved and n not in tied and n not in dropped]
    dropped |= {n: f"--drop {p!r}" for n in rest if (p := next((p for p in drop if fnmatchcase(n, p)), None))}
    _check_patterns(drop, rest)
    rest = [n for n in rest if n not in dropped]
    tied |= {n: anatomy.stored[to] for n in rest if (to := _tied_to(slots, _logical(source, n)))}
    rest = [n for n in rest if n not in tied]
    dropped |= {n: why for n in rest if (why := needless.get(_logical(source, n) or ""))}
    inner = backbone_words(source)
    kept = [_kept_or_refused(source, n, used, inner, keep is True, no_pooler) for n in rest if n not in dropped]
    problems = [k for k in kept if isinstance(k, Problem)]
    if problems:
        raise RefusedError("tensors of the source have no place in the target", problems)
    aside = [k for k in (*kept, *_changed_tables(source, used)) if isinstance(k, Kept)]
    if keep is False:
        dropped |= {k.name if k.rows or not k.logical else k.source: f"--no-residue; {k.reason}" for k in aside}
        aside = []
    return Accounts(tied, tuple(aside), dropped)


def _logical(source: Checkpoint, stored: str) -> str | None:
    return next((k for k, n in source.anatomy.stored.items() if n == stored), None)


def _tied_to(slots: Mapping[str, Slot], logical: str | None) -> str:
    """The logical tensor that the target reads instead of this one; nothing where it has a place of its own."""
    slot = slots.get(logical or "")
    return slot.place.tied if slot else ""


def _kept_or_refused(
    source: Checkpoint,
    stored: str,
    used: Sequence[Used],
    inner: Collection[str],
    keep: bool,
    no_pooler: str,
) -> Kept | Problem:
    logical = _logical(source, stored) or next((k for k, n in source.aside().items() if n == stored), None)
    if logical is not None:
        into = next((u.logical for u in used if u.absorbs == logical), "")
        reason = f"folded into {into}" if into else (no_pooler if logical.startswith("pooler.") else "")
        return Kept(stored, reason or f"the target has no place for {logical}", logical=logical)
    if changes_function(source, stored, inner):
        hint = (
            f"--drop {stored!r} reads the rest as a plain {source.anatomy.table.family}, which is then another function"
        )
        return Problem(stored, "part of the encoder that no row explains: this is another architecture", hint=hint)
    if keep:
        return Kept(stored, UNEXPLAINED)
    hint = f"--drop {_pattern(stored)!r} leaves it out, --residue keeps it beside the weights"
    return Problem(stored, UNEXPLAINED, hint=hint)


def backbone_words(source: Checkpoint) -> set[str]:
    """The first words of the backbone's names: `embeddings` and `encoder`, or Keras' `layers`."""
    slots, word = source.anatomy.slots.values(), _separator(source)
    inner = (s.name.removeprefix(source.anatomy.prefix) for s in slots if s.row.group == "backbone" and s.name)
    return {name.partition(word)[0] for name in inner}


def _separator(source: Checkpoint) -> str:
    return source.tables.storages[source.anatomy.layout].separator


def changes_function(source: Checkpoint, stored: str, inner: Collection[str]) -> bool:
    """Whether an unexplained tensor lies inside the embeddings or the encoder, where it takes part in the function.

    `inner` are the `backbone_words`.
    """
    prefix, clean = source.anatomy.prefix, stored
    for part in (*source.anatomy.removed, prefix):
        clean = clean.replace(part, "", 1) if part else clean
    outside = source.tables.storages[source.anatomy.layout].always_prefixed and not stored.startswith(prefix)
    return not outside and clean.partition(_separator(source))[0] in inner


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


def _changed_tables(source: Checkpoint, used: Sequence[Used]) -> Iterator[Kept]:
    """Tables as they were, where the target's are others: with rows cut off, or with another table folded in."""
    for u in used:
        own = max(source.growth(u.logical)[0], 0)
        if u.absorbs:
            yield Kept(u.stored, f"as it was before {u.absorbs} was folded in", logical=u.logical)
        elif u.cut > own:
            why = "position rows that no token reads in the target"
            yield Kept(u.stored, why, (0, u.cut - own), logical=u.logical)
