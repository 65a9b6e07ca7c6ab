"""Folders of every dialect compute the same function in Burn, in every format."""

from __future__ import annotations

import pytest
from hf_folders import small_model

import portkit
from portkit.runtimes.burn_runtime import burn_available

pytestmark = [pytest.mark.burn, pytest.mark.hf]

CASES = [
    ("bert-burn", "bert", "model", {}),
    ("bert-burn", "bert", "model", {"max_position_embeddings": 520}),
    ("bert-burn", "roberta", "masked_lm", {"max_position_embeddings": 512}),
    ("no-pooler", "bert", "model", {}),
    ("linear-pooler", "bert", "model", {}),
    ("linear-pooler", "bert", "sequence_classification", {}),
]


def prove(tmp_path, dialect, family, task, changes, form):
    source = small_model(tmp_path / "hf", family, task, **changes)
    return portkit.convert(source, tmp_path / "burn", to="burn", dialect=dialect, form=form).forward


@pytest.mark.parametrize("form", ["bpk", "safetensors", "mpk"])
@pytest.mark.parametrize(("dialect", "family", "task", "changes"), CASES)
def test_dialect_agrees(tmp_path, dialect, family, task, changes, form):
    proof = prove(tmp_path, dialect, family, task, changes, form)
    assert proof.agrees
    no_module = form == "mpk" and dialect == "linear-pooler"
    runs = burn_available(legacy=form == "mpk") and not no_module
    assert proof.target.runtime == ("Burn" if runs else "reference, not Burn")
