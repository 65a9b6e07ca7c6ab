"""Unsound checkpoints, and the check that converting one is refused in words and leaves nothing."""

from __future__ import annotations

import re

import pytest
from hf_folders import config_for, facts_for, saved_state, write_hf

import portkit


def refused(kind, *words, source, tmp_path, **options):
    """Converting raises `kind`, says all of `words`, and leaves nothing behind."""
    options = {"to": "burn", "verify": "tensors", **options}
    with pytest.raises(kind, match=re.escape(words[0])) as caught:
        portkit.convert(source, tmp_path / "out", **options)
    for word in words:
        assert word in str(caught.value)
    assert not (tmp_path / "out").exists()
    return caught.value


def changed(tmp_path, state, family="bert", task="model", config=None):
    """A folder whose stored tensors and config differ from a sound model's."""
    facts = facts_for(family, task)
    return write_hf(tmp_path / "hf", {**saved_state(facts), **state}, config_for(family, facts, **(config or {})))


def without(tmp_path, gone, family="bert", task="model", config=None):
    facts = facts_for(family, task)
    state = {name: array for name, array in saved_state(facts).items() if not gone(name)}
    return write_hf(tmp_path / "hf", state, config_for(family, facts, **(config or {})))
