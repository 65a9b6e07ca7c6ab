"""Small tokenizers, trained here, in the files of a Hugging Face folder."""

from __future__ import annotations

import io
import json
from itertools import cycle, islice
from pathlib import Path

import sentencepiece
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from transformers import BertTokenizer, RobertaTokenizer

TEXTS = (
    "The quick brown fox jumps over the lazy dog",
    "Café Zürich naïve résumé déjà vu",
    "It's (very) nice, isn't it? Yes: 12345 2019 3.14159 1,000,000",
    "北京 天安门 中文 字符 日本語 ひらがな カタカナ",
    "한국어 서울",
    "😀 🎉 👩 👧 snow ☃",
    "mail@example.com http://x.y/z?q=1 a_b-c/d\\e #tag 100% $5 x2 [y] {z}",
    "ß Straße İstanbul ﬁne ² ½",
    "wide     gaps     here",
)
EQUAL = (
    "The quick brown FOX",
    "Café in Zürich, naïve résumé!",
    "e\u0301 combining",
    "It's (very) nice, isn't it? 12345 2019 3.14159 1,000,000",
    "北京天安门 日本語 カタカナ",
    "😀 party 🎉☃",
    "mail@example.com http://x.y/z?q=1 a_b-c/d\\e",
    "unknown: qqq ЖЖЖ ∑",
    "x" * 90,
    "",
    " ",
    "\u2019quotes\u201c \u2013 dash",
)
"""Texts whose ids are the same in every kind of tokenizer."""


def corpus() -> list[str]:
    return list(islice(cycle(TEXTS), 50 * len(TEXTS)))


def bert(folder: Path, *, lowercase: bool) -> Path:
    """Saved by transformers 5: tokenizer.json and tokenizer_config.json."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=400, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator(corpus(), trainer)
    made = BertTokenizer(vocab=tokenizer.get_vocab(), do_lower_case=lowercase, model_max_length=37)
    made.save_pretrained(folder)
    return folder


def roberta(folder: Path) -> Path:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=["<s>", "<pad>", "</s>", "<unk>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(corpus(), trainer)
    model = json.loads(tokenizer.to_str())["model"]
    vocabulary = {**model["vocab"], "<mask>": len(model["vocab"])}
    RobertaTokenizer(vocab=vocabulary, merges=[tuple(merge) for merge in model["merges"]]).save_pretrained(folder)
    return folder


def xlm_roberta(folder: Path) -> Path:
    """As its files were before transformers 5: the SentencePiece model alone."""
    folder.mkdir()
    (folder / "sentencepiece.bpe.model").write_bytes(pieces())
    write(folder, tokenizer_config={"tokenizer_class": "XLMRobertaTokenizer"}, config={"model_type": "xlm-roberta"})
    return folder


def pieces(**options: object) -> bytes:
    stream = io.BytesIO()
    options = {"unk_id": 0, "bos_id": 1, "eos_id": 2, "vocab_size": 110, "model_type": "unigram", **options}
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus()), model_writer=stream, minloglevel=2, num_threads=1, **options
    )
    return stream.getvalue()


def old_files(folder: Path, source: Path) -> Path:
    """The same tokenizer as transformers before version 4.0 saved it: no tokenizer.json."""
    folder.mkdir()
    model = read(source, "tokenizer")["model"]
    ordered = sorted(model["vocab"], key=model["vocab"].get)
    if model["type"] == "WordPiece":
        (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in ordered), encoding="utf-8")
    else:
        (folder / "vocab.json").write_text(json.dumps(model["vocab"]), encoding="utf-8")
        merges = "".join(f"{left} {right}\n" for left, right in model["merges"])
        (folder / "merges.txt").write_text("#version: 0.2\n" + merges, encoding="utf-8")
    write(folder, tokenizer_config=read(source, "tokenizer_config"))
    return folder


def read(folder: Path, name: str) -> dict:
    return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))


def write(folder: Path, **contents: dict) -> None:
    """Write NAME.json for each name."""
    for name, content in contents.items():
        (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")


def edit(folder: Path, name: str, change) -> None:
    content = read(folder, name)
    change(content)
    write(folder, **{name: content})
