"""The facts proof: what decides the function besides weights, field by field.

No tensor shows how many heads a matrix is cut into, which activation follows it, or where positions start.
Some differences cannot change any output (a head's style, reserved rows, dropout): they are named and pass.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from portkit.config import TIES, numbered_labels
from portkit.facts import Facts
from portkit.proofs.loading import loaded_otherwise
from portkit.runtimes.outputs import VOCABULARY_TASKS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from portkit.checkpoint import Checkpoint
    from portkit.plan import Plan

Value = str | int | float | bool | None

EQUAL, DIFFERS, UNKNOWN = "equal", "differs", "unknown"
_AS_READ = "as loaded"
_LONGEST = 80  # characters of a value in a report
_SAME_EPSILON = 1e-6  # relative: 1e-5 that went through float32 is still the same function


@dataclass(frozen=True)
class Fact:
    """One fact of both sides. A difference that changes the function fails the proof, unless it was announced."""

    name: str
    source: Value
    target: Value
    status: str
    """"equal", "differs" or "unknown": the latter where one side does not say, or says a word without a meaning."""
    matters: bool
    """Whether a difference changes what some input gives."""
    note: str = ""
    announced: bool = False

    @property
    def holds(self) -> bool:
        """Equal, or without consequence, or said beforehand."""
        return self.status == EQUAL or not self.matters or self.announced

    @property
    def consequence(self) -> str:
        """What the status means for the function, in words."""
        if self.status != EQUAL and self.announced:
            return f"{self.status}, as announced"
        if self.status != EQUAL and self.matters:
            return f"{self.status}, and changes the function"
        return self.status if self.status == EQUAL else f"{self.status}, without changing any output"

    def __str__(self) -> str:
        what = f"{self.name} {self.status}: {_said(self.source)} in the source, {_said(self.target)} in the target"
        return what + (f" ({self.note})" if self.note else "")


@dataclass(frozen=True)
class FactsVerdict:
    """Every fact that was compared."""

    facts: tuple[Fact, ...]

    @property
    def agrees(self) -> bool:
        """Something was compared, and nothing that changes the function differs or is unknown."""
        return bool(self.facts) and all(fact.holds for fact in self.facts)

    @property
    def unequal(self) -> tuple[Fact, ...]:
        """What differs or is unknown."""
        return tuple(fact for fact in self.facts if fact.status != EQUAL)

    def __str__(self) -> str:
        looked, groups = f"compared {len(self.facts)} facts", defaultdict(list)
        for fact in self.unequal:
            groups[fact.consequence].append(fact.name)
        equal = len(self.facts) - len(self.unequal)
        parts = [f"{', '.join(names)}: {how}" for how, names in groups.items()]
        return f"{looked}: " + ("; ".join([f"{equal} equal", *parts]) if parts else "equal")

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return {"agrees": self.agrees, "compared": len(self.facts), "facts": [asdict(fact) for fact in self.facts]}


def compare_facts(source: Checkpoint, target: Checkpoint, announced: Mapping[str, str] = {}) -> FactsVerdict:
    """Compare everything that decides the function and is no tensor; what both leave out is left out here.

    `announced` are facts, by name, in which the target was said beforehand to be another function, and how.
    """
    a, b = Said.of(source), Said.of(target)
    rules = (_shape_facts, _table_facts, _position_facts, _function_facts, _head_facts, _label_facts, _other_facts)
    facts = [fact for rule in (*rules, _loading_facts) for fact in rule(a, b)]
    return FactsVerdict(tuple(replace(f, announced=f.name in announced and f.status != EQUAL) for f in facts))


def announced_by(plan: Plan) -> dict[str, str]:
    """Facts in which a conversion said that its target computes another function, and how; see `--strict`."""
    source, target, dialect = plan.source.facts, plan.model.facts, plan.model.dialect
    fields = [f for f in plan.model.table.config.values() if f.use == "function"]
    names = {f.name for f in fields if not f.head or f.head in plan.model.task.groups}
    promised = {name: getattr(target, name) for name in sorted(names & Facts.__dataclass_fields__.keys())}
    promised |= {name: change.target for name, change in plan.changes.items()}
    promised |= {name: value for name, value in (dialect.fixed if dialect else {}).items() if name in promised}
    return {
        name: f"{getattr(source, name)} in the source, {value} in the target"
        for name, value in promised.items()
        if not _equal(getattr(source, name), value)
    }


@dataclass(frozen=True)
class Said:
    """A checkpoint's facts as its framework computes them: what a dialect fixes overrules the config."""

    checkpoint: Checkpoint
    facts: Facts
    notes: Mapping[str, str]

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> Said:
        """Those of a checkpoint, with notes on what its config does not say itself."""
        dialect = checkpoint.anatomy.dialect
        fixed = {k: v for k, v in (dialect.fixed if dialect else {}).items() if k in Facts.__dataclass_fields__}
        assumed = dict.fromkeys(checkpoint.config.defaulted, "not in the config, the class's default is assumed")
        overruled = dict.fromkeys(fixed, f"dialect {dialect.name} computes nothing else") if dialect else {}
        return cls(checkpoint, replace(checkpoint.facts, **fixed), {**assumed, **overruled})  # type: ignore[arg-type]

    @property
    def labels(self) -> tuple[str, ...] | None:
        """Names of the classes, one for each."""
        names = self.checkpoint.config.labels
        return names if names and len(names) == self.facts.num_labels else None

    def knows(self, name: str, value: Value) -> bool:
        """Whether a word means the same in every layout: one from the table's vocabulary, where that has one."""
        words = self.checkpoint.anatomy.table.values.get(name)
        return words is None or value in words


def _fact(a: Said, b: Said, name: str, *, matters: bool = True, note: str = "") -> Fact:
    """One field of the facts, under its own name."""
    ours, theirs = getattr(a.facts, name), getattr(b.facts, name)
    return _judged(a, b, name, (ours, theirs), matters=matters, note=note)


def _judged(a: Said, b: Said, name: str, values: tuple[Value, Value], *, matters: bool, note: str = "") -> Fact:
    ours, theirs = values
    same_layout = a.checkpoint.anatomy.layout == b.checkpoint.anatomy.layout
    status = EQUAL if _equal(ours, theirs) else DIFFERS
    if None in values or not (same_layout or (a.knows(name, ours) and b.knows(name, theirs))):
        status = UNKNOWN
    sides = (("source", a), ("target", b))
    notes = [note if status != EQUAL else "", *(f"{where}: {s.notes[name]}" for where, s in sides if name in s.notes)]
    return Fact(name, ours, theirs, status, matters, "; ".join(n for n in notes if n))


def _equal(a: Value, b: Value) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=_SAME_EPSILON)
    return a == b


def _shape_facts(a: Said, b: Said) -> Iterator[Fact]:
    yield _fact(a, b, "task", note="other outputs")
    yield _fact(a, b, "family", matters=False, note="what follows from it is compared field by field")
    yield _fact(a, b, "num_hidden_layers")
    yield _fact(a, b, "hidden_size")
    yield _fact(a, b, "num_attention_heads", note="no tensor shows it")
    yield _fact(a, b, "intermediate_size")


def _table_facts(a: Said, b: Said) -> Iterator[Fact]:
    """Tables may have more rows in the target: no input of the source names them."""
    for name, logits in (("vocab_size", {a.facts.task, b.facts.task} & {*VOCABULARY_TASKS}), ("type_vocab_size", ())):
        fewer = getattr(b.facts, name) < getattr(a.facts, name)
        note = "ids that the source takes have no row" if fewer else "rows that no input of the source reads"
        yield _fact(a, b, name, matters=fewer or bool(logits), note="other logits" if logits else note)


def _position_facts(a: Said, b: Said) -> Iterator[Fact]:
    """Another scheme is the same function where its rows have moved along, for the padding that is compared."""
    lengths = a.facts.usable_length, b.facts.usable_length
    moved = lengths[0] == lengths[1]
    along = "the rows moved along: equal for right-padded input without the pad id inside"
    schemes = tuple(f"{f.position_scheme} from row {f.first_position}" for f in (a.facts, b.facts))
    note = along if moved else "the rows did not move along"
    yield _judged(a, b, "positions", (schemes[0], schemes[1]), matters=not moved, note=note)
    shorter = lengths[1] < lengths[0]
    note = "sentences that the source takes are too long" if shorter else "the target takes longer sentences too"
    yield _judged(a, b, "usable_length", lengths, matters=shorter, note=note)
    counts = b.facts.position_scheme == "padding"
    note = "positions are counted without it" if counts else "it only fills rows, where nothing is compared"
    yield _fact(a, b, "pad_token_id", matters=counts, note=note)


def _function_facts(a: Said, b: Said) -> Iterator[Fact]:
    yield _fact(a, b, "hidden_act")
    yield _fact(a, b, "layer_norm_eps")


def _head_facts(a: Said, b: Said) -> Iterator[Fact]:
    sides = (a.facts, b.facts)
    if any(f.task in VOCABULARY_TASKS for f in sides):
        yield _fact(a, b, "lm_head_act")
        yield _fact(a, b, "lm_head_eps")
    if all(f.has_pooler or f.head_style for f in sides):
        yield _fact(a, b, "pooler_act")
    if any(f.head_style for f in sides):
        yield _fact(a, b, "head_style", matters=False, note="the same sums, stored elsewhere")
    if not any(f.head_style for f in sides):
        yield _fact(a, b, "has_pooler", matters=False, note="the pooled output of one side has no counterpart")
    if any(f.num_labels is not None for f in sides):
        yield _fact(a, b, "num_labels")


def _label_facts(a: Said, b: Said) -> Iterator[Fact]:
    if a.facts.num_labels is None or b.facts.num_labels is None:
        return
    ours, theirs = a.labels, b.labels
    named = [names for names in (ours, theirs) if names and names != numbered_labels(len(names))]
    matters = len(named) == 2
    note = "the same logits mean other classes" if matters else "one side names its classes by number only"
    values = tuple(", ".join(names) if names else None for names in (ours, theirs))
    yield _judged(a, b, "labels", (values[0], values[1]), matters=matters, note=note)


def _other_facts(a: Said, b: Said) -> Iterator[Fact]:
    """Fields of the table's config that are no facts: dropout and the like, and what a table of one's own adds."""
    ours, theirs = a.checkpoint.anatomy.table.config, b.checkpoint.anatomy.table.config
    for name in sorted((ours.keys() & theirs.keys()) - Facts.__dataclass_fields__.keys()):
        trains = ours[name].use == "training" or name == TIES
        values = a.checkpoint.config.values.get(name), b.checkpoint.config.values.get(name)
        note = "only training reads it" if trains else ""
        if values != (None, None):
            yield _judged(a, b, name, values, matters=not trains, note=note)


def _loading_facts(a: Said, b: Said) -> Iterator[Fact]:
    """Where the target's own loader would make another model of its files than the one that was compared."""
    ours, theirs = (loaded_otherwise(s.checkpoint) for s in (a, b))
    for part in dict.fromkeys((*ours, *theirs)):
        values = ours.get(part, _AS_READ), theirs.get(part, _AS_READ)
        matters = part in theirs
        note = "its own loader makes another model of it" if matters else "the source's own loader makes another model"
        yield _judged(a, b, part, values, matters=matters, note=note)


def _said(value: Value) -> str:
    text = "not said" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"
