"""What a conversion neither reads nor copies of its source's folder is named, whatever it is."""

from __future__ import annotations

import json

import pytest
from hf_folders import config_for, facts_for, saved_state, small_model, write_hf
from safetensors.numpy import save_file

import portkit
from portkit.layouts.files import left_behind


def behind(source, tmp_path, **options):
    """The names, after checking that report, record and folder agree on them."""
    result = portkit.convert(source, tmp_path / "out", to="burn", verify="none", **options)
    record = json.loads((tmp_path / "out" / "portkit.json").read_text(encoding="utf-8"))
    assert record["left_behind"] == list(result.left_behind)
    assert [f for f in record["files"] if f["how"] == "copied" and f["name"] in result.left_behind] == []
    said = [w for w in result.warnings if w.startswith("not copied: ")]
    assert said == ([f"not copied: {', '.join(result.left_behind)}"] if result.left_behind else [])
    return result.left_behind


def test_nothing_is_said_of_a_folder_that_is_read_and_copied_whole(tmp_path):
    source = small_model(tmp_path / "hf")
    (source / "vocab.txt").write_text("[PAD]", encoding="utf-8")
    assert behind(source, tmp_path) == ()


def test_files_hidden_files_and_folders_are_named(tmp_path):
    source = small_model(tmp_path / "hf")
    for name in (".gitattributes", "training_args.bin", "2_Dense/model.safetensors", ".git/HEAD", "1_Pooling/notes"):
        (source / name).parent.mkdir(exist_ok=True)
        (source / name).write_text("x", encoding="utf-8")
    (source / "1_Pooling" / "config.json").write_text("{}", encoding="utf-8")
    assert behind(source, tmp_path) == (".git/", ".gitattributes", "1_Pooling/notes", "2_Dense/", "training_args.bin")


def test_shards_are_read(tmp_path):
    there = portkit.convert(small_model(tmp_path / "hf"), tmp_path / "s", to="hf", max_shard_size=20_000, verify="none")
    assert len([f for f in there.files if f.name.startswith("model-")]) > 1
    assert behind(tmp_path / "s", tmp_path) == ()


def test_residue_and_record_are_read(tmp_path):
    facts = facts_for("bert", "model")
    state = {**saved_state(facts), "probe.weight": saved_state(facts)["pooler.dense.weight"]}
    portkit.convert(
        write_hf(tmp_path / "hf", state, config_for("bert", facts)),
        tmp_path / "b",
        to="burn",
        residue=True,
        verify="none",
    )
    assert behind(tmp_path / "b", tmp_path) == ()


def test_other_weights_beside_a_named_file_and_a_config_that_is_not_read(tmp_path):
    source = small_model(tmp_path / "hf")
    (source / "model.safetensors").rename(source / "mine.safetensors")
    save_file(saved_state(facts_for("bert", "model")), source / "model.safetensors")
    (tmp_path / "config.json").write_bytes((source / "config.json").read_bytes())
    opening = {"config": tmp_path / "config.json"}
    assert behind(source / "mine.safetensors", tmp_path, open_with=opening) == ("config.json", "model.safetensors")


def test_output_inside_the_source_is_not_taken_for_a_part_of_it(tmp_path):
    source = small_model(tmp_path / "hf")
    assert portkit.convert(source, source / "burn", to="burn", verify="none").left_behind == ()


@pytest.mark.parametrize(("count", "last"), [(12, "f11"), (15, "… and 3 more")])
def test_a_warning_names_a_dozen(tmp_path, count, last):
    source = small_model(tmp_path / "hf")
    for i in range(count):
        (source / f"f{i:02}").touch()
    (said,) = portkit.convert(source, tmp_path / "out", to="burn", dry_run=True).warnings
    assert said.startswith("not copied: f00, f01, ")
    assert said.endswith(f", {last}")
    assert said.count(",") == min(count, 13) - 1


def test_the_record_lists_a_bounded_number(tmp_path):
    source = small_model(tmp_path / "hf")
    for i in range(1002):
        (source / f"f{i:04}").touch()
    listed = portkit.convert(source, tmp_path / "out", to="burn", dry_run=True).record()["left_behind"]
    assert (len(listed), listed[0], listed[-1]) == (1001, "f0000", "… and 2 more")


def test_links_are_named_and_not_followed_in_circles(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "loop").symlink_to(tmp_path / "a")
    (tmp_path / "a" / "nowhere").symlink_to(tmp_path / "gone")
    (tmp_path / "a" / "self").symlink_to(tmp_path / "a" / "self")
    assert left_behind(tmp_path / "a", ()) == ("loop/", "nowhere", "self")
