from __future__ import annotations

from argparse import Namespace
from collections import OrderedDict

import ml_dtypes
import numpy as np
import pytest

from portkit.errors import UnreadableError
from portkit.formats.pytorch import read_pytorch
from portkit.tensors import NUMPY_DTYPES

torch = pytest.importorskip("torch")

from crafted_pickles import Call, Storage, Tensor, floats, legacy_file, put, zip_file  # noqa: E402

pytestmark = pytest.mark.hf
PAIR = Tensor(Storage("0", 2), (2,), (1,))


@pytest.fixture(params=["zip", "legacy"])
def save(request, tmp_path):
    """A function that saves with torch and gives the path."""

    def save(tree, name="model.bin"):
        torch.save(tree, tmp_path / name, _use_new_zipfile_serialization=request.param == "zip")
        return tmp_path / name

    return save


def read_all(path):
    return {name: tensor.read() for name, tensor in read_pytorch(path).tensors.items()}


TORCH_NAMES = {"BOOL": "bool", "BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2"}
NEWER = ("F8_E4M3", "F8_E5M2", "U64", "U32", "U16")  # torch cannot load these in the legacy form


@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (0, 4)])
@pytest.mark.parametrize("form", ["zip", "legacy"])
def test_every_dtype_comes_back_bit_for_bit(tmp_path, dtype, shape, form):
    if form == "legacy" and dtype in NEWER:
        pytest.skip("newer than the legacy form")
    tensor = torch.zeros(shape, dtype=getattr(torch, TORCH_NAMES.get(dtype, NUMPY_DTYPES[dtype].name)))
    size = tensor.numel() * tensor.element_size()
    data = np.random.default_rng(0).integers(0, 2, size).astype(np.uint8)
    if size:
        tensor.reshape(-1).view(torch.uint8)[:] = torch.from_numpy(data)
    torch.save(OrderedDict(a=tensor), tmp_path / "m", _use_new_zipfile_serialization=form == "zip")
    container = read_pytorch(tmp_path / "m")
    assert (container.format, list(container.tensors)) == ("pytorch", ["a"])
    spec = container.tensors["a"].spec
    assert (spec.shape, spec.dtype, container.tensors["a"].file) == (shape, dtype, "m")
    found = container.tensors["a"].read()
    assert (found.shape, found.dtype, found.flags.c_contiguous) == (shape, NUMPY_DTYPES[dtype], True)
    np.testing.assert_array_equal(found.reshape(-1).view(np.uint8), data)


def test_views_are_read_as_their_own_dense_tensors(save):
    big = torch.arange(24.0).reshape(4, 6)
    tree = {
        "transposed": big.t(),
        "window": big[1:3, 2:4],
        "same": big,
        "again": big,
        "expanded": torch.tensor([1.5, 2.5]).expand(3, 2),
        "parameter": torch.nn.Parameter(torch.ones(2, dtype=torch.bfloat16)),
        "learned": torch.zeros(2, requires_grad=True),
        "position_ids": torch.arange(5).expand((1, -1)),
        "one": torch.tensor(2.5).expand(1),
        "none": torch.ones(1).expand(0, 1),
        "negative": torch.complex(torch.zeros(2), torch.ones(2)).conj().imag,
    }
    found = read_all(save(tree))
    np.testing.assert_array_equal(found["transposed"], big.numpy().T)
    np.testing.assert_array_equal(found["window"], big.numpy()[1:3, 2:4])
    np.testing.assert_array_equal(found["again"], found["same"])
    np.testing.assert_array_equal(found["expanded"], [[1.5, 2.5]] * 3)
    np.testing.assert_array_equal(found["parameter"], np.ones(2, ml_dtypes.bfloat16))
    np.testing.assert_array_equal(found["learned"], [0, 0])
    np.testing.assert_array_equal(found["position_ids"], [[0, 1, 2, 3, 4]])
    np.testing.assert_array_equal(found["one"], [2.5])
    assert found["none"].shape == (0, 1)
    np.testing.assert_array_equal(found["negative"], [-1, -1])
    assert all(array.flags.c_contiguous for array in found.values())


def test_tensors_saved_on_a_gpu_are_read_without_one(tmp_path):
    tree = {"a": Tensor(Storage("0", 2, location="cuda:1"), (2,), (1,))}
    for data in (zip_file(tree, {"0": floats(1, 2)}), legacy_file(tree, {"0": (2, floats(1, 2))})):
        np.testing.assert_array_equal(read_all(put(tmp_path, data))["a"], [1, 2])


def test_big_endian_records_are_turned(tmp_path):
    path = put(tmp_path, zip_file({"a": PAIR}, {"0": np.array([1, 2], ">f4").tobytes()}, order="big"))
    np.testing.assert_array_equal(read_all(path)["a"], [1, 2])


def test_a_pickle_with_the_name_of_safetensors_is_read_as_a_pickle(save):
    assert list(read_all(save({"a": torch.ones(1)}, "model.safetensors"))) == ["a"]


def test_nested_dictionaries_give_paths(save):
    weights = OrderedDict({"bert.bias": torch.ones(1)})
    tree = {
        "state_dict": weights,
        "epoch": 3,
        "optimizer": {"state": {0: {"exp_avg": torch.zeros(1), "step": 7}}, "groups": [{"lr": 0.1}]},
        "extra": {"list": [torch.zeros(2), None], "ema": weights},
        "args": Namespace(arch="roberta"),
    }
    container = read_pytorch(save(tree))
    assert list(container.tensors) == ["state_dict/bert.bias", "optimizer/state/0/exp_avg", "extra/list/0"]
    assert container.notes[:2] == (
        "no tensors, so left out: epoch, optimizer/state/0/step, optimizer/groups/0/lr, extra/list/1, args",
        "stored twice, so read once only: extra/ema",
    )
    assert Namespace not in torch.serialization.get_safe_globals()


def test_a_flat_state_dict_has_no_notes_but_on_its_form(tmp_path):
    for is_zip in (True, False):
        torch.save({"a": torch.ones(1)}, tmp_path / "m", _use_new_zipfile_serialization=is_zip)
        notes = read_pytorch(tmp_path / "m").notes
        assert len(notes) == (not is_zip)
        assert is_zip or "the whole file is held in memory" in notes[0]


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        (lambda: torch.ones(2), "not a dictionary of tensors(.|\n)*found +a Tensor(.|\n)*save a state dict"),
        (lambda: [torch.ones(2)], "not a dictionary of tensors(.|\n)*found +a list"),
        (lambda: {"epoch": 3}, "no tensor is in it(.|\n)*1 other entries"),
        (dict, "no tensor is in it"),
        (lambda: {"a": torch.eye(2).to_sparse()}, r": a: sparse \(torch.sparse_coo\): save it dense"),
        (lambda: {"a": torch.ones(2, dtype=torch.complex64)}, ": a: stored as torch.complex64"),
        (
            lambda: {"a": torch.ones(2, device="meta")},
            ": a: holds no data: it was saved from the meta device",
        ),
        (
            lambda: {"b": torch.ones(1, dtype=torch.complex64), "a": torch.ones(1, device="meta")},
            r"\(2 problems\)\n- \S+: a: holds no data(.|\n)*: b: stored as torch.complex64",
        ),
        (
            lambda: {"a": torch.ones(1).expand(2**25)},
            ": a: claims 134217728 bytes by repeating a storage of 4",
        ),
        (
            lambda: {"a": {"b": torch.ones(1)}, "a/b": torch.ones(1)},
            "the dictionary cannot be laid flat(.|\n)*two tensors have the name a/b",
        ),
        (lambda: {1: torch.ones(1), "1": torch.ones(1)}, "two tensors have the name 1"),
        (lambda: nest(70), "laid flat(.|\n)*nested more than 64 deep at a/a/a/"),
        (
            lambda: {"net": torch.nn.Linear(1, 1)},
            r"asks for code to be run(.|\n)*torch.nn.modules.linear.Linear",
        ),
        (lambda: {"step": np.float64(1), "a": torch.ones(1)}, r"asks for code to be run(.|\n)*numpy"),
    ],
)
def test_what_is_no_state_dict_is_refused(save, tree, words):
    with pytest.raises(UnreadableError, match=words):
        read_pytorch(save(tree()))


def nest(depth):
    tree = {"a": torch.ones(1)}
    for _ in range(depth):
        tree = {"a": tree}
    return tree


def test_quantised_tensors_are_refused(tmp_path):
    arguments = (Storage("0", 2, torch.QInt8Storage), 0, (2,), (1,), (torch.per_tensor_affine, 0.1, 0), False)
    tree = {"a": Call(torch._utils._rebuild_qtensor, *arguments, OrderedDict())}
    with pytest.raises(UnreadableError, match=r": a: quantised \(torch.qint8\): save it dequantised"):
        read_pytorch(put(tmp_path, zip_file(tree, {"0": b"\1\2"})))
