"""`portkit diff`: what it prints, its page, its exit codes; and texts from strangers in both."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib.resources import files

import numpy as np
import pytest
from click.testing import CliRunner
from diff_folders import edited, model
from hf_folders import config_for, facts_for, saved_state, write_hf

import portkit
from portkit.cli import main
from portkit.difference.html import render_page
from portkit.difference.markup import Markup, plain, tag
from portkit.difference.summary import ranged, verdict
from portkit.difference.text import render_diff
from portkit.errors import PortkitError

QUERY = "layer.1.attention.query.kernel"
HOSTILE = '</td><script>alert(1)</script>&"\x1b[31m\u202e'


def run(*words, code=0):
    """What a command prints on stdout, or on stderr where it fails."""
    result = CliRunner().invoke(main, [str(word) for word in words])
    assert result.exit_code == code, (result.output, result.exception)
    return result.stderr if result.stderr else result.stdout


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("folders")
    a = model(folder / "a")
    edited(a, folder / "b", lambda t: {QUERY: t[QUERY].T}, config={"layer_norm_eps": 1e-5})
    return folder


# ---------------------------------------------------------------- text


def test_text_of_two_that_are_equal(tmp_path):
    a = model(tmp_path / "a", task="masked_lm")
    portkit.convert(a, tmp_path / "b", to="burn", verify="none")
    assert run("diff", a, tmp_path / "b").splitlines() == [
        f"A  {a}: hf (safetensors), bert, masked_lm, 58 tensors in F32",
        f"B  {tmp_path / 'b'}: burn (burnpack), bert, masked_lm, 59 tensors in F32",
        "compared 59 tensors: 59 of 59 in A, 59 of 59 in B",
        "fields         25 of 25 equal",
        "tensors        59 equal",
        "equal: 59 tensors (bit for bit) and every field that decides the function",
    ]


def test_text_of_two_that_differ(folders):
    lines = run("diff", folders / "a", folders / "b", code=1).splitlines()
    assert lines[2:6] == [
        "compared 55 tensors: 55 of 55 in A, 55 of 55 in B",
        "fields         22 of 23 equal",
        "  differs      facts.layer_norm_eps: 1e-12 | 1e-05",
        "tensors        54 equal, 1 differ",
    ]
    assert re.fullmatch(
        rf"  {QUERY} +0\.\d+ +1\.\d+ +\d\.\d+e\+09 +95\.83% +-?0\.\d{{3}}  \[\d+, \d+\] -?0\.\d+ \| -?0\.\d+", lines[7]
    )
    assert lines[8:] == [
        "diagnosis",
        "  B is A transposed (certain: then equal bit for bit)",
        f"    in {QUERY}",
        f"different: 1 of 55 tensors and 1 of 23 fields; they part first at {QUERY}",
    ]


def test_text_names_shapes_sides_and_what_was_ignored(tmp_path):
    a, b = model(tmp_path / "a"), model(tmp_path / "b", has_pooler=False, vocab_size=64)
    text = run("diff", a, b, "--ignore", "layer.*", "--ignore", "facts.vocab_size", code=1)
    assert "\ncompared 4 tensors: 4 of 7 in A, 4 of 5 in B; 49 left out by --ignore\n" in text
    assert "\n  shape (61, 24) in A, (64, 24) in B: embeddings.word.table\n" in text
    assert "\n  only in A: pooler.kernel, pooler.bias\n" in text


def test_long_values_and_long_lists_are_cut(tmp_path):
    facts = facts_for("bert", "model")
    steps = {f"optimizer.{i}": np.arange(3, dtype="f4") + i for i in range(9)}
    a = write_hf(tmp_path / "a", saved_state(facts), config_for("bert", facts, note="n" * 500))
    b = write_hf(tmp_path / "b", {**saved_state(facts), **steps}, config_for("bert", facts))
    text = run("diff", a, b, code=1)
    assert f"\n  noted        config.note: {'n' * 200} … | none (portkit does not read this field)\n" in text
    assert "\n  only in B: unexplained.optimizer.0, unexplained.optimizer.1, " in text
    assert " and 5 more\n" in text


def test_long_tables_say_that_they_are_cut(tmp_path):
    a = model(tmp_path / "a")
    b = edited(a, tmp_path / "b", lambda t: {n: x.astype("f2").astype("f4") for n, x in t.items()})
    text = run("diff", a, b, code=1)
    assert "\n  and 31 more; --json and --html list all\n" in text
    assert (
        "\n    in embeddings.word.table, embeddings.position.table, embeddings.type.table, embeddings.norm.scale"
        in text
    )
    assert "and 19 more (55 tensors)\n" in text


def test_verdicts(tmp_path, folders):
    a, b = folders / "a", folders / "b"
    near = edited(a, tmp_path / "near", lambda t: {QUERY: t[QUERY] + np.float32(1e-4)})
    nothing = portkit.diff(a, a, ignore=["*.kernel", "*.bias", "*.scale", "*.table"])
    assert verdict(portkit.diff(a, near, atol=1e-3)) == (
        "within the tolerance (atol 0.001, rtol 0): 55 tensors (54 equal, 1 within the tolerance) and every field that"
        " decides the function"
    )
    assert verdict(nothing) == "NOTHING WAS COMPARED: no tensor that was left in has one shape on both sides"
    assert verdict(portkit.diff(a, b, ignore=[QUERY])) == "different: 1 of 23 fields; every tensor is equal"


def test_one_function_in_two_places_is_called_so(tmp_path):
    a = model(tmp_path / "a", task="sequence_classification")
    portkit.convert(a, tmp_path / "b", to="burn", head_style="roberta", verify="none")
    text = run("diff", a, tmp_path / "b")
    assert "\n  embeddings.position.table: row i of A is row i+1 of B; rows that no token reads left out\n" in text
    assert text.endswith(
        "equal: 57 tensors (bit for bit) and every field that decides the function. The same function in two places:"
        " head style bert in A, roberta in B: one tanh layer, in the backbone or in the head;"
        " position scheme absolute in A, padding in B:"
        " the same positions for right-padded input without the pad id inside\n"
    )


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["layer.0.a", "layer.1.a", "layer.2.a", "layer.5.a"], ("layer.0-2,5.a",)),
        (["pooler.bias", "layer.3.a", "layer.3.b"], ("pooler.bias", "layer.3.a", "layer.3.b")),
    ],
)
def test_layers_are_told_in_one_word(names, said):
    assert ranged(names) == said


# ---------------------------------------------------------------- the command


def test_json_is_the_result(folders):
    said = json.loads(run("diff", folders / "a", folders / "b", "--json", code=1))
    assert said == json.loads(json.dumps(portkit.diff(folders / "a", folders / "b").as_dict()))
    assert said["differing"] == [QUERY, "facts.layer_norm_eps"]


def test_exit_codes(tmp_path, folders):
    a, b = folders / "a", folders / "b"
    run("diff", a, a)
    run("diff", a, b, code=1)
    assert "--ignore nothing: matches no tensor and no field" in run("diff", a, b, "--ignore", "nothing", code=2)
    assert "--atol: is no tolerance" in run("diff", a, b, "--atol", "-1", code=2)
    assert "no such file or folder" in run("diff", a, tmp_path / "nowhere", code=3)
    assert "NOTHING WAS COMPARED" in run(
        "diff", a, a, *(w for p in ("k", "b", "s", "t") for w in ("--ignore", f"*.{p}*")), code=3
    )


def test_tolerance_and_ignoring_reach_the_library(tmp_path, folders):
    a = folders / "a"
    near = edited(a, tmp_path / "near", lambda t: {QUERY: t[QUERY] * np.float32(1.001)})
    for words in (("--rtol", "0.01"), ("--atol", "0.01"), ("--ignore", "layer.1.*")):
        run("diff", a, near, *words)


def test_each_side_has_reading_options(tmp_path):
    facts = facts_for("bert", "model")
    state = {f"{tower}.{n}": x for tower in ("left", "right") for n, x in saved_state(facts).items()}
    towers = write_hf(tmp_path / "towers", state, config_for("bert", facts))
    alone = model(tmp_path / "alone")
    (alone / "config.json").rename(tmp_path / "other.json")
    table = tmp_path / "mine.toml"
    table.write_text('family = "mine"\nextends = "bert"\n[hf]\nmodel_type = "mine"\n', encoding="utf-8")
    a = ("--a-strip-prefix", "left.", "--a-from", "hf", "--a-family", "mine", "--a-task", "model")
    b = ("--b-config", tmp_path / "other.json", "--b-from", "hf", "--b-family", "bert", "--b-task", "model")
    text = run("diff", towers, alone, *a, *b, "--mapping", table, code=1)
    assert f"A  {towers}: hf (safetensors), mine, model" in text
    assert "tensors        55 equal, 55 only in A" in text  # the right tower


def test_help_loads_nothing_of_it():
    ask = "import sys; from portkit.cli import main; main(['--help'], standalone_mode=False);"
    ask += "print([n for n in sys.modules if n == 'numpy' or n.startswith('portkit.difference')])"
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    assert "\n  diff " in done.stdout


# ---------------------------------------------------------------- the page


class Page(HTMLParser):
    """Counts elements, gathers texts and attributes, and checks that every element is closed."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.attributes, self.texts = [], [], [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += [(tag, *a) for a in attrs]
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """Two folders whose path, label and tensor names are made to break out of whatever shows them."""
    folder = tmp_path_factory.mktemp("hostile")
    facts = facts_for("bert", "token_classification")
    labels = {str(i): f"{HOSTILE}{i}" for i in range(5)}
    state = {**saved_state(facts), f"{HOSTILE}.weight": np.arange(6, dtype="f4")}
    a = write_hf(folder / "a <b>", state, config_for("bert", facts, id2label=labels, **{HOSTILE: HOSTILE}))
    b = write_hf(folder / "b", saved_state(facts), config_for("bert", facts))
    return portkit.diff(a, b)


def test_names_of_strangers_stay_text_in_the_page(hostile):
    page = Page(render_page(hostile))
    shown = '</td><script>alert(1)</script>&"\\x1b[31m\\x202e'
    assert not {"script", "img", "iframe", "object", "link", "a", "form"} & set(page.tags)
    assert not [a for a in page.attributes if a[1].startswith("on") or a[1] in ("href", "src", "style")]
    for word in (f"unexplained.{shown}.weight", f"config.{shown}", f"{shown}0"):
        assert any(word in text for text in page.texts), word
    assert not [c for c in "".join(page.texts) if not c.isprintable() and c != "\n"]


def test_names_of_strangers_stay_text_on_a_terminal(hostile):
    text = render_diff(hostile)
    assert not [c for c in text if not c.isprintable() and c != "\n"]
    assert "\\x1b[31m\\x202e.weight" in text


def test_the_page_needs_nothing_from_outside(hostile):
    text = render_page(hostile)
    assert "default-src 'none'; style-src 'unsafe-inline'" in text
    assert not re.search(r"https?:|url\(|@import|javascript:", text)


def test_the_page_can_be_read_without_seeing_it(folders):
    page = Page(render_page(portkit.diff(folders / "a", folders / "b")))
    assert ("html", "lang", "en") in page.attributes
    assert page.tags.count("table") == page.tags.count("caption") > 4
    assert page.tags.count("h1") == page.tags.count("main") == page.tags.count("title") == 1
    assert page.tags.count("th") == sum(a[1] == "scope" for a in page.attributes)
    regions = [a for a in page.attributes if a[1] == "role"]
    assert (
        len(regions)
        == sum(a[1] == "tabindex" for a in page.attributes)
        == sum(a[1] == "aria-label" for a in page.attributes)
    )


def test_the_map_shows_where_they_part(folders):
    page = render_page(portkit.diff(folders / "a", folders / "b"))
    cells = re.findall(r'<td class="(h\d|gone)( first)?" title="([^"]*)"', page)
    assert len(cells) == 3 * 8 + 5  # layers by modules, and what lies outside
    assert [c for c in cells if c[0] != "h0"] == [c for c in cells if c[1]]
    ((level, _, label),) = [c for c in cells if c[1]]
    assert level == "h5"
    assert label.startswith("layer.1.attention.query.kernel: differs, relative difference 1.")
    assert label.endswith("layer.1.attention.query.bias: equal (the first layer that differs)")


def test_map_of_sides_that_lack_something(tmp_path):
    diff = portkit.diff(model(tmp_path / "a"), model(tmp_path / "b", has_pooler=False, num_hidden_layers=2))
    page = render_page(diff)
    assert page.count('class="gone"') == 8 + 1 + 1  # a layer, the pooler, the legend
    assert ">A only<" in page


def test_a_page_is_written_whole(tmp_path, folders):
    page = tmp_path / "page.html"
    run("diff", folders / "a", folders / "b", "--html", page, code=1)
    assert page.read_text(encoding="utf-8") == render_page(portkit.diff(folders / "a", folders / "b"))
    assert [p.name for p in tmp_path.iterdir()] == ["page.html"]
    run("diff", folders / "a", folders / "b", "--html", tmp_path / "new" / "page.html", code=1)
    assert (tmp_path / "new" / "page.html").read_bytes() == page.read_bytes()
    below = run("diff", folders / "a", folders / "b", "--html", page / "page.html", code=3)
    assert "page.html: cannot be written" in below


def test_elements_escape_what_is_no_markup():
    assert tag("p", "<b>", Markup("<br>"), class_='"x', title=None) == '<p class="&quot;x">&lt;b&gt;<br></p>'
    assert plain("a\x00\nb") == "a\\x00\\x0ab"


def colours(css, scheme):
    light, dark = css.split("@media (prefers-color-scheme: dark)")
    found = dict(re.findall(r"--([\w-]+): (#[0-9a-f]+)", light))
    return found | (dict(re.findall(r"--([\w-]+): (#[0-9a-f]+)", dark)) if scheme == "dark" else {})


def luminance(colour):
    """Relative luminance as WCAG 2.2 defines it."""
    digits = colour[1:] if len(colour) == 7 else "".join(2 * c for c in colour[1:])
    parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_the_contrast_that_wcag_asks_for(scheme):
    found = colours((files("portkit.difference") / "page.css").read_text(encoding="utf-8"), scheme)
    pairs = [("ink", "paper"), ("ink", "box"), ("soft", "paper"), ("mark", "paper"), ("ink", "gone")]
    pairs += [("on-cool", f"h{i}") for i in range(4)] + [("on-warm", "h4"), ("on-warm", "h5")]
    for text, ground in pairs:
        low, high = sorted((luminance(found[text]), luminance(found[ground])))
        assert (high + 0.05) / (low + 0.05) >= 4.5, (scheme, text, ground)


def test_a_folder_that_cannot_be_read_is_no_traceback(tmp_path):
    with pytest.raises(PortkitError, match="no such file or folder"):
        portkit.diff(tmp_path / "a", tmp_path / "b")
