"""The command line: what it prints, and its exit codes."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys

import click
import numpy as np
import pytest
from click.testing import CliRunner
from hf_folders import config_for, facts_for, saved_state, small_model, write_hf

from portkit import __version__, execute
from portkit.cli import main


def run(*words, code=0):
    """What a command prints on stdout, or on stderr where it fails."""
    result = CliRunner().invoke(main, [str(word) for word in words])
    assert result.exit_code == code, (result.output, result.exception)
    return result.stderr if code in (2, 3) else result.stdout


@pytest.fixture
def source(tmp_path):
    return small_model(tmp_path / "hf", "bert", "sequence_classification")


# ---------------------------------------------------------------- help


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_names_commands_and_exit_codes(flag):
    text = " ".join(run(flag).split())
    for word in (
        "inspect",
        "convert",
        "mappings",
        "0 done and equal",
        "1 a difference",
        "2 wrong usage",
        "3 could not look",
    ):
        assert word in text


@pytest.mark.parametrize(
    "command", [("inspect",), ("convert",), ("mappings",), ("mappings", "show"), ("verify",), ("golden", "check")]
)
def test_every_command_has_help(command):
    assert run(*command, "--help").startswith("Usage: main " + " ".join(command))


def test_no_line_of_help_is_cut_and_every_option_has_a_word():
    for path, command in commands(main, "portkit").items():
        context = click.Context(command, info_name=path)
        assert "..." not in command.get_help(context).replace("ARGS]...", "").replace("[FILES]...", ""), path
        bare = [p.name for p in command.params if isinstance(p, click.Option) and not p.help]
        assert not bare, f"{path}: {bare}"


def commands(command, path):
    found = {path: command}
    for name, below in getattr(command, "commands", {}).items():
        found |= commands(below, f"{path} {name}")
    return found


def test_version():
    assert run("--version") == f"portkit, version {__version__}\n"


def test_python_runs_it_as_a_module():
    command = [sys.executable, "-m", "portkit", "convert", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Usage: portkit convert [OPTIONS] SOURCE TARGET")


# ---------------------------------------------------------------- inspect


def test_inspect_says_what_the_checkpoint_is(source):
    text = run("inspect", source)
    assert text.startswith("hf: bert, sequence_classification\n")
    for words in (
        "layout       hf (model.safetensors, safetensors, 57 tensors)",
        "class        BertForSequenceClassification",
        "pooler       present in the backbone, looks trained",
        "head         bert style, tanh, 5 labels",
        "sizes        3 layers, hidden 24, 3 heads, vocabulary 61",
        "absolute positions from row 0, 37 tokens at most",
    ):
        assert words in text


def test_inspect_as_json(source):
    found = json.loads(run("inspect", source, "--json"))
    assert (found["layout"], found["family"], found["task"]) == ("hf", "bert", "sequence_classification")
    assert found["head"] == {
        "task": "sequence_classification",
        "style": "bert",
        "activation": "tanh",
        "labels": 5,
        "pooler": "read",
    }
    assert (found["facts"]["usable_length"], found["unexplained"]) == (37, [])


def test_inspect_shows_warnings_and_what_no_row_explains(tmp_path):
    facts = facts_for("roberta", "masked_lm")
    state = {**saved_state(facts), "probe.weight": np.ones((2, 24), np.float32)}
    folder = write_hf(tmp_path / "hf", state, config_for("roberta", facts, pad_token_id=None))
    text = run("inspect", folder)
    assert "  unexplained  probe.weight" in text
    assert "  warning      pad_token_id is not in the config; the default of the family's class, 1, is assumed" in text


def test_inspect_of_nothing_is_three(tmp_path):
    assert run("inspect", tmp_path / "nowhere", code=3).startswith("portkit: cannot read the checkpoint (1 problem)")


# ---------------------------------------------------------------- convert


def test_convert_reports_what_it_did(source, tmp_path):
    text = run("convert", source, tmp_path / "burn", "--to", "burn", "--verify", "tensors")
    assert text.startswith("hf -> burn (bpk): bert, sequence_classification\n")
    assert "tensors      57 written, 0 tied, 0 kept in the residue, 0 dropped" in text
    assert "proof tensors  compared 57 of 57 tensors: equal, bit for bit" in text
    assert text.endswith(f"wrote {tmp_path / 'burn'} (proved: tensors)\n")


def test_convert_without_a_proof_says_so(source, tmp_path):
    assert run("convert", source, tmp_path / "burn", "--to", "burn", "--verify", "none").endswith("(not proved)\n")


@pytest.mark.hf
def test_convert_prints_the_forward_proof(source, tmp_path):
    text = run("convert", source, tmp_path / "burn", "--to", "burn")
    assert "proof forward  transformers (float32, cpu) against" in text
    for output in ("hidden_states.0", "hidden_states.3", "pooled_output", "logits"):
        line = next(line for line in text.splitlines() if line.strip().startswith(output))
        assert line.endswith("agrees")
    assert "proof facts    compared 21 facts: equal" in text
    assert text.endswith("(proved: tensors, facts, forward)\n")


def test_convert_as_json_is_the_record(source, tmp_path):
    printed = json.loads(run("convert", source, tmp_path / "burn", "--to", "burn", "--verify", "tensors", "--json"))
    written = json.loads((tmp_path / "burn" / "portkit.json").read_text(encoding="utf-8"))
    nothing = {"differing": {}, "missing": {}, "rest": {}, "casts": {}}
    assert printed["proofs"] == {"tensors": {"equal": True, "compared": 57, "expected": 57, **nothing}}
    assert printed["failed"] == []
    assert [f["name"] for f in printed["files"]] == ["config.json", "model.bpk"]
    assert printed == written


def test_json_names_every_file_with_size_and_hash(source, tmp_path):
    (source / "vocab.txt").write_text("[PAD]\n", encoding="utf-8")
    (source / "1_Pooling").mkdir()
    (source / "1_Pooling" / "config.json").write_text("{}", encoding="utf-8")
    out = tmp_path / "out"
    words = ("--to", "hf", "--max-shard-size", "20000", "--verify", "tensors", "--json")
    printed = json.loads(run("convert", source, out, *words))
    there = {p.relative_to(out).as_posix(): p.read_bytes() for p in out.rglob("*") if p.is_file()}
    del there["portkit.json"]
    assert {f["name"]: (f["size"], f["sha256"]) for f in printed["files"]} == {
        name: (len(data), hashlib.sha256(data).hexdigest()) for name, data in there.items()
    }
    copied = [f["name"] for f in printed["files"] if f["how"] == "copied"]
    assert copied == ["1_Pooling/config.json", "vocab.txt"]
    assert "model.safetensors.index.json" in there


def test_warnings_of_the_source_are_printed_once(tmp_path):
    facts = facts_for("roberta", "model")
    source = write_hf(tmp_path / "hf", saved_state(facts), config_for("roberta", facts, pad_token_id=None))
    words = ("convert", source, tmp_path / "burn", "--to", "burn", "--verify", "tensors", "--force")
    said = "pad_token_id is not in the config; the default of the family's class, 1, is assumed"
    assert run(*words).count(said) == 1
    assert json.loads(run(*words, "--json"))["warnings"] == [said]


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_dry_run_writes_nothing(source, tmp_path, more):
    text = run("convert", source, tmp_path / "burn", "--to", "burn", "--dry-run", *more)
    assert not (tmp_path / "burn").exists()
    assert more or text.endswith("dry run: nothing was written\n")
    assert not more or json.loads(text)["target"]["class"] == "BertForSequenceClassification"


def test_options_reach_the_library(source, tmp_path):
    words = (
        "--to",
        "hf",
        "--head-style",
        "roberta",
        "--dtype",
        "float16",
        "--max-shard-size",
        "20000",
        "--verify",
        "tensors",
    )
    text = run("convert", source, tmp_path / "out", *words)
    assert "head         roberta" in text
    assert "57 of them after the cast" in text
    assert (tmp_path / "out" / "model.safetensors.index.json").exists()


def test_drop_and_residue_are_listed(tmp_path):
    heads = {"a.weight": np.ones((2, 24), np.float32), "b.weight": np.ones((3, 24), np.float32)}
    facts = facts_for("bert", "model")
    folder = write_hf(tmp_path / "hf", {**saved_state(facts), **heads}, config_for("bert", facts))
    text = run("convert", folder, tmp_path / "out", "--to", "hf", "--drop", "a.*", "--residue", "--verify", "tensors")
    assert "  dropped      a.weight: --drop 'a.*'" in text
    assert "  kept         b.weight: no row explains it" in text


def test_many_tensors_of_one_reason_share_a_line(tmp_path):
    heads = {f"a.{i}": np.ones(2, np.float32) for i in range(5)}
    facts = facts_for("bert", "model")
    folder = write_hf(tmp_path / "hf", {**saved_state(facts), **heads}, config_for("bert", facts))
    text = run("convert", folder, tmp_path / "out", "--to", "hf", "--drop", "a.*", "--verify", "none")
    (line,) = (line for line in text.splitlines() if line.startswith("  dropped"))
    assert line == "  dropped      5 tensors, a.0, a.1, a.2, …: --drop 'a.*'"


def test_force_replaces_and_its_absence_is_three(source, tmp_path):
    words = ("convert", source, tmp_path / "burn", "--to", "burn", "--verify", "none")
    run(*words)
    assert "--force replaces it, once the new one is complete" in run(*words, code=3)
    run(*words, "--force")


def test_failed_proof_is_one(source, tmp_path, monkeypatch):
    honest = execute.arrays
    monkeypatch.setattr(execute, "arrays", lambda *given: (array + 1 for array in honest(*given)))
    text = run("convert", source, tmp_path / "burn", "--to", "burn", "--verify", "tensors", code=1)
    assert "compared 57 of 57 tensors: 57 differ" in text
    assert text.endswith("FAILED: source and target differ; nothing was written\n")
    assert not (tmp_path / "burn").exists()


def test_failed_folder_is_kept_on_request_and_marked(source, tmp_path, monkeypatch):
    honest = execute.arrays
    monkeypatch.setattr(execute, "arrays", lambda *given: (array + 1 for array in honest(*given)))
    words = ("convert", source, tmp_path / "burn", "--to", "burn", "--verify", "tensors", "--keep-failed")
    text = run(*words, code=1)
    assert text.endswith(f"{tmp_path / 'burn'} is kept, and marked as failed\n")
    record = json.loads((tmp_path / "burn" / "portkit.json").read_text(encoding="utf-8"))
    assert record["failed"] == ["tensors"]
    assert record["proofs"]["tensors"]["equal"] is False
    warning = "portkit.json says that this folder failed its proof: do not rely on it"
    assert f"  warning      {warning}" in run("inspect", tmp_path / "burn")
    monkeypatch.undo()
    onward = run("convert", tmp_path / "burn", tmp_path / "back", "--to", "hf", "--verify", "none")
    assert f"  warning      {warning}" in onward
    assert "portkit.json" not in run("inspect", tmp_path / "back")


def test_failed_folder_never_replaces_a_good_one(source, tmp_path):
    words = ("convert", source, tmp_path / "burn", "--to", "burn", "--force", "--keep-failed")
    assert "a folder that failed would replace the one that is there" in run(*words, code=2)


@pytest.mark.parametrize("proof", ["tensors", "facts", "forward"])
def test_verify_makes_the_proof_that_it_names_and_no_other(proof, source, tmp_path):
    text = run("convert", source, tmp_path / "burn", "--to", "burn", "--verify", proof)
    made = [line.split()[1] for line in text.splitlines() if line.startswith("proof ")]
    assert made == [proof]
    assert text.endswith(f"(proved: {proof})\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--to", "brun"), "did you mean 'burn'?"),
        (("--to", "burn", "--format", "npz"), "known here: bpk, mpk, safetensors"),
        (("--to", "burn", "--dialect", "bert-brun"), "did you mean 'bert-burn'?"),
        (("--to", "burn", "--pooler", "maybe"), "'maybe' is not one of"),
        (("--to", "burn", "--what"), "No such option"),
        ((), "Missing option '--to'"),
    ],
)
def test_wrong_usage_is_two(words, said, source, tmp_path):
    assert said in run("convert", source, tmp_path / "out", *words, code=2)


def test_refusal_is_three_with_all_its_problems(tmp_path):
    facts = facts_for("bert", "model")
    wrong = config_for("bert", facts, is_decoder=True, position_embedding_type="relative_key")
    folder = write_hf(tmp_path / "hf", saved_state(facts), wrong)
    text = run("convert", folder, tmp_path / "out", "--to", "burn", code=3)
    assert text.startswith("portkit: config.json cannot be used (2 problems)\n- config.json is_decoder:")
    assert "- config.json position_embedding_type:" in text


# ---------------------------------------------------------------- mappings


def test_mappings_list():
    text = run("mappings", "list")
    assert [line.split()[0] for line in text.splitlines()[::2]] == sorted(
        ["bert", "camembert", "roberta", "xlm-roberta"]
    )
    assert "tasks: model, masked_lm, pre_training" in text


def test_mappings_show():
    text = run("mappings", "show", "roberta")
    assert text.splitlines()[1] == "from mappings/roberta.toml"
    assert "layer.{i}.attention.{qkv}  (linear h -> n d)" in text
    assert "lm_head.decoder.weight  (tied to embeddings.word.table)" in text


def test_mappings_show_of_an_unknown_family():
    assert "did you mean 'roberta'?" in run("mappings", "show", "robreta", code=3)


def test_mappings_check(tmp_path):
    assert "families" in run("mappings", "check")
    good, bad = tmp_path / "good.toml", tmp_path / "bad.toml"
    good.write_text('family = "mine"\nextends = "bert"\n', encoding="utf-8")
    bad.write_text('family = "mine"\nextends = "bert"\nabuot = ""\n', encoding="utf-8")
    assert "checked 5 families" in run("mappings", "check", good)
    assert "did you mean 'about'?" in run("mappings", "check", bad, code=3)


def test_a_table_of_ones_own_is_used(source, tmp_path):
    table = tmp_path / "mine.toml"
    table.write_text('family = "mine"\nextends = "bert"\n[hf]\nmodel_type = "mine"\n', encoding="utf-8")
    assert "mine          " in run("mappings", "list", "--mapping", table)
    text = run("inspect", source, "--mapping", table, "--family", "mine")
    assert text.startswith("hf: mine, sequence_classification")
