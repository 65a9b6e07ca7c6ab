from __future__ import annotations

import itertools
import json
import random
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from portkit.errors import PortkitError, UnreadableError, UnwritableError
from portkit.formats.sharded import read_sharded, split, write_sharded
from portkit.tensors import TensorSpec, dtype_name

INDEX = "model.safetensors.index.json"
ONE, TWO = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
ARRAYS = {name: np.full(4, place, np.float32) for place, name in enumerate("abcd")}


def specs_of(arrays):
    return [TensorSpec(name, array.shape, dtype_name(array.dtype)) for name, array in arrays.items()]


def write(folder, arrays, limit):
    write_sharded(folder, specs_of(arrays), iter(arrays.values()), max_shard_size=limit, metadata={"format": "pt"})


@pytest.fixture
def folder(tmp_path):
    """Four tensors in two shards."""
    write(tmp_path, ARRAYS, 32)
    return tmp_path


def change_index(folder, change):
    content = json.loads((folder / INDEX).read_text())
    change(content)
    (folder / INDEX).write_text(json.dumps(content))


def names_of(folder):
    return sorted(path.name for path in folder.iterdir())


def test_shards_are_written_and_read_back(folder):
    assert names_of(folder) == [ONE, TWO, INDEX]
    container = read_sharded(folder / INDEX)
    assert (container.format, dict(container.metadata), container.notes) == (
        "safetensors",
        {"format": "pt"},
        (),
    )
    assert [(name, tensor.file) for name, tensor in container.tensors.items()] == [
        ("a", ONE), ("b", ONE), ("c", TWO), ("d", TWO)
    ]  # fmt: skip
    for name, tensor in container.tensors.items():
        np.testing.assert_array_equal(tensor.read(), ARRAYS[name])


def test_what_fits_is_one_file(tmp_path):
    write(tmp_path, ARRAYS, 64)
    assert names_of(tmp_path) == ["model.safetensors"]
    np.testing.assert_array_equal(load_file(tmp_path / "model.safetensors")["d"], ARRAYS["d"])


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=9), st.integers(1, 12))
def test_any_split_holds_every_tensor_once(tmp_path_factory, sizes, limit):
    folder = tmp_path_factory.mktemp("split")
    arrays = {f"t{place}": np.full(size, place, np.int8) for place, size in enumerate(sizes)}
    write(folder, arrays, limit)
    if (folder / INDEX).exists():
        found = {name: tensor.read() for name, tensor in read_sharded(folder / INDEX).tensors.items()}
    else:
        found = load_file(folder / "model.safetensors")
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)


def test_large_tensors_between_small_ones_get_their_own_shard():
    sizes = {"a": 2, "large": 9, "b": 2, "c": 3, "larger": 10, "d": 1}
    shards = split([TensorSpec(name, (size,), "U8") for name, size in sizes.items()], 5)
    assert [[spec.name for spec in shard] for shard in shards] == [
        ["large"],
        ["a", "b"],
        ["larger"],
        ["c", "d"],
    ]


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ([np.zeros(4, np.float32)] * 3, "d: no array came"),
        ([np.zeros(4, np.float32)] * 5, "more arrays than the 4"),
        ([np.zeros(4, np.int32)] * 4, "a: the array is not what was announced"),
    ],
)
def test_a_failed_write_leaves_no_index(tmp_path, arrays, words):
    with pytest.raises(PortkitError, match=words):
        write_sharded(tmp_path, specs_of(ARRAYS), arrays, max_shard_size=32)
    assert INDEX not in names_of(tmp_path)
    with pytest.raises(UnwritableError, match=r"missing: cannot be written\n *found *No such file"):
        write(tmp_path / "missing", ARRAYS, 32)


@pytest.mark.hf
def test_folders_are_those_of_transformers(tmp_path):
    pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=12
    )
    model = transformers.BertModel(config)
    model.save_pretrained(tmp_path / "theirs", max_shard_size=2000)
    arrays = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    (tmp_path / "ours").mkdir()
    write(tmp_path / "ours", arrays, 2000)
    config.save_pretrained(tmp_path / "ours")
    files = names_of(tmp_path / "ours")
    assert files == names_of(tmp_path / "theirs")
    assert len(files) > 5
    for file in set(files) - {"config.json"}:
        assert (tmp_path / "ours" / file).read_bytes() == (tmp_path / "theirs" / file).read_bytes()
    _, report = transformers.BertModel.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    read = read_sharded(tmp_path / "theirs" / INDEX).tensors
    assert read.keys() == arrays.keys()
    np.testing.assert_array_equal(read["pooler.dense.weight"].read(), arrays["pooler.dense.weight"])


@pytest.mark.hf
def test_pickled_shards(tmp_path):
    torch = pytest.importorskip("torch")
    for number, name in ((1, "a"), (2, "b")):
        torch.save({name: torch.full((2,), number), "step": 1}, tmp_path / f"pytorch_model-0000{number}-of-00002.bin")
    index = tmp_path / "pytorch_model.bin.index.json"
    weight_map = {name: f"pytorch_model-0000{number}-of-00002.bin" for number, name in ((1, "a"), (2, "b"))}
    index.write_text(json.dumps({"metadata": {"total_size": 32}, "weight_map": weight_map}))
    container = read_sharded(index)
    assert container.format == "pytorch"
    assert container.notes[0] == "pytorch_model-00001-of-00002.bin: no tensors, so left out: step"
    np.testing.assert_array_equal(container.tensors["b"].read(), [2, 2])


def test_links_to_a_store_elsewhere_are_followed(folder, tmp_path_factory):
    store, snapshot = tmp_path_factory.mktemp("blobs"), tmp_path_factory.mktemp("snapshot")
    for number, file in enumerate(names_of(folder)):
        (folder / file).rename(store / str(number))
        (snapshot / file).symlink_to(store / str(number))
    assert list(read_sharded(snapshot / INDEX).tensors) == ["a", "b", "c", "d"]


def test_missing_metadata_is_fine_and_a_wrong_size_is_noted(folder):
    change_index(folder, lambda content: content["metadata"].update(total_size=7))
    assert read_sharded(folder / INDEX).notes == (f"{INDEX} says 7 bytes, its tensors have 64",)
    change_index(folder, lambda content: content.pop("metadata"))
    assert read_sharded(folder / INDEX).notes == ()
    change_index(folder, lambda content: content.update(metadata=[1]))
    assert read_sharded(folder / INDEX).notes == ()


@pytest.mark.parametrize(
    "file",
    [
        "../x.safetensors",
        "/x.safetensors",
        "a/x.safetensors",
        "..\\x.safetensors",
        "c:x.bin",
        "..",
        "",
        "x\0.bin",
    ],
)
def test_names_that_leave_the_folder_are_refused(folder, file):
    change_index(folder, lambda content: content["weight_map"].update(a=file))
    with pytest.raises(UnreadableError, match=r"a shard outside the folder of its index(.|\n)*a plain file name"):
        read_sharded(folder / INDEX)


def mapping(**changes):
    return lambda content: content["weight_map"].update(changes)


NO_MAP = "the index has no weight_map(.|\n)*found +"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda content: content.pop("weight_map"), NO_MAP + "none"),
        (lambda content: content.update(weight_map={}), NO_MAP + "none"),
        (lambda content: content.update(weight_map=["a"]), NO_MAP + "a list"),
        (
            mapping(b=3, a=None),
            r"2 problems(.|\n)*: a: the file of a tensor must be a text(.|\n)*None(.|\n)*: b: ",
        ),
        (mapping(a="a.h5"), "a shard of no known kind(.|\n)*'a.h5'"),
        (mapping(a="x.bin"), "shards of different kinds"),
        (
            mapping(a="x.safetensors", c="y.safetensors"),
            r"2 problems(.|\n)*x.safetensors: the index names this shard, but it is not there(.|\n)*y.safetensors",
        ),
        (mapping(e=TWO), f"{TWO}: e: the index has this tensor here, the shard has not"),
        (mapping(a=TWO), rf"1 problem\)\n- \S+{TWO}: a: the index has this tensor here"),
        (
            lambda content: content["weight_map"].pop("d"),
            f"{TWO}: d: the shard has this tensor, the index has not",
        ),
    ],
)
def test_disagreements_are_all_listed(folder, change, words):
    change_index(folder, change)
    with pytest.raises(UnreadableError, match=words):
        read_sharded(folder / INDEX)


def test_disagreements_of_the_files_are_all_listed(folder):
    save_file({"a": ARRAYS["a"], "c": ARRAYS["c"], "d": ARRAYS["d"]}, folder / TWO)
    words = rf"\(2 problems\)\n- \S+{ONE}: a: this tensor lies in 2 shards\n- \S+{TWO}: a: this tensor lies in 2"
    with pytest.raises(UnreadableError, match=words):
        read_sharded(folder / INDEX)
    (folder / "model-00003-of-00003.safetensors").write_bytes(b"")
    (folder / TWO).unlink()
    words = rf"\(1 problem\)\n- \S+{TWO}: the index names this(.|\n)*another save, model-00003-of-00003.safetensors"
    with pytest.raises(UnreadableError, match=words):
        read_sharded(folder / INDEX)


def test_shards_of_another_save_are_left_alone_and_named(folder):
    for file in ("model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors"):
        (folder / file).write_bytes(b"old")
    (folder / "pytorch_model-00001-of-00002.bin").write_bytes(b"of another kind")
    container = read_sharded(folder / INDEX)
    assert list(container.tensors) == ["a", "b", "c", "d"]
    words = "lie beside those of the index and are not read: model-00001-of-00003.safetensors and 1 more"
    assert container.notes == (f"shards of another save {words}",)


def test_a_shard_of_the_same_save_must_be_named(folder):
    change_index(folder, lambda content: [content["weight_map"].pop(name) for name in "cd"])
    words = (
        rf"{TWO}: a shard of this set that the index does not name(.|\n)*get the index that was saved with the shards"
    )
    with pytest.raises(UnreadableError, match=words):
        read_sharded(folder / INDEX)


def test_all_broken_shards_are_named(folder):
    (folder / ONE).write_bytes(b"")
    (folder / TWO).write_bytes(b"<html>")
    with pytest.raises(UnreadableError, match=rf"\(2 problems\)\n- \S+{ONE}: the file is empty(.|\n)*a web page"):
        read_sharded(folder / INDEX)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "the index is not valid JSON"),
        ("[]", "the index is not valid JSON(.|\n)*found +a list"),
        ('{"weight_map": {"a": "x", "a": "y"}}', "the index has a name twice(.|\n)*'a'"),
        ("[" * 100_000, "the index is not valid JSON"),
    ],
)
def test_broken_indices_are_refused(tmp_path, text, words):
    (tmp_path / INDEX).write_text(text)
    with pytest.raises(UnreadableError, match=words):
        read_sharded(tmp_path / INDEX)


def test_a_huge_index_is_not_read(tmp_path):
    with (tmp_path / INDEX).open("wb") as file:
        file.truncate((64 << 20) + 1)
    with pytest.raises(UnreadableError, match=r"too large for an index(.|\n)*at most 67108864 bytes"):
        read_sharded(tmp_path / INDEX)


def test_mutated_indices_are_read_or_refused(folder):
    whole = (folder / INDEX).read_bytes()
    rng = random.Random(3)
    for length in itertools.chain(range(0, len(whole), 5), [None] * 400):
        data = bytearray(whole[:length])
        for _ in range(0 if length is not None else rng.randint(1, 3)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        (folder / INDEX).write_bytes(data)
        with suppress(UnreadableError):
            assert len(read_sharded(folder / INDEX).tensors) == 4


keys = st.sampled_from(["a", "b", "weight_map", "metadata", "total_size"])
json_values = st.recursive(
    st.none() | st.integers() | st.text(max_size=3) | st.just(ONE),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(keys, inner, max_size=3),
)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(json_values)
def test_indices_of_any_structure_are_read_or_refused(folder, value):
    (folder / INDEX).write_text(json.dumps({"weight_map": value, "metadata": value}))
    with pytest.raises(UnreadableError):
        read_sharded(folder / INDEX)
