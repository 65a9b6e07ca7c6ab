"""The whole in few words: what the tensors that differ have in common, and the verdict."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from portkit.difference.result import CAST, DIFFERS, EQUAL, ONLY_A, ONLY_B, SHAPE, STATES, TOLERATED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from portkit.difference.result import Diff, FieldDiff, Finding, Side, TensorDiff

PLACES = ("facts.head_style", "facts.position_scheme")  # that say where a part of the function lives, not what it is


@dataclass(frozen=True)
class Group:
    """Tensors of which the same can be said. `names` counts layers in one word: `layer.0-5.mlp.up.bias`."""

    text: str
    names: tuple[str, ...]
    count: int


def groups(diff: Diff) -> tuple[Group, ...]:
    """The best finding of every tensor, told once for all that share it, in the order of the model."""
    told: dict[str, list[TensorDiff]] = defaultdict(list)
    for tensor in diff.tensors:
        for finding in tensor.findings[:1]:
            told[_words(tensor, finding)].append(tensor)
    return tuple(_group(text, tensors) for text, tensors in told.items())


def unmeasured(diff: Diff) -> dict[str, tuple[str, ...]]:
    """Tensors that were not measured, by what is in the way."""
    found: dict[str, list[str]] = defaultdict(list)
    for tensor in diff.of(SHAPE, ONLY_A, ONLY_B):
        a, b = tensor.shapes
        found[f"shape {a} in A, {b} in B" if tensor.state == SHAPE else tensor.state].append(tensor.name)
    return {what: ranged(names) for what, names in found.items()}


def skipped(side: Side) -> dict[str, tuple[str, ...]]:
    """What of a side was not compared, by the reason."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, why in side.skipped.items():
        found[why].append(name)
    return {why: ranged(names) for why, names in found.items()}


def counts(diff: Diff) -> str:
    """How many tensors are in each state: `97 equal, 6 differ`."""
    found = Counter(t.state for t in diff.tensors)
    words = {CAST: "equal after a cast", TOLERATED: "within the tolerance", DIFFERS: "differ", SHAPE: "of other shapes"}
    return ", ".join(f"{found[s]} {words.get(s, s)}" for s in STATES if found[s]) or "none"


def compared(diff: Diff) -> str:
    """How many tensors were looked at, of how many on each side."""
    sides = [sum(t.shapes[i] is not None for t in diff.tensors) for i in (0, 1)]
    left_out = f"; {len(diff.ignored)} left out by --ignore" if diff.ignored else ""
    looked = f"{diff.compared} of {sides[0]} in A, {diff.compared} of {sides[1]} in B"
    return f"compared {diff.compared} tensors: {looked}{left_out}"


def verdict(diff: Diff) -> str:
    """One sentence, which the exit code sums up."""
    if not diff.compared:
        return "NOTHING WAS COMPARED: no tensor that was left in has one shape on both sides"
    if diff.differing:
        return _different(diff)
    tolerated = diff.of(TOLERATED)
    word = f"within the tolerance (atol {diff.atol:g}, rtol {diff.rtol:g})" if tolerated else "equal"
    how = "bit for bit" if len(diff.of(EQUAL)) == len(diff.tensors) else counts(diff)
    places = "; ".join(_place(f) for f in diff.fields if f.state == "noted" and f.name in PLACES)
    said = f"{word}: {len(diff.tensors)} tensors ({how}) and every field that decides the function"
    return f"{said}. The same function in two places: {places}" if places else said


def ranged(names: Iterable[str]) -> tuple[str, ...]:
    """Names that differ in the number of their layer alone, as one: `layer.0-2,5.mlp.up.bias`."""
    found: dict[tuple[str, str], list[int]] = defaultdict(list)
    plain: list[str] = []
    for name in names:
        if match := re.fullmatch(r"(.*?\.)(\d{1,9})(\..*)", name):
            found[match[1], match[3]].append(int(match[2]))
        else:
            plain.append(name)
    return (*plain, *(f"{front}{_ranges(numbers)}{back}" for (front, back), numbers in found.items()))


def _different(diff: Diff) -> str:
    tensors, fields = sum(t.different for t in diff.tensors), sum(f.state == "differs" for f in diff.fields)
    said = [f"{tensors} of {len(diff.tensors)} tensors"] if tensors else []
    said += [f"{fields} of {len(diff.fields)} fields"] if fields else []
    where = f"; they part first at {diff.first.name}" if diff.first else "; every tensor is equal"
    return f"different: {' and '.join(said)}{where}"


def _group(text: str, tensors: list[TensorDiff]) -> Group:
    related = [t.numbers.correlation for t in tensors if t.numbers and t.numbers.correlation is not None]
    kin = tensors[0].findings[0].kind == "changed" and not tensors[0].findings[0].certain and related
    more = f", correlation {' to '.join(dict.fromkeys(f'{f(related):.3f}' for f in (min, max)))}" if kin else ""
    return Group(text + more, ranged(t.name for t in tensors), len(tensors))


def _place(field: FieldDiff) -> str:
    return f"{field.name.removeprefix('facts.').replace('_', ' ')} {field.a} in A, {field.b} in B: {field.note}"


def _words(tensor: TensorDiff, finding: Finding) -> str:
    """The finding, without the numbers of layers where it holds in many."""
    if finding.kind not in ("exchanged", "elsewhere"):
        return str(finding)
    one, other = _module(tensor.name), _module(finding.other)
    if finding.kind == "exchanged":
        return f"{' and '.join(_between(*sorted((one, other))))} are exchanged ({finding.sure})"
    here, there = _between(one, other)
    return f"{here} of B is {there} of A ({finding.sure})"


def _between(one: str, other: str) -> tuple[str, str]:
    """Two modules without what they share: `layer.1.*` and `layer.2.*`, or `layer.*.attention.query` and `….key`."""
    pattern = r"\.(\d+)(?=\.|$)"
    first, second = re.findall(pattern, one), re.findall(pattern, other)
    if first == second:
        return re.sub(pattern, ".*", one), re.sub(pattern, ".*", other)
    if len(first) == len(second) == 1 and re.sub(pattern, "", one) == re.sub(pattern, "", other):
        front = re.split(pattern, one)[0]
        return f"{front}.{first[0]}", f"{front}.{second[0]}"
    return one, other


def _module(name: str) -> str:
    return name.rpartition(".")[0] or name


def _ranges(numbers: list[int]) -> str:
    """`0-3,7` for [0, 1, 2, 3, 7]."""
    runs: list[list[int]] = []
    for n in sorted(numbers):
        if runs and n == runs[-1][-1] + 1:
            runs[-1].append(n)
        else:
            runs.append([n])
    return ",".join(str(r[0]) if len(r) == 1 else f"{r[0]}-{r[-1]}" for r in runs)
