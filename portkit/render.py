"""Reports as text. Nothing is decided here."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from portkit.errors import printable
from portkit.record import describe_move
from portkit.render_proofs import render_proofs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from portkit.api import Conversion
    from portkit.table.schema import Table, Tables

_LINES = 100  # of one kind, in a report
_FEW = 3  # names of one reason, that have a line each


def render_inspection(found: dict[str, Any]) -> str:
    """What `describe` found, for a reader."""
    pooler, head, facts = found["pooler"], found["head"], found["facts"]
    labels = f", {head['labels']} labels" if head["labels"] else ""
    lines = [
        f"{found['path']}: {found['family']}, {found['task']}",
        *_rows(
            [
                (
                    "layout",
                    f"{found['layout']} ({found['weights']}, {found['format']}, {found['tensors']} tensors)",
                ),
                ("class", found["class"]),
                ("dialect", found["dialect"] or ""),
                ("evidence", "; ".join(found["evidence"])),
                ("taken off", ", ".join(found["removed"]) + " in front of names or within" if found["removed"] else ""),
                ("pooler", _pooler(pooler)),
                ("head", f"{_head(head)}{labels}"),
                ("sizes", _sizes(facts)),
                ("function", _function(facts)),
            ]
        ),
        *_listed("unexplained", found["unexplained"]),
        *_rows([("", "to convert, --drop or --residue says what becomes of them" if found["unexplained"] else "")]),
        *(f"  warning      {text}" for text in found["warnings"]),
    ]
    return _text(lines)


def _head(head: dict[str, Any]) -> str:
    if head["style"]:
        return f"{head['style']} style, {head['activation']}"
    reads = {"optional": "none", "unread": f"{head['task']}, reads no pooler"}
    return reads.get(head["pooler"], f"{head['task']}, reads the pooler")


def _pooler(pooler: dict[str, Any]) -> str:
    trained = {True: ", looks trained", False: ", looks never trained", None: ""}[pooler["trained"]]
    where = f"present in the {pooler['home']}" if pooler["present"] else "absent"
    made = ", synthesised" if pooler["origin"] == "synthesised" else trained
    return f"{where}{made}: {pooler['evidence']}"


def _sizes(facts: dict[str, Any]) -> str:
    heads, words = facts["num_attention_heads"], facts["vocab_size"]
    return f"{facts['num_hidden_layers']} layers, hidden {facts['hidden_size']}, {heads} heads, vocabulary {words}"


def _function(facts: dict[str, Any]) -> str:
    start = f"{facts['hidden_act']}, epsilon {facts['layer_norm_eps']:g}, {facts['position_scheme']} positions"
    return f"{start} from row {facts['first_position']}, {facts['usable_length']} tokens at most"


def render_conversion(result: Conversion) -> str:
    """What a conversion did, what it lost, and what was proved."""
    plan = result.plan
    counts = [
        (len(plan.moves), "written"),
        (len(plan.tied), "tied"),
        (len(plan.kept), "kept in the residue"),
        (len(plan.dropped), "dropped"),
    ]
    kept = any(k.reason == plan.pooler.evidence for k in plan.kept)
    pooler = _pooler(asdict(plan.pooler)) + ("; the source's goes into the residue" if kept else "")
    facts = plan.model.facts
    lines = [
        f"{plan.source.anatomy.layout} -> {plan.layout} ({plan.form}): {plan.model.table.family}, {facts.task}",
        *_rows(
            [
                ("tensors", ", ".join(f"{n} {what}" for n, what in counts)),
                ("pooler", pooler),
                ("head", plan.model.facts.head_style or ""),
            ]
        ),
        *(_planned(result) if result.dry_run else []),
        *_listed("dropped", _by_reason(plan.dropped)),
        *_listed("kept", [f"{k.name}: {k.reason}" for k in plan.kept]),
        *_listed("carried on", [f"{k.name}: {k.reason}" for k in plan.carried]),
        *_listed("restored", plan.restored),
        *(f"  warning      {text}" for text in result.warnings),
        *(render_proofs(result.verification, rest=False) if result.verification else []),
        _last_line(result),
    ]
    return _text(lines)


def _planned(result: Conversion) -> list[str]:
    """What a dry run would do: every move, what shares another tensor's numbers, and the files that travel."""
    plan = result.plan
    letters = ", ".join(f"{letter} = {size}" for letter, size in sorted(plan.sizes.items()))
    files = ", ".join(f.name for f in result.files)
    return [
        *_rows([("letters", letters), ("files", f"{files}, copied" if files else "")]),
        *(_move(describe_move(plan, step)) for step in plan.moves),
        *(f"  tied         {name}: the numbers of {other}" for name, other in plan.tied.items()),
    ]


def _move(step: dict[str, Any]) -> str:
    turned = step["source_axes"] != step["axes"]
    axes = f"{step['source_axes']} -> {step['axes']}, transposed" if turned else step["axes"]
    cast = step["source_dtype"] != step["dtype"]
    dtype = f"{step['source_dtype']} -> {step['dtype']}" if cast else step["dtype"]
    words = ("cut in front", "cut behind", "of zeros in front", "of zeros behind")
    rows = [f", {n} rows {what}" for n, what in zip((*step["rows_cut"], *step["rows_added"]), words, strict=True) if n]
    names = " -> ".join(n for n in (step["source"], step["target"]) if n)
    return f"  {step['how']:<13}{names}: {axes}, {dtype}{''.join(rows)}"


def render_families(tables: Tables) -> str:
    """One line per family."""
    lines = []
    for name, table in sorted(tables.families.items()):
        lines += [f"{name:<14}{table.about}", f"{'':<14}tasks: {', '.join(table.tasks)}"]
    return _text(lines)


def render_table(table: Table, tables: Tables) -> str:
    """Each row of a family with its place in every layout."""
    lines = [f"{table.family}: {table.about}", f"from {table.source}"]
    for row in table.rows:
        lines.append(f"{row.name}  ({row.kind} {' '.join(row.signature.inputs)} -> {' '.join(row.signature.outputs)})")
        for layout in tables.layouts:
            for part, place in row.places.get(layout, {}).items():
                lines.append(
                    f"  {layout:<6}{part:<8}{place.name or place.absent}"
                    + (f"  (tied to {place.tied})" if place.tied else "")
                )
    return _text(lines)


def _listed(label: str, texts: Sequence[str]) -> list[str]:
    """A line for each; of very many, the first and how many more there are."""
    more = [f"… and {len(texts) - _LINES} more"] if len(texts) > _LINES else []
    return [f"  {label:<13}{text}" for text in (*texts[:_LINES], *more)]


def _by_reason(reasons: Mapping[str, str]) -> list[str]:
    """A line for each name; names of one reason that are many, such as an optimizer's, share one line."""
    names: dict[str, list[str]] = {}
    for name, why in reasons.items():
        names.setdefault(why, []).append(name)
    return [
        line for why, all_of in names.items()
        for line in ([f"{name}: {why}" for name in all_of] if len(all_of) <= _FEW else [_together(all_of, why)])
    ]  # fmt: skip


def _together(names: Sequence[str], why: str) -> str:
    return f"{len(names)} tensors, {', '.join(names[:_FEW])}, …: {why}"


def _text(lines: Sequence[str]) -> str:
    return "\n".join(printable(line) for line in lines)


def _rows(pairs: Sequence[tuple[str, str]]) -> list[str]:
    return [f"  {label:<13}{text}" for label, text in pairs if text]


def _last_line(result: Conversion) -> str:
    if not result.proved:
        kept = f"{result.path} is kept, and marked as failed" if result.path else "nothing was written"
        return f"FAILED: source and target differ; {kept}"
    if result.path is None:
        return "dry run: nothing was written"
    made = [name for name, how in result.verification.results.items() if how == "pass"] if result.verification else []
    return f"wrote {result.path} ({'proved: ' + ', '.join(made) if made else 'not proved'})"
