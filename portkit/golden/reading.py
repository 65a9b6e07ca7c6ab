"""Read a golden file from anyone: bounded, strict, and with everything that is wrong in one error."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from portkit.errors import Problem, UnreadableError
from portkit.formats.source import read_small
from portkit.formats.strict_json import parse_object
from portkit.golden.facts import NAMES
from portkit.golden.form import VERSION, Expected, Fingerprint, Golden, Run
from portkit.proofs.given import MAX_TOKENS
from portkit.table.load import suggestion

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

MAX_BYTES = 4 << 20
MAX_ID = 1 << 31
MAX_TEXT = 4096
MAX_PROBLEMS = 50

_TITLE = "cannot read the golden"
_A_NUMBER = 'a decimal number as text, with the digits that are known, such as "-0.250"'
_NUMBER = re.compile(r"[+-]?[0-9]{1,40}(\.[0-9]{0,40})?([eE][+-]?[0-9]{1,3})?", re.ASCII)
_OUTPUT = re.compile(r"hidden_states\.[0-9]{1,4}|pooled_output|logits|seq_relationship_logits", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
_KNOWN = ("portkit_golden", *Golden.__dataclass_fields__)


def read_golden(path: Path) -> Golden:
    """The golden in a file. Raises UnreadableError listing every field that is malformed."""
    try:
        said = parse_object(read_small(path, MAX_BYTES, "a golden"), path.name, "the golden")
    except UnreadableError as error:
        raise UnreadableError(_TITLE, error.problems) from error
    if said.get("portkit_golden") != VERSION:
        found = repr(said["portkit_golden"])[:40] if "portkit_golden" in said else "no such key"
        raise UnreadableError(_TITLE, [Problem(f"{path.name}: portkit_golden", "another form", str(VERSION), found)])
    reader = _Reader(path.name)
    golden = reader.golden(said)
    if reader.problems:
        raise UnreadableError(_TITLE, reader.problems)
    return golden


class _Reader:
    """Reads the sections of one file and collects what is wrong; a wrong field reads as empty."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.problems: list[Problem] = []

    def golden(self, said: Mapping[str, Any]) -> Golden:
        """The whole file."""
        self._keys("", said, _KNOWN)
        golden = Golden(
            about=self._text("about", said.get("about", "")),
            source=self._texts("source", said.get("source", {})),
            versions=self._texts("versions", said.get("versions", {})),
            facts=self._facts(said.get("facts", {})),
            input_ids=self._rows("input_ids", said.get("input_ids", [])),
            token_type_ids=self._rows("token_type_ids", said.get("token_type_ids", [])),
            outputs={n: self._expected(n, e) for n, e in self._object("outputs", said.get("outputs", {})).items()},
            weights={n: self._print(n, e) for n, e in self._object("weights", said.get("weights", {})).items()},
        )
        if not self.problems:
            self._check_whole(golden)
        return golden

    def _wrong(self, where: str, expected: str, found: object) -> None:
        """Note that a field is not what it should be; after the first fifty no more are noted."""
        if len(self.problems) < MAX_PROBLEMS:
            text = repr(found)
            shown = text if len(text) <= 60 else f"{text[:60]}…"
            self.problems.append(Problem(f"{self.name}: {where}", "malformed", expected, shown))

    def _keys(self, where: str, found: Mapping[str, Any], known: Iterable[str]) -> None:
        """Note every key that is not known, with the nearest that is."""
        strange = [key for key in found if key not in known][: MAX_PROBLEMS - len(self.problems)]
        place = f"{self.name}: {where}" if where else self.name
        self.problems += [Problem(place, f"unknown key {k!r}", hint=suggestion(k, known)) for k in strange]

    def _object(self, where: str, value: object) -> dict[str, Any]:
        if isinstance(value, dict):
            return value
        self._wrong(where, "an object", value)
        return {}

    def _list(self, where: str, value: object) -> list[Any]:
        if isinstance(value, list):
            return value
        self._wrong(where, "a list", value)
        return []

    def _text(self, where: str, value: object) -> str:
        if isinstance(value, str) and len(value) <= MAX_TEXT and value.isprintable():
            return value
        self._wrong(where, f"one line of at most {MAX_TEXT} characters", value)
        return ""

    def _texts(self, where: str, value: object) -> dict[str, str]:
        return {self._text(where, k): self._text(f"{where}.{k}", v) for k, v in self._object(where, value).items()}

    def _facts(self, value: object) -> dict[str, Any]:
        facts = self._object("facts", value)
        self._keys("facts", facts, NAMES)
        for name, fact in facts.items():
            if not (fact is None or isinstance(fact, (str, int, float))):
                self._wrong(f"facts.{name}", "a word, a number, true, false or null", fact)
        return facts

    def _whole(self, where: str, value: object, below: int) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < below:
            return value
        self._wrong(where, f"a whole number from 0 to {below - 1}", value)
        return 0

    def _wholes(self, where: str, value: object) -> tuple[int, ...]:
        return tuple(self._whole(f"{where}[{i}]", v, MAX_ID) for i, v in enumerate(self._list(where, value)))

    def _rows(self, where: str, value: object) -> tuple[tuple[int, ...], ...]:
        """Rows of ids, of any lengths."""
        return tuple(self._wholes(f"{where}[{i}]", row) for i, row in enumerate(self._list(where, value)))

    def _expected(self, name: str, value: object) -> Expected:
        where = f"outputs.{name}"
        if not _OUTPUT.fullmatch(name):
            self._wrong(where, "hidden_states.0, …, pooled_output, logits or seq_relationship_logits", name)
        entry = self._object(where, value)
        self._keys(where, entry, ("values", "sketch"))
        runs = self._list(f"{where}.values", entry.get("values", []))
        sketch = self._numbers(f"{where}.sketch", entry.get("sketch", []))
        expected = Expected(tuple(self._run(f"{where}.values[{i}]", run) for i, run in enumerate(runs)), sketch)
        if not expected.count:
            self._wrong(where, "at least one number", value)
        return expected

    def _run(self, where: str, value: object) -> Run:
        entry = self._object(where, value)
        self._keys(where, entry, ("at", "numbers"))
        numbers = self._numbers(f"{where}.numbers", entry.get("numbers"))
        if entry.get("numbers") == []:
            self._wrong(f"{where}.numbers", "at least one number", [])
        return Run(self._wholes(f"{where}.at", entry.get("at")), numbers)

    def _numbers(self, where: str, value: object) -> tuple[str, ...]:
        numbers = self._list(where, value)
        for i, number in enumerate(numbers):
            if not (isinstance(number, str) and _NUMBER.fullmatch(number) and _is_finite(number)):
                self._wrong(f"{where}[{i}]", _A_NUMBER, number)
        return tuple(map(str, numbers))

    def _print(self, name: str, value: object) -> Fingerprint:
        where = f"weights.{self._text('weights', name)}"
        entry = self._object(where, value)
        self._keys(where, entry, Fingerprint.__dataclass_fields__)
        dtype, digest = str(entry.get("dtype")), str(entry.get("sha256"))
        if dtype not in ("F32", "F64"):
            self._wrong(f"{where}.dtype", "F32 or F64", entry.get("dtype"))
        if not _SHA256.fullmatch(digest):
            self._wrong(f"{where}.sha256", "64 lower-case hexadecimal digits", entry.get("sha256"))
        return Fingerprint(self._wholes(f"{where}.shape", entry.get("shape")), dtype, digest)

    def _check_whole(self, golden: Golden) -> None:
        """What no single field shows."""
        lengths = [len(row) for row in golden.input_ids]
        if not golden.outputs and not golden.weights:
            self._wrong("outputs, weights", "something to compare", "neither")
        if golden.outputs and not lengths:
            self._wrong("input_ids", "the tokens that give the outputs", [])
        if lengths and min(lengths) < 1:
            self._wrong(f"input_ids[{lengths.index(0)}]", "at least one token", [])
        if golden.token_type_ids and lengths != [len(row) for row in golden.token_type_ids]:
            self._wrong("token_type_ids", "one for each of input_ids", [len(row) for row in golden.token_type_ids])
        if lengths and len(lengths) * max(lengths) > MAX_TOKENS:
            self._wrong("input_ids", f"at most {MAX_TOKENS} tokens with padding", len(lengths) * max(lengths))


def _is_finite(number: str) -> bool:
    """Whether a number fits float64 and has a digit that says something: `0e99` would allow everything."""
    value = Decimal(number)
    return math.isfinite(float(value)) and (value != 0 or int(value.as_tuple().exponent) <= 0)
