"""HDF5, as Keras writes weights: a tree of groups with plain datasets. A tensor's name is its path.

Datasets in one piece are read and written at their own place in the file, like those of every other format here;
h5py reads the rest (chunked, compressed, big-endian). bfloat16, which HDF5 lacks, is two opaque bytes with an
attribute that says so, as Keras has it.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO

import ml_dtypes
import numpy as np

from portkit.errors import UnreadableError, unreadable
from portkit.formats.container import Container
from portkit.formats.hashing import hashing
from portkit.formats.hdf5_guard import check_heaps, walk
from portkit.formats.source import Source, file_source
from portkit.formats.write import check_unique, replacing, write_at_offsets
from portkit.tensors import NUMPY_DTYPES, Array, LazyTensor, TensorSpec, dtype_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

MAX_ATTRIBUTE = 64 << 20  # a model's whole config may lie in one

_BF16 = "bfloat16"
_ATTRIBUTES = ("model_config", "layer_names")  # no others: the library hangs on some that are damaged
_BROKEN = (OSError, RuntimeError, KeyError, ValueError, TypeError, OverflowError, MemoryError)


def read_hdf5(path: Path, opened: Callable[[], AbstractContextManager[BinaryIO]] | None = None) -> Container:
    """Open an HDF5 file; tensors are read later, one by one.

    `opened` gives the bytes where they do not lie in a file of their own, such as a member of an archive. Datasets
    that are no numbers are named in the notes. Raises UnreadableError for a broken file, and for one that points
    into other files.
    """
    source = None if opened else file_source(path)
    with _file(path, opened) as file:
        datasets = walk(path, file)
        metadata = _metadata(path, file) if opened is None else {}
        tensors = {name: _tensor(path, source, opened, name, d) for name, d in datasets.items()}
    odd = [name for name, tensor in tensors.items() if tensor is None]
    notes = (f"{path.name}: {len(odd)} datasets are no numbers, such as {odd[0]}",) if odd else ()
    return Container("hdf5", {n: t for n, t in tensors.items() if t is not None}, metadata, notes)


def write_hdf5(path: Path, specs: Sequence[TensorSpec], arrays: Iterable[Array], groups: Sequence[str] = ()) -> str:
    """Write an HDF5 file from arrays that come in the order of `specs`, whose names are paths; `groups` stay empty.

    First the tree is laid out, then each array goes to its place; one is in memory at a time. Returns the file's
    SHA-256. It appears when it is complete. Raises PortkitError when an array is not what its spec says, or when the
    system cannot write.
    """
    check_unique(specs)
    with replacing(path) as file, hashing(file) as follower:
        offsets = _lay_out(file.name, specs, groups)
        write_at_offsets(file, 0, specs, arrays, offsets, follower.reached)
    return follower.sha256


def _lay_out(name: str, specs: Sequence[TensorSpec], groups: Sequence[str]) -> Mapping[str, int]:
    """Create every group and dataset, unwritten; where each begins."""
    import h5py

    offsets = {}
    with h5py.File(name, "w") as file:
        for group in groups:
            file.require_group(group)
        for spec in specs:
            dataset = _declare(file, spec)
            if spec.dtype == "BF16":
                dataset.attrs["dtype"] = _BF16
            offsets[spec.name] = dataset.id.get_offset() if spec.count else 0
    return offsets


def _declare(file: Any, spec: TensorSpec) -> Any:  # noqa: ANN401 - h5py has no types
    """A dataset with its place in the file, and nothing written there."""
    import h5py

    plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    plist.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    parent, _, leaf = spec.name.rpartition("/")
    group = file.require_group(parent) if parent else file
    dtype = np.dtype("V2") if spec.dtype == "BF16" else NUMPY_DTYPES[spec.dtype]
    kind = h5py.h5t.py_create(dtype)
    space = h5py.h5s.create_simple(spec.shape) if spec.shape else h5py.h5s.create(h5py.h5s.SCALAR)
    return h5py.Dataset(h5py.h5d.create(group.id, leaf.encode(), kind, space, dcpl=plist))


@contextmanager
def _file(path: Path, opened: Callable[[], AbstractContextManager[BinaryIO]] | None) -> Iterator[Any]:
    import h5py

    try:
        if opened is None:
            with h5py.File(path, "r") as file:
                yield file
        else:
            with opened() as raw, h5py.File(raw, "r") as file:
                yield file
    except UnreadableError:
        raise
    except _BROKEN as error:
        hint = "was it copied or downloaded to the end?" if "truncated" in str(error) else ""
        raise unreadable(path, "the HDF5 file is broken", found=str(error)[:300], hint=hint) from error


def _tensor(
    path: Path,
    source: Source | None,
    opened: Callable[[], AbstractContextManager[BinaryIO]] | None,
    name: str,
    dataset: Any,  # noqa: ANN401
) -> LazyTensor | None:
    dtype = _dtype(dataset)
    if dtype is None:
        return None
    spec = TensorSpec(name, tuple(dataset.shape), dtype)
    offset: int | None = dataset.id.get_offset() if dataset.size and dataset.dtype.byteorder != ">" else None
    if source is not None and offset is not None and offset + spec.nbytes <= source.size:
        return source.tensor(spec, offset)
    return LazyTensor(spec, partial(_through_h5py, path, opened, spec), None, path.name)


def _through_h5py(path: Path, opened: Callable[[], AbstractContextManager[BinaryIO]] | None, spec: TensorSpec) -> Array:
    with _file(path, opened) as file:
        array = np.asarray(file[spec.name][()])
    target = NUMPY_DTYPES[spec.dtype]
    return np.ascontiguousarray(array.view(target) if spec.dtype == "BF16" else array.astype(target)).reshape(
        spec.shape
    )


def _dtype(dataset: Any) -> str | None:  # noqa: ANN401
    """The dtype's name, or None for what is no plain number."""
    if dataset.shape is None:
        return None
    if dataset.dtype == np.dtype("V2"):  # Keras gives the attribute to bfloat16 only, and reading one may hang
        return "BF16" if "dtype" in dataset.attrs else None
    if dataset.dtype.kind not in "fiub" or dataset.dtype.subdtype:
        return None
    try:
        return dtype_name(np.dtype(ml_dtypes.bfloat16) if dataset.dtype.name == _BF16 else dataset.dtype)
    except KeyError:
        return None


def _metadata(path: Path, file: Any) -> dict[str, str]:  # noqa: ANN401 - h5py has no types
    """What a file from before Keras 3 says of itself."""
    there = [k for k in _ATTRIBUTES if k in file.attrs]
    if there:
        check_heaps(path, file)
    return {k: text for k in there if (text := _text(file.attrs.get(k))) is not None}


def _text(value: object) -> str | None:
    """An attribute as text: names in a list are joined by line breaks."""
    if isinstance(value, np.ndarray) and value.ndim == 1 and value.size < MAX_ATTRIBUTE:
        parts = [_text(v) for v in value.tolist()]
        return "\n".join(p for p in parts if p is not None)
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, str) else None
