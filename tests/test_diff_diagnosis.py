"""Each hypothesis, provoked by a real change of a real folder, in every layout; and what must not be found."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from diff_folders import LAYOUTS, edited, model

import portkit
from portkit.difference.hypotheses import HYPOTHESES

QUERY, VALUE, OUT = (f"layer.1.attention.{part}" for part in ("query", "value", "out"))
WORDS, POSITIONS, TYPES = (f"embeddings.{part}.table" for part in ("word", "position", "type"))
BEHIND = "certain: then equal bit for bit"
RANDOM = (
    "B looks freshly initialised: its standard deviation is initializer_range (0.02), and nothing of the other side is"
    " in it (evidence, not proof)"
)


def noise(size, *shape):
    return np.random.default_rng(7).normal(0, size, shape).astype("f4")


def rows_of_noise(count):
    return noise(0.5, count, 24)


def exchanged(one, other):
    """A change that exchanges all tensors whose names hold one word with those that hold another."""

    def change(tensors):
        renamed = {n.replace(one, "@").replace(other, one).replace("@", other): t for n, t in tensors.items()}
        return {n: t for n, t in renamed.items() if t is not tensors[n]}

    return change


def through(dtype):
    return lambda t: {n: x.astype(dtype).astype("f4") for n, x in t.items()}


def one_ulp(tensors):
    bias = tensors["pooler.bias"].copy()
    bias[7] = np.nextafter(bias[7], np.float32(9))
    return {"pooler.bias": bias}


FAULTS = {  # name: (the change, kind, words, tensors that are told so)
    "transposed": (
        lambda t: {f"{QUERY}.kernel": t[f"{QUERY}.kernel"].T},
        "transposed", f"B is A transposed ({BEHIND})", {f"{QUERY}.kernel"},
    ),
    "heads interleaved": (
        lambda t: {
            f"{VALUE}.kernel": t[f"{VALUE}.kernel"].reshape(24, 3, 8).swapaxes(1, 2).reshape(24, 24),
            f"{VALUE}.bias": t[f"{VALUE}.bias"].reshape(3, 8).T.reshape(24),
            f"{OUT}.kernel": t[f"{OUT}.kernel"].reshape(3, 8, 24).swapaxes(0, 1).reshape(24, 24),
        },
        "heads_exchanged", f"A has 3 heads of 8 one after the other, in B they are interleaved ({BEHIND})",
        {f"{VALUE}.kernel", f"{VALUE}.bias", f"{OUT}.kernel"},
    ),
    "heads taken apart": (
        lambda t: {f"{VALUE}.kernel": t[f"{VALUE}.kernel"].reshape(24, 8, 3).swapaxes(1, 2).reshape(24, 24)},
        "heads_exchanged", f"B has 3 heads of 8 one after the other, in A they are interleaved ({BEHIND})",
        {f"{VALUE}.kernel"},
    ),
    "query and key": (
        exchanged("query", "key"),
        "exchanged", f"layer.*.attention.key and layer.*.attention.query are exchanged ({BEHIND})",
        {f"layer.{i}.attention.{part}.{leaf}" for i in range(3) for part in ("query", "key") for leaf in ("kernel", "bias")},
    ),
    "two norms": (
        exchanged("layer.2.attention.norm", "layer.2.mlp.norm"),
        "exchanged", f"layer.*.attention.norm and layer.*.mlp.norm are exchanged ({BEHIND})",
        {f"layer.2.{part}.norm.{leaf}" for part in ("attention", "mlp") for leaf in ("scale", "bias")},
    ),
    "two layers": (exchanged("layer.0.", "layer.2."), "exchanged", f"layer.0 and layer.2 are exchanged ({BEHIND})", 32),
    "a layer twice": (
        lambda t: {n.replace("layer.0.", "layer.1."): x for n, x in t.items() if n.startswith("layer.0.")},
        "elsewhere", f"layer.1 of B is layer.0 of A ({BEHIND})", 16,
    ),
    **{
        f"positions by {step}": (
            lambda t, step=step: {POSITIONS: np.concatenate([rows_of_noise(step), t[POSITIONS][:-step]])},
            "shifted", f"rows are shifted: row i of A is row i+{step} of B; {37 - step} rows looked at ({BEHIND})",
            {POSITIONS},
        )
        for step in (1, 2)
    },
    "positions back": (
        lambda t: {POSITIONS: np.concatenate([t[POSITIONS][1:], rows_of_noise(1)])},
        "shifted", f"rows are shifted: row i of A is row i-1 of B; 36 rows looked at ({BEHIND})", {POSITIONS},
    ),
    "vocabulary in another order": (
        lambda t: {WORDS: t[WORDS][np.r_[0:5, 60:4:-1]]},
        "permuted", f"56 of 61 rows are in another order: the first is 5 of B, which is 60 of A ({BEHIND})", {WORDS},
    ),
    "units in another order": (
        lambda t: {"layer.0.mlp.up.kernel": np.roll(t["layer.0.mlp.up.kernel"], 1, 1)},
        "permuted", f"40 of 40 columns are in another order: the first is 0 of B, which is 39 of A ({BEHIND})",
        {"layer.0.mlp.up.kernel"},
    ),
    "zeros": (
        lambda t: {"pooler.kernel": np.zeros_like(t["pooler.kernel"])},
        "constant", "B is 0 throughout: made up or never loaded, not trained (certain)", {"pooler.kernel"},
    ),
    "ones": (
        lambda t: {"embeddings.norm.scale": np.ones(24, "f4")},
        "constant", "B is 1 throughout: made up or never loaded, not trained (certain)", {"embeddings.norm.scale"},
    ),
    "doubled": (
        lambda t: {TYPES: 2 * t[TYPES]}, "scaled", f"B is A times 2 ({BEHIND})", {TYPES},
    ),
    "scaled by the root of the width": (
        lambda t: {WORDS: t[WORDS] * np.float32(24**0.5)},
        "scaled", f"B is A times 4.89898 ({BEHIND})", {WORDS},
    ),
    "a scale without its 1": (
        lambda t: {"embeddings.norm.scale": t["embeddings.norm.scale"] - 1},
        "scaled", f"B is A plus -1 ({BEHIND})", {"embeddings.norm.scale"},
    ),
    "through float16": (through("f2"), "rounded", f"B is A rounded through float16 ({BEHIND})", 55),
    "through bfloat16": (
        through("bfloat16"), "rounded", f"B is A rounded through bfloat16 ({BEHIND})", 55,
    ),
    "one ulp": (one_ulp, "last_bits", "one element differs, by 1 ulp (certain)", {"pooler.bias"}),
    "a sign": (
        lambda t: {"pooler.kernel": -t["pooler.kernel"]},
        "negated", f"B is A with the sign turned ({BEHIND})", {"pooler.kernel"},
    ),
    "a random head": (
        lambda _: {"pooler.kernel": noise(0.02, 24, 24)},
        "initialised",
        RANDOM,
        {"pooler.kernel"},
    ),
    "one element": (
        lambda t: {WORDS: t[WORDS] + (np.arange(61 * 24).reshape(61, 24) == 99).astype("f4")},
        "changed", "one element differs, all others are equal bit for bit (certain)", {WORDS},
    ),
    "not a number": (
        lambda t: {"pooler.bias": np.where(np.arange(24) < 2, np.nan, t["pooler.bias"]).astype("f4")},
        "changed", "elements are NaN or infinite on one side (certain)", {"pooler.bias"},
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sources")
    return {layout: model(folder / layout, layout) for layout in LAYOUTS}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_change_is_named(sources, tmp_path, fault, layout):
    change, kind, words, names = FAULTS[fault]
    broken = edited(sources[layout], tmp_path / "broken", change)
    for side in LAYOUTS:  # against the same layout, and across
        diff = portkit.diff(sources[side], broken)
        told = {t.name: t.findings[0] for t in diff.tensors if t.findings}
        assert set(told) == set(diff.differing)
        assert len(told) == names if isinstance(names, int) else set(told) == names
        assert {f.kind for f in told.values()} == {kind}
        assert _groups(diff) == [words]


def _groups(diff):
    from portkit.difference.summary import groups

    return [g.text for g in groups(diff)]


@pytest.mark.parametrize("fault", ["through float16", "zeros", "a random head", "a layer twice", "one ulp"])
def test_the_other_way_round_the_sides_are_named_so(sources, tmp_path, fault):
    broken = edited(sources["hf"], tmp_path / "broken", FAULTS[fault][0])
    said = {
        "through float16": f"A is B rounded through float16 ({BEHIND})",
        "zeros": "A is 0 throughout: made up or never loaded, not trained (certain)",
        "a random head": RANDOM.replace("B looks", "A looks"),
        "a layer twice": f"layer.1 of B is layer.1 of A ({BEHIND})",
        "one ulp": "one element differs, by 1 ulp (certain)",
    }
    if fault != "a layer twice":  # nothing of A's layer 1 is in B then
        assert _groups(portkit.diff(broken, sources["hf"])) == [said[fault]]
    else:
        assert all("no correlation" in g for g in _groups(portkit.diff(broken, sources["hf"])))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_missing_tie_is_named(tmp_path, layout):
    tied = model(tmp_path / "tied", task="masked_lm")
    portkit.convert(tied, tmp_path / "burn", to="burn", form="safetensors", verify="none")
    kernel = "masked_lm.decoder.kernel"
    broken = edited(tmp_path / "burn", tmp_path / "broken", lambda t: {kernel: t[kernel] + 0.1 * rows_of_noise(61).T})
    if layout == "hf":
        portkit.convert(broken, tmp_path / "hf", to="hf", verify="none")
        broken = tmp_path / "hf"
    said = "A ties it to embeddings.word.table; the tie is missing in B (certain)"
    assert _groups(portkit.diff(tied, broken)) == [said]
    assert _groups(portkit.diff(broken, tied)) == [
        "B ties it to embeddings.word.table; the tie is missing in A (certain)"
    ]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_tie_that_is_kept_is_not_blamed(tmp_path, layout):
    a = model(tmp_path / "a", layout, task="masked_lm")
    rows = {WORDS: lambda t: np.concatenate([t[WORDS][:-1], t[WORDS][-1:] + 1])}

    def change(t):
        table = rows[WORDS](t)
        return {WORDS: table} | ({"masked_lm.decoder.kernel": table.T} if "masked_lm.decoder.kernel" in t else {})

    diff = portkit.diff(a, edited(a, tmp_path / "b", change))
    said = [t.findings[0].text for t in diff.tensors if t.name == "masked_lm.decoder.kernel"]
    assert said == (["both sides tie it to embeddings.word.table, and differ as that does"] if layout == "burn" else [])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_padded_vocabulary_is_named(tmp_path, layout):
    a = model(tmp_path / "a", layout)
    b = edited(a, tmp_path / "b", lambda t: {WORDS: np.concatenate([t[WORDS], rows_of_noise(3)])}, {"vocab_size": 64})
    diff = portkit.diff(a, b)
    assert [(t.name, t.state) for t in diff.tensors if t.different] == [(WORDS, "shape")]
    assert _groups(diff) == [f"B has 3 rows more, the first 61 are A's ({BEHIND})"]
    assert _groups(portkit.diff(b, a)) == [f"A has 3 rows more, the first 61 are B's ({BEHIND})"]


@pytest.mark.parametrize("pad", [0, 1])
def test_roberta_positions_that_lost_their_offset(tmp_path, pad):
    """The rows lie where BERT has them, the facts say that they are read from pad + 1 on."""
    bert = model(tmp_path / "bert", task="sequence_classification", max_position_embeddings=37, pad_token_id=pad)
    portkit.convert(bert, tmp_path / "roberta", to="hf", head_style="roberta", verify="none")
    first = pad + 1
    broken = edited(
        tmp_path / "roberta",
        tmp_path / "broken",
        lambda t: {POSITIONS: np.concatenate([t[POSITIONS][first:], rows_of_noise(first)])},
    )
    assert portkit.diff(bert, tmp_path / "roberta").equal
    said = f"rows are shifted: row i of A is row i+0 of B, not i+{first}; 37 rows looked at ({BEHIND})"
    assert _groups(portkit.diff(bert, broken)) == [said]
    step = f"rows are shifted: row i of A is row i-{first} of B; 37 rows looked at ({BEHIND})"
    assert _groups(portkit.diff(tmp_path / "roberta", broken)) == [step]


def test_a_change_that_was_trained_over_is_near(sources, tmp_path):
    broken = edited(
        sources["hf"], tmp_path / "b", lambda t: {f"{QUERY}.kernel": t[f"{QUERY}.kernel"].T + noise(0.005, 24, 24)}
    )
    (told,) = [t.findings[0] for t in portkit.diff(sources["hf"], broken).tensors if t.findings]
    assert (told.kind, told.certain) == ("transposed", False)
    assert 0.99 < told.explained < 1
    assert re.fullmatch(r"B is A transposed \(near: 99\.\d\d% of the difference goes away\)", str(told))


def test_more_training_is_no_fault(sources, tmp_path):
    def change(tensors):
        return {n: x + noise(0.01, *x.shape) for n, x in tensors.items()}

    (told,) = _groups(portkit.diff(sources["hf"], edited(sources["hf"], tmp_path / "b", change)))
    assert told.startswith("the same tensor, trained further or perturbed (evidence, not proof), correlation 0.99")


def test_another_model_is_called_one(tmp_path):
    other = edited(
        model(tmp_path / "a"),
        tmp_path / "b",
        lambda t: {
            n: np.random.default_rng(7).permuted(x.ravel()).reshape(x.shape)
            for n, x in t.items()
            if n.endswith("kernel")
        },
    )
    told = _groups(portkit.diff(tmp_path / "a", other))
    assert all(g.startswith("other numbers altogether: no correlation (evidence, not proof)") for g in told)


def test_what_is_equal_is_not_diagnosed(sources):
    for layout in LAYOUTS:
        diff = portkit.diff(sources["hf"], sources[layout])
        assert not [t for t in diff.tensors if t.findings]


def test_every_hypothesis_is_provoked_and_explained():
    document = (Path(__file__).parent.parent / "docs" / "diff.md").read_text(encoding="utf-8")
    provoked = {kind for _, kind, _, _ in FAULTS.values()} | {"untied", "padded"}  # these two have tests of their own
    assert provoked == {h.__name__ for h in HYPOTHESES} | {"exchanged", "elsewhere"}
    assert not [kind for kind in provoked if f"`{kind}`" not in document]
