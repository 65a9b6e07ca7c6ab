"""Take off what training loops leave around the names of a model, and find the prefix of its backbone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from portkit.errors import AmbiguousModelError, Problem, UnknownModelError

if TYPE_CHECKING:
    from portkit.table.schema import Wrappers


@dataclass(frozen=True)
class Unwrapped:
    """Clean names and what was taken off.

    `clean` maps a clean name to the stored one, `foreign` holds stored names outside the model's own prefix, `ignored`
    gives the reason for each stored name that is no weight, `prefix` is what stands before the backbone (`bert.` or
    nothing), `removed` says what was taken off.
    """

    clean: Mapping[str, str]
    foreign: tuple[str, ...]
    ignored: Mapping[str, str]
    prefix: str
    removed: tuple[str, ...]


def unwrap(
    names: Collection[str],
    wrappers: Wrappers,
    anchors: Collection[str],
    family_prefixes: Collection[str],
    strip: str | None = None,
    separator: str = ".",
) -> Unwrapped:
    """Find the one model among some stored names.

    `anchors` are the names that begin a backbone. Raises UnknownModelError when there is no anchor, when a prefix fits
    twice, or when the prefix is none that is known; the message lists the candidates.
    """
    below = {n[len(strip or "") :].removeprefix(separator): n for n in names if n.startswith(strip or "")}
    if not below:
        raise UnknownModelError("no model was found", [Problem("", f"no name starts with --strip-prefix {strip!r}")])
    chosen, ignored, nest = _choose_nest(below, wrappers, tuple(anchors), separator)
    cleaned = _drop_infixes(chosen, wrappers)
    front = _only(_prefixes(cleaned, anchors, separator), family_prefixes)
    outer, prefix = _split(front, family_prefixes)
    _check_outer(outer, wrappers, family_prefixes, front)
    clean = {n.removeprefix(outer): stored for n, stored in cleaned.items() if n.startswith(outer)}
    infixes = [i for i in wrappers.infixes if any(i in n.split(".") for n in chosen)]
    known = {*clean.values(), *ignored}
    return Unwrapped(
        clean=clean,
        foreign=tuple(sorted(n for n in names if n not in known)),
        ignored=ignored,
        prefix=prefix,
        removed=tuple(p for p in (strip or "", nest, *(f"{i}." for i in infixes), outer) if p),
    )


def check_form(names: Iterable[str], undo: Mapping[str, str]) -> None:
    """Raise UnknownModelError for weights that a tool has split or packed: adapters, pruning, quantisation."""
    found: dict[str, list[str]] = defaultdict(list)
    for name in names:
        for word in undo.keys() & set(name.replace("/", ".").split(".")):
            found[word].append(name)
    if found:
        problems = [
            Problem(word, "a tool has split or packed weights", found=_some(of), hint=undo[word])
            for word, of in found.items()
        ]
        raise UnknownModelError("these are not the weights of a plain model", problems)


def _some(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


Names = Mapping[str, str]  # name as cleaned so far -> stored name


def _choose_nest(
    names: Names, wrappers: Wrappers, anchors: tuple[str, ...], separator: str
) -> tuple[Names, dict[str, str], str]:
    """The one dictionary of a training checkpoint that holds a model, and what is training state beside it."""
    state = {name for name in names if any(part in wrappers.ignored for part in name.split("/"))}
    ignored = {names[name]: "training state, not a weight" for name in sorted(state)}
    groups: dict[str, dict[str, str]] = defaultdict(dict)
    if separator == "/":  # a tree of groups is one dictionary
        return {n: s for n, s in names.items() if n not in state}, ignored, ""
    for name in (n for n in names if n not in state):
        cut = name.rfind("/") + 1
        groups[name[:cut]][name[cut:]] = names[name]
    models = sorted(g for g, m in groups.items() if any(n.endswith(a) for n in m for a in anchors))
    if len(models) > 1:
        raise _twice([repr(m) for m in models], models[0])
    nest = models[0] if models else ""
    return groups.get(nest, {}), ignored, nest


def _drop_infixes(names: Names, wrappers: Wrappers) -> dict[str, str]:
    cleaned: dict[str, str] = {}
    problems = []
    for name, stored in names.items():
        short = ".".join(p for p in name.split(".") if p not in wrappers.infixes)
        if short in cleaned:
            found = f"{cleaned[short]}, {stored}"
            problems.append(Problem(short, "two stored tensors have the same name after unwrapping", found=found))
        cleaned[short] = stored
    if problems:
        raise AmbiguousModelError("cannot tell which weights to read", problems)
    return cleaned


def _prefixes(names: Names, anchors: Iterable[str], separator: str) -> dict[str, str]:
    """Prefix -> the stored name that shows it, for each backbone."""
    found = {}
    for name, stored in names.items():
        for anchor in anchors:
            front = name.removesuffix(anchor)
            if name.endswith(anchor) and (not front or front.endswith(separator)):
                found[front] = stored
    return found


def _only(prefixes: Mapping[str, str], family_prefixes: Iterable[str]) -> str:
    if not prefixes:
        hint = "is this another architecture, or only a part of a model?"
        raise UnknownModelError("no model was found", [Problem("", "no word embeddings among the names", hint=hint)])
    if len(prefixes) > 1:
        example = max(_split(p, family_prefixes)[0] for p in prefixes) or max(prefixes)
        raise _twice([f"{p!r} ({n})" for p, n in sorted(prefixes.items())], example)
    return next(iter(prefixes))


def _twice(candidates: list[str], example: str) -> AmbiguousModelError:
    hint = f"choose one, as in --strip-prefix {example!r}; the rest needs --drop or --residue"
    return AmbiguousModelError(
        "more than one model is in the file",
        [Problem("", "the prefix fits twice", found=", ".join(candidates), hint=hint)],
    )


def _split(front: str, family_prefixes: Iterable[str]) -> tuple[str, str]:
    prefix = max((p for p in family_prefixes if front.endswith(p)), key=len, default="")
    return front.removesuffix(prefix), prefix


def _check_outer(outer: str, wrappers: Wrappers, family_prefixes: Iterable[str], front: str) -> None:
    known_prefixes = (*(f"{p}." for p in wrappers.prefixes), *family_prefixes)
    rest = outer
    while rest and (fits := [p for p in known_prefixes if rest.startswith(p)]):
        rest = rest.removeprefix(max(fits, key=len))
    if rest:
        known = ", ".join(repr(f"{p}.") for p in wrappers.prefixes)
        raise UnknownModelError(
            "the names have an unknown prefix",
            [
                Problem(
                    "",
                    f"the backbone's names start with {front!r}",
                    f"nothing, a family's prefix, or one of {known}",
                    repr(rest),
                    f"--strip-prefix {outer!r} reads the model below it",
                )
            ],
        )
