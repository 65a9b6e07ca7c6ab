"""What a torch file says of itself before it is loaded, and whether what was loaded agrees with it.

torch's weights-only loader runs no code of the file, but it believes sizes. It allocates what a legacy pickle
declares and leaves it uninitialised when the data is missing; of a mapped zip archive it also gives what lies
behind a record.
"""

from __future__ import annotations

import mmap
import pickletools
import warnings
import zipfile
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from portkit.errors import UnreadableError, unreadable
from portkit.formats.source import system_errors

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_LEGACY_PICKLES = 5  # torch's number, its version, the machine, the object, the keys of the storages
_SIZE_BYTES = 8  # before the data of each storage of a legacy file
_NAMING_OPS = ("GLOBAL", "INST")
_TEXT_OPS = ("BINUNICODE", "SHORT_BINUNICODE", "UNICODE", "SHORT_BINSTRING", "BINSTRING")
_BROKEN_PICKLE = (ValueError, IndexError, KeyError, OverflowError, EOFError, AttributeError)
_BROKEN_ZIP = (zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError, EOFError, OSError)


@dataclass(frozen=True)
class ZipForm:
    """The archive that torch.save has written since 1.6. `records` counts the sizes of its storages."""

    names: frozenset[str]
    records: Counter[int]

    def disagreement(self, storages: Sequence[int]) -> str:
        """What is wrong with loaded storages of these sizes, or nothing. Each must be a whole record."""
        lacking = Counter(storages) - self.records
        return f"storages of {sorted(lacking.elements())[:4]} bytes are declared, but not stored" if lacking else ""


@dataclass(frozen=True)
class LegacyForm:
    """Pickles, one after the other, then the storages: `keys` of them, in `room` bytes."""

    names: frozenset[str]
    keys: int
    room: int

    def disagreement(self, storages: Sequence[int]) -> str:
        """What is wrong with loaded storages of these sizes, or nothing. Each must have been in the file."""
        if len(storages) > self.keys:
            return f"{len(storages)} storages are declared, {self.keys} are stored"
        needed = sum(storages) + _SIZE_BYTES * len(storages)
        return f"storages of {needed} bytes are declared, {self.room} are stored" if needed > self.room else ""


def examine(path: Path) -> ZipForm | LegacyForm:
    """Read the instructions of a torch file without following them. `names` are all globals that it asks for.

    Raises UnreadableError when the file is broken, when it is TorchScript, or when its archive is compressed.
    """
    with system_errors(path), path.open("rb") as file:
        is_zip = file.read(2) == b"PK"
        return _examine_zip(path) if is_zip else _examine_legacy(path, file)


def _examine_zip(path: Path) -> ZipForm:
    try:
        with zipfile.ZipFile(path) as archive:
            records = archive.infolist()
            _check_records(path, records)
            with archive.open(_the_pickle(path, records)) as stream:
                names, _ = _scan(path, stream)
    except _BROKEN_ZIP as error:
        hint = "was it copied or downloaded to the end?"
        raise unreadable(path, "a damaged zip archive", found=str(error), hint=hint) from error
    return ZipForm(names, Counter(record.file_size for record in records if "/data/" in record.filename))


def _check_records(path: Path, records: Sequence[zipfile.ZipInfo]) -> None:
    if any(record.filename.endswith("/constants.pkl") for record in records):
        hint = "save the state dict of the model with torch.save or safetensors"
        raise unreadable(path, "a TorchScript archive: a program, not only weights", hint=hint)
    if packed := [record.filename for record in records if _is_packed(record)]:
        hint = "torch stores records as they are: load the file with torch and save it again"
        raise unreadable(path, "the archive is compressed", found=", ".join(packed[:4]), hint=hint)
    if (total := sum(record.file_size for record in records)) > path.stat().st_size:
        found = f"{total} bytes of records in a file of {path.stat().st_size}"
        raise unreadable(path, "the archive claims more than the file holds", found=found)


def _is_packed(record: zipfile.ZipInfo) -> bool:
    return record.compress_type != zipfile.ZIP_STORED or record.compress_size != record.file_size


def _the_pickle(path: Path, records: Sequence[zipfile.ZipInfo]) -> zipfile.ZipInfo:
    pickles = [record for record in records if record.filename.endswith("/data.pkl")]
    if len(pickles) != 1:
        found = ", ".join(record.filename for record in pickles[:4]) or "none"
        raise unreadable(path, "not an archive of torch", expected="one data.pkl", found=found)
    return pickles[0]


def _examine_legacy(path: Path, file: BinaryIO) -> LegacyForm:
    names: frozenset[str] = frozenset()
    keys = 0
    # mapped, since a file object allocates what a broken pickle wants to read, and a map gives what there is
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as stream:
        for _ in range(_LEGACY_PICKLES):
            more, keys = _scan(path, stream)
            names |= more
        return LegacyForm(names, keys, len(stream) - stream.tell())


def _scan(path: Path, stream: object) -> tuple[frozenset[str], int]:
    """The globals that one pickle names, and how many different texts are in it."""
    names: set[str] = set()
    texts: set[object] = set()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python's: on odd escapes in names
            for op, value, _ in pickletools.genops(stream):  # type: ignore[arg-type]
                if op.name in _NAMING_OPS:
                    names.add(str(value).replace(" ", "."))
                elif op.name in _TEXT_OPS:
                    texts.add(value)
    except _BROKEN_PICKLE as error:
        raise broken(path, str(error)) from error
    return frozenset(names), len(texts)


def broken(path: Path, found: str) -> UnreadableError:
    """The error of a pickle whose instructions make no sense."""
    return unreadable(path, "the pickle is broken", found=found, hint="was it copied or downloaded to the end?")
