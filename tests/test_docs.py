"""The documents: their example works, and what the code offers stands in them."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import portkit
from portkit.cli import main
from portkit.layouts.registry import LAYOUTS
from portkit.table.check import check_tables
from portkit.table.grammar import Grammar, layouts_rule
from portkit.table.load import load_tables, tables_dir
from portkit.table.rules import Either, Keys, ListOf, MapOf

if TYPE_CHECKING:
    import click

ROOT = Path(__file__).parent.parent
DOCUMENTS = (
    "README.md", "docs/architecture.md", "docs/tables.md", "docs/verification.md", "docs/self-test.md", "docs/diff.md",
    "docs/golden.md", "docs/devices.md", "docs/ci.md", "docs/conversion.md", "CHANGELOG.md",
)  # fmt: skip
TOY_CONFIG = {
    "model_type": "toybert",
    "vocab_size": 31,
    "width": 12,
    "depth": 2,
    "num_attention_heads": 3,
    "intermediate_size": 20,
    "max_position_embeddings": 17,
    "type_vocab_size": 2,
}


def text_of(*names: str) -> str:
    return "\n".join((ROOT / name).read_text(encoding="utf-8") for name in names)


def blocks(document: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text_of(document), re.DOTALL | re.MULTILINE)


def commands(command: click.Command, path: str) -> dict[str, click.Command]:
    found = {path: command}
    for name, below in getattr(command, "commands", {}).items():
        found |= commands(below, f"{path} {name}")
    return found


def toy_shapes(labels: int) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a ToyBERT as its document describes it, written out by hand; no labels: the bare model."""
    front = "toy." if labels else ""
    linears = {"pool": (12, 12)}
    norms = ["emb.norm"]
    for i in range(2):
        linears |= {f"enc.blk.{i}.{part}": (12, 12) for part in ("query", "key", "value", "join")}
        linears |= {f"enc.blk.{i}.up": (20, 12), f"enc.blk.{i}.down": (12, 20)}
        norms += [f"enc.blk.{i}.norm_a", f"enc.blk.{i}.norm_b"]
    shapes = {f"{front}emb.{name}.weight": (rows, 12) for name, rows in (("token", 31), ("place", 17), ("segment", 2))}
    shapes |= {f"{front}{name}.weight": shape for name, shape in linears.items()}
    shapes |= {f"{front}{name}.bias": shape[:1] for name, shape in linears.items()}
    shapes |= {f"{front}{name}.{leaf}": (12,) for name in norms for leaf in ("weight", "bias")}
    return shapes | ({"classifier.weight": (labels, 12), "classifier.bias": (labels,)} if labels else {})


@pytest.fixture
def toy_table(tmp_path):
    (found,) = [b for b in blocks("docs/tables.md", "toml") if b.startswith("family")]
    path = tmp_path / "toybert.toml"
    path.write_text(found, encoding="utf-8")
    return path


def test_example_table_is_right(toy_table):
    tables = load_tables((toy_table,))
    assert set(tables.families["toybert"].tasks) == {"model", "sequence_classification"}
    assert check_tables(tables).tables == check_tables(load_tables()).tables + 1


@pytest.mark.parametrize(("name", "labels"), [("ToyModel", 0), ("ToyForSequenceClassification", 5)])
@pytest.mark.parametrize("form", ["bpk", "safetensors", "mpk"])
def test_example_goes_to_burn_and_back(toy_table, tmp_path, name, labels, form):
    rng = np.random.default_rng(0)
    source = tmp_path / "toy-model"
    source.mkdir()
    tensors = {n: rng.normal(size=shape).astype(np.float32) for n, shape in toy_shapes(labels).items()}
    save_file(tensors, source / "model.safetensors")
    config = TOY_CONFIG | {"architectures": [name]}
    (source / "config.json").write_text(json.dumps(config), encoding="utf-8")

    opening = {"mappings": (toy_table,)}
    burn, again = tmp_path / "toy-burn", tmp_path / "toy-again"
    there = portkit.convert(source, burn, to="burn", form=form, verify="tensors", open_with=opening)
    back = portkit.convert(burn, again, to="hf", verify="tensors", open_with=opening)

    assert (there.proved, back.proved) == (True, True)
    assert there.tensors.compared == back.tensors.compared == len(tensors)
    found = load_file(again / "model.safetensors")
    assert {n: (a.dtype, a.shape, a.tobytes()) for n, a in found.items()} == {
        n: (a.dtype, a.shape, a.tobytes()) for n, a in tensors.items()
    }
    written = json.loads((again / "config.json").read_text(encoding="utf-8"))
    assert config.items() <= written.items()


def test_every_command_and_option_is_named():
    said = text_of(*DOCUMENTS)
    for path, command in commands(main, "portkit").items():
        assert path in said, f"{path} stands in no document"
        names = {n for p in command.params for n in (*p.opts, *p.secondary_opts) if n.startswith("-")}
        missing = {n for n in names if not re.search(rf"(?<![\w-]){re.escape(n)}(?![\w-])", said)}
        assert not missing, f"{path}: {missing} stand in no document"


def test_every_choice_is_named():
    said = text_of(*DOCUMENTS)
    choices = [c for x in commands(main, "portkit").values() for p in x.params for c in getattr(p.type, "choices", ())]
    forms = [form for layout in LAYOUTS.values() for form in layout.formats]
    dialects = [d for table in load_tables().families.values() for d in table.dialects]
    assert choices
    missing = {word for word in (*choices, *LAYOUTS, *forms, *dialects) if word not in said}
    assert not missing


def keys_of(rule):
    """Every key that a rule knows; of a table with free keys, those of one that is not there."""
    if isinstance(rule, Keys):
        yield from rule.known
    below = {Keys: lambda: rule.known.values(), Either: lambda: rule.options, ListOf: lambda: (rule.item,)}
    below[MapOf] = lambda: (rule.of("pooler"),)
    for inner in below.get(type(rule), tuple)():
        yield from keys_of(inner)


def test_every_key_of_a_table_is_explained():
    said = text_of("docs/tables.md")
    bert = tomllib.loads((tables_dir() / "bert.toml").read_text(encoding="utf-8"))
    bert["rows"] = {"pooler": bert["rows"]["pooler"]}
    names = {*keys_of(Grammar(bert, load_tables().layouts, ("bert",)).table()), *keys_of(layouts_rule())}
    assert names >= {
        "grow",
        "below",
        "tied",
        "head_style",
        "spare_pooler",
        "fixed",
        "columns",
        "infixes",
        "reserved_positions",
    }
    assert not {n for n in names if not re.search(rf"[`.\[]{n}\b", said)}


def test_every_module_has_a_line_in_the_architecture():
    said = text_of("docs/architecture.md")
    package = ROOT / "portkit"
    modules = [p.relative_to(package).as_posix() for p in package.rglob("*.py") if p.name != "__init__.py"]
    assert modules
    assert not [m for m in modules if f"`{m}`" not in said]


def test_modules_of_the_architecture_import_only_from_above():
    section = text_of("docs/architecture.md").partition("## Modules")[2].partition("\n## ")[0]
    listed = re.findall(r"`([\w/]+)\.py`", section)
    rank = {name.replace("/", "."): i for i, name in enumerate(listed)}
    assert len(rank) == len(listed) > 40
    for name, place in rank.items():
        code = (ROOT / "portkit" / name.replace(".", "/")).with_suffix(".py").read_text(encoding="utf-8")
        used = set(re.findall(r"^ *from portkit\.([\w.]+) import", code, re.MULTILINE))
        assert not [u for u in used if rank.get(u, -1) >= place], name


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere(document):
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", text_of(document))
    local = [link for link in links if "://" not in link]
    assert not [link for link in local if not (ROOT / document).parent.joinpath(link).exists()]


def test_code_of_the_readme_is_the_code_of_the_project():
    (rust,) = blocks("README.md", "rust")
    assert rust == text_of("burn/examples/embed.rs")
    for block in blocks("README.md", "python"):
        compile(block, "README.md", "exec")


def test_the_version_has_an_entry():
    assert f"## [{portkit.__version__}]" in text_of("CHANGELOG.md")
