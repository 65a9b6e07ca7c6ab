"""What is read from tokenizer files, what is said of it, and what is refused; no framework runs here."""

from __future__ import annotations

import json

import pytest

from portkit.errors import UnreadableError, UsageError
from portkit.tokenizers import files
from portkit.tokenizers.convert import hf_tokenizer_files, keras_tokenizer_files
from portkit.tokenizers.sentencepiece import parse_sentencepiece

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WORDS = [*SPECIAL, "the", "fox", "##es"]
BYTES = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "f": 4, "o": 5, "fo": 6, "<mask>": 7}
PIECES = ("<unk>", "<s>", "</s>", "\u2581", "fox")


def write(folder, **contents):
    """NAME__suffix=content: text, bytes, or an object as JSON."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in contents.items():
        path = folder / name.replace("__", ".")
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return folder


def lines(tokens):
    return "".join(f"{token}\n" for token in tokens)


def word_piece(vocab=WORDS, **changes):
    ids = vocab if isinstance(vocab, dict) else {token: i for i, token in enumerate(vocab)}
    normaliser = {"type": "BertNormalizer", "lowercase": True, "strip_accents": None, "handle_chinese_chars": True}
    model = {"type": "WordPiece", "vocab": ids, "continuing_subword_prefix": "##"}
    return {"normalizer": normaliser, "model": model, "added_tokens": [], **changes}


def byte_pairs(**changes):
    model = {"type": "BPE", "vocab": BYTES, "merges": [["f", "o"]]}
    return {"model": model, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True}, **changes}


def sentencepiece(names=PIECES):
    """A model of these pieces, written by hand: field 1 of each is its name, field 2 of the model is left out."""
    pieces = [b"\x0a" + bytes([len(name.encode())]) + name.encode() + b"\x15\x00\x00\x80\xbf" for name in names]
    return b"".join(b"\x0a" + bytes([len(piece)]) + piece for piece in pieces)


def to_keras(folder, class_name="BertBackbone", **options):
    return keras_tokenizer_files(folder, class_name, **{"vocab_size": 100, "max_length": 64, **options})


def refused(folder, class_name="BertBackbone", **options):
    """The one reason why there is no tokenizer."""
    found = to_keras(folder, class_name, **options)
    assert (found.files, found.tokenizer, found.preprocessor) == ({}, None, None)
    (note,) = found.notes
    assert note.startswith("no tokenizer: ")
    return note


def test_old_and_new_files_say_the_same(tmp_path):
    settings = {"do_lower_case": False, "model_max_length": 32}
    old = write(tmp_path / "old", vocab__txt=lines(WORDS), tokenizer_config__json=settings)
    new = write(tmp_path / "new", tokenizer__json=word_piece(normalizer=None), tokenizer_config__json=settings)
    assert to_keras(old) == to_keras(new)
    assert sorted(to_keras(old).files) == ["assets/tokenizer/vocabulary.txt", "preprocessor.json", "tokenizer.json"]
    assert to_keras(old).files["assets/tokenizer/vocabulary.txt"] == lines(WORDS).encode()
    assert to_keras(old).tokenizer["config"]["lowercase"] is False


@pytest.mark.parametrize(("limit", "length"), [(32, 32), (512, 64), (10**30, 64), (None, 64), ("32", 64)])
def test_texts_are_as_long_as_model_and_tokenizer_take(tmp_path, limit, length):
    settings = {"do_lower_case": True, "model_max_length": limit}
    folder = write(tmp_path, vocab__txt=lines(WORDS), tokenizer_config__json=settings)
    assert to_keras(folder).preprocessor["config"]["sequence_length"] == length


@pytest.mark.parametrize(
    ("settings", "lowercase", "accents"),
    [
        ({"do_lower_case": True}, True, True),
        ({"do_lower_case": False}, False, False),
        ({"do_lower_case": True, "strip_accents": False}, True, False),
        ({"do_lower_case": False, "strip_accents": True}, False, True),
        ({}, True, True),
    ],
)
def test_accents_go_with_case_unless_said(tmp_path, settings, lowercase, accents):
    folder = write(tmp_path, vocab__txt=lines(WORDS), tokenizer_config__json=settings)
    config = to_keras(folder).tokenizer["config"]
    assert (config["lowercase"], config["strip_accents"]) == (lowercase, accents)


def test_class_decides_which_file_is_believed(tmp_path):
    cased = word_piece(normalizer={"type": "BertNormalizer", "lowercase": False})
    own = write(tmp_path / "own", tokenizer__json=cased, tokenizer_config__json={"tokenizer_class": "BertTokenizer"})
    general = {"tokenizer_class": "PreTrainedTokenizerFast", "do_lower_case": True}
    built = write(tmp_path / "built", tokenizer__json=cased, tokenizer_config__json=general)
    assert to_keras(own).tokenizer["config"]["lowercase"] is True
    assert to_keras(built).tokenizer["config"]["lowercase"] is False
    said = "tokenizer.json says lowercase False, but transformers goes by tokenizer_config.json: True"
    assert said in to_keras(own).notes
    assert said not in to_keras(built).notes


GENERAL = {"tokenizer_class": "TokenizersBackend"}


@pytest.mark.parametrize(
    ("built", "settings", "note"),
    [
        (
            {},
            {},
            "tokenizer_config.json does not say do_lower_case; transformers lowers letters then, and so does this",
        ),
        ({}, {"tokenize_chinese_chars": False}, "Chinese characters: the source leaves them in their words"),
        (
            {"normalizer": {"type": "BertNormalizer", "handle_chinese_chars": False}},
            GENERAL,
            "Chinese characters: the source leaves them in their words",
        ),
        (
            {"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}]}},
            GENERAL,
            "tokenizer.json normalises by NFC, Lowercase; KerasHub by BERT's rules alone",
        ),
        (
            {"post_processor": {"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A"}}]}},
            {},
            "tokenizer.json puts A around a text A, KerasHub [CLS] A [SEP]",
        ),
        (
            {"post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[MASK]", 4]}},
            {},
            "tokenizer.json puts [MASK] A [SEP] around a text A, KerasHub [CLS] A [SEP]",
        ),
        (word_piece([*WORDS, "x\u3000"]), {}, "1 tokens end in a space, which KerasHub cuts off: it never finds them"),
    ],
)
def test_what_keras_cannot_do_is_said(tmp_path, built, settings, note):
    folder = write(tmp_path, tokenizer__json={**word_piece(), **built}, tokenizer_config__json=settings)
    found = to_keras(folder)
    assert found.files
    assert [said for said in found.notes if said.startswith(note)]


def test_steps_of_a_general_normaliser_are_followed(tmp_path):
    steps = [{"type": "NFD"}, {"type": "StripAccents"}, {"type": "Lowercase"}]
    built = word_piece(normalizer={"type": "Sequence", "normalizers": steps})
    config = to_keras(write(tmp_path, tokenizer__json=built, tokenizer_config__json=GENERAL)).tokenizer["config"]
    assert (config["lowercase"], config["strip_accents"]) == (True, True)


def test_tokens_without_rows_are_counted(tmp_path):
    folder = write(tmp_path, vocab__txt=lines(WORDS))
    assert "the tokenizer has 8 tokens, the model rows for 7" in to_keras(folder, vocab_size=7).notes
    assert not [note for note in to_keras(folder, vocab_size=8).notes if "rows" in note]


def test_added_tokens_stay_whole(tmp_path):
    added = [{"id": 8, "content": "<url>"}, {"id": 2, "content": "[CLS]"}]
    new = write(tmp_path / "new", tokenizer__json=word_piece(added_tokens=added))
    old = write(tmp_path / "old", vocab__txt=lines(WORDS), added_tokens__json={"<url>": 8})
    for folder in (new, old):
        found = to_keras(folder)
        assert found.files["assets/tokenizer/vocabulary.txt"] == lines([*WORDS, "<url>"]).encode()
        assert found.tokenizer["config"]["special_tokens"] == ["[UNK]", "<url>"]
        assert found.tokenizer["config"]["special_tokens_in_strings"] is True


def test_line_that_is_repeated_keeps_its_place(tmp_path):
    tokens = [*SPECIAL, "the", "the", "fox"]
    folder = write(tmp_path, vocab__txt=lines(tokens).replace("\n", "\r\n"))
    assert to_keras(folder).files["assets/tokenizer/vocabulary.txt"] == lines(tokens).encode()


@pytest.mark.parametrize(
    ("contents", "reason"),
    [
        ({}, "the source has neither tokenizer.json nor vocab.txt"),
        ({"tokenizer__json": byte_pairs()}, "the source's tokenizer is BPE; KerasHub's for this model is WordPiece"),
        ({"vocab__txt": lines(SPECIAL[:4])}, "KerasHub needs [MASK] in the vocabulary, which has none"),
        (
            {"vocab__txt": lines(WORDS), "tokenizer_config__json": {"cls_token": {"content": "<s>"}}},
            "KerasHub knows [CLS] only as cls_token; the source has <s>",
        ),
        (
            {"vocab__txt": lines(WORDS), "special_tokens_map__json": {"pad_token": "[UNK]"}},
            "KerasHub knows [PAD] only as pad_token; the source has [UNK]",
        ),
        (
            {"tokenizer__json": word_piece({**{t: i for i, t in enumerate(WORDS)}, "far": 10**12})},
            "KerasHub numbers tokens by line: 9 tokens cannot have ids up to 1000000000000",
        ),
        (
            {"tokenizer__json": word_piece([*WORDS, "a\nb"])},
            r"KerasHub's vocabulary has a line per token; 'a\nb' has several",
        ),
    ],
)
def test_bert_without_the_like_in_keras(tmp_path, contents, reason):
    assert refused(write(tmp_path / "hf", **contents)) == f"no tokenizer: {reason}"


def test_byte_pairs_are_read_from_old_and_new_files(tmp_path):
    settings = {"add_prefix_space": True}
    merges = "#version: 0.2\nf o\n"
    old = write(tmp_path / "old", vocab__json=BYTES, merges__txt=merges, tokenizer_config__json=settings)
    new = write(tmp_path / "new", tokenizer__json=byte_pairs(), tokenizer_config__json=settings)
    assert to_keras(old, "RobertaMaskedLM") == to_keras(new, "RobertaMaskedLM")
    found = to_keras(old, "RobertaMaskedLM")
    assert found.files["assets/tokenizer/merges.txt"] == b"f o\n"
    assert json.loads(found.files["assets/tokenizer/vocabulary.json"]) == BYTES
    assert found.tokenizer["config"]["add_prefix_space"] is True
    assert found.tokenizer["config"]["unsplittable_tokens"] == ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    assert found.preprocessor["class_name"] == "RobertaMaskedLMPreprocessor"


@pytest.mark.parametrize(
    ("contents", "reason"),
    [
        ({"vocab__txt": lines(WORDS)}, "the source has neither tokenizer.json nor vocab.json"),
        ({"tokenizer__json": word_piece()}, "the source's tokenizer is WordPiece; KerasHub's for this model is BPE"),
        (
            {"tokenizer__json": byte_pairs(pre_tokenizer={"type": "Whitespace"}), "tokenizer_config__json": GENERAL},
            "the source's tokenizer merges characters; KerasHub's merges bytes",
        ),
    ],
)
def test_roberta_without_the_like_in_keras(tmp_path, contents, reason):
    assert refused(write(tmp_path / "hf", **contents), "RobertaBackbone") == f"no tokenizer: {reason}"


def test_roberta_needs_no_unknown_token(tmp_path):
    vocabulary = {token: number for token, number in BYTES.items() if token != "<unk>"}
    folder = write(tmp_path, vocab__json=vocabulary, merges__txt="f o\n")
    assert to_keras(folder, "RobertaBackbone").tokenizer["config"]["unsplittable_tokens"] == [
        "<s>", "<pad>", "</s>", "<mask>",
    ]  # fmt: skip


@pytest.mark.parametrize("merges", ["f x\n", "fo\n", " \n"])
def test_merge_of_unknown_tokens_is_an_error(tmp_path, merges):
    folder = write(tmp_path, vocab__json=BYTES, merges__txt=merges)
    with pytest.raises(UnreadableError, match="a merge of tokens that the vocabulary lacks"):
        to_keras(folder, "RobertaBackbone")


def unigram(*tokens):
    return {"model": {"type": "Unigram", "vocab": [[token, 0.0] for token in tokens]}}


IDS = ("<s>", "<pad>", "</s>", "<unk>", *PIECES[3:])
CAMEMBERT = ("<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED", *PIECES[3:])
XLM_ROBERTA = {"tokenizer_class": "XLMRobertaTokenizer"}


@pytest.mark.parametrize(
    ("contents", "reason"),
    [
        ({"tokenizer_config__json": XLM_ROBERTA}, ""),
        ({"tokenizer__json": unigram(*IDS)}, ""),
        ({"tokenizer__json": unigram(*IDS, "<mask>")}, ""),
        ({}, "nothing says how the ids follow from the pieces"),
        ({"tokenizer__json": unigram(*CAMEMBERT)}, "tokenizer.json numbers the pieces in another way than KerasHub"),
        (
            {"tokenizer_config__json": {"tokenizer_class": "CamembertTokenizer"}},
            "CamembertTokenizer may number the pieces in another way than KerasHub",
        ),
        (
            {"sentencepiece__bpe__model": sentencepiece(("<pad>", "<unk>", "<s>", "x"))},
            "the first pieces are <pad>, <unk>, <s>; KerasHub takes them to be <unk>, <s>, </s>",
        ),
    ],
)
def test_pieces_are_taken_when_their_ids_are_known(tmp_path, contents, reason):
    folder = write(tmp_path / "hf", **{"sentencepiece__bpe__model": sentencepiece(), **contents})
    if reason:
        assert refused(folder, "XLMRobertaBackbone") == f"no tokenizer: {reason}"
    else:
        found = to_keras(folder, "XLMRobertaBackbone")
        assert found.files["assets/tokenizer/vocabulary.spm"] == sentencepiece()


def test_pieces_alone_are_believed_when_the_model_has_a_row_for_each(tmp_path):
    folder = write(tmp_path / "hf", sentencepiece__bpe__model=sentencepiece())
    assert to_keras(folder, "XLMRobertaBackbone", vocab_size=7).files
    assert "nothing says how" in refused(folder, "XLMRobertaBackbone", vocab_size=8)


def test_tokenizer_json_alone_gives_keras_no_pieces(tmp_path):
    folder = write(tmp_path / "hf", tokenizer__json=unigram(*IDS))
    expected = "no tokenizer: KerasHub needs sentencepiece.bpe.model, which the source does not have"
    assert refused(folder, "XLMRobertaTextClassifier") == expected


def test_added_tokens_have_no_place_beside_pieces(tmp_path):
    built = {**unigram(*IDS), "added_tokens": [{"id": 0, "content": "<s>"}, {"id": 7, "content": "<url>"}]}
    folder = write(tmp_path / "hf", sentencepiece__bpe__model=sentencepiece(), tokenizer__json=built)
    assert "KerasHub has no place for the added tokens <url>" in to_keras(folder, "XLMRobertaBackbone").notes


@pytest.mark.parametrize(
    ("contents", "words"),
    [
        ({"tokenizer__json": "{"}, ("tokenizer.json", "not valid JSON")),
        ({"tokenizer__json": "[]"}, ("tokenizer.json", "not valid JSON", "a list")),
        (
            {"tokenizer__json": {"registered_name": "x"}},
            ("tokenizer.json", "KerasHub's, not Hugging Face's: both call theirs by this name"),
        ),
        ({"tokenizer__json": word_piece({"a": "b"})}, ("tokenizer.json", "no vocabulary", "'a'")),
        ({"tokenizer__json": word_piece({"a": True})}, ("tokenizer.json", "no vocabulary")),
        ({"tokenizer__json": word_piece({"a": -1})}, ("tokenizer.json", "no vocabulary")),
        ({"tokenizer__json": {"model": {"type": "WordPiece"}}}, ("tokenizer.json", "no vocabulary", "NoneType")),
        ({"tokenizer__json": word_piece(added_tokens=[{"id": 3}])}, ("an added token without its content",)),
        ({"tokenizer__json": word_piece(added_tokens=[{"content": "x"}])}, ("no vocabulary", "'x'")),
        ({"vocab__txt": b"\xff\xfe"}, ("vocab.txt", "not a text in UTF-8")),
        ({"vocab__txt": lines(WORDS), "added_tokens__json": {"x": "y"}}, ("added_tokens.json", "no vocabulary")),
    ],
)
def test_broken_files_are_errors(tmp_path, contents, words):
    with pytest.raises(UnreadableError, match="cannot read the checkpoint") as caught:
        to_keras(write(tmp_path, **contents))
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("strange", [[], "x", 3, None, [3], {"type": "Sequence"}])
@pytest.mark.parametrize("part", ["normalizer", "pre_tokenizer", "post_processor", "added_tokens"])
def test_parts_of_another_form_do_no_harm(tmp_path, part, strange):
    for settings in ({}, GENERAL):
        for class_name, built in (("BertBackbone", word_piece()), ("RobertaBackbone", byte_pairs())):
            folder = write(tmp_path, tokenizer__json={**built, part: strange}, tokenizer_config__json=settings)
            try:
                to_keras(folder, class_name)
            except UnreadableError as error:
                assert part == "added_tokens", error  # noqa: PT017 - only these must be whole


def test_large_files_are_not_read(tmp_path, monkeypatch):
    folder = write(tmp_path, vocab__txt=lines(WORDS))
    monkeypatch.setattr(files, "MAX_BYTES", 10)
    with pytest.raises(UnreadableError, match="too large for a tokenizer's file") as caught:
        to_keras(folder)
    assert "at most 10 bytes" in str(caught.value)


def test_class_of_another_architecture(tmp_path):
    with pytest.raises(UsageError, match=r"cannot write the tokenizer(.|\n)*no class whose tokenizer is known"):
        to_keras(tmp_path, "DebertaV3Backbone")


def test_every_cut_of_a_sentencepiece_model_is_read_or_refused(tmp_path):
    whole = sentencepiece()
    assert parse_sentencepiece(whole, tmp_path).names == PIECES
    assert parse_sentencepiece(whole, tmp_path).pieces[4] == ("fox", -1.0)
    refusals = 0
    for end in range(len(whole)):
        try:
            assert len(parse_sentencepiece(whole[:end], tmp_path).pieces) < len(PIECES)
        except UnreadableError:
            refusals += 1
    assert refusals == len(whole) - len(PIECES) + 1  # all but the cuts between two pieces


@pytest.mark.parametrize("data", [b"", b"\x0a", b"\xff" * 20, b"\x0a\xff\xff\xff\xff\x7f", b"\x0b\x00", b"\x08\x01"])
def test_what_is_no_sentencepiece_model_is_refused(tmp_path, data):
    with pytest.raises(UnreadableError, match="no SentencePiece model"):
        parse_sentencepiece(data, tmp_path)


def keras_bert(folder, tokens=WORDS, **config):
    described = {"class_name": "BertTokenizer", "config": {"lowercase": True, **config}}
    write(folder, tokenizer__json=described)
    write(folder / "assets" / "tokenizer", vocabulary__txt=lines(tokens))
    return folder


def test_preset_of_bert(tmp_path):
    found = hf_tokenizer_files(keras_bert(tmp_path, special_tokens=["fox"], special_tokens_in_strings=True))
    assert sorted(found.files) == ["tokenizer.json", "tokenizer_config.json", "vocab.txt"]
    settings = json.loads(found.files["tokenizer_config.json"])
    assert settings["tokenizer_class"] == "BertTokenizer"
    assert (settings["do_lower_case"], settings["strip_accents"]) == (True, False)
    assert "model_max_length" not in settings
    added = json.loads(found.files["tokenizer.json"])["added_tokens"]
    assert [token["content"] for token in added] == [*SPECIAL, "fox"]
    assert not [note for note in found.notes if "inside a text" in note]


def test_preset_that_splits_special_tokens(tmp_path):
    notes = hf_tokenizer_files(keras_bert(tmp_path)).notes
    assert "special tokens inside a text: the preset splits them, transformers finds them" in notes


@pytest.mark.parametrize(
    ("described", "reason"),
    [
        ({}, "the preset has no tokenizer.json"),
        (
            {"class_name": "DebertaV3Tokenizer"},
            "the preset's tokenizer is DebertaV3Tokenizer, which portkit does not know",
        ),
        ({"class_name": "BertTokenizer", "config": {"split": False}}, "takes words, not texts"),
    ],
)
def test_presets_without_the_like_in_transformers(tmp_path, described, reason):
    found = hf_tokenizer_files(write(tmp_path, **({"tokenizer__json": described} if described else {})))
    assert not found.files
    (note,) = found.notes
    assert reason in note


def test_presets_whose_assets_are_missing_or_broken(tmp_path):
    with pytest.raises(UnreadableError, match=r"\[MASK\], \[SEP\]"):
        hf_tokenizer_files(keras_bert(tmp_path / "few", SPECIAL[:3]))
    for name, asset in (("BertTokenizer", "vocabulary.txt"), ("XLMRobertaTokenizer", "vocabulary.spm")):
        folder = write(tmp_path / name, tokenizer__json={"class_name": name, "config": {}})
        with pytest.raises(UnreadableError, match=asset):
            hf_tokenizer_files(folder)


@pytest.mark.parametrize(
    ("vocabulary", "merges", "words"),
    [
        ({}, "", "no vocabulary"),
        ({"<s>": "x"}, "", "no vocabulary"),
        ({"<s>": 0, "<pad>": 1}, "", "special tokens are missing"),
        (BYTES, "f x\n", "a merge of tokens that the vocabulary lacks"),
    ],
)
def test_broken_presets_of_roberta(tmp_path, vocabulary, merges, words):
    write(tmp_path, tokenizer__json={"class_name": "RobertaTokenizer", "config": {}})
    write(tmp_path / "assets" / "tokenizer", vocabulary__json=vocabulary, merges__txt=merges)
    with pytest.raises(UnreadableError, match=words):
        hf_tokenizer_files(tmp_path)
