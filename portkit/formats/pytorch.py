"""PyTorch pickles: the zip archive of torch.save since 1.6, and the form before it. Read only, never written.

A pickle is a program. Only torch's weights-only loader may run it: that knows tensors, numbers, texts, lists
and dictionaries, and calls nothing else.
"""

from __future__ import annotations

import pickle
import re
import struct
import warnings
from argparse import Namespace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from portkit.errors import MissingRuntimeError, Problem, UnreadableError, unreadable
from portkit.formats.container import Container
from portkit.formats.pickle_guard import LegacyForm, ZipForm, broken, examine
from portkit.formats.pickle_tree import TreeError, gather
from portkit.formats.sniff import identify
from portkit.formats.source import system_errors
from portkit.tensors import NUMPY_DTYPES, Array, LazyTensor, TensorSpec

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    import torch

# A bag of values that runs nothing; fairseq keeps the options of a training in one.
_HARMLESS = [Namespace]
_HARMLESS_MODULES = ("torch.", "collections.", "_codecs.", "argparse.Namespace", "__builtin__.", "builtins.")
# torch would call it with any size that the file asks for, and it fills what it allocates.
_GREEDY = frozenset({"builtins.bytearray", "__builtin__.bytearray"})
# torch interprets the pickle in Python: an instruction that makes no sense shows as what Python says to it.
_LOADER_ERRORS = (
    RuntimeError,
    ValueError,
    TypeError,
    LookupError,
    AttributeError,
    AssertionError,
    ArithmeticError,
    EOFError,
    MemoryError,
    struct.error,
)
_DTYPES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint64": "U64",
    "uint32": "U32",
    "uint16": "U16",
    "uint8": "U8",
    "bool": "BOOL",
}
_REPEAT_BYTES = 64 << 20  # what a tensor may take that repeats its storage, in a file smaller than that
_LEGACY_NOTE = "written in torch's form before 1.6, which cannot be mapped: the whole file is held in memory"


def read_pytorch(path: Path) -> Container:
    """Open a PyTorch pickle that holds a dictionary of tensors, nested or not; needs torch.

    Tensors in nested dictionaries and lists are named by their path: "state_dict/bert.pooler.dense.bias".
    A zip archive is mapped, and its tensors are views of the map; the legacy form is in memory as a whole.
    Raises UnreadableError when the file is broken, asks for code, or holds tensors that have no dense array;
    MissingRuntimeError without torch.
    """
    if (kind := identify(path)) != "pytorch":
        raise unreadable(path, "not a PyTorch pickle", found=kind)
    _need_torch()
    form = examine(path)
    if greedy := form.names & _GREEDY:
        raise _refuses(path, greedy)
    tree = _load(path, form)
    if not isinstance(tree, dict):
        hint = "save a state dict: torch.save(model.state_dict(), …)"
        raise unreadable(path, "not a dictionary of tensors", found=f"a {type(tree).__name__}", hint=hint)
    return _container(path, form, tree)


def _need_torch() -> None:
    try:
        import torch  # noqa: F401
    except ImportError as error:
        problem = Problem("", "reading a PyTorch pickle needs torch", hint="pip install torch")
        raise MissingRuntimeError("torch is not installed", [problem]) from error


def _load(path: Path, form: ZipForm | LegacyForm) -> object:
    import torch

    # torch.load hands a path with this suffix to the safetensors library, whatever is in the file
    mapped = isinstance(form, ZipForm) and path.suffix != ".safetensors"
    try:
        with system_errors(path), path.open("rb") as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's: on deprecated storages, on layouts in beta
            with torch.serialization.safe_globals(_HARMLESS):
                source = str(path) if mapped else file
                return torch.load(source, map_location="cpu", weights_only=True, mmap=mapped)
    except pickle.UnpicklingError as error:
        raise _explain(path, str(error), form) from error
    except _LOADER_ERRORS as error:
        raise broken(path, (str(error) or type(error).__name__).partition("\n")[0]) from error


def _explain(path: Path, message: str, form: ZipForm | LegacyForm) -> UnreadableError:
    """What torch's loader refused: a global, or an instruction that it doesn't know."""
    if named := re.search(r"GLOBAL (\S+)", message):
        strange = {name for name in form.names if not name.startswith(_HARMLESS_MODULES)}
        return _refuses(path, strange or {named[1]})
    reason = re.search(r"WeightsUnpickler error: ([^\n]*)", message)
    return broken(path, reason[1].strip() if reason else message.partition("\n")[0])


def _refuses(path: Path, names: Iterable[str]) -> UnreadableError:
    return unreadable(
        path,
        "the pickle asks for code to be run, and portkit runs none",
        expected="tensors, numbers, texts, lists and dictionaries only",
        found=", ".join(sorted(names)),
        hint="anything else in a pickle can do whatever it likes to this computer; if you trust its source,"
        " load it with torch and save its state dict as safetensors",
    )


def _container(path: Path, form: ZipForm | LegacyForm, tree: object) -> Container:
    from torch import Tensor

    try:
        leaves = gather(tree, Tensor)
    except TreeError as error:
        raise unreadable(path, "the dictionary cannot be laid flat", found=str(error)) from error
    if not leaves.tensors:
        raise unreadable(path, "no tensor is in it", found=f"{len(leaves.others)} other entries")
    _check_tensors(path, leaves.tensors)
    if what := form.disagreement(_storage_sizes(leaves.tensors.values())):
        raise broken(path, what)
    tensors = {name: _lazy(name, tensor, path.name) for name, tensor in leaves.tensors.items()}
    notes = leaves.notes() + ((_LEGACY_NOTE,) if isinstance(form, LegacyForm) else ())
    return Container("pytorch", tensors, {}, notes)


def _check_tensors(path: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    limit = max(path.stat().st_size, _REPEAT_BYTES)
    problems = [
        Problem(f"{path}: {name}", what) for name, tensor in tensors.items() if (what := _objection(tensor, limit))
    ]
    if problems:
        raise UnreadableError("cannot read the checkpoint", problems)


def _objection(tensor: torch.Tensor, limit: int) -> str:
    """Why the tensor cannot become an array, or nothing."""
    import torch

    if tensor.layout != torch.strided:
        return f"sparse ({tensor.layout}): save it dense"
    if tensor.is_quantized:
        return f"quantised ({tensor.dtype}): save it dequantised"
    if tensor.device.type != "cpu":
        return f"holds no data: it was saved from the {tensor.device.type} device"
    if _dtype(tensor) not in _DTYPES:
        return f"stored as {tensor.dtype}, which portkit does not read"
    if (size := tensor.numel() * tensor.element_size()) > limit:
        return f"claims {size} bytes by repeating a storage of {tensor.untyped_storage().nbytes()}"
    return ""


def _storage_sizes(tensors: Iterable[torch.Tensor]) -> list[int]:
    """Bytes of each storage that has any, once, whichever tensors share it."""
    storages = (tensor.untyped_storage() for tensor in tensors)
    return [*{storage.data_ptr(): storage.nbytes() for storage in storages if storage.nbytes()}.values()]


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _lazy(name: str, tensor: torch.Tensor, file: str) -> LazyTensor:
    spec = TensorSpec(name, tuple(tensor.shape), _DTYPES[_dtype(tensor)])
    return LazyTensor(spec, partial(_array, tensor, spec), file=file)


def _array(tensor: torch.Tensor, spec: TensorSpec) -> Array:
    """By way of integers of the same width: torch gives numpy no brain floats and no 8-bit floats."""
    import torch

    widths = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    dense = tensor.detach().resolve_neg().contiguous()
    bits = np.ascontiguousarray(dense.view(widths[dense.element_size()]).numpy())
    array: Array = bits.view(NUMPY_DTYPES[spec.dtype]).reshape(spec.shape)
    return array
