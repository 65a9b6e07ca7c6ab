"""Folders as a stranger may have them: one clear error of ours or a right result, and nothing raw on the terminal."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path

import numpy as np
import pytest
from hf_folders import assert_same_state, config_for, read_config, read_state, saved_state, write_hf
from strangers import FACTS, LABELLED, ONE, model, said


def without_file(folder, name):
    (model(folder) / name).unlink()
    return folder / name


def config_text(folder, text, encoding="utf-8"):
    (model(folder) / "config.json").write_bytes(text.encode(encoding))


def config_with(folder, before, after):
    config_text(folder, json.dumps(config_for("bert", FACTS)).replace(before, after))


def header(folder, entries, data=b"\0" * 4):
    text = json.dumps(entries).encode()
    (model(folder) / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)


def stored(folder, **arrays):
    """The sound model with some tensors stored otherwise."""
    model(folder, extra={name.replace("__", "."): array for name, array in arrays.items()})


def renumbered(folder, old, new):
    state = {name.replace(f".layer.{old}.", f".layer.{new}."): array for name, array in saved_state(FACTS).items()}
    write_hf(folder, state, config_for("bert", FACTS, num_hidden_layers=4))


def eight_bits(folder):
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file as load
    from safetensors.torch import save_file as save

    state = load(model(folder) / "model.safetensors")
    name = "pooler.dense.weight"
    save({**state, name: state[name].to(torch.float8_e4m3fn)}, folder / "model.safetensors")


def one_shard(folder):
    (model(folder) / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    return folder / "model-00001-of-00002.safetensors"


def linked(folder, to, name="model.safetensors"):
    without_file(folder, name).symlink_to(to)


def beside(folder, name, text):
    (model(folder) / name).write_text(text, encoding="utf-8")


REFUSED = {  # what is made in the folder, and what is said of it
    "empty weights": (lambda f: without_file(f, "model.safetensors").touch(), "the file is empty"),
    "a folder for weights": (lambda f: without_file(f, "model.safetensors").mkdir(), "found    a folder"),
    "a pipe for weights": (lambda f: os.mkfifo(without_file(f, "model.safetensors")), "found    a pipe or a device"),
    "a device for weights": (lambda f: linked(f, "/dev/zero"), "found    a pipe or a device"),
    "weights that link to themselves": (lambda f: linked(f, "model.safetensors"), "Too many levels of symbolic links"),
    "weights that link nowhere": (lambda f: linked(f, "gone"), "model.safetensors: the file cannot be read"),
    "no weights": (lambda f: without_file(f, "model.safetensors") and None, "holds no weights"),
    "one shard alone": (lambda f: one_shard(f) and None, "shards without their index"),
    "one shard, named": (one_shard, "one of 2 shards of a model"),
    "torch.distributed": (
        lambda f: without_file(f, "model.safetensors").with_name("__0_0.distcp").touch(),
        "torch.distributed.checkpoint's, which portkit does not read",
    ),
    "a pipe for a config": (lambda f: os.mkfifo(without_file(f, "config.json")), "config.json: not a file"),
    "a device for a config": (lambda f: linked(f, "/dev/zero", "config.json"), "found    a pipe or a device"),
    "a folder for a config": (lambda f: without_file(f, "config.json").mkdir(), "config.json: not a file"),
    "a config that links to itself": (lambda f: linked(f, "config.json", "config.json"), "Too many levels"),
    "a list for a config": (lambda f: config_text(f, "[1]"), "found    a list"),
    "null for a config": (lambda f: config_text(f, "null"), "found    null"),
    "an empty config": (lambda f: config_text(f, ""), "config.json: the file is not valid JSON"),
    "UTF-16": (lambda f: config_text(f, "{}", "utf-16"), "an object in UTF-8"),
    "a deep config": (lambda f: config_text(f, '{"a":' + "[" * 99_999), "not valid JSON"),
    "a key twice": (lambda f: config_with(f, '"vocab_size": 61', '"vocab_size": 61, "vocab_size": 62'), "a name twice"),
    "5000 digits": (lambda f: config_with(f, " 61", " " + "9" * 5000), "Exceeds the limit (4300 digits)"),
    "30 digits": (lambda f: config_with(f, " 61", " " + "9" * 30), "config.json vocab_size: contradicts the weights"),
    "NaN": (lambda f: config_with(f, "1e-12", "NaN"), "config.json layer_norm_eps: no usable value"),
    "infinity": (lambda f: config_with(f, "1e-12", "1e400"), "expected a number from 0 on"),
    "400 digits": (lambda f: config_with(f, "1e-12", "9" * 400), "expected a number from 0 on"),
    "a negative epsilon": (lambda f: config_with(f, "1e-12", "-1.0"), "found    -1.0"),
    "a negative size": (lambda f: model(f, vocab_size=-61) and None, "expected a whole number above 0"),
    "no layers": (lambda f: model(f, num_hidden_layers=0) and None, "config.json num_hidden_layers: no usable value"),
    "heads that do not divide": (lambda f: model(f, num_attention_heads=7) and None, "division without remainder"),
    "pad beyond the words": (lambda f: model(f, pad_token_id=100) and None, "pad_token_id: is no row of the word table"),
    "pad before the words": (lambda f: model(f, pad_token_id=-1) and None, "expected 0 to 60"),
    "a type in capitals": (lambda f: model(f, model_type="BERT") and None, "'BERT' has no table"),
    "control characters": (lambda f: model(f, model_type="\x1b[31m\n") and None, "model_type: '\\x1b[31m\\n' has no"),
    "an activation of lists": (lambda f: model(f, hidden_act=["gelu"]) and None, "hidden_act: no usable value"),
    "layers with a gap": (lambda f: renumbered(f, 2, 3), "encoder.layer.2.attention.output.dense.bias: missing"),
    "layer 99999": (
        lambda f: stored(f, encoder__layer__99999__output__dense__bias=ONE),
        "part of the encoder that no row explains",
    ),
    "layer 999": (lambda f: stored(f, encoder__layer__999__output__dense__bias=ONE), "no model fits the names"),
    "a name with a newline": (lambda f: stored(f, **{"evil\n- x\x1b[2J": ONE}), "- evil\\n- x\\x1b[2J: no row explains it"),
    "a name from right to left": (lambda f: stored(f, **{"a\u202eb": ONE}), "- a\\u202eb: no row explains it"),
    "a name of a megabyte": (lambda f: stored(f, **{"x" * 1_000_000: ONE}), "(1000000 characters)"),
    "a name of no letters": (lambda f: stored(f, **{"": ONE}), "no row explains it"),
    "8-bit floats": (eight_bits, "pooler.dense.weight: is no plain floating-point weight"),
    "integers": (lambda f: stored(f, pooler__dense__bias=np.ones(24, np.int64)), "found    I64"),
    "no words": (
        lambda f: stored(f, embeddings__word_embeddings__weight=np.zeros((0, 24), np.float32)),
        "found    0 in 1 tensors",
    ),
    "a bias of two dimensions": (lambda f: stored(f, pooler__dense__bias=np.ones((24, 1), np.float32)), "shape does not fit"),
    "metadata that is a number": (
        lambda f: header(f, {"__metadata__": {"a": 1}, "x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}),
        "the safetensors library refuses the header",
    ),
    "a negative shape": (
        lambda f: header(f, {"x": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}),
        "the safetensors library refuses the header",
    ),
    "a record that is a list": (lambda f: beside(f, "portkit.json", "[]"), "portkit.json: the file is not valid JSON"),
    "a residue of garbage": (lambda f: beside(f, "portkit.residue.safetensors", "garbage"), "portkit.residue.safetensors: "),
}  # fmt: skip

READ = {  # what is odd and harmless, or true all the same
    "weights that link to elsewhere": lambda f: (
        (model(f) / "model.safetensors").rename(f.parent / "blob"),
        (f / "model.safetensors").symlink_to(f.parent / "blob"),
    ),
    "a byte order mark": lambda f: config_text(f, "\ufeff" + json.dumps(config_for("bert", FACTS))),
    "half a surrogate pair": lambda f: model(f, x="\ud800"),
    "a config of 900 levels": lambda f: config_with(f, "{", '{"deep": ' + "[" * 900 + "]" * 900 + ", "),
    "a pipe for a tokenizer": lambda f: os.mkfifo(model(f) / "tokenizer.json"),
    "a folder for a tokenizer": lambda f: (model(f) / "tokenizer.json").mkdir(),
    "a tokenizer that links to itself": lambda f: (model(f) / "vocab.txt").symlink_to("vocab.txt"),
    "no model type": lambda f: model(f, model_type=""),
    "architectures in a text": lambda f: model(f, architectures="BertModel"),
    "architectures in lists": lambda f: model(f, architectures=[["BertModel"], 1, None]),
    "architectures in a number": lambda f: model(f, architectures=5),
    "a deviation of nothing": lambda f: model(f, initializer_range=0),
    "a record of other things": lambda f: beside(model(f), "portkit.json", '{"configs": {"burn": [1]}, "kept": [1]}'),
    "buffers of no size": lambda f: model(f, extra={"embeddings.position_ids": np.zeros((0, 3), np.int64)}),
}  # fmt: skip


def everything(folder, made, tmp_path, codes):
    """The words of looking and of converting both ways."""
    named = made if isinstance(made, Path) else folder
    yield said(("inspect", named), codes)
    for to in ("burn", "hf"):
        yield said(("convert", named, tmp_path / f"to {to}", "--to", to, "--verify", "tensors"), codes)


@pytest.mark.parametrize(("make", "words"), REFUSED.values(), ids=REFUSED)
def test_it_is_refused_in_words(make, words, tmp_path):
    *_, burn, hf = everything(tmp_path / "hf", make(tmp_path / "hf"), tmp_path, (0, 3))
    for text in (burn, hf):
        assert text.startswith("portkit: ")
        assert words in text
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(("to ", "."))] == []


@pytest.mark.parametrize("make", READ.values(), ids=READ)
def test_it_is_read_right(make, tmp_path):
    make(tmp_path / "hf")
    assert len(list(everything(tmp_path / "hf", None, tmp_path, (0,)))) == 3
    assert_same_state(read_state(tmp_path / "to hf"), saved_state(FACTS))


@pytest.mark.parametrize(
    "labels",
    [
        {"0": "a", "2": "b", "3": "c", "4": "d", "5": "e"},
        {"a": "0", "0": "b", "1": "c", "2": "d", "3": "e"},
        ["a", "b", "c", "d", "e"],
        {str(-i): "x" for i in range(5)},
        {str(i): ["x"] for i in range(5)},
        3,
    ],
)
def test_labels_that_cannot_be_used_are_said_to_be_lost(labels, tmp_path):
    model(tmp_path / "hf", LABELLED, id2label=labels)
    text = said(("convert", tmp_path / "hf", tmp_path / "out", "--to", "hf", "--verify", "tensors"), (0,))
    assert "  warning      id2label does not give the labels 0, 1, 2, … a name each: its names are not used\n" in text
    assert read_config(tmp_path / "out")["id2label"] == {str(i): f"LABEL_{i}" for i in range(5)}


def test_odd_label_names_travel(tmp_path):
    names = {"0": "\x1b[31m", "1": "\ud800", "2": "same", "3": "same", "4": ""}
    model(tmp_path / "hf", LABELLED, id2label=names)
    said(("convert", tmp_path / "hf", tmp_path / "burn", "--to", "burn", "--verify", "tensors"), (0,))
    said(("convert", tmp_path / "burn", tmp_path / "out", "--to", "hf", "--verify", "tensors"), (0,))
    assert read_config(tmp_path / "out")["id2label"] == names
