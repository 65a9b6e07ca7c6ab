"""What a golden file says, as frozen values, and how it is written. `reading.py` reads it back.

Expected numbers are kept as text: how many digits were printed decides how exactly they can be compared.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np

from portkit.runtimes.outputs import FloatArray, Inputs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

VERSION = 1  # of the file's form
DIGITS = 9  # significant ones, so that a float32 survives

FactValue = str | int | float | bool | None


@dataclass(frozen=True)
class Run:
    """Neighbouring values of one output: `at` is the index of the first, the others follow on the last axis."""

    at: tuple[int, ...]
    numbers: tuple[str, ...]


@dataclass(frozen=True)
class Expected:
    """What one output must be: some of its values, and sums over all of them (see `sketch.py`)."""

    values: tuple[Run, ...] = ()
    sketch: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """How many numbers there are to compare."""
        return len(self.sketch) + sum(len(run.numbers) for run in self.values)


@dataclass(frozen=True)
class Fingerprint:
    """What one logical tensor must be: its shape, the dtype that was hashed, the sha256 of its bytes."""

    shape: tuple[int, ...]
    dtype: str
    sha256: str


@dataclass(frozen=True)
class Golden:
    """Everything that a golden file says.

    `source` and `versions` say how it was made. `input_ids` and `token_type_ids` are rows of real tokens, without
    padding; no types at all are zeros. `outputs` and `weights` are in the order in which a model computes them;
    either may be empty.
    """

    about: str = ""
    source: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, FactValue] = field(default_factory=dict)
    input_ids: tuple[tuple[int, ...], ...] = ()
    token_type_ids: tuple[tuple[int, ...], ...] = ()
    outputs: Mapping[str, Expected] = field(default_factory=dict)
    weights: Mapping[str, Fingerprint] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """How many expected numbers there are, over all outputs."""
        return sum(expected.count for expected in self.outputs.values())

    def inputs(self, pad_token_id: int) -> Inputs:
        """The rows as a right-padded batch; UsageError when there are none."""
        shape = len(self.input_ids), max(map(len, self.input_ids), default=0)
        ids, mask, types = np.full(shape, pad_token_id, np.int64), np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        for row, tokens in enumerate(self.input_ids):
            ids[row, : len(tokens)], mask[row, : len(tokens)] = tokens, 1
        for row, kinds in enumerate(self.token_type_ids):
            types[row, : len(kinds)] = kinds
        return Inputs(ids, mask, types)


def rows_of(inputs: Inputs) -> dict[str, tuple[tuple[int, ...], ...]]:
    """A batch without its padding, as the two fields of a Golden."""
    arrays = {"input_ids": inputs.input_ids, "token_type_ids": inputs.token_type_ids}
    return {
        name: tuple(tuple(row[:length].tolist()) for row, length in zip(array, inputs.lengths, strict=True))
        for name, array in arrays.items()
    }


def printed(values: Iterable[float]) -> tuple[str, ...]:
    """Numbers with enough digits for a float32, trailing zeros included: each digit says that it is known."""
    return tuple(f"{value:.{DIGITS - 1}e}" for value in values)


def parsed(numbers: Iterable[str]) -> tuple[FloatArray, FloatArray]:
    """The numbers as float64, and half a unit of the last digit of each."""
    exact = [Decimal(number) for number in numbers]
    half = [Decimal((0, (5,), int(number.as_tuple().exponent) - 1)) for number in exact]
    return np.array(exact, np.float64), np.array(half, np.float64)


def dump(golden: Golden) -> str:
    """The file's text: JSON, one line for each list of plain values; empty sections are left out."""
    said = {name: value for name, value in asdict(golden).items() if value}
    said |= {"outputs": {n: {k: v for k, v in e.items() if v} for n, e in said.get("outputs", {}).items()}}
    return _pretty({"portkit_golden": VERSION, **{k: v for k, v in said.items() if v}}) + "\n"


def _pretty(value: Any, indent: str = "") -> str:  # noqa: ANN401 - any JSON
    inner = f"{indent}  "
    if isinstance(value, dict) and value:
        lines = [f"{inner}{json.dumps(k, ensure_ascii=False)}: {_pretty(v, inner)}" for k, v in value.items()]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    if isinstance(value, (list, tuple)) and any(isinstance(v, (list, tuple, dict)) for v in value):
        return "[\n" + ",\n".join(f"{inner}{_pretty(v, inner)}" for v in value) + f"\n{indent}]"
    return json.dumps(value, ensure_ascii=False)
