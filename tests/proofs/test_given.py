"""Inputs from a user's file: read strictly, refused in words."""

from __future__ import annotations

import json

import numpy as np
import pytest
from models import small_facts
from safetensors.numpy import save_file

from portkit.errors import UnreadableError, UsageError
from portkit.proofs.given import read_inputs, read_text, require_fits
from portkit.proofs.inputs import choose_inputs

IDS = np.array([[5, 6, 7], [8, 9, 0]])
MASK = np.array([[1, 1, 1], [1, 1, 0]])
TYPES = np.array([[0, 1, 1], [0, 0, 0]])


def safetensors(tmp_path, **arrays):
    save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, tmp_path / "in.safetensors")
    return tmp_path / "in.safetensors"


def as_json(tmp_path, value):
    path = tmp_path / "in.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return path


# ---------------------------------------------------------------- what is read


@pytest.mark.parametrize("dtype", ["int64", "int32", "int16", "uint8"])
def test_safetensors_of_any_integers(dtype, tmp_path):
    given = {"input_ids": IDS, "attention_mask": MASK, "token_type_ids": TYPES}
    inputs = read_inputs(safetensors(tmp_path, **{name: array.astype(dtype) for name, array in given.items()}))
    for name, array in given.items():
        np.testing.assert_array_equal(inputs.arrays()[name], array)


def test_safetensors_whose_first_byte_is_a_brace(tmp_path):
    """A header of 123 bytes: its length starts with the byte of an opening brace."""
    header = b'{"input_ids":{"dtype":"I64","shape":[1,2],"data_offsets":[0,16]}}'.ljust(123)
    data = np.array([3, 4]).tobytes()
    (tmp_path / "in").write_bytes((123).to_bytes(8, "little") + header + data)
    np.testing.assert_array_equal(read_inputs(tmp_path / "in").input_ids, [[3, 4]])


def test_json_rows_of_different_lengths_are_padded(tmp_path):
    inputs = read_inputs(as_json(tmp_path, {"input_ids": [[5, 6, 7], [8, 9]], "token_type_ids": [[0, 1, 1], [0, 0]]}))
    np.testing.assert_array_equal(inputs.input_ids, IDS)
    np.testing.assert_array_equal(inputs.attention_mask, MASK)
    np.testing.assert_array_equal(inputs.token_type_ids, TYPES)


def test_only_ids_are_needed(tmp_path):
    inputs = read_inputs(safetensors(tmp_path, input_ids=IDS))
    assert inputs.attention_mask.all()
    assert not inputs.token_type_ids.any()


def test_columns_that_are_padding_everywhere_are_taken_off(tmp_path):
    wide = {"input_ids": IDS, "attention_mask": np.array([[1, 1, 0], [1, 0, 0]])}
    assert read_inputs(safetensors(tmp_path, **wide)).input_ids.shape == (2, 2)


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"input_ids": [[1, 2.5]]}, r"input_ids row 0, token 1: no id\s+expected a whole number\s+found    2\.5"),
        ({"input_ids": [[1, True]]}, r"input_ids row 0, token 1: no id[\s\S]*found    True"),
        ({"input_ids": [[1, "2"]]}, r"token 1: no id[\s\S]*found    '2'"),
        ({"input_ids": [[10**30]]}, r"token 0: no id"),
        ({"input_ids": [[]]}, r"input_ids row 0: no list of whole numbers\s+found    \[\]"),
        ({"input_ids": [3]}, r"input_ids row 0: no list of whole numbers\s+found    3"),
        ({"input_ids": []}, r"input_ids: no list of rows\s+expected \[\[…\], …\]\s+found    an empty list"),
        ({"input_ids": "hello"}, r"input_ids: no list of rows[\s\S]*found    str"),
        ({"ids": [[1]]}, r"ids: no input of a model[\s\S]*input_ids: missing\s+found    ids"),
        ({"input_ids": [[1]], "labels": [[1]]}, r"labels: no input of a model"),
        ({"input_ids": [[1]], "inputs_ids": [[1]]}, r"did you mean 'input_ids'"),
        ({"input_ids": [[1] * 2000] + [[1]] * 600}, r"too many tokens\s+expected at most 1048576, padding included"),
        ({"input_ids": [[1, 2]], "token_type_ids": [[0]]}, r"token_type_ids: other rows than input_ids"),
        ({"input_ids": [[1, 2]], "attention_mask": [[0, 1]]}, r"attention_mask row 0: not right-padded"),
        ({}, r"input_ids: missing\s+found    nothing"),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, dict) else "",
)
def test_json_that_makes_no_batch(value, words, tmp_path):
    with pytest.raises(UsageError, match=words):
        read_inputs(as_json(tmp_path, value))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"input_ids": [[1]', "the file is not valid JSON"),
        ('{"input_ids": [[1]], "input_ids": [[2]]}', "the file has a name twice"),
        ('{"input_ids": [[NaN]]}', "token 0: no id"),
        ("[[1, 2]]", r"the file is not valid JSON\s+expected an object in UTF-8\s+found    a list"),
        ("", "the file is empty"),
    ],
    ids=["cut", "twice", "nan", "list", "empty"],
)
def test_files_that_are_broken(text, words, tmp_path):
    with pytest.raises((UnreadableError, UsageError), match=words):
        read_inputs(as_json(tmp_path, text))


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ({"input_ids": IDS.astype(np.float32)}, r"input_ids: no integers[\s\S]*found    \(2, 3\) F32"),
        ({"input_ids": IDS[0]}, r"input_ids: no integers\s+expected I64, as \[batch, sequence\]\s+found    \(3,\) I64"),
        ({"input_ids": IDS[:0]}, r"input_ids: no integers"),
        ({"input_ids": np.ones((1025, 1024), np.uint8)}, r"too many tokens[\s\S]*found    1049600"),
        ({"input_ids": IDS, "attention_mask": MASK[:1]}, r"attention_mask: wrong shape"),
        ({"input_ids": IDS, "position_ids": IDS}, r"position_ids: no input of a model"),
    ],
    ids=["floats", "one row", "no row", "too many", "shapes", "unknown"],
)
def test_safetensors_that_make_no_batch(arrays, words, tmp_path):
    with pytest.raises(UsageError, match=words):
        read_inputs(safetensors(tmp_path, **arrays))


def test_missing_file(tmp_path):
    with pytest.raises(UnreadableError, match="No such file"):
        read_inputs(tmp_path / "nowhere.json")


def test_file_that_is_too_large_is_not_read(tmp_path):
    path = tmp_path / "huge.json"
    with path.open("wb") as file:
        file.write(b"{")
        file.truncate(65 << 20)
    with pytest.raises(UnreadableError, match=r"too large for inputs\s+expected at most 67108864 bytes"):
        read_inputs(path)


# ---------------------------------------------------------------- do they fit both models


def test_what_does_not_fit_is_named_by_side_row_and_token(tmp_path):
    inputs = read_inputs(as_json(tmp_path, {"input_ids": [[5, 61], [70, 3]], "token_type_ids": [[0, 0], [0, 2]]}))
    wide = small_facts(vocab_size=80, type_vocab_size=3)
    require_fits(inputs, {"source": wide})
    with pytest.raises(UsageError, match=r"the inputs do not fit the models \(2 problems\)") as caught:
        require_fits(inputs, {"source": wide, "target": small_facts()})
    words = str(caught.value)
    assert "input_ids row 0, token 1: an id without a row in the target's table, the first of 2" in words
    assert "token_type_ids row 1, token 1: an id without a row in the target's table" in words
    assert "expected 0 to 60\n    found    61" in words


def test_sentence_that_is_too_long_is_named():
    inputs = choose_inputs(small_facts(max_position_embeddings=40))
    with pytest.raises(
        UsageError, match=r"input_ids row 0: longer than the source takes\s+expected 37 .*\s+found    40"
    ):
        require_fits(inputs, {"source": small_facts()})


def test_many_problems_of_one_kind_are_one_with_their_number(tmp_path):
    inputs = read_inputs(as_json(tmp_path, {"input_ids": [[1, 2], [3, -1], [-1, 99]]}))
    with pytest.raises(UsageError, match=r"\(1 problem\)\n- input_ids row 1, token 1: .*, the first of 3\n"):
        require_fits(inputs, {"source": small_facts()})


def test_batch_whose_outputs_would_fill_memory_is_refused():
    facts = small_facts(task="masked_lm", vocab_size=10_000_000)
    with pytest.raises(UsageError, match=r"too many for one run[\s\S]*give fewer or shorter sentences"):
        require_fits(choose_inputs(small_facts()), {"source": facts})


# ---------------------------------------------------------------- text


@pytest.fixture
def words(tmp_path):
    """A folder with a tokenizer of six words, whose file carries padding and truncation from its last use."""
    tokenizers = pytest.importorskip("tokenizers")
    vocabulary = {"[PAD]": 0, "[CLS]": 1, "[SEP]": 2, "[UNK]": 3, "a": 4, "rose": 5, "is": 6}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    made.enable_truncation(3)
    made.enable_padding(length=9)
    made.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def test_one_sentence_per_line_neither_cut_nor_padded_by_the_tokenizer(words):
    (words / "text").write_text("a rose is a rose\n\n  \nrose\n", encoding="utf-8")
    inputs = read_text(words / "text", words)
    np.testing.assert_array_equal(inputs.input_ids, [[1, 4, 5, 6, 4, 5, 2], [1, 5, 2, 0, 0, 0, 0]])
    np.testing.assert_array_equal(inputs.lengths, [7, 3])


@pytest.mark.hf
def test_folder_with_a_vocabulary_only_is_read_by_transformers(tmp_path):
    pytest.importorskip("transformers")
    (tmp_path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "rose"]))
    (tmp_path / "config.json").write_text('{"model_type": "bert"}', encoding="utf-8")
    (tmp_path / "text").write_text("a rose\n", encoding="utf-8")
    np.testing.assert_array_equal(read_text(tmp_path / "text", tmp_path).input_ids, [[2, 5, 6, 3]])


def test_folder_without_a_tokenizer(tmp_path):
    (tmp_path / "text").write_text("a rose\n", encoding="utf-8")
    with pytest.raises(UnreadableError, match=r"holds no tokenizer[\s\S]*give ids with --inputs"):
        read_text(tmp_path / "text", tmp_path)


def test_broken_tokenizer(words):
    (words / "tokenizer.json").write_text('{"model": {"type": "Nothing"}}', encoding="utf-8")
    (words / "text").write_text("a rose\n", encoding="utf-8")
    with pytest.raises(UnreadableError, match=r"the library tokenizers cannot use it"):
        read_text(words / "text", words)


def test_text_without_a_sentence_and_no_text(words):
    (words / "text").write_text(" \n\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"there is nothing to run[\s\S]*holds no sentence"):
        read_text(words / "text", words)
    (words / "text").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UnreadableError, match="not a text file"):
        read_text(words / "text", words)


def test_without_the_library_the_way_to_it_is_named(words, monkeypatch):
    from portkit.errors import MissingRuntimeError
    from portkit.runtimes import tokenizer

    (words / "text").write_text("a rose\n", encoding="utf-8")
    monkeypatch.setattr(tokenizer.util, "find_spec", lambda name: None)
    with pytest.raises(
        MissingRuntimeError,
        match=r"cannot cut sentences into tokens[\s\S]*tokenizers: not installed\s+hint     pip install tokenizers",
    ):
        read_text(words / "text", words)
