"""Upstream's own numbers: rxnfp's README prints what its model gives, and every port of it must give the same."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

import portkit
from portkit.golden.reading import read_golden

LAYOUTS = ("hf", "burn")  # that compute the same function; KerasHub's BERT has another GELU, and a golden tells

FOLDER = Path(__file__).parents[2] / "golden" / "rxnfp"
GOLDEN = FOLDER / "rxnfp.json"


def script():
    spec = importlib.util.spec_from_file_location("make_rxnfp", FOLDER / "make.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["make_rxnfp"] = module
    spec.loader.exec_module(module)
    return module


def test_every_golden_travels_with_its_script():
    found = sorted(FOLDER.parent.rglob("*.json"))
    assert found == [GOLDEN]
    for path in found:
        golden = read_golden(path)
        assert (FOLDER.parents[1] / golden.source["made by"]).is_file()
        assert golden.source["package"]
        assert len(golden.source["wheel sha256"]) == 64
        assert golden.count


def test_the_script_takes_reaction_tokens_and_values_from_upstreams_text():
    make = script()
    readme = 'x\nexample_rxn = "CCl.[Na+]>>CBr"\nprint(fp[:5])\n\n    256\n    [-2.50, 1.25, -3.125, 0.5, 1.0]\n'
    reaction, values = make.reaction_and_values(readme)
    assert (reaction, values) == ("CCl.[Na+]>>CBr", ("-2.50", "1.25", "-3.125", "0.5", "1.0"))
    source = 'SMI_REGEX_PATTERN =  r"(\\[[^\\]]+]|Br?|Cl?|\\.|>>?)"\n'
    assert make.tokens_of(reaction, source) == ["[CLS]", "C", "Cl", ".", "[Na+]", ">>", "C", "Br", "[SEP]"]
    with pytest.raises(ValueError, match="not enough values"):
        make.reaction_and_values("another README")


def test_the_file_is_what_the_script_makes_of_the_pinned_wheel(real, tmp_path, monkeypatch):
    assert real("rxnfp-ft").is_dir()
    make = script()
    monkeypatch.setattr(make, "HERE", tmp_path)
    make.main()
    assert (tmp_path / GOLDEN.name).read_bytes() == GOLDEN.read_bytes()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_readmes_numbers_are_reproduced_in_every_layout(real, layout, tmp_path):
    source = real("rxnfp-ft")
    if layout != "hf":
        portkit.convert(source, tmp_path / layout, to=layout, verify="none")
    verdict = portkit.golden_check(GOLDEN, source if layout == "hf" else tmp_path / layout)
    (found,) = verdict.outputs
    assert verdict.reproduced
    assert (found.output, found.compared) == ("hidden_states.12", 5)
    assert found.ratio < 3
    assert found.max_abs < 2e-6


def test_another_model_of_the_same_shape_does_not_reproduce_them(real):
    verdict = portkit.golden_check(GOLDEN, real("rxnfp-pretrained"))
    assert not verdict.reproduced
    assert verdict.worst.ratio > 1e5


def test_a_real_checkpoint_recorded_in_one_layout_is_found_in_the_others(real, tmp_path):
    source, out = real("minilm"), tmp_path / "minilm.json"
    golden = portkit.golden_record(source, out)
    assert out.stat().st_size < 50_000
    assert json.loads(out.read_text(encoding="utf-8"))["facts"]["hidden_size"] == 384
    for layout in LAYOUTS:
        if layout != "hf":
            portkit.convert(source, tmp_path / layout, to=layout, verify="none")
            verdict = portkit.golden_check(golden, tmp_path / layout)
            assert verdict.reproduced, str(verdict)
            assert verdict.weights.compared == 103
            assert verdict.worst.ratio < 4
