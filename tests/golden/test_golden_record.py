"""Recording a golden: what is in the file, how large it gets, what is refused."""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import asdict, replace
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest
from goldens import hf_folder, recorded
from hf_folders import config_for, facts_for, saved_state, write_hf
from models import lazy, linear_sizes, norm_names, random_logical, small_facts

import portkit
from portkit.errors import RefusedError, UnreadableError, UsageError
from portkit.golden.form import DIGITS, Fingerprint, Golden, dump, printed, rows_of
from portkit.golden.reading import read_golden
from portkit.golden.record import _expected
from portkit.proofs.inputs import choose_inputs
from portkit.runtimes.outputs import expected_outputs
from portkit.runtimes.reference import run_reference


def test_the_file_says_what_was_returned(tmp_path):
    golden, out = recorded(hf_folder(tmp_path / "hf"), about="a small model")
    assert read_golden(out) == golden
    assert golden.about == "a small model"
    assert (golden.source["checkpoint"], golden.source["layout"], golden.source["format"]) == (
        "hf",
        "hf",
        "safetensors",
    )
    assert golden.versions["portkit"] == portkit.__version__
    assert golden.facts == asdict(small_facts())


def test_versions_are_those_of_what_is_loaded_whatever_package_it_came_in(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow", SimpleNamespace(__version__="2.21.0"))  # of tensorflow-cpu
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace())
    golden, _ = recorded(hf_folder(tmp_path / "hf"))
    assert (golden.versions["tensorflow"], golden.versions["jax"]) == ("2.21.0", "unknown")
    assert golden.versions["numpy"] == np.__version__


@pytest.mark.parametrize(("family", "task"), [("bert", "pre_training"), ("roberta", "sequence_classification")])
def test_every_output_is_kept_with_the_reference_as_witness(family, task, tmp_path):
    facts = facts_for(family, task)
    golden, _ = recorded(hf_folder(tmp_path / "hf", family, task))
    inputs = choose_inputs(facts)
    assert rows_of(inputs) == {"input_ids": golden.input_ids, "token_type_ids": golden.token_type_ids}
    exact = run_reference(facts, lazy(random_logical(facts)), inputs)
    assert tuple(golden.outputs) == expected_outputs(facts)
    for name, expected in golden.outputs.items():
        assert len(expected.sketch) == 16
        for run in expected.values:
            values = exact[name][run.at[:-1]][: len(run.numbers)]
            np.testing.assert_allclose([float(n) for n in run.numbers], values, atol=1e-5)


def test_fingerprints_are_hashes_of_the_logical_arrays(tmp_path):
    facts = small_facts(task="masked_lm")
    golden, _ = recorded(hf_folder(tmp_path / "hf", task="masked_lm"))
    logical = random_logical(facts)
    assert golden.weights == {
        name: Fingerprint(a.shape, "F32", hashlib.sha256(a.astype("<f4").tobytes()).hexdigest())
        for name, a in logical.items()
    }
    parts = [name.split(".")[:2] if name.startswith("layer") else [name.split(".")[0]] for name in golden.weights]
    assert [p for i, p in enumerate(parts) if p not in parts[:i]] == [
        ["embeddings"],
        ["layer", "0"],
        ["layer", "1"],
        ["layer", "2"],
        ["masked_lm"],
    ]


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_sixteen_bits_hash_as_the_float32_that_they_widen_to(dtype, tmp_path):
    facts = small_facts()
    narrow = {name: array.astype(dtype) for name, array in saved_state(facts).items()}
    wide = {name: array.astype(np.float32) for name, array in narrow.items()}
    folders = [write_hf(tmp_path / n, s, config_for("bert", facts)) for n, s in (("narrow", narrow), ("wide", wide))]
    first, second = (recorded(folder)[0] for folder in folders)
    assert first.weights == second.weights
    assert len(first.weights) == len(narrow)


def test_a_golden_of_bert_base_stays_small():
    facts = small_facts(
        vocab_size=30522,
        hidden_size=768,
        num_hidden_layers=12,
        num_attention_heads=12,
        intermediate_size=3072,
        max_position_embeddings=512,
    )
    inputs = choose_inputs(facts)
    rng, shape = np.random.default_rng(0), (*inputs.input_ids.shape, 768)
    states = {n: rng.normal(size=shape if n != "pooled_output" else shape[::2]) for n in expected_outputs(facts)}
    names = [f"{m}.{part}" for m in linear_sizes(facts) for part in ("kernel", "bias")]
    names += [f"{m}.{part}" for m in norm_names(facts) for part in ("scale", "bias")]
    names += [f"embeddings.{n}.table" for n in ("word", "position", "type")]
    golden = Golden(
        facts=asdict(facts),
        outputs={name: _expected(name, array, inputs) for name, array in states.items()},
        weights=dict.fromkeys(names, Fingerprint((3072, 768), "F32", "f" * 64)),
        **rows_of(inputs),
    )
    assert len(golden.weights) == 199
    assert len(dump(golden)) < 100_000


def test_printed_numbers_bring_a_float32_back_and_keep_their_zeros():
    values = np.random.default_rng(0).normal(size=1000).astype(np.float32) * 10.0 ** np.arange(-20, 20).repeat(25)
    values = values.astype(np.float32)
    np.testing.assert_array_equal(np.array(printed(values.tolist()), np.float64).astype(np.float32), values)
    assert printed([1.0]) == (f"1.{'0' * (DIGITS - 1)}e+00",)


# ---------------------------------------------------------------- inputs of one's own


def test_inputs_from_json_may_be_rows_of_any_length(tmp_path):
    file = tmp_path / "inputs.json"
    file.write_text(json.dumps({"input_ids": [[1, 2, 3], [4]], "token_type_ids": [[0, 1, 1], [0]]}), encoding="utf-8")
    golden, _ = recorded(hf_folder(tmp_path / "hf"), inputs=file)
    assert (golden.input_ids, golden.token_type_ids) == (((1, 2, 3), (4,)), ((0, 1, 1), (0,)))


def test_left_padding_and_ids_without_a_row_are_usage_errors(tmp_path):
    source, file = hf_folder(tmp_path / "hf"), tmp_path / "inputs.json"
    for said, words in (
        ({"input_ids": [[1, 2]], "attention_mask": [[0, 1]]}, "not right-padded"),
        ({"input_ids": [[61]]}, "ids without a row"),
        ({"input_ids": [[1] * 38]}, "longer than the model takes"),
    ):
        file.write_text(json.dumps(said), encoding="utf-8")
        with pytest.raises(UsageError, match=words):
            recorded(source, inputs=file)


# ---------------------------------------------------------------- refusals


def test_an_existing_file_is_kept_unless_forced(tmp_path):
    source, out = hf_folder(tmp_path / "hf"), tmp_path / "golden.json"
    out.write_text("mine", encoding="utf-8")
    with pytest.raises(RefusedError, match=r"the output exists(.|\n)*is already there"):
        portkit.golden_record(source, out)
    assert out.read_text(encoding="utf-8") == "mine"
    golden = portkit.golden_record(source, out, force=True)
    assert read_golden(out) == golden


def test_outputs_that_are_not_finite_are_refused_and_nothing_is_written(tmp_path):
    def break_it(state):
        return {n: a * np.float32(np.nan) if n == "pooler.dense.bias" else a for n, a in state.items()}

    source = hf_folder(tmp_path / "hf", damage=break_it)
    with pytest.raises(
        RefusedError, match=r"a golden of these outputs would say nothing(.|\n)*pooled_output: holds NaN or infinity"
    ) as caught:
        portkit.golden_record(source, tmp_path / "golden.json")
    assert len(caught.value.problems) == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["hf"]


def test_the_folder_of_a_golden_is_made(tmp_path):
    golden = portkit.golden_record(hf_folder(tmp_path / "hf"), tmp_path / "new" / "folder" / "golden.json")
    assert read_golden(tmp_path / "new" / "folder" / "golden.json") == golden


def test_a_missing_folder_is_unreadable(tmp_path):
    with pytest.raises(UnreadableError, match="no such file or folder"):
        portkit.golden_record(tmp_path / "nowhere", tmp_path / "golden.json")


def test_types_that_are_left_out_are_zeros():
    golden = replace(Golden(), input_ids=((1, 2), (3,)))
    np.testing.assert_array_equal(golden.inputs(9).input_ids, [[1, 2], [3, 9]])
    assert not golden.inputs(9).token_type_ids.any()
