"""Random small models for tests, and what Hugging Face would store for them.

Matrices are scaled by fan-in: larger ones saturate the softmax and hide swapped or transposed queries.
All sizes differ, so that no wrong axis fits. Hugging Face's names are written out, not taken from the tables.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from portkit.facts import Facts
from portkit.tensors import LazyTensor, in_memory

HEAD_CLASSES = {
    "model": "Model",
    "masked_lm": "ForMaskedLM",
    "pre_training": "ForPreTraining",
    "next_sentence": "ForNextSentencePrediction",
    "sequence_classification": "ForSequenceClassification",
    "token_classification": "ForTokenClassification",
    "question_answering": "ForQuestionAnswering",
    "multiple_choice": "ForMultipleChoice",
}
LABELS = {
    "sequence_classification": 5,
    "token_classification": 5,
    "multiple_choice": 1,
    "question_answering": 2,
}
HF_ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_pytorch_tanh", "relu": "relu"}
BERT_TASKS = tuple(HEAD_CLASSES)
ROBERTA_TASKS = tuple(task for task in HEAD_CLASSES if task not in ("pre_training", "next_sentence"))


def small_facts(family: str = "bert", task: str = "model", **changes: object) -> Facts:
    """Facts of a small model as Hugging Face builds it for that family and task."""
    bert = family == "bert"
    sentence_head = task == "sequence_classification"
    facts = Facts(
        family=family,
        task=task,
        head_style=("bert" if bert else "roberta") if sentence_head else None,
        vocab_size=61,
        hidden_size=24,
        num_hidden_layers=3,
        num_attention_heads=3,
        intermediate_size=40,
        max_position_embeddings=37,
        type_vocab_size=2,
        num_labels=LABELS.get(task),
        layer_norm_eps=1e-12 if bert else 1e-5,
        hidden_act="gelu",
        lm_head_act="gelu",
        lm_head_eps=1e-12,
        position_scheme="absolute" if bert else "padding",
        position_offset=0,
        pad_token_id=0 if bert else 1,
        has_pooler=task in ("model", "pre_training", "next_sentence", "multiple_choice") or (sentence_head and bert),
    )
    facts = replace(facts, **changes)
    return facts if "lm_head_eps" in changes else replace(facts, lm_head_eps=facts.layer_norm_eps)


def class_name(facts: Facts) -> str:
    """The Hugging Face class of these facts."""
    return facts.family.capitalize() + HEAD_CLASSES[facts.task]


def lazy(arrays: dict[str, np.ndarray]) -> dict[str, LazyTensor]:
    """The arrays as a checkpoint would hand them out."""
    return {name: in_memory(name, array) for name, array in arrays.items()}


def random_logical(facts: Facts, seed: int = 0, dtype: type = np.float32) -> dict[str, np.ndarray]:
    """Every logical tensor of the model, none of them at a value that would hide its loss."""
    rng, hidden = np.random.default_rng(seed), facts.hidden_size
    rows = {
        "word": facts.vocab_size,
        "position": facts.max_position_embeddings,
        "type": facts.type_vocab_size,
    }
    tensors = {f"embeddings.{name}.table": rng.normal(0, 0.5, (count, hidden)) for name, count in rows.items()}
    for name, (inner, outer) in linear_sizes(facts).items():
        tensors[f"{name}.kernel"] = rng.normal(0, inner**-0.5, (inner, outer))
        tensors[f"{name}.bias"] = rng.normal(0, 0.3, outer)
    for name in norm_names(facts):
        tensors[f"{name}.scale"] = 1 + rng.normal(0, 0.3, hidden)
        tensors[f"{name}.bias"] = rng.normal(0, 0.3, hidden)
    if "masked_lm.decoder.kernel" in tensors:
        tensors["masked_lm.decoder.kernel"] = tensors["embeddings.word.table"].T  # tied
    return {name: np.ascontiguousarray(array, dtype) for name, array in tensors.items()}


def linear_sizes(facts: Facts) -> dict[str, tuple[int, int]]:
    """Logical name of every dense layer, with its sizes (in, out)."""
    hidden, inner, layers = facts.hidden_size, facts.intermediate_size, range(facts.num_hidden_layers)
    sizes = {
        f"layer.{i}.attention.{part}": (hidden, hidden) for i in layers for part in ("query", "key", "value", "out")
    }
    sizes |= {f"layer.{i}.mlp.up": (hidden, inner) for i in layers}
    sizes |= {f"layer.{i}.mlp.down": (inner, hidden) for i in layers}
    if facts.has_pooler or facts.head_style == "roberta":
        sizes["pooler"] = (hidden, hidden)
    if facts.task in ("masked_lm", "pre_training"):
        sizes |= {"masked_lm.transform": (hidden, hidden), "masked_lm.decoder": (hidden, facts.vocab_size)}
    if facts.task in ("pre_training", "next_sentence"):
        sizes["next_sentence"] = (hidden, 2)
    if facts.num_labels is not None:
        sizes["qa" if facts.task == "question_answering" else "classifier"] = (hidden, facts.num_labels)
    return sizes


def norm_names(facts: Facts) -> list[str]:
    """Logical name of every layer norm."""
    layers = range(facts.num_hidden_layers)
    names = ["embeddings.norm", *(f"layer.{i}.{part}.norm" for i in layers for part in ("attention", "mlp"))]
    return names + (["masked_lm.norm"] if facts.task in ("masked_lm", "pre_training") else [])


def hf_state(logical: dict[str, np.ndarray], facts: Facts) -> dict[str, np.ndarray]:
    """The model's whole state dict under Hugging Face's names, [out, in], tied tensors included."""
    base = "" if facts.task == "model" else f"{facts.family}."
    modules = {
        "embeddings.word": f"{base}embeddings.word_embeddings",
        "embeddings.position": f"{base}embeddings.position_embeddings",
        "embeddings.type": f"{base}embeddings.token_type_embeddings",
        "embeddings.norm": f"{base}embeddings.LayerNorm",
        "pooler": f"{base}pooler.dense",
        **_layer_modules(base, facts),
        **_head_modules(facts),
    }
    leaves = {"kernel": "weight", "table": "weight", "scale": "weight", "bias": "bias"}
    state = {}
    for name, array in logical.items():
        module, _, leaf = name.rpartition(".")
        state[f"{modules[module]}.{leaves[leaf]}"] = np.ascontiguousarray(array.T if leaf == "kernel" else array)
    if facts.task in ("masked_lm", "pre_training"):  # the bias has a second name, tied to the decoder's
        owner = "cls.predictions" if facts.family == "bert" else "lm_head"
        state[f"{owner}.bias"] = logical["masked_lm.decoder.bias"]
    return state


def hf_config(facts: Facts) -> dict[str, object]:
    """The fields of config.json that decide the function; Hugging Face's own names."""
    sizes = ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
    more = ("max_position_embeddings", "type_vocab_size", "layer_norm_eps", "pad_token_id")
    config: dict[str, object] = {name: getattr(facts, name) for name in (*sizes, *more)}
    config |= {"hidden_act": HF_ACTIVATIONS[facts.hidden_act], "tie_word_embeddings": True}
    return config | ({"num_labels": facts.num_labels} if facts.num_labels else {})


def _layer_modules(base: str, facts: Facts) -> dict[str, str]:
    modules = {
        **{f"attention.{part}": f"attention.self.{part}" for part in ("query", "key", "value")},
        "attention.out": "attention.output.dense",
        "attention.norm": "attention.output.LayerNorm",
        "mlp.up": "intermediate.dense",
        "mlp.down": "output.dense",
        "mlp.norm": "output.LayerNorm",
    }
    layers = range(facts.num_hidden_layers)
    return {f"layer.{i}.{ours}": f"{base}encoder.layer.{i}.{hf}" for i in layers for ours, hf in modules.items()}


def _head_modules(facts: Facts) -> dict[str, str]:
    modules = {"classifier": "classifier", "qa": "qa_outputs", "next_sentence": "cls.seq_relationship"}
    if facts.head_style == "roberta":
        modules |= {"pooler": "classifier.dense", "classifier": "classifier.out_proj"}
    if facts.family == "bert":
        lm = (
            "cls.predictions.transform.dense",
            "cls.predictions.transform.LayerNorm",
            "cls.predictions.decoder",
        )
    else:
        lm = ("lm_head.dense", "lm_head.layer_norm", "lm_head.decoder")
    return modules | dict(zip(("masked_lm.transform", "masked_lm.norm", "masked_lm.decoder"), lm, strict=True))
