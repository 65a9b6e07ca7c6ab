"""HDF5 as Keras writes it: what h5py wrote is read, and what portkit wrote is read by h5py, bit for bit."""

from __future__ import annotations

import h5py
import ml_dtypes
import numpy as np
import pytest

from portkit.errors import PortkitError
from portkit.formats import open_container
from portkit.formats.hdf5 import read_hdf5, write_hdf5
from portkit.tensors import TensorSpec, dtype_name, equal_bits

FLOATS = {"f2": np.float16, "f4": np.float32, "f8": np.float64, "bf": ml_dtypes.bfloat16}
STORAGE = {
    "plain": {},
    "chunked": {"chunks": (3, 2)},
    "gzip": {"chunks": (3, 2), "compression": "gzip"},
    "shuffled": {"chunks": (3, 2), "compression": "gzip", "shuffle": True},
    "checked": {"chunks": (3, 2), "fletcher32": True},
    "lzf": {"chunks": (4, 5), "compression": "lzf"},
}


def numbers(dtype, shape=(7, 5)):
    return np.random.default_rng(0).normal(size=shape).astype(dtype)


def put(file, name, array, **options):
    """As Keras puts a variable: bfloat16 as opaque bytes with an attribute."""
    narrow = array.dtype == ml_dtypes.bfloat16
    dataset = file.create_dataset(name, data=array.view("V2") if narrow else array, **options)
    if narrow:
        dataset.attrs["dtype"] = "bfloat16"


def assert_holds(container, arrays):
    assert (container.format, sorted(container.tensors)) == ("hdf5", sorted(arrays))
    for name, array in arrays.items():
        tensor = container.tensors[name]
        assert (tensor.spec.shape, tensor.spec.dtype) == (array.shape, dtype_name(array.dtype))
        found = tensor.read()
        assert found.flags.c_contiguous
        assert equal_bits(found, array.astype(array.dtype.newbyteorder("=")))


@pytest.mark.parametrize("storage", STORAGE)
def test_every_float_in_every_storage(tmp_path, storage):
    arrays = {f"layers/{name}/vars/0": numbers(dtype) for name, dtype in FLOATS.items()}
    with h5py.File(tmp_path / "x.h5", "w") as file:
        for name, array in arrays.items():
            put(file, name, array, **STORAGE[storage])
    assert_holds(open_container(tmp_path / "x.h5"), arrays)


def test_big_endian_scalars_empty_ones_and_integers(tmp_path):
    arrays = {
        "big": numbers(">f4"),
        "big/chunked": numbers(">f8"),
        "scalar": np.array(2.5, np.float32),
        "narrow scalar": np.array(2.5, ml_dtypes.bfloat16),
        "empty": np.zeros((0, 3), np.float32),
        "empty too": np.zeros((4, 0), ml_dtypes.bfloat16),
        "step": np.array(7, np.int64),
        "flags": np.array([True, False]),
    }
    arrays["below/big"] = arrays.pop("big/chunked")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        for name, array in arrays.items():
            put(file, name, array, **({"chunks": True} if name == "below/big" else {}))
    assert_holds(open_container(tmp_path / "x.h5"), arrays)


def test_compact_datasets(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_layout(h5py.h5d.COMPACT)
        kind, space = h5py.h5t.py_create(np.dtype("f4")), h5py.h5s.create_simple((5,))
        h5py.Dataset(h5py.h5d.create(file.id, b"small", kind, space, dcpl=plist))[...] = numbers("f4", 5)
    assert_holds(open_container(tmp_path / "x.h5"), {"small": numbers("f4", 5)})


@pytest.mark.parametrize("libver", ["earliest", "latest"])
@pytest.mark.parametrize("userblock", [0, 1024])
def test_byte_ranges_hold_the_numbers(tmp_path, libver, userblock):
    path = tmp_path / "x.h5"
    arrays = {f"layers/{name}/vars/0": numbers(dtype) for name, dtype in FLOATS.items()}
    with h5py.File(path, "w", libver=libver, userblock_size=userblock) as file:
        for name, array in arrays.items():
            put(file, name, array)
        put(file, "packed", numbers("f4"), compression="gzip")
    if userblock:
        assert_holds(read_hdf5(path), {**arrays, "packed": numbers("f4")})
        return
    container, raw = open_container(path), path.read_bytes()
    for name, array in arrays.items():
        first, last = container.tensors[name].at
        assert raw[first:last] == array.tobytes()
        assert container.tensors[name].file == "x.h5"
    assert container.tensors["packed"].at is None


def test_attributes_that_portkit_needs_are_metadata(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["a"] = numbers("f4")
        file.attrs["model_config"] = '{"class_name": "BertBackbone"}'
        file.attrs["layer_names"] = np.array([b"one", b"two"])
        file.attrs["count"] = 3
        file.attrs["odd"] = h5py.Empty("f4")
    metadata = dict(open_container(tmp_path / "x.h5").metadata)
    assert metadata == {"model_config": '{"class_name": "BertBackbone"}', "layer_names": "one\ntwo"}
    with h5py.File(tmp_path / "x.h5", "r+") as file:
        file.attrs["model_config"] = 3
        file.attrs["layer_names"] = ["u", "v"]
    assert dict(open_container(tmp_path / "x.h5").metadata) == {"layer_names": "u\nv"}


def test_what_is_no_number_is_named(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["a"] = numbers("f4")
        file["text"] = np.array([b"one", b"two"])
        file["objects"] = "words"
        file["points"] = np.zeros(2, [("x", "f4"), ("y", "f4")])
        file["complex"] = np.zeros(2, "c8")
        file["opaque"] = np.zeros(2, "V2")
        file["wide opaque"] = np.zeros(2, "V3")
        file["nothing"] = h5py.Empty("f4")
        file.create_dataset("references", data=[file.ref], dtype=h5py.ref_dtype)
        file["a type"] = np.dtype("f4")
    container = open_container(tmp_path / "x.h5")
    assert list(container.tensors) == ["a"]
    assert container.notes == ("x.h5: 8 datasets are no numbers, such as complex",)


def test_what_portkit_writes_is_read_by_h5py(tmp_path):
    arrays = {
        f"layers/{name}/vars/{i}": numbers(d, s) for name, d in FLOATS.items() for i, s in enumerate([(7, 5), 3, ()])
    }
    arrays["layers/empty/vars/0"] = np.zeros((0, 4), np.float32)
    arrays["vars/0"] = np.array([1, 2], np.int32)
    specs = [TensorSpec(name, a.shape, dtype_name(a.dtype)) for name, a in arrays.items()]
    write_hdf5(tmp_path / "x.h5", specs, iter(arrays.values()), ("vars", "layers/none"))
    assert_holds(open_container(tmp_path / "x.h5"), arrays)
    with h5py.File(tmp_path / "x.h5") as file:
        assert list(file["layers/none"]) == []
        for name, array in arrays.items():
            dataset = file[name]
            narrow = array.dtype == ml_dtypes.bfloat16
            assert dataset.dtype == (np.dtype("V2") if narrow else array.dtype)
            assert dict(dataset.attrs) == ({"dtype": "bfloat16"} if narrow else {})
            assert (dataset.shape, dataset.chunks) == (array.shape, None)
            assert np.asarray(dataset[()]).tobytes() == array.tobytes()


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        ([], "b: "),
        ([np.zeros(3, np.float32)], r"b: the array is not what was announced(.|\n)*\(3,\) float32"),
        ([np.zeros(2, np.float64)], r"b: the array is not what was announced(.|\n)*\(2,\) float64"),
        ([np.zeros(2, np.float32)] * 2, "cannot write the tensors"),
    ],
)
def test_a_file_appears_whole_or_not_at_all(tmp_path, arrays, words):
    with pytest.raises(PortkitError, match=words):
        write_hdf5(tmp_path / "x.h5", [TensorSpec("b", (2,), "F32")], iter(arrays))
    assert list(tmp_path.iterdir()) == []


def test_names_that_are_given_twice_are_refused(tmp_path):
    spec = TensorSpec("a", (2,), "F32")
    with pytest.raises(PortkitError, match="twice"):
        write_hdf5(tmp_path / "x.h5", [spec, spec], iter([np.zeros(2, np.float32)] * 2))
