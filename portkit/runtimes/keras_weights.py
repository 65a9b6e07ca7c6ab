"""Does a loaded Keras model hold the numbers of its files? Every one, and no others.

Variables and datasets are matched by content: files of older versions keep the same numbers under other paths.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from portkit.errors import Problem, RuntimeFailedError

if TYPE_CHECKING:
    from pathlib import Path

Array = NDArray[np.floating[Any]]
Variables = Iterable[tuple[str, Array]]
Content = tuple[tuple[int, ...], bytes]

_NO_WEIGHTS = "optimizer/"  # KerasHub compiles its tasks, so that files hold a step and a learning rate


def require_loaded(variables: Variables, files: Iterable[Path], copies: Variables = ()) -> int:
    """Raise RuntimeFailedError unless the variables, as (path, float32 array), are the datasets of the files.

    Each variable must be in a dataset of its own, and each dataset in a variable; a dataset may also repeat one of
    `copies`: KerasHub before 0.30 wrote the backbone into the head's file too. Datasets of another dtype are compared
    as float32, as Keras loads them. Returns how many variables were compared; none is an error.
    """
    waiting, repeated = _by_content(variables), _by_content(copies)
    count = sum(map(len, waiting.values()))
    problems = [] if count else [Problem("", "the model has no variables, so nothing was compared")]
    shapes = {shape for shape, _ in (*waiting, *repeated)}
    for where, dataset in _datasets(files):
        content = _content(_float32(dataset)) if _fits(dataset, shapes) else None
        names = waiting.get(content) if content else None
        if names:
            names.pop()
        elif content not in repeated:
            problems.append(Problem(where, "the loaded model does not hold these numbers", found=str(dataset.shape)))
    hint = "KerasHub gave it random numbers"
    left = [name for names in waiting.values() for name in names]
    problems += [Problem(name, "a variable whose numbers are in no file", hint=hint) for name in left]
    if problems:
        raise RuntimeFailedError("KerasHub did not load the weights of the folder", problems)
    return count


def _by_content(variables: Variables) -> dict[Content, list[str]]:
    names: dict[Content, list[str]] = defaultdict(list)
    for name, array in variables:
        names[_content(array)].append(name)
    return dict(names)


def _content(array: Array) -> Content:
    return array.shape, hashlib.sha256(np.ascontiguousarray(array).data).digest()


def _datasets(files: Iterable[Path]) -> Iterator[tuple[str, Any]]:
    """Every dataset, with the place that messages name; links to other files are not followed."""
    import h5py

    for path in files:
        with h5py.File(path, "r") as file:
            items: dict[str, Any] = {}
            file.visititems(items.__setitem__)
            for name, item in items.items():
                if isinstance(item, h5py.Dataset) and not name.startswith(_NO_WEIGHTS):
                    yield f"{path.name} {name}", item


def _fits(dataset: Any, shapes: Collection[tuple[int, ...]]) -> bool:  # noqa: ANN401 - a class of an optional package
    """Whether a variable could hold it: nothing else is read, however large it says it is."""
    return dataset.shape in shapes and (dataset.dtype.kind == "f" or _is_bfloat16(dataset))


def _is_bfloat16(dataset: Any) -> bool:  # noqa: ANN401
    """HDF5 has no bfloat16: Keras stores two opaque bytes, and the dtype's name beside them."""
    return bool(dataset.dtype.str == "|V2" and dataset.attrs.get("dtype") == "bfloat16")


def _float32(dataset: Any) -> Array:  # noqa: ANN401
    array = dataset[()]
    numbers: Array = (array.view(ml_dtypes.bfloat16) if _is_bfloat16(dataset) else array).astype(np.float32)
    return numbers
