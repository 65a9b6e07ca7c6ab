from __future__ import annotations

import itertools
import random
import resource
import struct
import sys
from collections import OrderedDict
from contextlib import suppress

import pytest

from portkit.errors import MissingRuntimeError, PortkitError, UnreadableError
from portkit.formats.pytorch import read_pytorch

torch = pytest.importorskip("torch")

from crafted_pickles import Call, Storage, Tensor, floats, legacy_file, put, zip_file  # noqa: E402

pytestmark = pytest.mark.hf
PAIR = Tensor(Storage("0", 2), (2,), (1,))


def test_loops_and_towers_of_references_end(tmp_path):
    loop = {"a": PAIR}
    loop["self"] = loop
    for _ in range(50):  # 2^50 paths
        loop = {"left": loop, "right": loop}
    container = read_pytorch(put(tmp_path, zip_file(loop, {"0": floats(1, 2)})))
    assert [name.count("left") for name in container.tensors] == [50]
    assert "stored twice, so read once only" in container.notes[0]


@pytest.mark.parametrize("make", [lambda tree: zip_file(tree, {}), lambda tree: legacy_file(tree, {})])
@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            Call(exec, "raise SystemExit"),
            r"the pickle asks for code to be run, and portkit runs none(.|\n)*exec(.|\n)*whatever it likes(.|\n)*safetensors",
        ),
        (Call(sys.exit, 3), r"asks for code to be run(.|\n)*sys.exit"),
        (Call(bytearray, 1 << 40), r"asks for code to be run(.|\n)*bytearray"),
        (
            [Call(sys.exit, 3), Call(random.seed, 3)],
            r"found +random.seed, sys.exit|found +\S*Random, sys.exit",
        ),
    ],
)
def test_code_is_never_run(tmp_path, make, call, words):
    with pytest.raises(UnreadableError, match=words):
        read_pytorch(put(tmp_path, make({"a": call})))


LARGE = Tensor(Storage("0", 2**40), (2,), (1,))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (
            legacy_file({"a": LARGE}, {"0": (2, floats(1, 2))}),
            "the pickle is broken(.|\n)*can't allocate|wrong byte size",
        ),
        (legacy_file({"a": LARGE}, {"0": (2**40, floats(1, 2))}), "the pickle is broken"),
        (legacy_file({"a": PAIR}, {}), "1 storages are declared, 0 are stored"),
        (legacy_file({"a": PAIR}, {"0": (2, floats(1))}), "the pickle is broken"),
        (legacy_file({"a": Tensor(Storage("0", -2), (2,), (1,))}, {"0": (-2, b"")}), "the pickle is broken"),
        (zip_file({"a": LARGE}, {"0": floats(1, 2)}), "storages of .* bytes are declared, but not stored"),
        (zip_file({"a": Tensor(Storage("0", 9), (9,), (1,))}, {"0": floats(1)}), r"storages of \[36\] bytes"),
        (zip_file({"a": Tensor(Storage("0", 2), (9,), (1,))}, {"0": floats(1, 2)}), "the pickle is broken"),
        (
            zip_file({"a": Tensor(Storage("7", 2), (2,), (1,))}, {"0": floats(1, 2)}),
            "the pickle is broken(.|\n)*data/7",
        ),
        (
            zip_file({"a": PAIR}, {"0": bytes(9000)}, compression=8),
            "the archive is compressed(.|\n)*save it again",
        ),
        (zip_file({"a": PAIR}, {"0": floats(1, 2)})[:-30], "a damaged or truncated zip archive"),
        (
            zip_file({"a": PAIR}, {"0": floats(1, 2), "x/constants.pkl": b""}),
            "a TorchScript archive: a program, not only weights",
        ),
        (
            zip_file({"a": PAIR}, {"0": floats(1, 2), "x/data.pkl": b"."}),
            "not an archive of torch(.|\n)*one data.pkl(.|\n)*archive/data.pkl, archive/data/x/data.pkl",
        ),
        (
            zip_file({"a": PAIR}, {"0": floats(1, 2)}).replace(b"}q", b"]q", 1),
            "a damaged zip archive(.|\n)*CRC",
        ),
    ],
)
def test_files_that_lie_are_refused(tmp_path, data, words):
    with pytest.raises(UnreadableError, match=words):
        read_pytorch(put(tmp_path, data))


def test_overlapping_records_are_refused(tmp_path):
    data = bytearray(zip_file({"a": PAIR}, {"0": floats(1, 2)}))
    entry = data.index(b"PK\x01\x02")
    entry = data.index(b"PK\x01\x02", data.index(b"archive/data/0", entry))  # the entry after it: version
    struct.pack_into("<II", data, entry + 20, 1 << 30, 1 << 30)
    with pytest.raises(UnreadableError, match="the archive claims more than the file holds"):
        read_pytorch(put(tmp_path, bytes(data)))


def test_a_foreign_file_and_a_missing_torch_are_said(tmp_path, monkeypatch):
    with pytest.raises(UnreadableError, match=r"not a PyTorch pickle(.|\n)*burnpack"):
        read_pytorch(put(tmp_path, b"NRUB\x01\0" + bytes(300)))
    with pytest.raises(UnreadableError, match="a git-lfs pointer"):
        read_pytorch(put(tmp_path, b"version https://git-lfs.github.com/spec/v1\n"))
    path = put(tmp_path, zip_file({"a": PAIR}, {"0": floats(1, 2)}))
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingRuntimeError, match=r"reading a PyTorch pickle needs torch\n.*pip install torch"):
        read_pytorch(path)


def mutants(whole, rng, turns):
    yield from (whole[:length] for length in range(0, len(whole), max(1, len(whole) // 60)))
    for _ in range(turns):
        data = bytearray(whole)
        for _ in range(rng.randint(1, 3)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        yield bytes(data)


@pytest.mark.parametrize("form", ["zip", "legacy"])
def test_mutated_files_are_read_or_refused(tmp_path, form):
    tree = {
        "model": OrderedDict(a=torch.ones(2, 3), b=torch.zeros((), dtype=torch.int64)),
        "step": 3,
        "rate": 0.5,
    }
    torch.save(tree, tmp_path / "whole", _use_new_zipfile_serialization=form == "zip")
    whole = (tmp_path / "whole").read_bytes()
    start = whole.index(b"PK\x01\x02") if form == "zip" else 0
    parts = [whole, whole] if form == "legacy" else [whole[: whole.index(b"data/0")], whole[start:]]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    rng = random.Random(2)
    for part in parts:
        at = whole.index(part)
        for mutant in itertools.islice(mutants(part, rng, 250), 300):
            with suppress(PortkitError):
                path = put(tmp_path, whole[:at] + mutant + whole[at + len(part) :])
                for tensor in read_pytorch(path).tensors.values():
                    tensor.read()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10  # in KiB
