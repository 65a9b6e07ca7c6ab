"""Inputs that a user gives: a file of ids, or a text file with one sentence per line. Files are read strictly."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from portkit.errors import Problem, UsageError, unreadable
from portkit.formats.safetensors_file import read_safetensors
from portkit.formats.source import read_small, system_errors
from portkit.formats.strict_json import parse_object
from portkit.runtimes.outputs import VOCABULARY_TASKS, Inputs, IntArray
from portkit.runtimes.tokenizer import encode
from portkit.table.load import suggestion

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from portkit.facts import Facts

_NAMES = ("input_ids", "attention_mask", "token_type_ids")
_INTEGERS = ("I64", "I32", "I16", "I8", "U32", "U16", "U8", "BOOL")
_HEAD = 8  # bytes: of a safetensors file its header's length, with zeros at the end
_MAX_BYTES = 64 << 20
MAX_TOKENS = 1 << 20  # of a batch, padding included
_MAX_OUTPUTS = 1 << 28  # numbers of one run's outputs, padding included: 1 GiB in float32
_MOST = 10  # problems that one error lists

Rows = list[list[int]]


def read_inputs(path: Path) -> Inputs:
    """A batch from a safetensors or JSON file that holds `input_ids` and, if it likes, the other two names.

    Safetensors hold integers [batch, sequence]. JSON holds lists of lists, whose rows may be of different lengths;
    shorter ones are padded. Without attention_mask every token is real, without token_type_ids each is of type 0.
    Raises UnreadableError for a broken file, UsageError for anything else in it and for more than MAX_TOKENS.
    """
    with system_errors(path), path.open("rb") as file:
        head, size = file.read(_HEAD), path.stat().st_size
    if size > _MAX_BYTES:
        raise unreadable(path, "too large for inputs", expected=f"at most {_MAX_BYTES} bytes", found=f"{size} bytes")
    json = head.lstrip()[:1] in (b"{", b"[") and b"\0" not in head  # a safetensors header of 123 bytes starts so too
    arrays = _from_json(path) if json else _from_safetensors(path)
    ids = arrays["input_ids"]
    mask, types = arrays.get("attention_mask", np.ones_like(ids)), arrays.get("token_type_ids", np.zeros_like(ids))
    inputs = Inputs(ids, mask, types)
    width = int(inputs.lengths.max())  # columns that are padding in every row say nothing
    return Inputs(ids[:, :width], mask[:, :width], types[:, :width])


def read_text(path: Path, folder: Path) -> Inputs:
    """The sentences of a UTF-8 file, one on each line, cut by the tokenizer in `folder`; empty lines are left out.

    Raises UnreadableError when the file or the tokenizer cannot be read, UsageError when it holds no sentence.
    """
    data = read_small(path, _MAX_BYTES, "inputs")
    try:
        lines = data.decode().splitlines()
    except UnicodeDecodeError as error:
        raise unreadable(path, "not a text file", expected="UTF-8", found=str(error)) from error
    sentences = [line for line in lines if line.strip()]
    if not sentences:
        raise UsageError("there is nothing to run", [Problem(str(path), "holds no sentence", "one on each line")])
    encoded = encode(folder, sentences)
    ids, types = ([list(part[k]) for part in encoded] for k in (0, 1))
    arrays = _padded({"input_ids": ids, "token_type_ids": types}, path)
    return Inputs(arrays["input_ids"], arrays["attention_mask"], arrays["token_type_ids"])


def require_fits(inputs: Inputs, sides: Mapping[str, Facts]) -> None:
    """Raise UsageError unless every side takes every real token, and the outputs would fit into memory."""
    problems = [problem for side, facts in sides.items() for problem in _misfits(inputs, side, facts)]
    if problems:
        raise UsageError("the inputs do not fit the models", problems)


def _misfits(inputs: Inputs, side: str, facts: Facts) -> list[Problem]:
    problems = []
    for name, ids, rows in (
        ("input_ids", inputs.input_ids, facts.vocab_size),
        ("token_type_ids", inputs.token_type_ids, facts.type_vocab_size),
    ):
        strange = np.argwhere((ids < 0) | (ids >= rows)).tolist()
        for row, token in strange[:1]:
            what = f"an id without a row in the {side}'s table{_and_more(strange)}"
            problems.append(Problem(f"{name} row {row}, token {token}", what, f"0 to {rows - 1}", str(ids[row, token])))
    long = np.flatnonzero(inputs.lengths > facts.usable_length).tolist()
    for row in long[:1]:
        what, found = f"longer than the {side} takes{_and_more(long)}", f"{inputs.lengths[row]} tokens"
        problems.append(Problem(f"input_ids row {row}", what, f"{facts.usable_length} tokens", found))
    batch, length = inputs.input_ids.shape
    width = facts.hidden_size * (facts.num_hidden_layers + 1)
    numbers = batch * length * (width + (facts.vocab_size if facts.task in VOCABULARY_TASKS else 0))
    if numbers > _MAX_OUTPUTS:
        hint = "give fewer or shorter sentences"
        problems.append(
            Problem(f"the {side}'s outputs", "too many for one run", f"at most {_MAX_OUTPUTS}", str(numbers), hint)
        )
    return problems


def _from_json(path: Path) -> dict[str, IntArray]:
    with system_errors(path):
        value = parse_object(path.read_bytes(), path, "the file")
    _check_names(path, list(value))
    problems = [p for name, rows in value.items() for p in _row_problems(name, rows)]
    if problems:
        raise UsageError(f"cannot use {path.name} as inputs", problems[:_MOST])
    return _padded(value, path)  # type: ignore[arg-type]  # _row_problems has looked


def _row_problems(name: str, rows: object) -> list[Problem]:
    if not isinstance(rows, list) or not rows:
        return [Problem(name, "no list of rows", "[[…], …]", "an empty list" if rows == [] else type(rows).__name__)]
    problems = []
    for i, row in enumerate(rows):
        if not isinstance(row, list) or not row:
            problems.append(Problem(f"{name} row {i}", "no list of whole numbers", found=repr(row)[:40]))
            continue
        for k, item in enumerate(row):
            if type(item) is not int or abs(item) >= 1 << 31:
                problems.append(Problem(f"{name} row {i}, token {k}", "no id", "a whole number", repr(item)[:40]))
    return problems


def _padded(rows: Mapping[str, Rows], path: Path) -> dict[str, IntArray]:
    """Rows of different lengths as arrays of one width, filled up with 0; with an attention mask if there is none."""
    lengths = [len(row) for row in rows["input_ids"]]
    problems = [
        Problem(name, "other rows than input_ids", f"lengths {_few(lengths)}", f"lengths {_few([*map(len, given)])}")
        for name, given in rows.items()
        if [len(row) for row in given] != lengths
    ]
    width = max(lengths)
    problems += _too_many(len(lengths) * width)
    if problems:
        raise UsageError(f"cannot use {path.name} as inputs", problems)
    whole = {"attention_mask": [[1] * length for length in lengths], **rows}
    return {n: np.array([row + [0] * (width - len(row)) for row in given], np.int64) for n, given in whole.items()}


def _from_safetensors(path: Path) -> dict[str, IntArray]:
    tensors = read_safetensors(path).tensors
    _check_names(path, list(tensors))
    problems = [
        Problem(name, "no integers", "I64, as [batch, sequence]", str(tensor.spec))
        for name, tensor in tensors.items()
        if tensor.spec.dtype not in _INTEGERS or len(tensor.spec.shape) != 2 or not tensor.spec.count
    ]
    problems += _too_many(tensors["input_ids"].spec.count)
    if problems:
        raise UsageError(f"cannot use {path.name} as inputs", problems)
    return {name: tensor.read().astype(np.int64) for name, tensor in tensors.items()}


def _too_many(tokens: int) -> list[Problem]:
    """A batch that would fill memory: one long row makes every other as wide."""
    if tokens <= MAX_TOKENS:
        return []
    hint = "give fewer or shorter sentences"
    return [Problem("input_ids", "too many tokens", f"at most {MAX_TOKENS}, padding included", str(tokens), hint)]


def _check_names(path: Path, names: Sequence[str]) -> None:
    unknown = [
        Problem(name, "no input of a model", hint=suggestion(name, _NAMES)) for name in names if name not in _NAMES
    ]
    missing = [] if "input_ids" in names else [Problem("input_ids", "missing", found=", ".join(names) or "nothing")]
    if unknown or missing:
        raise UsageError(f"cannot use {path.name} as inputs", [*unknown, *missing][:_MOST])


def _and_more(places: Sequence[object]) -> str:
    return f", the first of {len(places)}" if len(places) > 1 else ""


def _few(lengths: Sequence[int]) -> str:
    return ", ".join(map(str, lengths[:_MOST])) + (", …" if len(lengths) > _MOST else "")
