"""A cast is certified by the tensor proof; that it rounds is said, and what it would make infinite is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hf_folders import config_for, facts_for, saved_state, write_hf
from refusal import changed, refused

import portkit
from portkit.errors import RefusedError


@pytest.mark.hf
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_target_is_proved_against_the_rounded_source(dtype, tmp_path):
    facts = facts_for("bert", "masked_lm")
    source = write_hf(tmp_path / "hf", saved_state(facts), config_for("bert", facts))
    result = portkit.convert(source, tmp_path / "burn", to="burn", dtype=dtype)
    assert sum(result.tensors.casts.values()) == result.tensors.compared > 0
    assert result.forward.agrees


def warnings_of_a_cast(tmp_path, stored, dtype):
    facts = facts_for("bert", "model")
    source = write_hf(tmp_path / "hf", saved_state(facts, dtype=stored), config_for("bert", facts))
    result = portkit.convert(source, tmp_path / "out", to="burn", dtype=dtype, verify="tensors")
    assert result.record()["warnings"] == list(result.warnings)
    return result.warnings


@pytest.mark.parametrize(
    ("stored", "dtype", "said"),
    [
        (np.float64, None, "55 tensors are cast from float64 to float32, which rounds their numbers"),
        (np.float32, "float16", "55 tensors are cast from float32 to float16, which rounds their numbers"),
        (np.float32, "bfloat16", "55 tensors are cast from float32 to bfloat16, which rounds their numbers"),
        (np.float16, "bfloat16", "55 tensors are cast from float16 to bfloat16, which rounds their numbers"),
    ],
)
def test_rounding_is_a_warning(stored, dtype, said, tmp_path):
    assert warnings_of_a_cast(tmp_path, stored, dtype) == (said,)


@pytest.mark.parametrize(
    ("stored", "dtype"), [(np.float32, None), (np.float16, None), (np.float32, "float64"), (np.float16, "float16")]
)
def test_exact_casts_are_not(stored, dtype, tmp_path):
    assert warnings_of_a_cast(tmp_path, stored, dtype) == ()


def test_each_kind_of_cast_has_its_count(tmp_path):
    wide = {name: np.linspace(0, 1, 24) for name in ("pooler.dense.bias", "embeddings.LayerNorm.bias")}
    source = changed(tmp_path, wide)
    warnings = portkit.convert(source, tmp_path / "out", to="hf", dtype="float16", dry_run=True).warnings
    assert [w.partition(",")[0] for w in warnings] == [
        "53 tensors are cast from float32 to float16",
        "2 tensors are cast from float64 to float16",
    ]


def test_numbers_that_become_infinite_are_all_named(tmp_path):
    big, low = np.full(24, 0.5, np.float32), np.full((24, 24), 0.5, np.float32)
    big[3], low[2, 2] = 70_000, -65_520  # the smallest that rounds to infinity
    source = changed(tmp_path, {"pooler.dense.bias": big, "pooler.dense.weight": low})
    words = (
        "a cast would make numbers infinite (2 problems)",
        "pooler.dense.bias: holds numbers that float16 cannot",
        "found    70000",
        "pooler.dense.weight: holds numbers that float16 cannot",
        "found    -65520",
        "bfloat16 and float32 reach 3e38",
    )
    refused(RefusedError, *words, source=source, tmp_path=tmp_path, dtype="float16")


def test_the_largest_number_that_fits_passes(tmp_path):
    source = changed(tmp_path, {"pooler.dense.bias": np.full(24, 65_519, np.float32)})
    assert portkit.convert(source, tmp_path / "out", to="burn", dtype="float16", verify="tensors").proved


def test_double_beyond_single_is_refused_and_infinity_itself_is_not(tmp_path):
    huge = np.full(24, 0.25)
    huge[0], huge[1] = 1e39, np.inf
    source = changed(tmp_path, {"pooler.dense.bias": huge})
    words = ("pooler.dense.bias: holds numbers that float32 cannot", "found    1e+39", "--dtype float64 keeps them")
    refused(RefusedError, *words, source=source, tmp_path=tmp_path)
    result = portkit.convert(source, tmp_path / "wide", to="burn", dtype="float64", verify="tensors")
    assert "pooler.dense.bias holds NaN or infinity" in result.warnings


@pytest.mark.hf
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_target_of_a_framework_that_reads_folders_only_is_proved_too(dtype, tmp_path):
    """Burn runs the folder as it lies there, so the reference runs the rounded source in its place, and says so."""
    facts = facts_for("roberta", "sequence_classification")
    source = write_hf(tmp_path / "hf", saved_state(facts), config_for("roberta", facts))
    portkit.convert(source, tmp_path / "burn", to="burn", verify="none")
    result = portkit.convert(tmp_path / "burn", tmp_path / "back", to="hf", dtype=dtype)
    assert result.proved
    assert result.forward.source.runtime == "reference, not Burn"
