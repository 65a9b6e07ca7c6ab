"""Explaining one tensor: what is said of it is what is in the files."""

from __future__ import annotations

import json
import re
import shutil

import numpy as np
import pytest
from click.testing import CliRunner
from hf_folders import config_for, facts_for, read_state, saved_state, small_model, write_hf

import portkit
from portkit.axes import described_move, move, parse_pattern, parse_signature, shape_of, spell
from portkit.checkpoint import open_checkpoint
from portkit.cli import main
from portkit.errors import UnknownTensorError
from portkit.explain import explain_tensor
from portkit.layouts.registry import LAYOUTS

KERAS_TASKS = ("model", "masked_lm", "sequence_classification")
QUERY = {
    "hf": "encoder.layer.1.attention.self.query.weight",
    "burn": "encoder.layers.1.mha.query.weight",
    "logical": "layer.1.attention.query.kernel",
}
MODELS = [
    ("bert", "pre_training"),
    ("bert", "sequence_classification"),
    ("roberta", "sequence_classification"),
    ("roberta", "masked_lm"),
]


def home(found, layout, dialect=None):
    (there,) = [h for h in found.homes if (h.layout, h.dialect) == (layout, dialect)]
    return there


def rows_change(target):
    return any(" row" in step for step in target.moves)


def apply(moves, array):
    """Carries moves out as they are worded."""
    for step in moves:
        verb, numbers = step.split(" ", 1)
        numbers = tuple(json.loads(numbers))
        array = array.transpose(numbers) if verb == "transpose" else array.reshape(numbers)
    return array


@pytest.fixture
def source(tmp_path):
    return small_model(tmp_path / "hf")


# ---------------------------------------------------------------- names


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("asked", QUERY)
def test_one_tensor_by_each_of_its_names_in_each_layout(asked, layout, source, tmp_path):
    if layout != "hf":
        portkit.convert(source, tmp_path / layout, to=layout, verify="none")
    found = explain_tensor(source if layout == "hf" else tmp_path / layout, QUERY[asked])
    kind = "the logical name" if asked == "logical" else f"a name in {asked}"
    assert found.found_as == (f"a stored name, in {layout}" if asked == layout else kind)
    assert found.logical == QUERY["logical"]
    assert found.row == '[rows.backbone."layer.{i}.attention.{qkv}"]'
    assert (found.tables, found.kind, found.signature) == (("mappings/bert.toml",), "linear", "h -> n d")
    assert found.axes == {
        "h": "hidden_size = 24",
        "n": "num_attention_heads = 3",
        "d": "hidden_size / num_attention_heads = 8",
    }
    assert found.hub == "in(h) out(n d)"
    for name in ("hf", "burn"):
        assert home(found, name).name == QUERY[name]
    if layout in QUERY:
        assert found.stored.name == QUERY[layout]
        assert home(found, layout).moves == ()


def test_the_byte_range_holds_the_tensor(source):
    found = explain_tensor(source, QUERY["hf"]).stored
    first, end = found.at
    data = (source / found.file).read_bytes()[first:end]
    np.testing.assert_array_equal(np.frombuffer(data, "<f4").reshape(found.shape), read_state(source)[QUERY["hf"]])
    assert found.dtype == "F32"


def test_of_a_shard_the_file_is_named(source, tmp_path):
    portkit.convert(source, tmp_path / "out", to="hf", max_shard_size=20_000, verify="none")
    found = explain_tensor(tmp_path / "out", QUERY["hf"]).stored
    assert re.fullmatch(r"model-0000\d-of-0000\d\.safetensors", found.file)
    first, end = found.at
    assert (tmp_path / "out" / found.file).read_bytes()[first:end] == read_state(source)[QUERY["hf"]].tobytes()


@pytest.mark.parametrize(("family", "task"), MODELS)
def test_names_shapes_and_moves_are_those_of_a_conversion(family, task, tmp_path):
    folders = {"hf": small_model(tmp_path / "hf", family, task)}
    for layout in LAYOUTS:
        if layout == "burn" or (layout == "keras" and task in KERAS_TASKS):
            folders[layout] = tmp_path / layout
            portkit.convert(folders["hf"], folders[layout], to=layout, verify="none")
    opened = {layout: open_checkpoint(folder) for layout, folder in folders.items()}
    compared = 0
    for here, checkpoint in opened.items():
        for logical, stored in checkpoint.anatomy.stored.items():
            found = explain_tensor(folders[here], stored)
            for there, other in opened.items():
                target = home(found, there)
                if logical in other.anatomy.stored and not rows_change(target):
                    tensors = checkpoint.folder.container.tensors, other.folder.container.tensors
                    arrays = tensors[0][stored].read(), tensors[1][target.name].read()
                    assert arrays[1].shape == target.shape
                    np.testing.assert_array_equal(apply(target.moves, arrays[0]), arrays[1])
                    compared += 1
    assert compared > 200


# ---------------------------------------------------------------- what is not simply there


def test_a_tied_tensor_says_whose_numbers_it_has(tmp_path):
    source = small_model(tmp_path / "hf", "bert", "masked_lm")
    found = explain_tensor(source, "cls.predictions.decoder.weight")
    assert found.logical == "masked_lm.decoder.kernel"
    assert found.stored.name == "bert.embeddings.word_embeddings.weight"
    assert found.reason == "not stored: its numbers are those of embeddings.word.table, to which it is tied"
    assert home(found, "hf").note == "tied: written only where its numbers are not those of embeddings.word.table"
    burn = home(found, "burn")
    assert (burn.name, burn.moves, burn.note) == ("lm_head.decoder.weight", ("transpose [1, 0]",), "")
    assert explain_tensor(source, "embeddings.word.table").shared_by == ("masked_lm.decoder.kernel",)


def test_another_name_of_the_same_tensor(tmp_path):
    facts = facts_for("bert", "masked_lm")
    state = saved_state(facts)
    state["cls.predictions.decoder.bias"] = state["cls.predictions.bias"]
    source = write_hf(tmp_path / "hf", state, config_for("bert", facts))
    found = explain_tensor(source, "cls.predictions.bias")
    assert found.logical == "masked_lm.decoder.bias"
    assert found.stored.name == "cls.predictions.bias"
    assert "cls.predictions.decoder.bias is read" in found.reason
    assert home(found, "hf").note == "cls.predictions.decoder.bias wins where a file has it too"


def test_old_spellings_and_wrappers_are_names_too(tmp_path):
    facts = facts_for("bert", "model")
    state = {f"module.{n.replace('LayerNorm.weight', 'LayerNorm.gamma')}": a for n, a in saved_state(facts).items()}
    source = write_hf(tmp_path / "hf", state, config_for("bert", facts))
    for asked in ("module.embeddings.LayerNorm.gamma", "embeddings.LayerNorm.weight", "embeddings.LayerNorm.gamma"):
        found = explain_tensor(source, asked)
        assert (found.logical, found.stored.name) == ("embeddings.norm.scale", "module.embeddings.LayerNorm.gamma")
        assert home(found, "hf").name == "embeddings.LayerNorm.weight"


def test_buffers_and_strangers_have_a_reason_and_no_row(tmp_path):
    facts = facts_for("bert", "model")
    extra = {"embeddings.position_ids": np.arange(37)[None], "probe.weight": np.ones((2, 24), np.float32)}
    source = write_hf(tmp_path / "hf", {**saved_state(facts), **extra}, config_for("bert", facts))
    buffer, stranger = explain_tensor(source, "embeddings.position_ids"), explain_tensor(source, "probe.weight")
    assert buffer.reason == "ignored: buffer 0, 1, 2, …, which the framework makes itself"
    assert (buffer.stored.dtype, buffer.stored.shape) == ("I64", (1, 37))
    assert stranger.reason.startswith("no row explains it: a conversion refuses it")
    assert {(e.logical, e.row, e.homes) for e in (buffer, stranger)} == {("", "", ())}


def test_what_an_earlier_conversion_kept_aside(tmp_path):
    facts = facts_for("bert", "model")
    state = {**saved_state(facts), "probe.weight": np.ones((2, 24), np.float32)}
    source = write_hf(tmp_path / "hf", state, config_for("bert", facts))
    portkit.convert(source, tmp_path / "burn", to="burn", residue=True, verify="none")
    found = explain_tensor(tmp_path / "burn", "probe.weight")
    assert found.found_as == "a name in portkit.residue.safetensors"
    assert found.reason == "kept aside by an earlier conversion: no row explains it"
    assert found.stored.shape == (2, 24)


@pytest.mark.parametrize(("task", "has_pooler"), [("model", False), ("masked_lm", False)])
def test_a_pooler_that_is_not_there(task, has_pooler, tmp_path):
    found = explain_tensor(small_model(tmp_path / "hf", "bert", task, has_pooler=has_pooler), "pooler.kernel")
    assert found.stored is None
    assert found.reason == "not stored: the file has no such tensor, and the task does not need one"
    unread = "absent: BertForMaskedLM, BertForTokenClassification and BertForQuestionAnswering have no pooler"
    assert home(found, "hf").note == (unread if task == "masked_lm" else "")
    assert home(found, "burn").name == f"{'bert.' if task == 'masked_lm' else ''}pooler.output.weight"


def test_dialects_are_listed_where_they_differ(source, tmp_path):
    pooler = explain_tensor(source, "pooler.kernel")
    assert home(pooler, "burn", "linear-pooler").name == "pooler.weight"
    assert home(pooler, "burn", "no-pooler").note == "absent: bert-burn before May 2024 has no pooler"
    table = explain_tensor(source, "embeddings.position.table")
    assert (home(table, "burn").shape, home(table, "burn").moves) == ((37, 24), ())
    grown = home(table, "burn", "bert-burn")
    assert (grown.shape, grown.moves) == ((512, 24), ("add rows: 475 behind",))
    portkit.convert(source, tmp_path / "burn", to="burn", dialect="bert-burn", verify="none")
    back = explain_tensor(tmp_path / "burn", "embeddings.position.table")
    assert back.stored.shape == grown.shape
    assert home(back, "hf").moves == ("take off rows: 475 behind",)
    assert home(back, "burn", "bert-burn").name == grown.name


def test_rows_that_keras_folds_or_leaves_out_are_told(tmp_path):
    source = small_model(tmp_path / "hf", "roberta")
    asked = "embeddings.position_embeddings.weight"
    moves = home(explain_tensor(source, asked), "keras").moves
    assert moves == ("take off rows: 2 in front", "add the first row of embeddings.type.table to each")
    note = home(explain_tensor(source, "embeddings.token_type_embeddings.weight"), "keras").note
    assert note == "absent: folded into embeddings.position.table"
    portkit.convert(source, tmp_path / "keras", to="keras", verify="none")
    stored = "layers/token_and_position_embedding/position_embedding/vars/0"
    assert home(explain_tensor(tmp_path / "keras", stored), "hf").moves == ("add rows: 2 in front",)


def test_a_layout_without_a_class_for_the_task_says_so(source, tmp_path):
    table = """
        family = "mine"
        extends = "bert"
        [task.model]
        burn = ""
    """
    (tmp_path / "mine.toml").write_text(table, encoding="utf-8")
    found = explain_tensor(source, QUERY["hf"], family="mine", mappings=(tmp_path / "mine.toml",))
    assert (home(found, "burn").name, home(found, "burn").note) == ("", "burn has no class for model")


# ---------------------------------------------------------------- tables


def test_every_file_that_says_something_about_the_row_is_named(tmp_path):
    source = small_model(tmp_path / "hf", "roberta", "masked_lm")
    assert explain_tensor(source, "masked_lm.norm.scale").tables == ("mappings/roberta.toml", "mappings/bert.toml")
    assert explain_tensor(source, QUERY["logical"]).tables == ("mappings/bert.toml",)
    head = small_model(tmp_path / "head", "roberta", "sequence_classification")
    found = explain_tensor(head, "classifier.out_proj.weight")
    assert (found.logical, found.tables) == ("classifier.kernel", ("mappings/roberta.toml",))
    assert found.row == '[rows.roberta_head."classifier"]'


def test_a_table_of_ones_own_is_named_by_its_path(source, tmp_path):
    mine = tmp_path / "mine.toml"
    mine.write_text(
        'family = "mine"\nextends = "bert"\n[rows.backbone."layer.{i}.mlp.up"]\nburn = "encoder.layers.{i}.up"\n',
        encoding="utf-8",
    )
    found = explain_tensor(source, "layer.0.mlp.up.kernel", family="mine", mappings=(mine,))
    assert found.tables == (str(mine), "mappings/bert.toml")
    assert home(found, "burn").name == "encoder.layers.0.up.weight"


# ---------------------------------------------------------------- the moves in words


@pytest.mark.parametrize("signature", ["h -> n d", "n d -> h", "h -> h", "v -> h"])
@pytest.mark.parametrize("src", ["(in) (out)", "(out) (in)", "in out", "out in", "(out) in"])
@pytest.mark.parametrize("dst", ["(in) (out)", "(out) (in)", "in out"])
def test_described_moves_are_what_is_done(signature, src, dst):
    sizes = {"h": 6, "n": 2, "d": 5, "v": 7}
    a, b = (parse_pattern(pattern, parse_signature(signature)) for pattern in (src, dst))
    array = np.arange(np.prod(shape_of(a, sizes))).reshape(shape_of(a, sizes))
    steps = described_move(a, b, sizes)
    np.testing.assert_array_equal(apply(steps, array), move(array, a, b, sizes))
    assert (steps == ()) == (a == b)


def test_dimensions_name_role_and_letters():
    signature = parse_signature("h -> n d")
    assert spell(parse_pattern("(out) (in)", signature)) == "out(n d) in(h)"
    assert spell(parse_pattern("in out", signature)) == "in(h) out(n) out(d)"


# ---------------------------------------------------------------- unknown names, and the command line


@pytest.mark.parametrize(
    ("asked", "nearest"),
    [
        ("encoder.layer.1.atention.self.query.weight", QUERY["hf"]),
        ("encoder.layers.1.mha.qeury.weight", QUERY["burn"]),
        ("layer.1.atention.query.kernel", QUERY["logical"]),
    ],
)
def test_a_misspelt_name_is_met_with_the_nearest(asked, nearest, source):
    with pytest.raises(UnknownTensorError, match=f"did you mean '{re.escape(nearest)}'") as caught:
        explain_tensor(source, asked)
    assert f"{asked}: no tensor of this bert, task model, has this name" in str(caught.value)


def test_a_name_like_no_other_is_told_what_names_there_are(source):
    with pytest.raises(UnknownTensorError, match=r"a stored name, or a logical one: layer\.0\.mlp\.up\.kernel"):
        explain_tensor(source, "???")


def run(*words, code=0):
    result = CliRunner().invoke(main, [str(word) for word in words])
    assert result.exit_code == code, (result.output, result.exception)
    return result.stderr if code else result.stdout


def test_command(source):
    lines = run("explain", source, QUERY["burn"]).splitlines()
    assert lines[0] == f"{QUERY['burn']}: a name in burn"
    assert lines[1] == "  logical      layer.1.attention.query.kernel: in(h) out(n d)"
    assert lines[2] == '  row          [rows.backbone."layer.{i}.attention.{qkv}"] of mappings/bert.toml'
    assert re.fullmatch(
        rf"  here         {QUERY['hf']} \[24, 24\] out\(n d\) in\(h\), F32, model\.safetensors, bytes \d+ to \d+",
        lines[4],
    )
    assert lines[5] == f"  in hf        {QUERY['hf']} [24, 24] out(n d) in(h): as it is"
    assert f"  in burn      {QUERY['burn']} [24, 24] in(h) out(n d): transpose [1, 0]" in lines


def test_command_as_json(source):
    found = json.loads(run("explain", source, QUERY["logical"], "--json"))
    assert (found["logical"], found["stored"]["dtype"]) == (QUERY["logical"], "F32")
    assert {h["layout"] for h in found["homes"]} == set(LAYOUTS)


def test_command_for_what_is_not_there(source, tmp_path):
    assert "did you mean" in run("explain", source, "pooler.kernle", code=3)
    assert "no such file or folder" in run("explain", tmp_path / "nowhere", "x", code=3)
    text = run("explain", small_model(tmp_path / "mlm", "bert", "masked_lm"), "pooler.kernel")
    assert "in hf        absent: BertForMaskedLM" in text
    assert "bert.pooler.output.weight [24, 24] in(h) out(h): nothing to move" in text


def test_headers_are_enough(source):
    found = explain_tensor(source, QUERY["hf"])
    data = (source / "model.safetensors").read_bytes()
    head = 8 + int.from_bytes(data[:8], "little")
    shutil.copytree(source, source.with_name("zeros"))
    (source.with_name("zeros") / "model.safetensors").write_bytes(data[:head] + bytes(len(data) - head))
    assert explain_tensor(source.with_name("zeros"), QUERY["hf"]) == found
