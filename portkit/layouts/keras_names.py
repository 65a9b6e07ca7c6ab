"""The paths of Keras' weights in every generation of files, as today's Keras would call them. Names only, no bytes.

Today a layer is addressed by its class (`layers/dense_1`), counted in the model's order. What changed since, measured
on files of each generation: Keras 2.13 and 2.14 had another root, counted in twos, and gave the backbone of a task no
class; KerasNLP before 0.7 put the token embedding at the root; legacy `.h5` files go by the layers' names instead.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from portkit.keras_json import snake_case

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

_COUNTED = re.compile(r"(.+)_(\d{1,5})")
_LAYER = re.compile(r"(.+_)(\d{1,5})")
_ROOT_2_13 = "_layer_checkpoint_dependencies"
_LEGACY = "model_weights"


def todays_paths(paths: Collection[str], older: Mapping[str, Mapping[str, str]], backbone: str = "") -> dict[str, str]:
    """Stored path -> the path that today's Keras writes, for the files of every generation.

    `older` is the layout's own section of the tables, `backbone` the class of a task's backbone where a config says
    it (`BertBackbone`): some generations do not. Two stored paths may get the same name: shared variables.
    """
    if any(p.partition("/")[0] == _LEGACY for p in paths):
        return _of_layer_names(paths, older, backbone)
    in_twos = any(_ROOT_2_13 in p.split("/") for p in paths)
    whole = "layers/" + snake_case(backbone or _guessed(paths))
    return {p: _today(p, older["words"], whole, in_twos=in_twos) for p in paths}


def _guessed(paths: Iterable[str]) -> str:
    """RoBERTa's backbone has one layer for both embeddings, BERT's has three."""
    return "RobertaBackbone" if any("token_and_position_embedding" in p for p in paths) else "BertBackbone"


def _today(path: str, words: Mapping[str, str], backbone: str, *, in_twos: bool) -> str:
    parts = [words.get(p, p) for p in path.split("/")]
    parts = [_halved(p) if in_twos else p for p in parts]
    path = "/".join(parts)
    if parts[0] == "_backbone":
        path = "/".join([backbone, *parts[1:]])
    if in_twos:  # the token embedding was a plain Embedding, counted before that of the segments
        path = re.sub(r"(^|/)layers/embedding/", r"\1layers/reversible_embedding/", path)
        return re.sub(r"(^|/)layers/embedding_1/", r"\1layers/embedding/", path)
    return re.sub(r"(^|^layers/\w+_backbone/)token_embedding/", r"\1layers/reversible_embedding/", path)


def _halved(word: str) -> str:
    counted = _COUNTED.fullmatch(word)
    if not counted or int(counted[2]) % 2:
        return word
    half = int(counted[2]) // 2
    return f"{counted[1]}_{half}" if half else counted[1]


def _of_layer_names(paths: Collection[str], older: Mapping[str, Mapping[str, str]], backbone: str) -> dict[str, str]:
    """`model_weights/<top layer>/<layer>/<sublayer>/<variable>`; a task's backbone is a top layer of its own."""
    rests = {p: p.split("/")[1:] for p in paths if p.startswith(f"{_LEGACY}/") and p.count("/") > 1}
    nested = {p for p, (top, *rest) in rests.items() if len(rest) > 1 and rest[0] != top}
    heads = {top for p, (top, *_) in rests.items() if p not in nested}
    prefix = f"layers/{snake_case(backbone or _named(rests.values()))}/" if nested else ""
    found = {p: p for p in paths if p not in rests}
    for path, (_, *rest) in rests.items():
        name = _from_words(rest, older)
        after_dense = rest[0] == "logits" and "pooled_dense" in heads and bool(nested)
        name = name.replace("layers/dense/", "layers/dense_1/") if after_dense else name
        found[path] = prefix + name if path in nested else name
    return found


def _named(rests: Iterable[list[str]]) -> str:
    return "RobertaBackbone" if any("embeddings" in rest[:-1] for rest in rests) else "BertBackbone"


def _from_words(rest: list[str], older: Mapping[str, Mapping[str, str]]) -> str:
    first, *inner, variable = rest if len(rest) > 1 else (*rest, "")
    numbered = _LAYER.fullmatch(first)
    i = int(numbered[2]) if numbered else 0
    template = older["layers"].get(f"{numbered[1]}{{i}}" if numbered else first, first)
    head = template.replace("{i}", f"_{i}" if i else "")
    words = [older["sublayers"].get(w, w) for w in inner]
    return "/".join([head, *words, older["variables"].get(variable.removesuffix(":0"), variable)])
