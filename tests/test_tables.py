"""The tables against what transformers stores, as recorded from its classes; wrong tables; a table of one's own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hf_folders import assert_same_state, config_for, facts_for, read_state, saved_state, write_hf

import portkit
from portkit.errors import TableError, UnknownModelError
from portkit.table.check import check_tables
from portkit.table.load import load_tables
from portkit.table.slots import expand

FACTS = json.loads((Path(__file__).parent / "fixtures" / "hf_keys_templates.json").read_text(encoding="utf-8"))
FAMILIES = ("bert", "roberta", "xlm-roberta", "camembert")
NO_TASK = ("BertLMHeadModel", "RobertaForCausalLM", "XLMRobertaForCausalLM", "CamembertForCausalLM")
SIZES = {"v": 61, "p": 37, "t": 4, "h": 24, "n": 3, "d": 8, "f": 40, "c": 5}
SYMBOLS = {"V": 61, "P": 37, "T": 4, "H": 24, "I": 40, "C": 5}
MODELS = [(family, name) for family in FAMILIES for name in FACTS[family] if name not in NO_TASK]


def slots_and_keys(family, name):
    """The hf column for a class with one layer, and the keys that the class has."""
    tables = load_tables()
    table = tables.families[family]
    task = next(t for t in table.tasks.values() if t.classes["hf"] == name.partition("(")[0])
    recorded = FACTS[family][name]
    prefix = "" if task.bare else table.layouts["hf"].prefix
    pooler = recorded["has_pooler"] and task.pooler == "optional"
    slots = expand(table, tables.storages["hf"], task, layers=1, prefix=prefix, pooler=pooler)
    return slots, {key.replace("{l}", "0"): about for key, about in recorded["keys"].items()}


def test_tables_are_consistent():
    looked = check_tables(load_tables())
    assert looked.tables >= len(FAMILIES)
    assert looked.models >= 2 * (8 + 3 * 6)
    assert looked.slots > 1000


def test_every_task_is_a_class_that_was_recorded():
    for family in FAMILIES:
        classes = {task.classes["hf"] for task in load_tables().families[family].tasks.values()}
        assert classes == {name.partition("(")[0] for name in FACTS[family]} - set(NO_TASK)


@pytest.mark.parametrize(("family", "name"), MODELS)
def test_written_names_are_those_that_transformers_saves(family, name):
    slots, keys = slots_and_keys(family, name)
    written = sorted(slot.name for slot in slots.values() if not slot.place.tied)
    assert written == sorted(key for key, about in keys.items() if about["saved"])


@pytest.mark.parametrize(("family", "name"), MODELS)
def test_every_key_of_the_class_is_named_by_a_row(family, name):
    slots, keys = slots_and_keys(family, name)
    known = {spelling for slot in slots.values() for spelling in slot.spellings}
    assert set(keys) <= known


@pytest.mark.parametrize(("family", "name"), MODELS)
def test_shapes_agree(family, name):
    slots, keys = slots_and_keys(family, name)
    for slot in slots.values():
        for spelling in set(slot.spellings) & set(keys):
            expected = tuple(SYMBOLS.get(size, size) for size in keys[spelling]["shape"])
            assert slot.shape(SIZES) == expected, spelling


@pytest.mark.parametrize("family", FAMILIES)
def test_no_row_is_there_for_nothing(family):
    fired = set()
    for name in FACTS[family]:
        if name not in NO_TASK:
            slots, keys = slots_and_keys(family, name)
            fired |= {slot.row.address for slot in slots.values() if set(slot.spellings) & set(keys)}
    assert {row.address for row in load_tables().families[family].rows} == fired


@pytest.mark.parametrize("family", FAMILIES)
def test_prefix_and_ties_are_those_of_the_class(family):
    for name in FACTS[family]:
        if name not in NO_TASK:
            slots, _ = slots_and_keys(family, name)
            table = load_tables().families[family]
            words = {s.name: slots[s.place.tied].name for s in slots.values() if s.place.tied}
            biases = {s.place.overruled_by: s.name for s in slots.values() if s.place.overruled_by}
            assert {**words, **biases} == FACTS[family][name]["tied"]
            assert FACTS[family][name]["prefix"] in ("", table.layouts["hf"].prefix)


# ---------------------------------------------------------------- tables that are wrong


def table_file(tmp_path, text, name="mine.toml"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return path


WRONG = """
family  = "mine"
extends = "bert"
abuot   = "a misspelt key"

[rows.backbone."layer.{i}.mlp.up"]
hf = "encoder.layer.0.intermediate.dense"

[rows.backbone."embeddings.type"]
brun = "embeddings.segments"

[rows.pooler.pooler]
linear = "h => h"

[task.model]
pooler = "perhaps"
rows   = ["backbnoe"]

[config]
hidden_act = { use = "fun", default = "gelu" }
"""


def test_one_error_tells_everything_that_is_wrong(tmp_path):
    path = table_file(tmp_path, WRONG)
    with pytest.raises(TableError, match="the mapping tables are wrong") as caught:
        load_tables((path,))
    found = [(p.where.removeprefix(f"{path} "), p.what, p.found, p.hint) for p in caught.value.problems]
    assert found == [
        (str(path), "unknown key", "'abuot'", "did you mean 'about'?"),
        ("[config.hidden_act] use", "unknown use", "'fun'", ""),
        ('[rows.backbone."embeddings.type"]', "unknown key", "'brun'", "did you mean 'burn'?"),
        (
            '[rows.backbone."layer.{i}.mlp.up"] hf',
            "no usable value",
            "'encoder.layer.0.intermediate.dense'",
            "a stored name has the holes of its row's name, each written as {hole}",
        ),
        (
            "[rows.pooler.pooler] linear",
            "no usable value",
            "'h => h'",
            "the letters of [axes] are v, p, t, h, n, d, f, c",
        ),
        ("[task.model] pooler", "unknown pooler use", "'perhaps'", ""),
        ("[task.model] rows[0]", "unknown rows", "'backbnoe'", "did you mean 'backbone'?"),
    ]
    assert all(p.expected for p in caught.value.problems)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("family = ", "not a TOML file"),
        (f"family = {'[' * 9999}", "not a TOML file"),
        (f"family = {'9' * 9999}", "not a TOML file"),
        ('family = "mine"\nextends = "brt"', "extends: unknown or circular family"),
        ('family = "mine"\nextends = "mine"', "extends: unknown or circular family"),
        ('family = "bert"\nextends = "roberta"', "extends: unknown or circular family"),
    ],
)
def test_file_that_cannot_be_a_table_says_so(text, words, tmp_path):
    path = table_file(tmp_path, text)
    with pytest.raises(TableError, match="mapping table") as caught:
        load_tables((path,))
    assert words in str(caught.value)
    assert path.name in str(caught.value)


def test_no_such_table(tmp_path):
    with pytest.raises(TableError, match=r"cannot read a mapping table(.|\n)*no such file"):
        load_tables((tmp_path / "nowhere.toml",))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            '[rows.qa.qa]\nhf = "classifier"\n[task.question_answering]\nrows = ["backbone", "classifier", "qa"]',
            "two tensors are stored as 'classifier.weight'",
        ),
        ('[restyle]\nroberta = "bert"', "[restyle] roberta: bert has no head of this style"),
        ('[task.question_answering]\npooler = "read"', "[task.question_answering] pooler: 'read' without a pooler"),
        ('[config]\nhidden_size.hf = "vocab_size"', "[config]: two fields are called 'vocab_size' in hf"),
        ('[values.hidden_act]\nrelu.hf = ["relu", "gelu"]', "[values.hidden_act]: two values are spelled 'gelu' in hf"),
        (
            '[rows.masked_lm."masked_lm.decoder".hf.kernel]\ntied = "embeddings.position.table"',
            "masked_lm.decoder.kernel is tied to 'embeddings.position.table', which has another shape",
        ),
        (
            '[rows.masked_lm."masked_lm.decoder".hf.kernel]\ntied = "next_sentence.kernel"',
            "is tied to 'next_sentence.kernel', which is no tensor of the model",
        ),
        (
            '[rows.pooler."classifier"]\nlinear = "h -> h"',
            "[task.sequence_classification] rows: two rows are called 'classifier'",
        ),
        ('[axes]\nd = "hidden_size / 7"', "a division without remainder"),
    ],
)
def test_static_check_finds_what_reading_cannot(text, words, tmp_path):
    path = table_file(tmp_path, f'family = "mine"\nextends = "bert"\n{text}')
    with pytest.raises(TableError, match="the mapping tables are wrong") as caught:
        check_tables(load_tables((path,)))
    assert words in str(caught.value)


def test_size_of_ones_own_passes_the_check(tmp_path):
    rows = (
        '[rows.backbone."embeddings.place"]\nembedding = "s -> h"\nhf = "embeddings.places"\nburn = "embeddings.places"'
    )
    own = f'[axes]\ns = "places"\n[config]\nplaces = {{ use = "size" }}\n{rows}'
    path = table_file(tmp_path, f'family = "mine"\nextends = "bert"\n{own}')
    assert check_tables(load_tables((path,))).slots > check_tables(load_tables()).slots


# ---------------------------------------------------------------- a family that the package does not have

ELECTRA = """
family  = "electra"
extends = "bert"
about   = "ELECTRA with embeddings as wide as its layers: a BERT without a pooler"
without = ["task.pre_training", "task.next_sentence", "task.masked_lm", "task.sequence_classification", "task.multiple_choice"]

[hf]
model_type = "electra"
prefix     = "electra."

[burn]
model_type = "electra"

[task]
model.hf                = "ElectraModel"
token_classification.hf = "ElectraForTokenClassification"
question_answering.hf   = "ElectraForQuestionAnswering"
"""


@pytest.fixture
def electra(tmp_path):
    """A folder of a family without a table, its state, and a table for it."""
    facts = facts_for("bert", "token_classification")
    state = {name.replace("bert.", "electra.", 1): a for name, a in saved_state(facts).items()}
    named = {"model_type": "electra", "architectures": ["ElectraForTokenClassification"], "embedding_size": 24}
    folder = write_hf(tmp_path / "hf", state, config_for("bert", facts, **named))
    return folder, state, table_file(tmp_path, ELECTRA, "electra.toml")


def test_without_its_table_the_family_is_unknown(electra, tmp_path):
    with pytest.raises(UnknownModelError, match="'electra' has no table"):
        portkit.convert(electra[0], tmp_path / "burn", to="burn")


def test_table_of_ones_own_converts_a_new_family(electra, tmp_path):
    folder, state, table = electra
    check_tables(load_tables((table,)))
    options = {"open_with": {"mappings": (table,)}, "verify": "tensors"}
    portkit.convert(folder, tmp_path / "burn", to="burn", **options)
    back = portkit.convert(tmp_path / "burn", tmp_path / "back", to="hf", **options)
    assert back.plan.model.task.classes["hf"] == "ElectraForTokenClassification"
    assert_same_state(read_state(tmp_path / "back"), state)


@pytest.mark.hf
def test_new_family_is_proved_in_transformers(electra, tmp_path):
    folder, _, table = electra
    result = portkit.convert(folder, tmp_path / "burn", to="burn", verify="forward", open_with={"mappings": (table,)})
    assert result.proved
    assert "transformers" in result.forward.source.runtime


# ---------------------------------------------------------------- Burn's own names

BURN_LAYER = (  # fields of burn::nn::transformer::TransformerEncoderLayer and of the modules inside
    *(f"mha.{part}.{leaf}" for part in ("query", "key", "value", "output") for leaf in ("weight", "bias")),
    *(f"pwff.linear_{part}.{leaf}" for part in ("inner", "outer") for leaf in ("weight", "bias")),
    *(f"norm_{number}.{leaf}" for number in (1, 2) for leaf in ("gamma", "beta")),
)
BURN_EMBEDDINGS = (
    *(f"{part}_embeddings.weight" for part in ("word", "position", "token_type")),
    *(f"layer_norm.{leaf}" for leaf in ("gamma", "beta")),
)


@pytest.mark.parametrize("family", FAMILIES)
def test_burn_names_are_the_fields_of_its_modules(family):
    tables = load_tables()
    table = tables.families[family]
    slots = expand(table, tables.storages["burn"], table.tasks["model"], layers=2, pooler=True)
    layers = {f"encoder.layers.{i}.{name}" for i in range(2) for name in BURN_LAYER}
    pooler = {"pooler.output.weight", "pooler.output.bias"}
    assert {s.name for s in slots.values()} == layers | pooler | {f"embeddings.{name}" for name in BURN_EMBEDDINGS}


def test_burn_dense_layers_lie_the_other_way_round():
    tables = load_tables()
    table = tables.families["bert"]
    slots = expand(table, tables.storages["burn"], table.tasks["model"], layers=1)
    assert slots["layer.0.mlp.up.kernel"].shape(SIZES) == (24, 40)
    assert slots["layer.0.mlp.down.kernel"].shape(SIZES) == (40, 24)
