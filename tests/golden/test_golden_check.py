"""Checking a golden: a port reproduces it in either direction, and every damage is found and named."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from click.testing import CliRunner
from goldens import hf_folder, recorded, rewritten

import portkit
from portkit.cli import main
from portkit.golden.check import reproduction
from portkit.golden.form import printed
from portkit.runtimes.burn_runtime import burn_available
from portkit.runtimes.transformers_runtime import transformers_available

MODELS = [
    ("bert", "model"),
    ("bert", "pre_training"),
    ("roberta", "masked_lm"),
    ("xlm-roberta", "sequence_classification"),
]
LAYOUTS = ("hf", "burn")  # whose facts are the same; KerasHub fixes some otherwise, which a golden tells
QUERY = "encoder.layer.1.attention.self.query.weight"


def converted(source, layout):
    """The folder in another layout, not proved: the golden is to do that."""
    target = source.with_name(f"{source.name}-{layout}")
    portkit.convert(source, target, to=layout, verify="none")
    return target


# ---------------------------------------------------------------- honest ports


@pytest.mark.parametrize(("family", "task"), MODELS)
def test_what_one_layout_recorded_every_other_reproduces(family, task, tmp_path):
    source = hf_folder(tmp_path / "hf", family, task)
    folders = {"hf": source, **{n: converted(source, n) for n in LAYOUTS if n != "hf"}}
    for here, folder in folders.items():
        golden, out = recorded(folder)
        for there, other in folders.items():
            verdict = portkit.golden_check(out, other)
            assert verdict.reproduced, f"{here} -> {there}: {verdict}"
            assert verdict.compared == golden.count + len(golden.weights) > 100
            assert (verdict.weights.compared, verdict.facts.compared) == (len(golden.weights), len(golden.facts))
            assert verdict.worst.ratio < 4, f"{here} -> {there}: {verdict}"
            assert verdict.coverage.heads[0] == verdict.coverage.heads[1] > 0
            if here == there:
                assert verdict.worst.ratio < 0.01


@pytest.mark.parametrize(
    ("layout", "runtime", "available"),
    [("hf", "transformers", transformers_available), ("burn", "Burn", burn_available)],
)
def test_the_checkpoint_runs_in_its_own_framework(layout, runtime, available, golden, tmp_path):
    if not available():
        pytest.skip(f"{runtime} is not installed")
    source = hf_folder(tmp_path / "hf")
    folder = source if layout == "hf" else converted(source, layout)
    assert portkit.golden_check(golden, folder).runtime == runtime
    made = recorded(folder)[0]
    assert made.source["runtime"] == runtime
    version = made.versions["transformers" if layout == "hf" else "program"]
    assert version.startswith("portkit-burn ") if layout == "burn" else version[0].isdigit()


def test_a_missing_framework_is_replaced_and_said(tmp_path, monkeypatch):
    source = hf_folder(tmp_path / "hf")
    golden, _ = recorded(source)
    burn = converted(source, "burn")
    monkeypatch.setenv("PORTKIT_BURN", str(tmp_path / "nowhere"))
    verdict = portkit.golden_check(golden, burn)
    assert verdict.reproduced
    assert verdict.runtime == "reference, not Burn"
    other = portkit.golden_check(golden, converted(hf_folder(tmp_path / "other", layer_norm_eps=1e-3), "burn"))
    assert other.note == "no framework ran that could be at fault: weights, facts or inputs are not the golden's"
    assert portkit.golden_record(burn, tmp_path / "other.json").source["runtime"] == "reference, not Burn"


@pytest.mark.parametrize("what", ["outputs", "weights"])
def test_either_half_is_enough(what, tmp_path):
    source = hf_folder(tmp_path / "hf")
    golden, _ = recorded(source)
    verdict = portkit.golden_check(replace(golden, **{what: {}}), source)
    assert verdict.reproduced
    assert verdict.compared == (len(golden.weights) if what == "outputs" else golden.count)
    assert bool(verdict.runtime) == (what == "weights")  # without outputs nothing is run


# ---------------------------------------------------------------- damage


def flipped(state):
    array = state[QUERY].copy()
    array.view(np.uint32)[3, 5] ^= 1 << 22  # the highest bit of the fraction
    return {**state, QUERY: array}


def nudged(state):
    array = state[QUERY].copy()
    array.view(np.uint32)[3, 5] ^= 1  # one unit in the last place: no forward pass sees it
    return {**state, QUERY: array}


def layers_swapped(state):
    names = {"encoder.layer.0.": "encoder.layer.1.", "encoder.layer.1.": "encoder.layer.0."}
    return {
        next((new + n[len(old) :] for old, new in names.items() if n.startswith(old)), n): a for n, a in state.items()
    }


def transposed(state):
    return {**state, QUERY: np.ascontiguousarray(state[QUERY].T)}


def key_bias_dropped(state):
    return {n: a * 0 if n == "encoder.layer.2.attention.self.key.bias" else a for n, a in state.items()}


def pooler_random(state):
    return {**state, "pooler.dense.weight": state["pooler.dense.weight"][::-1].copy()}


DAMAGE = {  # what is done, which tensors differ, what is said of the first, where outputs part
    "flipped element": (flipped, 1, "layer.1.attention.query.kernel holds other values", "hidden_states.2"),
    "last bit": (nudged, 1, "layer.1.attention.query.kernel holds other values", None),
    "transposed": (transposed, 1, "layer.1.attention.query.kernel is transposed", "hidden_states.2"),
    "key bias": (key_bias_dropped, 1, "layer.2.attention.key.bias holds other values", None),
    "pooler": (pooler_random, 1, "pooler.kernel holds other values", "pooled_output"),
    "layers swapped": (
        layers_swapped,
        32,
        "layer.0.attention.query.kernel holds what the golden has as layer.1.attention.query.kernel",
        "hidden_states.1",
    ),
}


@cache
def sound(tmp):
    return recorded(hf_folder(tmp / "sound"))[0]


@pytest.fixture
def golden(tmp_path_factory):
    return sound(tmp_path_factory.getbasetemp())


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_found_and_named_in_every_layout(damage, layout, golden, tmp_path):
    change, count, words, output = DAMAGE[damage]
    folder = hf_folder(tmp_path / "hf", damage=change)
    verdict = portkit.golden_check(golden, folder if layout == "hf" else converted(folder, layout))
    first = verdict.weights.differing[0]
    assert not verdict.reproduced
    assert (len(verdict.weights.differing), f"{first.tensor} {first.what}") == (count, words)
    assert (
        f"{count} differ, first in {'the pooler' if damage == 'pooler' else first.tensor[:7].replace('.', ' ')}: {words}"
        in str(verdict.weights)
    )
    assert verdict.first_divergence == output
    if output:
        assert verdict.worst.ratio > 80
        assert "one of them is not the golden's" in verdict.note


@pytest.mark.parametrize(
    ("change", "config", "fact", "output"),
    [
        ({"hidden_act": "gelu_tanh"}, {}, "hidden_act is 'gelu_tanh', the golden says 'gelu'", "hidden_states.1"),
        ({"layer_norm_eps": 1e-5}, {}, "layer_norm_eps is 1e-05, the golden says 1e-12", "hidden_states.0"),
        ({}, {"pad_token_id": 3}, "pad_token_id is 3, the golden says 0", None),
    ],
)
def test_other_facts_are_found_and_named(change, config, fact, output, golden, tmp_path):
    verdict = portkit.golden_check(golden, hf_folder(tmp_path / "hf", config=config, **change))
    assert not verdict.reproduced
    assert verdict.weights.equal
    assert fact in str(verdict.facts)
    assert verdict.first_divergence == output


def test_a_pooler_that_is_gone_and_one_that_is_new(golden, tmp_path):
    def take_it_out(state):
        return {n: a for n, a in state.items() if not n.startswith("pooler.")}

    without = hf_folder(tmp_path / "without", damage=take_it_out)
    gone = portkit.golden_check(golden, without)
    assert [str(d.what) for d in gone.weights.differing] == ["is absent", "is absent"]
    assert (gone.weights.compared, gone.weights.expected) == (len(golden.weights) - 2, len(golden.weights))
    assert [str(p) for p in gone.problems] == ["pooled_output: the checkpoint gives no such output"]
    new = portkit.golden_check(recorded(without)[0], hf_folder(tmp_path / "with"))
    assert [f"{d.tensor} {d.what}" for d in new.weights.differing] == [
        "pooler.kernel is not in the golden",
        "pooler.bias is not in the golden",
    ]
    for verdict in (gone, new):
        assert not verdict.reproduced
        assert verdict.first_divergence is None


def test_another_model_is_a_difference_and_is_not_run(golden, tmp_path):
    verdict = portkit.golden_check(golden, hf_folder(tmp_path / "hf", vocab_size=53))
    assert not verdict.reproduced
    assert verdict.runtime == ""
    assert "input_ids: ids without a row" in str(verdict.problems[0])
    assert verdict.weights.differing[0].what == "has shape [53, 24], the golden [61, 24]"


def test_numbers_that_are_not_finite_reproduce_nothing(golden, tmp_path):
    def break_it(state):
        return {n: a * np.float32(np.inf) if n == QUERY else a for n, a in state.items()}

    verdict = portkit.golden_check(golden, hf_folder(tmp_path / "hf", damage=break_it))
    assert not verdict.reproduced
    assert verdict.first_divergence == "hidden_states.2"
    assert "values that are not finite" in str(verdict.problems[0])
    json.dumps(verdict.as_dict(), allow_nan=False)


def test_values_at_padding_or_outside_have_no_place(tmp_path):
    source = hf_folder(tmp_path / "hf")
    for at, numbers in (([1, 30, 0], 1), ([0, 0, 20], 5), ([0, 0], 1), ([9, 0, 0], 1), ([], 1)):
        _, out = recorded(source, force=True)
        values = [{"at": at, "numbers": ["1.0"] * numbers}]
        rewritten(out, lambda said, values=values: said["outputs"].update({"hidden_states.1": {"values": values}}))
        verdict = portkit.golden_check(out, source)
        assert not verdict.reproduced
        assert "hidden_states.1: the golden's values have no place here" in str(verdict.problems[0])


# ---------------------------------------------------------------- the digits that were printed


def test_the_rule_takes_half_a_unit_off_each_number_and_leaves_eight_times_the_noise():
    found, numbers = np.array([0.1239, -2.0]), ["0.12", "-2.00"]  # half a unit is 0.005, the first is 0.0039 away
    assert reproduction("logits", "values", found, numbers, 0.0).reproduced
    found = np.array([0.1259, -2.0])  # 0.0009 more than the digits explain
    excess = 0.0009 / np.sqrt(2)
    for noise, reproduced in ((excess / 8.1, False), (excess / 7.9, True)):
        item = reproduction("logits", "values", found, numbers, noise)
        np.testing.assert_allclose([item.difference, item.half_unit, item.limit], [excess, 0.005, 8 * noise])
        assert item.reproduced == reproduced


@pytest.mark.parametrize("digits", [2, 3, 5])
def test_few_digits_are_reproduced_and_one_unit_off_in_one_number_is_not(digits, tmp_path):
    source = hf_folder(tmp_path / "hf")
    golden, _ = recorded(source)
    only = replace(golden, weights={}, facts={}, outputs={"pooled_output": golden.outputs["pooled_output"]})
    runs = only.outputs["pooled_output"].values
    short = tuple(replace(run, numbers=tuple(f"{float(n):.{digits}f}" for n in run.numbers)) for run in runs)
    verdict = portkit.golden_check(_with(only, short), source)
    assert verdict.reproduced
    assert verdict.outputs[0].half_unit == pytest.approx(0.5 * 10**-digits)
    nearest = f"{float(short[2].numbers[4]) + 10**-digits:.{digits}f}"
    wrong = (*short[:2], replace(short[2], numbers=(*short[2].numbers[:4], nearest, *short[2].numbers[5:])), short[3])
    assert not portkit.golden_check(_with(only, wrong), source).reproduced


def _with(golden, runs):
    return replace(golden, outputs={"pooled_output": replace(golden.outputs["pooled_output"], values=runs, sketch=())})


def test_trailing_zeros_count_as_digits():
    assert reproduction("logits", "values", np.array([0.54]), ["0.5"], 0.0).reproduced
    assert not reproduction("logits", "values", np.array([0.54]), ["0.50"], 0.0).reproduced


def test_nothing_compared_is_no_success():
    assert not reproduction("logits", "values", np.array([]), [], 1.0).reproduced
    from portkit.golden.verdict import GoldenVerdict

    assert not GoldenVerdict("", {}, "hf: bert", "cpu").reproduced
    assert str(GoldenVerdict("", {}, "hf: bert", "cpu")).startswith("compared 0 numbers of 0 outputs: NOT reproduced")


def test_noise_that_is_not_a_number_allows_nothing():
    for noise in (float("nan"), float("inf")):
        assert not reproduction("logits", "values", np.array([1.0]), ["1.0"], noise).reproduced


def test_an_output_of_zeros_must_be_zero():
    zeros = printed([0.0] * 4)
    assert reproduction("pooled_output", "values", np.zeros(4), zeros, 0.0).reproduced
    assert not reproduction("pooled_output", "values", np.full(4, 1e-6), zeros, 0.0).reproduced


# ---------------------------------------------------------------- the command line


def run(*words, code=0):
    result = CliRunner().invoke(main, [str(word) for word in words])
    assert result.exit_code == code, (result.output, result.exception)
    return result.stderr if code in (2, 3) else result.stdout


def test_commands_record_and_check(tmp_path):
    source, out = hf_folder(tmp_path / "hf"), tmp_path / "golden.json"
    said = run("golden", "record", source, out, "--about", "a small model")
    assert said.startswith(f"wrote {out}: ")
    assert "tensors; 4 rows, 61 tokens in all, run in " in said
    text = run("golden", "check", out, source)
    assert text.startswith("golden golden.json against hf: hf, bert, model\n  about        a small model\n")
    assert "  weights      compared 55 of 55 tensors: equal, bit for bit\n" in text
    assert "  facts        compared 20 facts: equal\n" in text
    lines = [line for line in text.splitlines() if line.endswith("  reproduced")]
    assert [line.split()[0] for line in lines[::2]] == [*(f"hidden_states.{i}" for i in range(4)), "pooled_output"]
    assert text.index("compared 55 of 55") < text.index("difference") < text.index("reproduced")
    assert text.splitlines()[-1].startswith(
        "compared 240 numbers of 5 outputs: reproduced, at most 0.00 times the noise"
    )


def test_a_difference_is_one_and_names_it(golden, tmp_path):
    _, out = recorded(hf_folder(tmp_path / "sound"))
    text = run("golden", "check", out, hf_folder(tmp_path / "hf", damage=layers_swapped), code=1)
    assert "32 differ, first in layer 0: layer.0.attention.query.kernel holds what" in text
    assert "  differs      and 24 more\n" in text
    assert "DIFFERS" in text
    assert "NOT reproduced, parts at hidden_states.1" in text.splitlines()[-1]


def test_check_as_json(tmp_path):
    source = hf_folder(tmp_path / "hf")
    golden, out = recorded(source)
    found = json.loads(run("golden", "check", out, source, "--json"))
    assert found["reproduced"] is True
    assert found["compared"] == golden.count + len(golden.weights)
    assert found["weights"] == {"equal": True, "compared": 55, "expected": 55, "differing": []}
    assert found["facts"] == {"equal": True, "compared": 20, "differing": []}
    assert {o["output"] for o in found["outputs"]} == set(golden.outputs)
    assert found["limit"] == 8
    wrong = json.loads(run("golden", "check", out, hf_folder(tmp_path / "x", damage=flipped), "--json", code=1))
    assert (found["exit_code"], wrong["exit_code"]) == (0, 1)
    assert wrong["first_divergence"] == "hidden_states.2"
    assert wrong["weights"]["differing"][0]["tensor"] == "layer.1.attention.query.kernel"


def test_what_cannot_be_looked_at_is_three_and_wrong_usage_is_two(tmp_path):
    source = hf_folder(tmp_path / "hf")
    assert "cannot read the golden" in run("golden", "check", tmp_path / "none.json", source, code=3)
    _, out = recorded(source)
    assert "no such file or folder" in run("golden", "check", out, tmp_path / "nowhere", code=3)
    assert "is already there" in run("golden", "record", source, out, code=3)
    assert "No such option" in run("golden", "check", out, source, "--what", code=2)
    assert "Missing argument 'CHECKPOINT'" in run("golden", "check", out, code=2)


def named(path, names):
    """The same folder with these names of its classes."""
    config = json.loads((path / "config.json").read_text(encoding="utf-8"))
    config["id2label"] = {str(i): name for i, name in enumerate(names)}
    (path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return path


def test_exchanged_names_of_classes_are_found(tmp_path):
    source = named(hf_folder(tmp_path / "hf", "bert", "sequence_classification"), ["a", "b, c", "d", "é", "f"])
    golden, out = recorded(source)
    assert golden.facts["labels"] == '["a", "b, c", "d", "é", "f"]'
    portkit.convert(source, tmp_path / "burn", to="burn", verify="none")
    assert portkit.golden_check(out, tmp_path / "burn").reproduced
    other = portkit.golden_check(out, named(source, ["a", "d", "b, c", "é", "f"]))
    assert not other.reproduced
    assert [name for name, _, _ in other.facts.differing] == ["labels"]
    unnamed = portkit.golden_check(out, named(source, [f"LABEL_{i}" for i in range(5)]))
    assert unnamed.reproduced
    assert unnamed.facts.compared == other.facts.compared - 1
