"""What is tied is said by a table's row, whatever it is called."""

from __future__ import annotations

import numpy as np
from hf_folders import assert_same_state, config_for, facts_for, read_state, saved_state, write_hf

import portkit

OTHER_DECODER = """
family  = "mine"
extends = "bert"
without = ["task.pre_training"]

[hf]
model_type = "mine"

[task]
masked_lm.rows = ["backbone", "words"]

[rows.words.words]
linear    = "h -> v"
hf.kernel = { at = "words.weight", tied = "embeddings.word.table" }
hf.bias   = "words.bias"
burn      = "words"
"""


def test_the_row_says_what_is_tied_whatever_its_name(tmp_path):
    facts, table = facts_for("bert", "masked_lm"), tmp_path / "mine.toml"
    table.write_text(OTHER_DECODER, encoding="utf-8")
    state = {n: a for n, a in saved_state(facts).items() if not n.startswith("cls.")}
    state["words.bias"] = np.arange(61, dtype=np.float32)
    folder = write_hf(tmp_path / "hf", state, config_for("bert", facts, model_type="mine"))
    options = {"open_with": {"mappings": (table,)}, "verify": "tensors"}
    portkit.convert(folder, tmp_path / "burn", to="burn", **options)
    back = portkit.convert(tmp_path / "burn", tmp_path / "back", to="hf", **options)
    assert back.plan.tied == {"words.weight": "bert.embeddings.word_embeddings.weight"}
    assert_same_state(read_state(tmp_path / "back"), state)
