"""Inputs that a user gives: a safetensors or JSON file with the arrays that every tokenizer returns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from portkit.errors import Problem, UnreadableError
from portkit.formats.safetensors_file import read_safetensors
from portkit.formats.strict_json import parse_object
from portkit.golden.reading import MAX_TOKENS, Reader, read_bounded
from portkit.runtimes.outputs import Inputs, IntArray

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_NAMES = ("input_ids", "attention_mask", "token_type_ids")
_MAX_BYTES = 64 << 20
_TITLE = "cannot read the inputs"

Rows = tuple[tuple[int, ...], ...]


def read_inputs(path: Path) -> Inputs:
    """The batch in a file: `input_ids`, and where given `attention_mask` (else ones) and `token_type_ids` (else zeros).

    Safetensors: integers [B, S]. JSON: one list per row; rows may differ in length where no mask is given.
    Raises UnreadableError for a malformed file, UsageError for a batch that is not right-padded.
    """
    try:
        data = read_bounded(path, _MAX_BYTES)
        if data.lstrip()[:1] == b"{":  # no safetensors file starts so: the length of its header is a multiple of 8
            return _from_rows(path.name, parse_object(data, path.name, "the file"))
        return _from_arrays(path.name, {n: t.read() for n, t in read_safetensors(path).tensors.items()})
    except UnreadableError as error:
        raise UnreadableError(_TITLE, error.problems) from error


def _from_rows(name: str, said: Mapping[str, Any]) -> Inputs:
    reader = Reader(name)
    reader.keys("", said, _NAMES)
    rows = {field: reader.rows(field, said[field]) for field in _NAMES if field in said}
    ids = rows.get("input_ids", ())
    lengths = [len(row) for row in ids]
    if not reader.problems and not lengths:
        reader.wrong("input_ids", "at least one row of ids", said.get("input_ids"))
    for field, other in rows.items():
        if [len(row) for row in other] != lengths:
            reader.wrong(field, f"rows as long as those of input_ids: {lengths}", [len(row) for row in other])
    if len(lengths) * max(lengths, default=0) > MAX_TOKENS:
        reader.wrong("input_ids", f"at most {MAX_TOKENS} tokens with padding", len(lengths) * max(lengths))
    if reader.problems:
        raise UnreadableError(_TITLE, reader.problems)
    ones = tuple((1,) * length for length in lengths)
    return Inputs(_padded(ids), _padded(rows.get("attention_mask", ones)), _padded(rows.get("token_type_ids", ()), ids))


def _padded(rows: Rows, like: Rows = ()) -> IntArray:
    """Rows of any lengths as one array, filled up with zeros; zeros shaped as `like` when there are none."""
    shaped = rows or like
    array = np.zeros((len(shaped), max(map(len, shaped))), np.int64)
    for line, row in zip(array, rows, strict=False):
        line[: len(row)] = row
    return array


def _from_arrays(name: str, arrays: Mapping[str, Any]) -> Inputs:
    problems = [Problem(f"{name}: {field}", "not an input", ", ".join(_NAMES)) for field in arrays.keys() - set(_NAMES)]
    problems += [
        Problem(f"{name}: {field}", "not a batch of ids", "integers [batch, sequence]", f"{a.dtype} {a.shape}")
        for field, a in arrays.items()
        if a.dtype.kind not in "iub" or a.ndim != 2 or not 0 < a.size <= MAX_TOKENS
    ]
    if "input_ids" not in arrays:
        problems.append(Problem(f"{name}: input_ids", "is not there", found=", ".join(arrays) or "nothing"))
    if problems:
        raise UnreadableError(_TITLE, problems)
    ids = arrays["input_ids"].astype(np.int64)
    mask, types = arrays.get("attention_mask", np.ones_like(ids)), arrays.get("token_type_ids", np.zeros_like(ids))
    return Inputs(ids, mask.astype(np.int64), types.astype(np.int64))
