"""Golden files from strangers: whatever is wrong is said by field, all of it at once, and nothing runs away."""

from __future__ import annotations

import json
import time

import pytest

from portkit.errors import UnreadableError
from portkit.golden import reading
from portkit.golden.form import Expected, Run, dump
from portkit.golden.reading import MAX_PROBLEMS, read_golden

SOUND = {
    "portkit_golden": 1,
    "about": "a case",
    "source": {"package": "x==1"},
    "facts": {"hidden_act": "gelu", "layer_norm_eps": 1e-12, "num_labels": None, "has_pooler": True},
    "input_ids": [[1, 2], [3]],
    "token_type_ids": [[0, 1], [0]],
    "outputs": {"hidden_states.1": {"values": [{"at": [0, 0, 0], "numbers": ["-0.50", "1e-3"]}], "sketch": ["2.5"]}},
    "weights": {"pooler.bias": {"shape": [24], "dtype": "F32", "sha256": "0" * 64}},
}


def written(tmp_path, said):
    path = tmp_path / "golden.json"
    path.write_text(said if isinstance(said, str) else json.dumps(said), encoding="utf-8")
    return path


def refused(tmp_path, said):
    with pytest.raises(UnreadableError, match="cannot read the golden") as caught:
        read_golden(written(tmp_path, said))
    return caught.value


def changed(path, value):
    """SOUND with the value at a path of keys replaced."""
    said = json.loads(json.dumps(SOUND))
    at = said
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return said


def test_the_sound_file_is_read(tmp_path):
    golden = read_golden(written(tmp_path, SOUND))
    assert golden.outputs == {"hidden_states.1": Expected((Run((0, 0, 0), ("-0.50", "1e-3")),), ("2.5",))}
    assert (golden.count, golden.input_ids, golden.facts["num_labels"]) == (3, ((1, 2), (3,)), None)
    assert read_golden(written(tmp_path, dump(golden))) == golden


VALUES = ("outputs", "hidden_states.1", "values")
WEIGHT = ("weights", "pooler.bias")


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("portkit_golden",), 2, "golden.json: portkit_golden: another form\n    expected 1\n    found    2"),
        (("portkit_golden",), None, "another form"),
        (("about",), 7, "about: malformed"),
        (("about",), "two\nlines", "one line of at most 4096 characters"),
        (("about",), "\x1b[31mred", "about: malformed"),
        (("about",), "x" * 5000, "about: malformed"),
        (("source",), ["x"], "source: malformed\n    expected an object"),
        (("source", "package"), None, "source.package: malformed"),
        (("source", "\x1b[2J"), "x", "source: malformed"),
        (("facts", "hidden_akt"), "gelu", "unknown key 'hidden_akt'\n    hint     did you mean 'hidden_act'?"),
        (("facts", "hidden_act"), ["gelu"], "facts.hidden_act: malformed"),
        (("input_ids",), {}, "input_ids: malformed\n    expected a list"),
        (("input_ids", 0), 5, "input_ids[0]: malformed"),
        (("input_ids", 0, 1), -1, "input_ids[0][1]: malformed"),
        (("input_ids", 0, 1), 1 << 40, "a whole number from 0 to 2147483647"),
        (("input_ids", 0, 1), 1.0, "found    1.0"),
        (("input_ids", 0, 1), True, "found    True"),
        (("input_ids", 0), [], "input_ids[0]: malformed\n    expected at least one token"),
        (("input_ids",), [], "the tokens that give the outputs"),
        (("token_type_ids",), [[0], [0]], "one for each of input_ids"),
        (("outputs",), [], "outputs: malformed\n    expected an object"),
        (("outputs", "hidden_state.1"), {"sketch": ["1"]}, "hidden_states.0, …, pooled_output, logits or"),
        (("outputs", "logits"), {}, "outputs.logits: malformed\n    expected at least one number"),
        (("outputs", "logits"), {"sketch": "12"}, "outputs.logits.sketch: malformed\n    expected a list"),
        (("outputs", "logits"), {"sketch": [1.5]}, "a decimal number as text, with the digits that are known"),
        (("outputs", "logits"), {"sketch": ["nan"]}, "found    'nan'"),
        (("outputs", "logits"), {"sketch": ["1e999"]}, "found    '1e999'"),
        (("outputs", "logits"), {"sketch": ["0e99"]}, "found    '0e99'"),
        (("outputs", "logits"), {"sketch": ["٣"]}, "outputs.logits.sketch[0]: malformed"),
        (("outputs", "logits"), {"sketch": ["1" * 41]}, "outputs.logits.sketch[0]: malformed"),
        (("outputs", "logits"), {"sketch": ["1.0 "]}, "found    '1.0 '"),
        (("outputs", "logits"), {"sketches": ["1"]}, "did you mean 'sketch'?"),
        ((*VALUES, 0), "x", "outputs.hidden_states.1.values[0]: malformed"),
        ((*VALUES, 0, "at"), [0, "0"], "outputs.hidden_states.1.values[0].at[1]: malformed"),
        ((*VALUES, 0, "numbers"), [], "outputs.hidden_states.1.values[0].numbers: malformed"),
        ((*VALUES, 0), {"numbers": ["1"]}, "outputs.hidden_states.1.values[0].at: malformed"),
        (("weights",), [], "weights: malformed"),
        (("weights", "\x1b[2J"), SOUND["weights"]["pooler.bias"], "weights: malformed"),
        ((*WEIGHT, "shape"), "24", "weights.pooler.bias.shape: malformed"),
        ((*WEIGHT, "dtype"), "F16", "weights.pooler.bias.dtype: malformed\n    expected F32 or F64"),
        ((*WEIGHT, "sha256"), "0" * 63, "64 lower-case hexadecimal digits"),
        ((*WEIGHT, "sha256"), 5, "weights.pooler.bias.sha256: malformed"),
        ((*WEIGHT, "md5"), "0", "weights.pooler.bias: unknown key 'md5'"),
        (("weight",), {}, "golden.json: unknown key 'weight'\n    hint     did you mean 'weights'?"),
    ],
)
def test_each_malformed_field_is_named(path, value, words, tmp_path):
    error = refused(tmp_path, changed(path, value))
    assert words in str(error)
    assert "\x1b" not in str(error)
    assert 1 <= len(error.problems) <= 3  # what follows from it may be named too


def test_all_problems_come_at_once_and_sorted(tmp_path):
    said = {**SOUND, "about": 1, "weight": {}, "input_ids": [[-1], "x"]}
    places = [problem.where for problem in refused(tmp_path, said).problems]
    assert places == [
        "golden.json",
        "golden.json: about",
        "golden.json: input_ids[0][0]",
        "golden.json: input_ids[1]",
    ]


def test_a_golden_of_nothing_is_refused(tmp_path):
    for said in ({"portkit_golden": 1}, {**SOUND, "outputs": {}, "weights": {}}):
        assert "something to compare" in str(refused(tmp_path, said))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not valid JSON"),
        ("{", "not valid JSON"),
        ("[]", "found    a list"),
        ("[" * 100_000, "not valid JSON"),
        ('{"portkit_golden": 1, "about": "", "about": ""}', "has a name twice"),
        ('{"portkit_golden": ' + "1" * 5000 + "}", "not valid JSON"),
    ],
)
def test_files_that_are_no_goldens(text, words, tmp_path):
    assert words in str(refused(tmp_path, text))


def test_a_file_that_is_not_there_or_a_folder(tmp_path):
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(UnreadableError, match=r"(?s)cannot read the golden.*(not a file|cannot be read)"):
            read_golden(path)


def test_too_large_a_file_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "MAX_BYTES", 100)
    assert "at most 100 bytes" in str(refused(tmp_path, SOUND))


def test_rows_that_padding_would_blow_up_are_refused(tmp_path):
    said = {**SOUND, "input_ids": [[1] * 2000, *([1] for _ in range(1000))], "token_type_ids": []}
    assert "at most 1048576 tokens with padding" in str(refused(tmp_path, said))


@pytest.mark.parametrize(
    "said",
    [
        {**SOUND, "input_ids": [[-1] * 500_000]},
        {**SOUND, **{f"k{i}": 0 for i in range(100_000)}},
        {**SOUND, "weights": {f"w{i}": {} for i in range(50_000)}},
    ],
    ids=["ids", "keys", "weights"],
)
def test_a_flood_of_problems_stays_short_and_quick(said, tmp_path):
    start = time.process_time()
    error = refused(tmp_path, said)
    assert len(error.problems) <= MAX_PROBLEMS
    assert time.process_time() - start < 10


def test_every_prefix_of_a_file_is_refused(tmp_path):
    text = dump(read_golden(written(tmp_path, SOUND)))
    for end in range(len(text) - 2):
        assert refused(tmp_path, text[:end])
