"""Tokenizers give the same ids in KerasHub and in transformers, but for what is said; both run here."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from importlib import util
from pathlib import Path

import pytest
import tokenizer_folders as folders
from tokenizer_folders import EQUAL
from transformers import AutoTokenizer

from portkit.runtimes.keras_runtime import keras_available
from portkit.tokenizers.convert import hf_tokenizer_files, keras_tokenizer_files

SCRIPT = Path(__file__).with_name("keras_tokenizers.py")
SPECIAL = {"bert": "[MASK] in [CLS] text [SEP] [UNK] see <Url>s", "roberta": "a <mask>, <s> x </s><pad>"}
SPACES = {"bert": "a  b\tc\nd\r\ne  "}
# What KerasHub does otherwise: word of the note -> a text on which it does.
OTHERWISE = {
    "bert": {
        "zero-width and control characters": "zero\u200bwidth x\u0001y",
        "spaces beyond ASCII": "the\u00a0fox",
        "more than 100 bytes": "カタカナ" * 9,
        "NFKC": "ﬁne Straße x²…",
        "Korean syllables": "한국어 서울",
    },
    "bert-cased": {
        "zero-width and control characters": "zero\u200bwidth x\u0001y",
        "spaces beyond ASCII": "the\u00a0fox",
        "more than 100 bytes": "カタカナ" * 9,
    },
    "roberta": {"some apostrophes": "x 's", "runs of spaces": "x  Ж"},
    "roberta-strips": {"the space before <mask>": "a <mask>"},
    "xlm-roberta": {"special tokens inside a text": "a <mask> b"},
}
CLASSES = {
    "bert": "BertTextClassifier",
    "bert-cased": "BertMaskedLM",
    "bert-added": "BertBackbone",
    "roberta": "RobertaTextClassifier",
    "roberta-old": "RobertaMaskedLM",
    "roberta-strips": "RobertaBackbone",
    "xlm-roberta": "XLMRobertaTextClassifier",
    "xlm-roberta-new": "XLMRobertaMaskedLM",
}
EXACT = tuple(name for name in CLASSES if name != "roberta-strips")  # whose special texts have the same ids too
TEXTS = sorted({*EQUAL, *SPECIAL.values(), *SPACES.values(), *(t for ts in OTHERWISE.values() for t in ts.values())})

needs_keras = pytest.mark.skipif(
    not keras_available() or util.find_spec("tensorflow") is None, reason="KerasHub or TensorFlow is not installed"
)


@pytest.fixture(scope="session")
def sources(tmp_path_factory):
    """Hugging Face folders by name."""
    place = tmp_path_factory.mktemp("hf")
    folders.bert(place / "bert", lowercase=True)
    folders.old_files(place / "bert-cased", folders.bert(place / "new-cased", lowercase=False))
    added = shutil.copytree(place / "bert", place / "bert-added")
    count = len(folders.read(added, "tokenizer")["model"]["vocab"])
    token = {**folders.read(added, "tokenizer")["added_tokens"][0], "id": count, "content": "<Url>"}
    folders.edit(added, "tokenizer", lambda t: t["added_tokens"].append(token))
    folders.old_files(place / "roberta-old", folders.roberta(place / "roberta"))
    strips = shutil.copytree(place / "roberta", place / "roberta-strips")
    folders.edit(strips, "tokenizer", lambda t: t["added_tokens"][-1].update(lstrip=True))
    folders.xlm_roberta(place / "xlm-roberta")
    new = shutil.copytree(place / "xlm-roberta", place / "xlm-roberta-new")
    AutoTokenizer.from_pretrained(new).save_pretrained(new)
    return place


def write(files, folder):
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def to_keras(source, class_name, **options):
    return keras_tokenizer_files(source, class_name, **{"vocab_size": 5000, "max_length": 12, **options})


def backbone_of(class_name):
    word = class_name.replace("TextClassifier", "").replace("MaskedLM", "").replace("Backbone", "")
    return {"class_name": f"{word}Backbone", "config": {}, "registered_name": f"keras_hub>{word}Backbone"}


@pytest.fixture(scope="session")
def presets(sources, tmp_path_factory):
    """Presets by name, each with what KerasHub sees in them; "made-" are KerasHub's own."""
    place = tmp_path_factory.mktemp("presets")
    for name, class_name in CLASSES.items():
        write(to_keras(sources / name, class_name).files, place / name)
        folders.write(place / name, config=backbone_of(class_name))
    see(place, TEXTS)
    return place


def see(place, texts):
    with tempfile.TemporaryDirectory() as home:
        quiet = {"KERAS_BACKEND": "tensorflow", "KERAS_HOME": home, "TF_CPP_MIN_LOG_LEVEL": "3"}
        command = [sys.executable, SCRIPT, place, json.dumps(texts)]
        done = subprocess.run(command, env=os.environ | quiet, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


def seen(preset, text, way):
    return folders.read(preset, "seen")[way][TEXTS.index(text)]


def ids_of(folder, text):
    return AutoTokenizer.from_pretrained(folder)(text, add_special_tokens=False)["input_ids"]


@needs_keras
@pytest.mark.keras
@pytest.mark.parametrize("way", ["ids", "graph"])
@pytest.mark.parametrize("name", CLASSES)
def test_ids_are_those_of_transformers(sources, presets, name, way):
    kind = name.partition("-")[0]
    texts = [*EQUAL, *(texts[kind] for texts in (SPECIAL, SPACES) if kind in texts and name in EXACT)]
    tokenizer = AutoTokenizer.from_pretrained(sources / name)
    for text in texts:
        expected = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert seen(presets / name, text, way) == expected, repr(text)


@needs_keras
@pytest.mark.keras
@pytest.mark.parametrize("name", OTHERWISE)
def test_what_is_said_to_differ_differs(sources, presets, name):
    notes = to_keras(sources / name, CLASSES[name]).notes
    for words, text in OTHERWISE[name].items():
        assert len([note for note in notes if words in note]) == 1
        assert seen(presets / name, text, "ids") != ids_of(sources / name, text), text


@needs_keras
@pytest.mark.keras
@pytest.mark.parametrize("name", CLASSES)
def test_keras_would_write_the_same_files(presets, name):
    saved = {p.relative_to(presets / name / "again") for p in (presets / name / "again").rglob("*") if p.is_file()}
    assert len(saved) in (3, 4)
    for path in saved:
        ours, theirs = (presets / name / path).read_bytes(), (presets / name / "again" / path).read_bytes()
        if path.suffix == ".json":
            ours, theirs = json.loads(ours), json.loads(theirs)
        assert ours == theirs, path


@needs_keras
@pytest.mark.keras
@pytest.mark.parametrize("name", ["bert", "roberta", "xlm-roberta"])
def test_preprocessor_packs_as_transformers_does(sources, presets, name):
    packed = AutoTokenizer.from_pretrained(sources / name)("a fox", padding="max_length", max_length=12)
    found = folders.read(presets / name, "seen")
    assert found["token_ids"] == packed["input_ids"]
    assert found["padding_mask"] == packed["attention_mask"]


@needs_keras
@pytest.mark.keras
@pytest.mark.parametrize("name", ["made-bert", "made-roberta", "made-xlm-roberta", *CLASSES])
def test_presets_become_folders_of_transformers(presets, tmp_path, name):
    written = hf_tokenizer_files(presets / name)
    write(written.files, tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert type(tokenizer).__name__ == folders.read(presets / name, "seen")["class"]
    for text in EQUAL:
        if name == "made-bert" and "é" in text:  # KerasHub's own default keeps accents, and the vocabulary has none
            continue
        assert tokenizer(text, add_special_tokens=False)["input_ids"] == seen(presets / name, text, "ids"), text
    tokens = [tokenizer.cls_token_id, tokenizer.sep_token_id, tokenizer.pad_token_id, tokenizer.mask_token_id]
    assert tokens == folders.read(presets / name, "seen")["ends"]
    assert tokenizer.model_max_length == 12


@needs_keras
@pytest.mark.keras
@pytest.mark.parametrize("name", EXACT)
def test_there_and_back_changes_no_id(sources, presets, tmp_path, name):
    write(hf_tokenizer_files(presets / name).files, tmp_path)
    before, after = AutoTokenizer.from_pretrained(sources / name), AutoTokenizer.from_pretrained(tmp_path)
    assert after.get_vocab() == before.get_vocab()
    for text in TEXTS:
        assert after(text)["input_ids"] == before(text)["input_ids"], text


@needs_keras
@pytest.mark.keras
@pytest.mark.real
def test_real_tokenizer(real, tmp_path):
    source = real("minilm")
    files = keras_tokenizer_files(source, "BertBackbone", vocab_size=30522, max_length=512)
    assert files.preprocessor["config"]["sequence_length"] == 512
    write(files.files, tmp_path / "minilm")
    folders.write(tmp_path / "minilm", config=backbone_of("BertBackbone"))
    texts = [*EQUAL, *Path(__file__).parent.with_name("README.md").read_text(encoding="utf-8").splitlines()]
    texts = [text.replace("…", "...") for text in texts]  # NFKC does so, and the vocabulary has both
    see(tmp_path, texts)
    tokenizer = AutoTokenizer.from_pretrained(source)
    expected = [tokenizer(text, add_special_tokens=False, truncation=False)["input_ids"] for text in texts]
    assert folders.read(tmp_path / "minilm", "seen")["ids"] == expected
    assert sum(map(len, expected)) > 3000
