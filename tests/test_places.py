"""Paths and options of any kind: no place is written that holds something else, and no name breaks the words."""

from __future__ import annotations

import json
import os

import pytest
from hf_folders import assert_same_state, read_state, saved_state
from strangers import FACTS, model, said


def test_path_of_any_characters(tmp_path):
    folder = tmp_path / "mo dél\n\x1b[31m\u202e"
    model(folder)
    text = said(("inspect", folder), (0,))
    assert text.startswith("mo dél\\n\\x1b[31m\\u202e: bert, model\n")
    out = tmp_path / "out\n\x1b[2J"
    text = said(("convert", folder, out, "--to", "hf", "--verify", "tensors"), (0,))
    assert text.endswith("out\\n\\x1b[2J (proved: tensors)\n")
    assert_same_state(read_state(out), saved_state(FACTS))


def test_name_that_is_no_text(tmp_path):
    name = os.fsdecode(b"\xff\xfe")
    (model(tmp_path / "hf") / name).write_text("x", encoding="utf-8")
    text = said(("convert", tmp_path / "hf", tmp_path / "out", "--to", "hf", "--verify", "tensors"), (0,))
    assert "  warning      not copied: \\udcff\\udcfe\n" in text
    assert json.loads((tmp_path / "out" / "portkit.json").read_text(encoding="utf-8"))["left_behind"] == [name]


@pytest.mark.parametrize("force", [(), ("--force",)])
@pytest.mark.parametrize("place", ["hf", ".", "hf/..", "link", "/"])
def test_output_never_takes_away_files_or_where_one_stands(place, force, tmp_path, monkeypatch):
    (model(tmp_path / "hf") / "notes.txt").touch()
    (tmp_path / "link").symlink_to(tmp_path / "hf")
    (tmp_path / "mine").touch()
    monkeypatch.chdir(tmp_path)
    text = said(("convert", "hf", place, "--to", "burn", "--verify", "none", *force), (2,))
    assert text.startswith("portkit: the output would replace a folder in use")
    assert "not copied: notes.txt" in text or f"- {place}: holds the source" in text.replace("hf/..", place)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["hf", "link", "mine"]
    assert_same_state(read_state(tmp_path / "hf"), saved_state(FACTS))


def test_output_inside_the_source(tmp_path):
    model(tmp_path / "hf")
    said(("convert", tmp_path / "hf", tmp_path / "hf" / "burn", "--to", "burn", "--verify", "tensors"), (0,))
    assert sorted(p.name for p in (tmp_path / "hf").iterdir()) == ["burn", "config.json", "model.safetensors"]


def test_output_through_missing_folders(tmp_path):
    model(tmp_path / "hf")
    said(("convert", tmp_path / "hf", tmp_path / "a" / "b" / "c", "--to", "hf", "--verify", "tensors"), (0,))
    assert_same_state(read_state(tmp_path / "a" / "b" / "c"), saved_state(FACTS))


def test_forced_output_takes_the_place_of_a_link_and_not_of_what_it_leads_to(tmp_path):
    model(tmp_path / "hf")
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "mine").touch()
    (tmp_path / "out").symlink_to(tmp_path / "old")
    said(("convert", tmp_path / "hf", tmp_path / "out", "--to", "hf", "--verify", "none", "--force"), (0,))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["hf", "old", "out"]
    assert (tmp_path / "old" / "mine").exists()
    assert not (tmp_path / "out").is_symlink()


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ("file", "is already there"),
        ("file/x", "File exists"),
        ("x" * 300, "File name too long"),
        ("nowhere-link", "is already there, a link to nothing"),
        ("loop", "is already there, a link to nothing"),
    ],
)
def test_output_that_cannot_be_written(place, words, tmp_path):
    model(tmp_path / "hf")
    (tmp_path / "file").touch()
    (tmp_path / "nowhere-link").symlink_to("gone")
    (tmp_path / "loop").symlink_to("loop")
    text = said(("convert", tmp_path / "hf", tmp_path / place, "--to", "burn", "--verify", "none"), (3,))
    assert words in text
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "hf", "loop", "nowhere-link"]


@pytest.mark.parametrize("name", ["x" * 255, "é" * 127, "[a]*?"])
def test_every_name_that_the_system_takes_is_one_for_an_output(name, tmp_path):
    model(tmp_path / "hf")
    stale = tmp_path / f".{name}.portkit-999999999-x" if len(name) < 9 else None
    if stale:
        stale.mkdir()
    for _ in range(2):
        said(("convert", tmp_path / "hf", tmp_path / name, "--to", "hf", "--verify", "none", "--force"), (0,))
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(["hf", name])


@pytest.mark.parametrize("link", ["gone", "out"])
def test_forced_output_takes_the_place_of_a_link_to_nothing(link, tmp_path):
    model(tmp_path / "hf")
    (tmp_path / "out").symlink_to(link)
    said(("convert", tmp_path / "hf", tmp_path / "out", "--to", "hf", "--verify", "none", "--force"), (0,))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["hf", "out"]
    assert not (tmp_path / "out").is_symlink()


@pytest.mark.parametrize("layout", ["burn", "keras"])
def test_shards_are_no_option_where_none_are_written(layout, tmp_path):
    words = ("convert", model(tmp_path / "hf"), tmp_path / "out", "--to", layout, "--max-shard-size", "1000")
    text = said((*words, "--verify", "none"), (2,))
    assert f"no shards there (1 problem)\n- --max-shard-size: {layout} writes one file of weights" in text
    assert sorted(p.name for p in tmp_path.iterdir()) == ["hf"]


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may read and write everything")
def test_permissions(tmp_path):
    folder = model(tmp_path / "hf")
    (folder / "model.safetensors").chmod(0)
    assert "Permission denied" in said(("inspect", folder), (3,))
    (folder / "model.safetensors").chmod(0o600)
    (tmp_path / "closed").mkdir(mode=0o500)
    (folder / "vocab.txt").touch(mode=0)
    for out in ("closed/out", "out"):
        text = said(("convert", folder, tmp_path / out, "--to", "burn", "--verify", "none"), (3,))
        assert "Permission denied" in text
    assert "vocab.txt: the file cannot be read" in text
    folder.chmod(0o300)
    assert "Permission denied" in said(("convert", folder, tmp_path / "out", "--to", "burn"), (3,))
    folder.chmod(0o700)


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("--max-shard-size", "0"), 2, "--max-shard-size: must be above 0"),
        (("--from", "kears"), 2, "--from: 'kears' is no layout"),
        (("--task", "masked_ml"), 3, "did you mean 'masked_lm'?"),
        (("--task", "next_sentence", "--family", "roberta"), 3, "roberta has no task 'next_sentence'"),
        (("--family", ""), 3, "'' has no table"),
        (("--config", "nowhere.json"), 3, "nowhere.json: the file cannot be read"),
        (("--strip-prefix", "\x1b[3"), 3, "no name starts with --strip-prefix '\\x1b[3'"),
        (("--drop", ""), 3, "--drop '': matches no tensor that could be dropped"),
    ],
)
def test_odd_options(words, code, text, tmp_path):
    model(tmp_path / "hf")
    assert text in said(("convert", tmp_path / "hf", tmp_path / "out", "--to", "hf", *words), (code,))


def test_source_of_a_name_too_long():
    assert "File name too long" in said(("inspect", "x" * 300), (3,))
