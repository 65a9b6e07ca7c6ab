"""What a file is, by its first bytes: names lie, and a web page may be called model.bin."""

from __future__ import annotations

import zipfile
import zlib
from typing import TYPE_CHECKING

from portkit.errors import UnreadableError, unreadable
from portkit.formats.source import GZIP_MAGIC, check_regular, system_errors

if TYPE_CHECKING:
    from pathlib import Path

HEAD_BYTES = 512
HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
ZIP_MAGIC = b"PK\x03\x04"
LEGACY_TORCH = bytes.fromhex("8a0a6cfc9c46f9206aa850192e")  # torch's number, as pickle protocol 2 and 3 write it
_READABLE = "safetensors, a PyTorch pickle, Burnpack, NamedMpk, HDF5 or a .keras archive"
_AGAIN = "download the file again: this is what a server sent instead of it"
_BURN_RECORD_KEYS = (b"\xa8metadata", b"\xa4item", b"\xa2_b")
_FOREIGN = (  # first bytes, what they are, what to do
    (
        b"version https://git-lfs",
        "a git-lfs pointer, not the file it stands for",
        "fetch the file with: git lfs pull",
    ),
    (b"<", "a web page or XML", _AGAIN),
    (b"GGUF", "a GGUF file", ""),
    (b"\x93NUMPY", "a NumPy array", ""),
    (b"PK\x05\x06", "an empty zip archive", ""),
    (b"\x28\xb5\x2f\xfd", "zstd-compressed", "unpack it first"),
    (b"BZh", "bzip2-compressed", "unpack it first"),
    (b"\xfd7zXZ", "xz-compressed", "unpack it first"),
    (b"\x80\x02", "a Python pickle that torch.save did not write", ""),
    (b"\x80\x03", "a Python pickle that torch.save did not write", ""),
    (b"\x80\x04", "a Python pickle that torch.save did not write", ""),
    (b"\x80\x05", "a Python pickle that torch.save did not write", ""),
    (bytes(8), "zeros where a header should be", "a download that never finished? get the file again"),
)


def identify(path: Path) -> str:
    """Who reads this file, by its first bytes: "safetensors", "pytorch", "burnpack", "named_mpk", "hdf5" or "keras".

    Raises UnreadableError, which names what the file is instead, when none of them does.
    """
    check_regular(path)
    with system_errors(path), path.open("rb") as file:
        head = file.read(HEAD_BYTES)
    if not head:
        raise unreadable(path, "the file is empty", expected=_READABLE)
    if head.startswith(b"NRUB"):
        return "burnpack"
    if head.startswith(HDF5_MAGIC):
        return "hdf5"
    if head[8:9] == b"{" and head[6:8] == b"\0\0":  # a length below 2^48, then the header's first character
        return "safetensors"
    if head[:1] == b"\x80" and head[2:].startswith(LEGACY_TORCH):
        return "pytorch"
    if head.startswith(ZIP_MAGIC):
        return _identify_zip(path)
    return _identify_record(path, head)


def _identify_zip(path: Path) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OSError) as error:
        hint = "was it copied or downloaded to the end?"
        raise unreadable(path, "a damaged or truncated zip archive", found=str(error), hint=hint) from error
    if any(name.endswith("/data.pkl") for name in names):
        return "pytorch"
    if "model.weights.h5" in names and "config.json" in names:
        return "keras"
    found = ", ".join(names[:4]) + (", …" if len(names) > 4 else "")
    raise unreadable(path, "a zip archive, but none of torch or Keras", expected="a data.pkl in it", found=found)


def _identify_record(path: Path, head: bytes) -> str:
    """Burn's records are MessagePack maps, gzipped or not."""
    if head.startswith(GZIP_MAGIC):
        inner = _gunzip_start(head)
        if not _is_burn_record(inner):
            raise _foreign(path, "a gzip stream that holds no Burn record", "unpack it first")
        return "named_mpk"
    if _is_burn_record(head):
        return "named_mpk"
    raise _name_it(path, head)


def _gunzip_start(head: bytes) -> bytes:
    try:
        return zlib.decompressobj(wbits=31).decompress(head, HEAD_BYTES)
    except zlib.error:
        return b""


def _is_burn_record(head: bytes) -> bool:
    is_map = 0x80 <= head[0] <= 0x8F or head[0] in (0xDE, 0xDF) if head else False
    key = head[{0xDE: 3, 0xDF: 5}.get(head[0], 1) :] if is_map else b""
    return key.startswith(_BURN_RECORD_KEYS)


def _name_it(path: Path, head: bytes) -> UnreadableError:
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n")
    for magic, what, hint in _FOREIGN:
        if head.startswith(magic) or (magic == b"<" and text.startswith(magic)):
            return _foreign(path, what, hint)
    if head[257:262] == b"ustar":
        return _foreign(path, "a tar archive", "if torch before 0.2 wrote it, load it with torch and save it again")
    if text[:1] in (b"{", b"["):
        return _foreign(path, "a JSON file", "the index of a sharded checkpoint is called *.index.json")
    if 0x81 <= head[0] <= 0x8F or head[0] in (0xDE, 0xDF):
        return _foreign(path, "a MessagePack map, but no Burn record", "a Flax checkpoint is saved like this")
    return _foreign(path, f"of no known kind; it begins with {head[:16]!r}", "")


def _foreign(path: Path, what: str, hint: str) -> UnreadableError:
    return unreadable(path, "not a weight file that portkit reads", expected=_READABLE, found=what, hint=hint)
