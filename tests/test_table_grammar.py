"""Tables that say what they may not: each mistake is told by its place and what is expected there, and none gets by."""

from __future__ import annotations

import copy
import datetime
import tomllib
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from portkit.checkpoint import facts_of, reserved_positions
from portkit.errors import TableError
from portkit.facts import Facts
from portkit.table.check import check_tables
from portkit.table.grammar import FIELDS
from portkit.table.load import load_tables, make_tables, tables_dir

SHIPPED = {p.stem: tomllib.loads(p.read_text(encoding="utf-8")) for p in sorted(tables_dir().glob("*.toml"))}
NUMBERS = dict.fromkeys(FIELDS, 3) | {"layer_norm_eps": 1e-5, "hidden_act": "gelu", "num_labels": 2}
TEXT, TABLE = "text that is not empty", "a table"
CELL = "a name without holes, or a table with the key absent, or "


def problems_of(text):
    """Place -> problem, of a table that takes all else from BERT; places without the file's name."""
    mine = tomllib.loads(f'family = "mine"\nextends = "bert"\n{text}')
    with pytest.raises(TableError, match="the mapping tables are wrong") as caught:
        make_tables(SHIPPED["layouts"], [*files(), (mine, "mine.toml")])
    assert {p.where.partition(" ")[0] for p in caught.value.problems} == {"mine.toml"}
    return {p.where.removeprefix("mine.toml "): p for p in caught.value.problems}


def files(**changed):
    """The shipped families, some of them changed, with the names of their files."""
    return [(changed.get(name, toml), f"{name}.toml") for name, toml in SHIPPED.items() if name != "layouts"]


WRONG_TYPES = [
    # text                                                 where                                expected      found
    ("prefixed = 3", "prefixed", "a list", "3"),
    ("about = true", "about", "text", "true"),
    ("hf = 'x'", "hf", TABLE, "'x'"),
    ("task.model = 3", "[task] model", TABLE, "3"),
    ("task.model.rows = 'backbone'", "[task.model] rows", "a list that is not empty", "'backbone'"),
    ("task.model.bare = 1", "[task.model] bare", "true or false", "1"),
    ("task.model.hf = ['BertModel']", "[task.model] hf", "text", "a list"),
    ("hf.model_type = 1979-05-27", "[hf] model_type", "text", "1979-05-27"),
    ("hf.prefix = false", "[hf] prefix", "text", "false"),
    ("hf.ignore = ['a']", "[hf] ignore", TABLE, "a list"),
    ("hf.ignore.pos = 3", "[hf.ignore] pos", "a reason, as text", "3"),
    ("config.hidden_size = 'size'", "[config] hidden_size", TABLE, "'size'"),
    ("config.hidden_size.hf = 3", "[config.hidden_size] hf", "text, or a table", "3"),
    ("config.pad_token_id.default = true", "[config.pad_token_id] default", "a whole number, 0 or more", "true"),
    ("config.pad_token_id.default = []", "[config.pad_token_id] default", "a whole number, 0 or more", "an empty list"),
    ("config.hidden_size.default = 0", "[config.hidden_size] default", "a whole number above 0", "0"),
    ("config.hidden_size.default = 0x1ffffffffffffffffff", "[config.hidden_size] default", "a whole number above 0", "a very large number"),
    ("config.initializer_range.default = nan", "[config.initializer_range] default", "a number with a decimal point", "nan"),
    ("config.layer_norm_eps.default = 1", "[config.layer_norm_eps] default", "a number with a decimal point, between 0 and 1", "1"),
    ("values.hidden_act.gelu.hf = 'gelu'", "[values.hidden_act.gelu] hf", "a list that is not empty", "'gelu'"),
    ("values.hidden_act.gelu.hf = []", "[values.hidden_act.gelu] hf", "a list that is not empty", "an empty list"),
    ("values.hidden_act.gelu.hf = [1]", "[values.hidden_act.gelu] hf[0]", TEXT, "1"),
    ("rows.qa.qa.hf = 3", "[rows.qa.qa] hf", CELL, "3"),
    ("rows.qa.qa.linear = 3", "[rows.qa.qa] linear", 'axes, as in "h -> n d"', "3"),
    ("rows.qa.qa.hf = { at = 'qa', also = 'q' }", "[rows.qa.qa.hf] also", "a list", "'q'"),
    ("rows.qa.qa.hf = { at = true }", "[rows.qa.qa.hf] at", "a name without holes", "true"),
    ("rows.qa.qa.hf = { absent = true }", "[rows.qa.qa.hf] absent", "a reason, as text", "true"),
    ("rows.pooler.pooler.hf = { at = 'p', grow = {} }", "[rows.pooler.pooler.hf] grow", "a list that is not empty", "an empty table"),
    ("rows.pooler.pooler.hf = { at = 'p', grow = [{ below = '5', to = 5 }] }", "[rows.pooler.pooler.hf.grow[0]] below", "a whole number above 0", "'5'"),
    ("dialect.x = { layout = 'hf', tasks = 'model' }", "[dialect.x] tasks", "a list that is not empty", "'model'"),
    ("dialect.x = { layout = 'hf', tasks = [] }", "[dialect.x] tasks", "a list that is not empty", "an empty list"),
    ("dialect.x = { layout = 'hf', fixed.pad_token_id = '1' }", "[dialect.x.fixed] pad_token_id", "a whole number, 0 or more", "'1'"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "where", "expected", "found"), WRONG_TYPES)
def test_value_of_a_wrong_type_is_told(text, where, expected, found):
    (problem,) = problems_of(text).values()
    assert (problem.where, problem.what) == (f"mine.toml {where}", "no usable value")
    assert problem.expected.startswith(expected)
    assert problem.found == found


NONSENSE = [
    # text                                        where                                  what                  found        hint
    ("facts.position_scheme = 'padded'", "[facts] position_scheme", "unknown position scheme", "'padded'", "did you mean 'padding'?"),
    ("facts.position_scheme = 0", "[facts] position_scheme", "unknown position scheme", "0", ""),
    ("config.lm_head_act.default = 'gleu'", "[config.lm_head_act] default", "unknown value", "'gleu'", "did you mean 'gelu'?"),
    ("config.lm_head_act.default = '{hidden_atc}'", "[config.lm_head_act] default", "unknown value", "'{hidden_atc}'", "did you mean '{hidden_act}'?"),
    ("config.lm_head_act.default = '{hidden_size}'", "[config.lm_head_act] default", "unknown value", "'{hidden_size}'", "did you mean '{hidden_act}'?"),
    ("facts.reserved_position = 0", "[facts]", "unknown key", "'reserved_position'", "did you mean 'reserved_positions'?"),
    ("restyle.roberta = 'robreta'", "[restyle] roberta", "unknown family", "'robreta'", "did you mean 'roberta'?"),
    ("restyle.electra = 'bert'", "[restyle] electra", "unknown head style", "'electra'", ""),
    ("looks_like.type_vocab_sizes = 2", "[looks_like] type_vocab_sizes", "unknown config field", "'type_vocab_sizes'", "did you mean 'type_vocab_size'?"),
    ("looks_like.hidden_act = 'gleu'", "[looks_like] hidden_act", "unknown value", "'gleu'", "did you mean 'gelu'?"),
    ("repeat.i = 'hidden_size'", "[repeat] i", "unknown number of layers", "'hidden_size'", ""),
    ("repeat.i = 'num_hiden_layers'", "[repeat] i", "unknown number of layers", "'num_hiden_layers'", "did you mean 'num_hidden_layers'?"),
    ("repeat.qkv = ['query', 'query']", "[repeat] qkv[1]", "stands there twice", "'query'", "take one out"),
    ("prefixed = ['backbnoe']", "prefixed[0]", "unknown rows", "'backbnoe'", "did you mean 'backbone'?"),
    ("task.model.head_style = 'brt'", "[task.model] head_style", "unknown head style", "'brt'", "did you mean 'bert'?"),
    ("task.model.pooler = 'red'", "[task.model] pooler", "unknown pooler use", "'red'", "did you mean 'read'?"),
    ("task.modle = { rows = ['backbone'], pooler = 'read' }", "[task] modle", "unknown task", "'modle'", "did you mean 'model'?"),
    ("dialect.x = { layout = 'brun' }", "[dialect.x] layout", "unknown layout", "'brun'", "did you mean 'burn'?"),
    ("dialect.x = { layout = 'logical' }", "[dialect.x] layout", "unknown layout", "'logical'", ""),
    ("dialect.x = { layout = 'burn', tasks = ['masked_ml'] }", "[dialect.x] tasks[0]", "unknown task", "'masked_ml'", "did you mean 'masked_lm'?"),
    ("dialect.x = { layout = 'burn', fixed.hidden_atc = 'gelu' }", "[dialect.x.fixed] hidden_atc", "unknown config field", "'hidden_atc'", "did you mean 'hidden_act'?"),
    ("dialect.x = { layout = 'burn', columns.poler.burn = 'p' }", "[dialect.x.columns] poler", "unknown row", "'poler'", "did you mean 'pooler'?"),
    ("dialect.x = { layout = 'burn', columns.pooler.hf = 'p' }", "[dialect.x.columns.pooler]", "unknown key", "'hf'", ""),
    ("values.hidden_atc.gelu.hf = ['gelu']", "[values] hidden_atc", "unknown config field", "'hidden_atc'", "did you mean 'hidden_act'?"),
    ("values.hidden_act.gleu.hf = ['x']", "[values.hidden_act] gleu", "unknown activation", "'gleu'", "did you mean 'gelu'?"),
    ("config.hidden_act.default = 'silu'", "[config.hidden_act] default", "unknown value", "'silu'", ""),
    ("config.hidden_act.used = 'size'", "[config.hidden_act]", "unknown key", "'used'", "did you mean 'use'?"),
    ("rows.qa.qa.hf = { at = 'qa', tide = 'x' }", "[rows.qa.qa.hf]", "unknown key", "'tide'", "did you mean 'tied'?"),
    ("rows.qa.qa.hf.kernel = { tied = 'qa.kernl' }\nrows.qa.qa.hf.bias = 'b'", "[rows.qa.qa.hf.kernel] tied", "unknown tensor", "'qa.kernl'", "did you mean 'qa.kernel'?"),
    ("rows.qa.qa.brun = 'qa'", "[rows.qa.qa]", "unknown key", "'brun'", "did you mean 'burn'?"),
    ("hf.requires = {}", "[hf]", "unknown key", "'requires'", "did you mean 'require'?"),
    ("without = ['rows.nothing']", "without[0]", "unknown part of the base", "'rows.nothing'", "did you mean 'rows.choice'?"),
    ("without = ['rows.poler']", "without[0]", "unknown part of the base", "'rows.poler'", "did you mean 'rows.pooler'?"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "where", "what", "found", "hint"), NONSENSE)
def test_word_that_names_nothing_is_told(text, where, what, found, hint):
    (problem,) = problems_of(text).values()
    assert (problem.where, problem.what, problem.found) == (f"mine.toml {where}", what, found)
    assert problem.expected
    assert problem.hint == hint


NO_SENSE = [  # what a broken section leaves without meaning is told as well
    # text                              where                       what                    expected                  found
    ("axes = 3", "axes", "no usable value", TABLE, "3"),
    ("rows = []", "rows", "no usable value", TABLE, "an empty list"),
    ("hf.spare_pooler = false", "[hf] spare_pooler", "no usable value", "true", "false"),
    ("hf.spare_pooler = ''", "[hf] spare_pooler", "no usable value", "a reason, as text", "''"),
    ("hf.spare_pooler = 3", "[hf] spare_pooler", "no usable value", "true, or a reason, as text", "3"),
    ("hf.require = 'is_decoder'", "[hf] require", "no usable value", TABLE, "'is_decoder'"),
    ("hf.require.until = 1979-05-27", "[hf.require] until", "no usable value", "true or false, or a number, or text, or a list, or an empty table", "1979-05-27"),
    ("hf.require.dropout = nan", "[hf.require] dropout", "no usable value", "a number", "nan"),
    ("hf.require.heads = { a = 1 }", "[hf.require.heads]", "unknown key", "nothing: none is known", "'a'"),
    ("repeat.i = 12", "[repeat] i", "no usable value", "num_hidden_layers, or a list that is not empty", "12"),
    ("repeat.qkv = []", "[repeat] qkv", "no usable value", "a list that is not empty", "an empty list"),
    ("repeat.'a b' = ['x']", '[repeat] "a b"', "no usable key", "the name of a hole", "'a b'"),
    ("axes.hh = 'hidden_size'", "[axes] hh", "no usable key", "one small letter", "'hh'"),
    ("axes.h = 'hidden_sizes'", "[axes] h", "no usable value", "config fields and numbers, with + and /", "'hidden_sizes'"),
    ("axes.h = 'hidden_act'", "[axes] h", "no usable value", "config fields and numbers, with + and /", "'hidden_act'"),
    ("axes.h = 'hidden_size * 2'", "[axes] h", "no usable value", "config fields and numbers, with + and /", "'hidden_size * 2'"),
    ("axes.h = '²'", "[axes] h", "no usable value", "config fields and numbers, with + and /", "'²'"),
    ("facts.reserved_positions = -1", "[facts] reserved_positions", "no usable value", "a whole number, 0 or more", "-1"),
    ("rows.qa.qa.norm = 'h'", "[rows.qa.qa]", "needs exactly one of these keys", "linear, norm, embedding", "linear, norm"),
    ("rows.qa.other.hf = 'x'", "[rows.qa.other]", "needs exactly one of these keys", "linear, norm, embedding", "none of them"),
    ("rows.qa.qa.linear = 'h -> z'", "[rows.qa.qa] linear", "no usable value", 'axes, as in "h -> n d"', "'h -> z'"),
    ("rows.qa.qa.linear = 'h'", "[rows.qa.qa] linear", "no usable value", 'axes, as in "h -> n d"', "'h'"),
    ("rows.masked_lm.'masked_lm.norm'.norm = 'h -> h'", '[rows.masked_lm."masked_lm.norm"] norm', "no usable value", 'axes, as in "h"', "'h -> h'"),
    ("rows.backbone.'embeddings.word'.embedding = 'v -> n d'", '[rows.backbone."embeddings.word"] embedding', "no usable value", 'axes, as in "v -> h"', "'v -> n d'"),
    ("rows.qa.'x.{z}'.linear = 'h -> 2'", '[rows.qa] "x.{z}"', "no usable key", "a name with holes that [repeat] has", "'x.{z}'"),
    ("rows.qa.'x.{i'.linear = 'h -> 2'", '[rows.qa] "x.{i"', "no usable key", "a name with holes that [repeat] has", "'x.{i'"),
    ("rows.qa.'x.{i}' = { linear = 'h -> 2', hf = 'x.{i!r}' }", '[rows.qa."x.{i}"] hf', "no usable value", "a name with {i}", "'x.{i!r}'"),
    ("rows.qa.qa.hf.kernel = 'qa.weight'", "[rows.qa.qa.hf] bias", "is missing", CELL, "nothing"),
    ("rows.qa.qa.hf.kernel = {}\nrows.qa.qa.hf.bias = 'b'", "[rows.qa.qa.hf.kernel]", "needs at least one of these keys", "at, tied", "none of them"),
    ("rows.pooler.pooler.hf = { at = 'p', grow = [{ to = 5 }] }", "[rows.pooler.pooler.hf.grow[0]]", "needs exactly one of these keys", "below, equals, above", "none of them"),
    ("rows.pooler.pooler.hf = { at = 'p', grow = [{ below = 5 }] }", "[rows.pooler.pooler.hf.grow[0]]", "needs at least one of these keys", "to, front", "none of them"),
    ("rows.pooler.pooler.hf = { at = 'p', grow = [{ below = 5, to = 5, uper = 3 }] }", "[rows.pooler.pooler.hf.grow[0]]", "unknown key", "above, below, equals, front, to", "'uper'"),
    ("without = ['config.pad_token_id', 'looks_like.pad_token_id']\naxes.p = 'max_position_embeddings'", "[config] pad_token_id", "is missing", TABLE, "nothing"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "where", "what", "expected", "found"), NO_SENSE)
def test_sense_is_asked_for(text, where, what, expected, found):
    problem = problems_of(text)[where]
    assert (problem.what, problem.found) == (what, found)
    assert problem.expected.startswith(expected)


def test_example_of_the_document_is_what_is_said():
    said = (Path(__file__).parents[1] / "docs" / "tables.md").read_text(encoding="utf-8")
    mine = tomllib.loads('family = "mine"\nextends = "bert"\nprefixed = 3\n[task.model]\npooler = "perhaps"')
    with pytest.raises(TableError, match="2 problems") as caught:
        make_tables(SHIPPED["layouts"], [*files(), (mine, "mine.toml")])
    assert f"```\n{caught.value}\n```" in said


def test_mistake_of_a_base_is_told_once():
    bert = copy.deepcopy(SHIPPED["bert"])
    bert["task"]["model"]["pooler"] = "perhaps"
    with pytest.raises(TableError, match=r"\[task.model\] pooler: unknown pooler use") as caught:
        make_tables(SHIPPED["layouts"], files(bert=bert))
    assert [p.where for p in caught.value.problems] == ["bert.toml [task.model] pooler"]


def test_mistakes_of_several_files_come_at_once(tmp_path):
    for name in ("one", "two"):
        (tmp_path / f"{name}.toml").write_text(f'family = "{name}"\nextends = "bert"\nprefixed = 3', encoding="utf-8")
    with pytest.raises(TableError, match="2 problems") as caught:
        load_tables((tmp_path / "one.toml", tmp_path / "two.toml"))
    assert [p.where for p in caught.value.problems] == [f"{tmp_path / n}.toml prefixed" for n in ("one", "two")]


def test_part_that_is_taken_out_can_be_said_anew():
    mine = tomllib.loads(
        'family = "mine"\nextends = "bert"\nwithout = ["facts.position_scheme"]\nfacts.position_scheme = "padding"'
    )
    tables = make_tables(SHIPPED["layouts"], [*files(), (mine, "mine.toml")])
    assert tables.families["mine"].facts["position_scheme"] == "padding"


def test_empty_class_takes_a_task_out_of_a_layout():
    mine = tomllib.loads('family = "mine"\nextends = "bert"\ntask.masked_lm.burn = ""')
    tables = make_tables(SHIPPED["layouts"], [*files(), (mine, "mine.toml")])
    assert tables.families["mine"].tasks["masked_lm"].classes["hf"] == "BertForMaskedLM"
    assert "burn" not in tables.families["mine"].tasks["masked_lm"].classes


def test_layouts_are_checked_too():
    layouts = copy.deepcopy(SHIPPED["layouts"])
    layouts["hf"]["linear"] = {"kernel": "weight : out in )", "bias": "bias"}
    layouts["burn"]["wrapers"] = {}
    with pytest.raises(TableError, match="3 problems") as caught:
        make_tables(layouts, files())
    assert [(p.where, p.what, p.found) for p in caught.value.problems] == [
        ("mappings/layouts.toml [burn]", "unknown key", "'wrapers'"),
        ("mappings/layouts.toml [hf.linear] bias", "no usable value", "'bias'"),
        ("mappings/layouts.toml [hf.linear] kernel", "no usable value", "'weight : out in )'"),
    ]


def test_required_fields_are_those_that_the_facts_take_from_a_config():
    told = {"family", "task", "head_style", "num_labels", "position_scheme", "position_offset"}
    assert set(FIELDS) == {f.name for f in fields(Facts)} - told - {"has_pooler", "pooler_act"}


# ---------------------------------------------------------------- any mistake

WORDS = ("bert", "h", "{i}", "{", "x.{i}", "", "²", "h -> h", "num_hidden_layers", "pad_token_id + 1", "a / b", "burn")
SCALARS = st.one_of(
    st.sampled_from(WORDS), st.text(max_size=6), st.booleans(), st.integers(-3, 3), st.sampled_from([2**64, 10**400]),
    st.floats(), st.just(datetime.date(1979, 5, 27)), st.sampled_from(["model", "vocab_size", "gelu", "embeddings.word"]),
)  # fmt: skip
VALUES = st.recursive(
    SCALARS, lambda v: st.lists(v, max_size=3) | st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=4), v, max_size=3), max_leaves=6
)  # fmt: skip


def places(value):
    """Every table and list in a value, with each of its keys or indices."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in inside:
        yield value, key
        yield from places(inner)


@st.composite
def mutations(draw):
    """The shipped files with one to three changes."""
    changed = copy.deepcopy(SHIPPED)
    for _ in range(draw(st.integers(1, 3))):
        holder, key = draw(st.sampled_from(list(places(changed[draw(st.sampled_from(sorted(changed)))]))))
        kind = draw(st.sampled_from(["replace", "replace", "delete", "add", "double"]))
        if kind == "replace":
            holder[key] = draw(VALUES)
        elif kind == "delete":
            del holder[key]
        elif isinstance(holder, dict):
            holder[draw(st.sampled_from(WORDS) | st.text(max_size=6))] = draw(VALUES) if kind == "add" else holder[key]
        else:
            holder.append(draw(VALUES) if kind == "add" else copy.deepcopy(holder[key]))
    return changed


def tables_or_problems(changed):
    """The tables where they pass the check, and what is wrong with them otherwise."""
    try:
        tables = make_tables(changed["layouts"], files(**changed))
        check_tables(tables)
    except TableError as e:
        return None, e.problems
    return tables, ()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(mutations())
def test_changed_tables_are_refused_in_words_or_sound(changed):
    tables, problems = tables_or_problems(changed)
    assert all(p.where and p.what for p in problems)
    assert (tables is None) == bool(problems)
    for table in tables.families.values() if tables else ():
        config = NUMBERS | {name: f.default for name, f in table.config.items() if f.default is not None}
        assert reserved_positions(table, config) >= 0
        assert {facts_of(table, task, config, "hf", has_pooler=True).task for task in table.tasks.values()} == set(
            table.tasks
        )
