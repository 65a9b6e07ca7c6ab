"""Take off what training loops leave around the names of a model, and find the prefix of its backbone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from portkit.errors import Problem, UnknownModelError

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
    front = _only(_prefixes(cleaned, anchors, separator))
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


Names = Mapping[str, str]  # name as cleaned so far -> stored name


def _choose_nest(
    names: Names, wrappers: Wrappers, anchors: tuple[str, ...], separator: str
) -> tuple[Names, dict[str, str], str]:
    """The one dictionary of a training checkpoint that holds a model, and what is training state beside it."""
    groups: dict[str, dict[str, str]] = defaultdict(dict)
    for name, stored in names.items():
        if separator == "/":  # a tree of groups is one dictionary, but for its branches of training state
            top = name.partition("/")[0]
            groups[top if top in wrappers.ignored else ""][name] = stored
            continue
        cut = name.rfind("/") + 1
        groups[name[:cut]][name[cut:]] = stored
    state = {nest for nest in groups if any(part in wrappers.ignored for part in nest.split("/"))}
    ignored = {stored: "training state, not a weight" for nest in state for stored in groups[nest].values()}
    models = sorted(g for g, m in groups.items() if g not in state and any(n.endswith(a) for n in m for a in anchors))
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
        raise UnknownModelError("cannot tell which weights to read", problems)
    return cleaned


def _prefixes(names: Iterable[str], anchors: Iterable[str], separator: str) -> dict[str, str]:
    """Prefix -> the name that shows it, for each backbone."""
    found = {}
    for name in names:
        for anchor in anchors:
            front = name.removesuffix(anchor)
            if name.endswith(anchor) and (not front or front.endswith(separator)):
                found[front] = name
    return found


def _only(prefixes: Mapping[str, str]) -> str:
    if not prefixes:
        hint = "is this another architecture, or only a part of a model?"
        raise UnknownModelError("no model was found", [Problem("", "no word embeddings among the names", hint=hint)])
    if len(prefixes) > 1:
        raise _twice([f"{p!r} ({n})" for p, n in sorted(prefixes.items())], max(prefixes))
    return next(iter(prefixes))


def _twice(candidates: list[str], example: str) -> UnknownModelError:
    hint = f"choose one, as in --strip-prefix {example!r}; the rest needs --drop or --residue"
    return UnknownModelError(
        "more than one model is in the file",
        [Problem("", "the prefix fits twice", found=", ".join(candidates), hint=hint)],
    )


def _split(front: str, family_prefixes: Iterable[str]) -> tuple[str, str]:
    prefix = max((p for p in family_prefixes if front.endswith(p)), key=len, default="")
    return front.removesuffix(prefix), prefix


def _check_outer(outer: str, wrappers: Wrappers, family_prefixes: Iterable[str], front: str) -> None:
    rest = outer
    for known in sorted((*(f"{p}." for p in wrappers.prefixes), *family_prefixes), key=len, reverse=True):
        rest = rest.removeprefix(known) if rest.startswith(known) else rest
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
