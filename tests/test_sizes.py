"""A config that contradicts the stored shapes: each wrong field is named once, and no tensor is blamed for it."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hf_folders import config_for, facts_for, saved_state, small_model, write_hf

import portkit
from portkit.errors import RefusedError

TITLE = "config.json and weights contradict each other"
# embeddings 5, each of 3 layers 12, pooler 2: 43 tensors have a dimension that is hidden_size alone
WRONG = [
    # field                said  found          tensors, such as
    ("vocab_size", 60, "61", 1, "word_embeddings.weight"),
    ("hidden_size", 27, "24", 43, "word_embeddings.weight"),
    ("hidden_size", 25, "24", 43, "word_embeddings.weight"),  # which 3 heads do not divide
    ("intermediate_size", 41, "40", 9, "encoder.layer"),
    ("max_position_embeddings", 36, "37", 1, "position_embeddings.weight"),
    ("type_vocab_size", 3, "2", 1, "token_type_embeddings.weight"),
]  # fmt: skip


def problems_of(folder):
    with pytest.raises(RefusedError, match=TITLE) as caught:
        portkit.inspect(folder)
    return caught.value.problems


def with_config(folder, **changes):
    """The folder, its config.json changed."""
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**config, **changes}), encoding="utf-8")
    return folder


@pytest.fixture(params=["hf", "burn"])
def folder(request, tmp_path):
    """A sound model in each layout."""
    source = small_model(tmp_path / "hf")
    if request.param == "hf":
        return source
    portkit.convert(source, tmp_path / "there", to=request.param, verify="tensors")
    return tmp_path / "there"


@pytest.mark.parametrize(("field", "said", "found", "count", "such"), WRONG)
def test_wrong_field_is_the_only_problem(folder, field, said, found, count, such):
    (problem,) = problems_of(with_config(folder, **{field: said}))
    assert problem.where == f"config.json {field}"
    assert problem.what == f"contradicts the weights: {field} says {said}, the tensors say {found}"
    assert problem.expected == str(said)
    assert problem.found.startswith(f"{found} in {count} tensors, such as ")
    assert such.rpartition(".")[0] in problem.found
    assert problem.hint == f"set {field} to {found}, if these are the right weights"


def test_rows_that_a_dialect_adds_are_no_contradiction(tmp_path):
    source = small_model(tmp_path / "hf", max_position_embeddings=600)
    portkit.convert(source, tmp_path / "there", to="burn", dialect="bert-burn", verify="tensors")
    there = with_config(tmp_path / "there", portkit={"dialect": "bert-burn", "max_position_embeddings": 700})
    (problem,) = problems_of(there)
    assert problem.what.endswith("max_position_embeddings says 700, the tensors say 600")


def test_number_of_layers_is_counted(folder):
    (problem,) = problems_of(with_config(folder, num_hidden_layers=4))
    assert problem.where == "config.json num_hidden_layers"
    assert problem.what == "contradicts the weights: num_hidden_layers says 4, the tensors say 3"
    assert (problem.expected, problem.found) == ("4", "3 layers")


def test_heads_that_do_not_divide_are_the_only_problem(folder):
    (problem,) = problems_of(with_config(folder, num_attention_heads=5))
    assert problem.where == "config.json hidden_size / num_attention_heads"
    assert (problem.expected, problem.found) == ("a division without remainder", "24 / 5")
    assert problem.hint == "num_attention_heads must divide hidden_size"


def test_heads_are_judged_by_the_size_that_the_tensors_say(folder):
    problems = problems_of(with_config(folder, hidden_size=25, num_attention_heads=5))
    assert [(p.where, p.found.partition(" in ")[0]) for p in problems] == [
        ("config.json hidden_size", "24"),
        ("config.json hidden_size / num_attention_heads", "24 / 5"),
    ]


def test_all_wrong_fields_come_at_once_and_nothing_else(folder):
    wrong = {"vocab_size": 60, "hidden_size": 27, "num_hidden_layers": 4, "intermediate_size": 41, "type_vocab_size": 5}
    problems = problems_of(with_config(folder, **wrong))
    assert [p.where for p in problems] == sorted(f"config.json {field}" for field in wrong)


def test_field_is_called_as_the_layout_calls_it(tmp_path):
    table = tmp_path / "mine.toml"
    table.write_text(
        'family = "mine"\nextends = "bert"\nhf.model_type = "mine"\nconfig.hidden_size.hf = "width"', encoding="utf-8"
    )
    source = with_config(small_model(tmp_path / "hf"), width=27, model_type="mine", architectures=None)
    words = "config.json width: contradicts the weights: width says 27, the tensors say 24"
    with pytest.raises(RefusedError, match=words):
        portkit.inspect(source, mappings=(table,))


def test_one_odd_tensor_is_at_fault_itself(tmp_path):
    facts = facts_for("bert", "model")
    name = "encoder.layer.1.intermediate.dense.bias"
    state = saved_state(facts) | {name: np.ones(30, np.float32)}
    (problem,) = problems_of(write_hf(tmp_path / "hf", state, config_for("bert", facts)))
    assert problem.where == name
    assert problem.what == 'shape does not fit mappings/bert.toml [rows.backbone."layer.{i}.mlp.up"]'
    assert (problem.expected, problem.found) == ("(40,)", "(30,)")


def test_odd_tensor_beside_a_wrong_field(tmp_path):
    facts = facts_for("bert", "model")
    name = "encoder.layer.1.attention.self.query.bias"
    state = saved_state(facts) | {name: np.ones(27, np.float32)}
    problems = problems_of(write_hf(tmp_path / "hf", state, config_for("bert", facts, hidden_size=27)))
    assert [(p.where, p.expected, p.found.partition(" in ")[0]) for p in problems] == [
        ("config.json hidden_size", "27", "24"),
        (name, "(24,)", "(27,)"),
    ]


def test_turned_matrices_do_not_make_the_config_wrong(tmp_path):
    facts = facts_for("bert", "model")
    turned = {n: np.ascontiguousarray(a.T) for n, a in saved_state(facts).items() if "encoder" in n and a.ndim == 2}
    source = write_hf(tmp_path / "hf", saved_state(facts) | turned, config_for("bert", facts))
    problems = problems_of(source)
    assert {p.where for p in problems} == {n for n in turned if turned[n].shape[0] != turned[n].shape[1]}
    assert all("transposed: " in p.hint for p in problems)


@pytest.mark.parametrize("family", ["bert", "roberta"])
@pytest.mark.parametrize("task", ["masked_lm", "sequence_classification", "question_answering"])
def test_heads_of_models_follow_the_wrong_field(family, task, tmp_path):
    (problem,) = problems_of(with_config(small_model(tmp_path / "hf", family, task), hidden_size=27))
    assert problem.where == "config.json hidden_size"
