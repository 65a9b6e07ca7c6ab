"""What an HDF5 file may hold before anything of it is read: plain datasets, reached by hard links, of honest size.

HDF5 can point into other files (external and virtual datasets, external links), by name into itself (soft links), in
circles (hard links), and can declare petabytes that it does not store. Keras refuses most of this too. Where texts are
damaged, the library itself never comes back.
"""

from __future__ import annotations

import mmap
import re
from math import prod
from typing import TYPE_CHECKING, Any

from portkit.errors import Problem, UnreadableError, unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAX_DEPTH = 32
MAX_OBJECTS = 1 << 20
FREE_BYTES = 64 << 20
MAX_RATIO = 1032  # what deflate can do at most
_FILTERS = {1: "deflate", 2: "shuffle", 3: "fletcher32", 4: "szip", 5: "nbit", 6: "scaleoffset", 32000: "lzf"}


def walk(path: Path, file: Any) -> dict[str, Any]:  # noqa: ANN401 - h5py has no types
    """Every dataset of an open file by its path.

    Raises UnreadableError listing every soft or external link, every circle, and every dataset that lies about itself.
    """
    problems: list[Problem] = []
    datasets = dict(_below(path, file, "", set(), problems))
    problems += [p for name, d in datasets.items() for p in _lies(f"{path}: {name}", d)]
    if problems:
        raise UnreadableError("cannot read the checkpoint", problems)
    return datasets


def check_heaps(path: Path, file: Any) -> None:  # noqa: ANN401
    """Every collection of texts is whole, wherever it lies. Raises UnreadableError where one is not.

    A collection is `GCOL`, a version, its size and objects; an object is an index, a count, its size and its bytes,
    filled to 8. Index 0 is free space, its size that of all of it (HDF5 file format, section III.E). The library walks
    from object to object, and a free one of size 0 holds it for ever.
    """
    if (sizes := file.id.get_create_plist().get_sizes()) != (8, 8):
        raise unreadable(path, "the HDF5 file has numbers of another width", expected="(8, 8) bytes", found=f"{sizes}")
    budget = MAX_OBJECTS
    with path.open("rb") as raw, mmap.mmap(raw.fileno(), 0, access=mmap.ACCESS_READ) as view:
        for heap in re.finditer(rb"GCOL\x01", view):
            budget = _after_heap(view, heap.start(), budget)
            if budget < 0:
                raise unreadable(path, "the HDF5 file is broken", found=f"a damaged heap at byte {heap.start()}")


def _after_heap(view: mmap.mmap, start: int, budget: int) -> int:
    """What is left of the number of objects that may be looked at; negative when the heap is damaged."""
    at, end = start + 16, start + int.from_bytes(view[start + 8 : start + 16], "little")
    while budget >= 0 and end <= len(view) and end - at >= 16:
        free, size = view[at : at + 2] == b"\0\0", int.from_bytes(view[at + 8 : at + 16], "little")
        step = size if free else 16 + -(-size // 8) * 8
        budget = budget - 1 if 16 <= step <= end - at else -1
        at += step
    return budget if at <= end <= len(view) else -1


def _below(
    path: Path,
    group: Any,  # noqa: ANN401
    at: str,
    seen: set[int],
    problems: list[Problem],
) -> Iterator[tuple[str, Any]]:
    import h5py

    address = h5py.h5o.get_info(group.id).addr
    if address in seen or at.count("/") > MAX_DEPTH or len(seen) > MAX_OBJECTS:
        problems.append(Problem(f"{path}: {at}", "groups that lead back to themselves, or without end"))
        return
    seen.add(address)
    for name in group:
        full = f"{at}/{name}" if at else name
        if isinstance(name, bytes) or not name.isprintable():  # bytes: what h5py cannot decode
            problems.append(Problem(f"{path}: {full!r}", "a name that cannot be printed"))
            continue
        link = group.get(name, getlink=True)
        if not isinstance(link, h5py.HardLink):
            kind = type(link).__name__
            problems.append(Problem(f"{path}: {full}", "points elsewhere", "the data itself", kind, "never followed"))
            continue
        child = group[name]
        if isinstance(child, h5py.Group):
            yield from _below(path, child, full, seen, problems)
        elif isinstance(child, h5py.Dataset):
            yield full, child


def _lies(where: str, dataset: Any) -> Iterator[Problem]:  # noqa: ANN401
    if dataset.is_virtual or dataset.external:
        yield Problem(where, "its numbers lie in another file", "the data itself", hint="never followed")
        return
    creation = dataset.id.get_create_plist()
    filters = [creation.get_filter(i)[0] for i in range(creation.get_nfilters())]
    yield from (Problem(where, f"an unknown HDF5 filter, number {f}") for f in filters if f not in _FILTERS)
    declared, stored = dataset.nbytes, dataset.id.get_storage_size()
    chunks = prod(-(-n // c) for n, c in zip(dataset.shape, dataset.chunks, strict=True)) if dataset.chunks else 0
    if declared > 0 and stored == 0:
        yield Problem(where, "declared and never written", f"{declared} bytes", "none")
    elif chunks and dataset.id.get_num_chunks() < chunks:
        yield Problem(where, "not wholly written", f"{chunks} chunks", f"{dataset.id.get_num_chunks()}")
    elif declared > FREE_BYTES and declared > stored * MAX_RATIO:
        yield Problem(where, "declares far more than it stores", f"at most {stored * MAX_RATIO} bytes", f"{declared}")
