"""A dry run prints every move of the plan, as text and as JSON, and writes nothing."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner
from hf_folders import config_for, facts_for, saved_state, small_model, write_hf

import portkit
from portkit.cli import main


def planned(source, tmp_path, *words):
    """What the command prints, after checking that it left everything as it was."""
    before = {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*")}
    words = ("convert", source, tmp_path / "out", "--dry-run", *words)
    result = CliRunner().invoke(main, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    assert {p: p.stat().st_mtime_ns for p in tmp_path.rglob("*")} == before
    return result.stdout


def test_moves_say_names_axes_and_dtype(tmp_path):
    text = planned(small_model(tmp_path / "hf"), tmp_path, "--to", "burn", "--dtype", "float16")
    query = "encoder.layer.2.attention.self.query.weight -> encoder.layers.2.mha.query.weight"
    assert f"  moved        {query}: out(n d) in(h) -> in(h) out(n d), transposed, F32 -> F16\n" in text
    assert "  moved        pooler.dense.bias -> pooler.output.bias: out(h), F32 -> F16\n" in text
    assert "  letters      d = 8, f = 40, h = 24, n = 3, p = 37, t = 2, v = 61\n" in text
    assert text.count("  moved  ") == 55


def test_a_square_matrix_that_is_turned_says_so(tmp_path):
    text = planned(small_model(tmp_path / "hf"), tmp_path, "--to", "burn")
    assert "pooler.dense.weight -> pooler.output.weight: out(h) in(h) -> in(h) out(h), transposed, F32\n" in text


def test_zeros_rows_ties_and_files(tmp_path):
    source = small_model(tmp_path / "hf", "bert", "masked_lm")
    (source / "vocab.txt").write_text("[PAD]", encoding="utf-8")
    text = planned(source, tmp_path, "--to", "burn", "--dialect", "bert-burn", "--pooler", "synthesize")
    assert "  zeros        bert.pooler.output.bias: out(h), F32\n" in text
    assert "in(p) out(h), F32, 475 rows of zeros behind\n" in text
    assert "  copied       bert.embeddings.word_embeddings.weight -> lm_head.decoder.weight: out(v) in(h) -> " in text
    assert "  files        vocab.txt, copied\n" in text
    portkit.convert(source, tmp_path / "burn", to="burn", verify="none")
    back = planned(tmp_path / "burn", tmp_path, "--to", "hf")
    assert "  tied         lm_head.decoder.weight: the numbers of bert.embeddings.word_embeddings.weight\n" in back


def test_json_is_the_record_that_the_conversion_writes(tmp_path):
    source = small_model(tmp_path / "hf", "roberta", "sequence_classification")
    (source / "vocab.json").write_text("{}", encoding="utf-8")
    plan = json.loads(planned(source, tmp_path, "--to", "burn", "--json"))
    portkit.convert(source, tmp_path / "burn", to="burn", verify="none")
    record = json.loads((tmp_path / "burn" / "portkit.json").read_text(encoding="utf-8"))
    copied = [f for f in record["files"] if f["how"] == "copied"]
    assert plan == {**record, "files": copied, "dry_run": True}
    assert [f["name"] for f in copied] == ["vocab.json"]


@pytest.mark.parametrize(("style", "cut", "added"), [("bert", [2, 0], [0, 0]), ("roberta", [0, 0], [0, 0])])
def test_rows_that_are_cut_stand_in_the_plan(tmp_path, style, cut, added):
    source = small_model(tmp_path / "hf", "roberta", "sequence_classification")
    plan = json.loads(planned(source, tmp_path, "--to", "hf", "--head-style", style, "--json"))
    (position,) = [t for t in plan["tensors"] if t["logical"] == "embeddings.position.table"]
    assert (position["rows_cut"], position["rows_added"], position["shape"]) == (cut, added, [37 - sum(cut), 24])


def test_a_cast_stands_in_the_plan(tmp_path):
    facts = facts_for("bert", "model")
    source = write_hf(tmp_path / "hf", saved_state(facts, dtype=np.float64), config_for("bert", facts))
    plan = json.loads(planned(source, tmp_path, "--to", "burn", "--json"))
    assert {(t["source_dtype"], t["dtype"]) for t in plan["tensors"]} == {("F64", "F32")}
