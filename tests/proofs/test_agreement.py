from __future__ import annotations

import json
import math

import numpy as np
import pytest

from portkit.errors import Problem
from portkit.proofs.agreement import ForwardVerdict, Run, compare_outputs, describe
from portkit.proofs.coverage import Coverage

VALID = np.array([[True, True, True], [True, False, False]])
COVERAGE = Coverage((9, 10), (3, 3), (1, 1), (3, 1), 0)


def outputs(offset=0.0, layers=2):
    """Everything is 3, plus `offset` times 1, -1, 1, …: its rms is exactly the offset."""
    sign = np.resize([1.0, -1.0], (2, 3, 4))
    hidden = {f"hidden_states.{i}": 3 + offset * sign for i in range(layers)}
    return {**hidden, "pooled_output": 3 + offset * sign[:, 0]}


def verdict(exact, source, target, **options):
    dropped = tuple(options.get("dropped", ()))
    agreements, problems = compare_outputs(exact, source, target, VALID, **options)
    return ForwardVerdict(
        agreements,
        problems,
        COVERAGE,
        Run("transformers"),
        Run("Burn"),
        "numpy float64",
        dropped,
    )


def test_within_eight_times_the_noise():
    result = verdict(outputs(), outputs(1e-3), outputs(-7.9e-3))
    assert result.agrees
    assert result.first_divergence is None
    assert result.compared == 2 * 4 * 4 + 2 * 4
    first = result.agreements[0]
    assert first.output == "hidden_states.0"
    np.testing.assert_allclose(
        [first.noise, first.difference, first.limit, first.ratio, first.max_abs],
        [1e-3, 7.9e-3, 8e-3, 7.9, 8.9e-3],
    )
    assert str(result).startswith("compared 40 values of 3 outputs: agree, at most 7.90 times the noise (")


def test_beyond_it_the_first_output_is_named():
    target = outputs(1e-3)
    target["hidden_states.1"] = outputs(1e-1)["hidden_states.1"]
    result = verdict(outputs(), outputs(1e-3), target)
    assert not result.agrees
    assert result.first_divergence == "hidden_states.1"
    assert str(result) == (
        "compared 40 values of 3 outputs: parts at hidden_states.1, the output of layer 0: 100 times the noise, limit 8"
    )


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ("hidden_states.0", "the output of the embeddings"),
        ("hidden_states.3", "the output of layer 2"),
        ("pooled_output", "the output of the pooler"),
        ("logits", "the output of the head"),
    ],
)
def test_outputs_are_described(output, words):
    assert describe(output) == words


def test_padding_is_not_looked_at():
    target = outputs(1e-3)
    target["hidden_states.0"][~VALID] = np.nan
    assert verdict(outputs(), outputs(1e-3), target).agrees


def test_source_that_is_exact_by_luck_allows_rounding_but_no_more():
    saturated = {"pooled_output": np.ones((2, 4))}
    neighbour = {"pooled_output": np.full((2, 4), 1 - 2.0**-24)}
    further = {"pooled_output": np.full((2, 4), 1 - 2.0**-21)}
    assert verdict(saturated, saturated, neighbour).agrees
    assert not verdict(saturated, saturated, further).agrees
    assert verdict(saturated, saturated, further, dtype="float16").agrees


def test_zeros_must_stay_exactly_zero():
    zero = {"pooled_output": np.zeros((2, 4))}
    tiny = {"pooled_output": np.full((2, 4), 1e-30)}
    result = verdict(zero, zero, zero)
    assert result.agrees
    assert result.agreements[0].ratio == 0
    result = verdict(zero, zero, tiny)
    assert not result.agrees
    assert math.isinf(result.agreements[0].ratio)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("side", ["reference", "source", "target"])
def test_values_that_are_not_finite_fail(side, value):
    sides = {"reference": outputs(), "source": outputs(1e-3), "target": outputs(1e-3)}
    sides[side]["hidden_states.1"][0, 1, :2] = value
    result = verdict(*sides.values())
    assert not result.agrees
    assert result.first_divergence == "hidden_states.1"
    assert result.problems == (Problem("hidden_states.1", f"the {side} gives 2 values that are not finite"),)


def test_outputs_that_are_missing_extra_or_of_another_shape_fail():
    source, target = outputs(1e-3), outputs(1e-3)
    del target["pooled_output"]
    target["logits"] = np.zeros((2, 5))
    source["hidden_states.1"] = source["hidden_states.1"][:, :2]
    result = verdict(outputs(), source, target)
    assert not result.agrees
    what = "the {} gives another output"
    assert result.problems == (
        Problem("hidden_states.1", what.format("source"), "(2, 3, 4)", "(2, 2, 4)"),
        Problem("logits", what.format("target"), "no such output: the reference has none", "(2, 5)"),
        Problem("pooled_output", what.format("target"), "(2, 4)", "no such output"),
    )
    assert [item.output for item in result.agreements] == ["hidden_states.0"]


def test_noise_of_another_run_than_the_sources_can_be_the_measure():
    sides = outputs(), outputs(1e-1), outputs(2e-3)
    assert verdict(*sides).agrees
    result = verdict(*sides, measure=outputs(1e-4))
    assert not result.agrees
    np.testing.assert_allclose([result.agreements[0].noise, result.agreements[0].ratio], [1e-4, 20])


def test_run_says_what_ran_in_which_dtype_and_where():
    assert str(Run("transformers", "bfloat16", "cuda: H200, no TF32")) == "transformers (bfloat16, cuda: H200, no TF32)"


def test_dropped_outputs_are_left_out():
    target = outputs(1e-3)
    del target["pooled_output"]
    result = verdict(outputs(), outputs(1e-3), target, dropped={"pooled_output"})
    assert result.agrees
    assert "pooled_output" not in [item.output for item in result.agreements]
    assert result.as_dict()["dropped"] == ["pooled_output"]


def test_nothing_compared_is_a_failure():
    result = verdict({}, {}, {})
    assert not result.agrees
    assert "no output was compared" in str(result.problems[0])
    assert str(result) == "compared 0 values of 0 outputs: not proved (1 found wrong)"
    empty = {"hidden_states.0": np.zeros((2, 3, 0))}
    assert not verdict(empty, empty, empty).agrees


def test_json_has_no_number_that_json_lacks():
    zero, tiny = ({"pooled_output": np.full((2, 4), value)} for value in (0.0, 1e-30))
    fields = json.loads(json.dumps(verdict(zero, zero, tiny).as_dict(), allow_nan=False))
    assert fields["agreements"][0]["ratio"] is None
    assert fields["coverage"]["positions"] == [3, 3]
    assert fields["first_divergence"] == "pooled_output"
