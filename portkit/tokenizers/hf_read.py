"""Reads the tokenizer of a Hugging Face folder: what transformers 5 does, as far as KerasHub can do the same."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from portkit.errors import unreadable
from portkit.tokenizers.files import read_bytes, read_lines
from portkit.tokenizers.hf_source import BUILT, CONFIG, Source, listed, mapping, read_source
from portkit.tokenizers.kinds import BERT_TOKENS, ROBERTA_TOKENS, BytePairs, Found, Kind, Pieces, WordPiece
from portkit.tokenizers.sentencepiece import FIRST, parse_sentencepiece

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

SENTENCEPIECE = "sentencepiece.bpe.model"

_CHINESE = "Chinese characters: the source leaves them in their words, KerasHub cuts at each"


def read_hf(folder: Path, wanted: type[Kind], rows: int) -> Found:
    """The tokenizer in `folder`, if it is of the kind `wanted`; `rows` is the size of the model's vocabulary.

    Raises UnreadableError when a file is broken: no JSON, ids that are no numbers, a merge of unknown tokens.
    """
    source = read_source(folder)
    if wanted is Pieces:
        found = _pieces(source, rows)
    elif wanted is BytePairs:
        found = _byte_pairs(source, rows)
    else:
        found = _word_piece(source, rows)
    return Found(found.kind, found.notes, source.max_length)


def _word_piece(source: Source, rows: int) -> Found:
    ids = source.vocabulary("vocab.txt")
    reason = _unfit(source, "WordPiece", "vocab.txt", ids) or _unfit_tokens(source, BERT_TOKENS, ids or {})
    if reason or ids is None:
        return Found(None, (reason,))
    tokens, reason = _lines(source, ids)
    if reason:
        return Found(None, (reason,))
    lowercase, accents, notes = _built_normaliser(source) if source.general else _normaliser(source)
    suffix = source.model.get("continuing_subword_prefix", "##") if source.general else "##"
    kind = WordPiece(tokens, _whole(source, BERT_TOKENS, ids), lowercase, accents, str(suffix))
    return Found(kind, (*notes, *_cut_tokens(tokens), *_around(source, BERT_TOKENS), *_rows(len(tokens), rows)))


def _lines(source: Source, ids: Mapping[str, int]) -> tuple[tuple[str, ...], str]:
    """The tokens as lines of a vocabulary, or why they cannot be. A line that a vocab.txt repeats keeps its place."""
    stored = [] if source.built else read_lines(source.folder / "vocab.txt")
    placed = {**dict(enumerate(stored)), **{number: token for token, number in ids.items()}}
    if max(placed) >= len(placed):
        return (), f"KerasHub numbers tokens by line: {len(placed)} tokens cannot have ids up to {max(placed)}"
    tokens = tuple(placed[number] for number in range(len(placed)))
    broken = [token for token in tokens if "\n" in token or "\r" in token]
    return tokens, f"KerasHub's vocabulary has a line per token; {broken[0]!r} has several" if broken else ""


def _unfit(source: Source, model: str, file: str, ids: Mapping[str, int] | None) -> str:
    """Why there is no vocabulary of this kind."""
    found = source.model.get("type", model)
    if found != model:
        return f"the source's tokenizer is {found}; KerasHub's for this model is {model}"
    return "" if ids else f"the source has neither {BUILT} nor {file}"


def _unfit_tokens(source: Source, roles: Mapping[str, str], ids: Mapping[str, int]) -> str:
    """Why KerasHub cannot work with the special tokens: it knows one for each role."""
    for role, token in roles.items():
        found = source.token(role, token)
        if found != token:
            return f"KerasHub knows {token} only as {role}; the source has {found}"
        if token not in ids and token != ROBERTA_TOKENS["unk_token"]:  # bytes are never unknown
            return f"KerasHub needs {token} in the vocabulary, which has none"
    return ""


def _whole(source: Source, roles: Mapping[str, str], ids: Mapping[str, int]) -> tuple[str, ...]:
    tokens = {token for token in (*source.added(), *roles.values()) if token in ids}
    return tuple(sorted(tokens, key=lambda token: (ids[token], token)))


def _normaliser(source: Source) -> tuple[bool, bool, list[str]]:
    """Whether letters are lowered, whether accents go, and what else is to be said; by BERT's own class."""
    config, built = source.config, mapping(source.built.get("normalizer"))
    lowercase = bool(config.get("do_lower_case", True))
    accents = config.get("strip_accents")
    notes = []
    if "do_lower_case" not in config:
        notes.append(f"{CONFIG} does not say do_lower_case; transformers lowers letters then, and so does this")
    if built.get("type") == "BertNormalizer" and built.get("lowercase") is not lowercase:
        notes.append(f"{BUILT} says lowercase {built.get('lowercase')}, but transformers goes by {CONFIG}: {lowercase}")
    if not config.get("tokenize_chinese_chars", True):
        notes.append(_CHINESE)
    return lowercase, lowercase if accents is None else bool(accents), notes


def _built_normaliser(source: Source) -> tuple[bool, bool, list[str]]:
    """The same, by what tokenizer.json says."""
    steps = source.steps("normalizer", "normalizers")
    kinds = [str(step.get("type")) for step in steps]
    bert = next((step for step in steps if step.get("type") == "BertNormalizer"), {})
    stripped = bert.get("strip_accents")
    accents = "StripAccents" in kinds or bool(bert.get("lowercase") if stripped is None else stripped)
    notes = []
    if kinds != ["BertNormalizer"]:
        notes.append(f"{BUILT} normalises by {', '.join(kinds)}; KerasHub by BERT's rules alone")
    if not bert.get("handle_chinese_chars", True):
        notes.append(_CHINESE)
    return "Lowercase" in kinds or bool(bert.get("lowercase")), accents, notes


def _cut_tokens(tokens: tuple[str, ...]) -> Iterator[str]:
    cut = sum(token != token.rstrip() for token in tokens)
    if cut:
        yield f"{cut} tokens end in a space, which KerasHub cuts off: it never finds them"


def _byte_pairs(source: Source, rows: int) -> Found:
    ids = source.vocabulary("vocab.json")
    reason = _unfit(source, "BPE", "vocab.json", ids) or _unfit_tokens(source, ROBERTA_TOKENS, ids or {})
    levels = [step for step in source.steps("pre_tokenizer", "pretokenizers") if step.get("type") == "ByteLevel"]
    if source.general and not levels:
        reason = reason or "the source's tokenizer merges characters; KerasHub's merges bytes"
    if reason or ids is None:
        return Found(None, (reason,))
    merges = source.merges()
    for merge in merges:
        if not {*merge.split(" ", 1)} <= ids.keys() or " " not in merge:
            raise unreadable(source.folder, "a merge of tokens that the vocabulary lacks", found=repr(merge))
    space = levels[0].get("add_prefix_space") if source.general else source.config.get("add_prefix_space")
    kind = BytePairs(ids, merges, _whole(source, ROBERTA_TOKENS, ids), bool(space))
    return Found(kind, (*_byte_notes(source), *_around(source, ROBERTA_TOKENS), *_rows(len(ids), rows)))


def _byte_notes(source: Source) -> Iterator[str]:
    if source.general and source.built.get("normalizer"):
        yield f"{BUILT} normalises text; KerasHub does not"
    if any(mapping(token).get("lstrip") for token in listed(source.built.get("added_tokens"))):
        yield "the space before <mask> in a text: transformers takes it away, KerasHub makes a token of it"


def _pieces(source: Source, rows: int) -> Found:
    path = source.folder / SENTENCEPIECE
    if not path.exists():
        return Found(None, (f"KerasHub needs {SENTENCEPIECE}, which the source does not have",))
    data = read_bytes(path)
    names = parse_sentencepiece(data, path).names
    if names[:3] != FIRST:
        reason = f"the first pieces are {', '.join(names[:3])}; KerasHub takes them to be {', '.join(FIRST)}"
        return Found(None, (reason,))
    reason = _unfit_ids(source, ("<s>", "<pad>", "</s>", "<unk>", *names[3:]), rows)
    if reason:
        return Found(None, (reason,))
    more = [token for token in source.added() if token not in {*names, "<pad>", "<mask>"}]
    notes = [f"KerasHub has no place for the added tokens {', '.join(more[:5])}"] if more else []
    return Found(Pieces(data), (*notes, *_around(source, ROBERTA_TOKENS), *_rows(len(names) + 2, rows)))


def _unfit_ids(source: Source, tokens: tuple[str, ...], rows: int) -> str:
    """Why the ids are not those that KerasHub makes of the pieces; CamemBERT's, for one, are moved further."""
    if source.built:
        found = tuple(entry[0] for entry in listed(source.model.get("vocab")) if isinstance(entry, list) and entry)
        agree = found[: len(tokens)] == tokens and found[len(tokens) :] in ((), ("<mask>",))
        return "" if agree else f"{BUILT} numbers the pieces in another way than KerasHub"
    named = source.config.get("tokenizer_class")
    if isinstance(named, str):
        return "" if named.startswith("XLMRoberta") else f"{named} may number the pieces in another way than KerasHub"
    return "" if rows == len(tokens) + 1 else "nothing says how the ids follow from the pieces"


def _rows(count: int, rows: int) -> Iterator[str]:
    if count > rows:
        yield f"the tokenizer has {count} tokens, the model rows for {rows}"


def _around(source: Source, roles: Mapping[str, str]) -> Iterator[str]:
    """A note when tokenizer.json puts other special tokens around a text than KerasHub does."""
    wanted = [roles["cls_token"], "A", roles["sep_token"]]
    post = mapping(source.built.get("post_processor"))
    if post.get("type") == "TemplateProcessing":
        steps = chain.from_iterable(mapping(step).values() for step in listed(post.get("single")))
        found = [mapping(step).get("id") for step in steps]
    elif post.get("type") in ("BertProcessing", "RobertaProcessing"):
        found = [*listed(post.get("cls"))[:1], "A", *listed(post.get("sep"))[:1]]
    else:
        return
    if found != wanted:
        yield f"{BUILT} puts {' '.join(map(str, found))} around a text A, KerasHub {' '.join(wanted)}"
