"""The way back from dotted names to the nested maps and arrays of a record."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from portkit.formats.burn_dtypes import spell_dtype
from portkit.formats.write import mismatch
from portkit.tensors import TensorSpec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import msgpack  # type: ignore[import-untyped]

    from portkit.errors import PortkitError

MAX_BIN = (1 << 32) - 1  # MessagePack knows no longer ones


@dataclass(frozen=True)
class Constant:
    """A value that is no tensor."""

    value: object


Tree: TypeAlias = TensorSpec | Constant | dict[str, "Tree"]
Piece: TypeAlias = bytes | TensorSpec  # bytes as they are, or the place of a tensor's bytes


def build_tree(specs: Sequence[TensorSpec], constants: Mapping[str, object], order: Sequence[str]) -> dict[str, Tree]:
    """Nested maps in the given order of paths; what `order` does not name follows, tensors before constants.

    Raises PortkitError when one path is the beginning of another, has an empty part, or stands for two
    things.
    """
    found: dict[str, Tree] = {spec.name: spec for spec in specs}
    for path, value in constants.items():
        if path in found:
            raise mismatch(path, "a constant has the name of a tensor")
        found[path] = Constant(value)
    tree: dict[str, Tree] = {}
    for path in dict.fromkeys([*(path for path in order if path in found), *found]):
        _insert(tree, path, found[path])
    return tree


def _insert(tree: dict[str, Tree], path: str, leaf: Tree) -> None:
    *parents, last = path.split(".")
    for part in parents:
        child = tree.setdefault(part, {})
        if not isinstance(child, dict):
            raise _clash(path)
        tree = child
    if last in tree:
        raise _clash(path)
    if not all((*parents, last)):
        raise mismatch(path, "a part of the name is empty")
    tree[last] = leaf


def _clash(path: str) -> PortkitError:
    return mismatch(path, "one name is the beginning of another", expected="names that are leaves of one tree")


def pieces(tree: Tree, ids: Mapping[str, str], packer: msgpack.Packer, path: str = "") -> Iterator[Piece]:
    """The MessagePack of the tree, payloads left open. Maps whose keys are 0, 1, … become arrays."""
    if isinstance(tree, Constant):
        yield packer.pack(tree.value)
    elif isinstance(tree, TensorSpec):
        yield from _parameter(tree, ids[tree.name], packer)
    else:
        numbered = _is_numbered(tree, path)
        yield packer.pack_array_header(len(tree)) if numbered else packer.pack_map_header(len(tree))
        for key in sorted(tree, key=int) if numbered else tree:
            if not numbered:
                yield packer.pack(key)
            yield from pieces(tree[key], ids, packer, f"{path}.{key}" if path else key)


def _is_numbered(tree: Mapping[str, Tree], path: str) -> bool:
    numbers = {key for key in tree if re.fullmatch("[0-9]+", key)}
    if not numbers:
        return False
    if set(tree) != {str(index) for index in range(len(tree))}:
        expected = f"0 to {len(tree) - 1}, each once"
        raise mismatch(path, "the numbers of a vector have a hole", expected=expected, found=", ".join(tree)[:80])
    return True


def _parameter(spec: TensorSpec, identity: str, packer: msgpack.Packer) -> Iterator[Piece]:
    if spec.nbytes > MAX_BIN:
        raise mismatch(spec.name, "too large for MessagePack", expected=f"{MAX_BIN} bytes", found=str(spec.nbytes))
    fields = [packer.pack_map_header(2), packer.pack("id"), packer.pack(identity), packer.pack("param")]
    yield b"".join([*fields, packer.pack_map_header(3), packer.pack("bytes"), _bin_header(spec.nbytes)])
    yield spec
    shape = [packer.pack("shape"), packer.pack(list(spec.shape))]
    yield b"".join([*shape, packer.pack("dtype"), packer.pack(spell_dtype(spec))])


def _bin_header(size: int) -> bytes:
    code, width = next((c, w) for c, w in ((0xC4, 1), (0xC5, 2), (0xC6, 4)) if size < 1 << 8 * w)
    return bytes([code]) + size.to_bytes(width, "big")
