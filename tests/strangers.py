"""A sound model to spoil, and the check that a command ends in words that a terminal can show."""

from __future__ import annotations

import numpy as np
from click.testing import CliRunner
from hf_folders import config_for, facts_for, saved_state, write_hf

from portkit.cli import main

FACTS = facts_for("bert", "model")
LABELLED = facts_for("bert", "sequence_classification")
ONE = np.ones(3, np.float32)


def model(folder, facts=FACTS, extra=None, **config):
    """A sound model, with more tensors or another config."""
    return write_hf(folder, {**saved_state(facts), **(extra or {})}, config_for("bert", facts, **config))


def said(words, codes):
    """What the command prints, after checking that it ended in words and that a terminal can show them."""
    result = CliRunner().invoke(main, [str(word) for word in words], color=True)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code in codes, result.output
    assert [c for c in result.output if not c.isprintable() and c != "\n"] == []
    assert len(result.output) < 40_000
    return result.output
