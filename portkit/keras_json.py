"""Objects as Keras writes them in JSON: a class, the module that it lives in, its registered name, its config."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


def snake_case(name: str) -> str:
    """`BertBackbone` as Keras writes it in paths, `bert_backbone`; `XLMRobertaBackbone` is `xlm_roberta_backbone`."""
    split = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", re.sub(r"\W+", "", name))
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", split).lower()


def hub_object(package: str, class_name: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """An object of KerasHub. Its module is where 0.32 keeps the class; the registered name is what counts."""
    return {
        "module": f"keras_hub.src.models.{package}.{snake_case(class_name)}",
        "class_name": class_name,
        "config": dict(config),
        "registered_name": f"keras_hub>{class_name}",
    }


def dtype_policy(dtype: str) -> dict[str, Any]:
    """The policy of an object that computes and keeps its weights in one dtype."""
    return {"module": "keras", "class_name": "DTypePolicy", "config": {"name": dtype}, "registered_name": None}
