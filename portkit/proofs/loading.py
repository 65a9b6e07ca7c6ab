"""What a framework's own loader makes of a folder otherwise than portkit reads it.

portkit gives the tensors of an `hf` folder to transformers under today's names, in their own dtypes, and counts labels
by the classifier. `from_pretrained` does not: it fills a parameter whose name it does not find with random numbers,
rounds to the dtype that config.json names, and refuses a classifier of another width. Burn's and Keras' folders are
loaded by their own programs in the forward proof, which refuse what they do not know. KerasHub 0.32 takes no notice of
the dtype policy in a preset, but of Keras' own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from portkit.casts import rounds
from portkit.tensors import FLOAT_NAMES
from portkit.ties import lone_biases

if TYPE_CHECKING:
    from portkit.checkpoint import Checkpoint
    from portkit.table.slots import Slot

_CLASSES = {"question_answering": 2}  # BertForQuestionAnswering too is as wide as its config has labels
_UNSAID = 2  # labels of a config that names none


def loaded_otherwise(checkpoint: Checkpoint) -> dict[str, str]:
    """Which part of a folder -> what its framework's loader takes otherwise; nothing where it reads it as portkit does.

    `stored_names` have no parameter or leave one without numbers, `config_dtype` is narrower than the weights,
    `config_labels` are not as many as the classifier has. Nothing is read but headers.
    """
    if checkpoint.anatomy.layout != "hf":
        return {}
    found = {
        "stored_names": _names(checkpoint),
        "config_dtype": _dtype(checkpoint),
        "config_labels": _labels(checkpoint),
    }
    return {part: what for part, what in found.items() if what}


def _names(checkpoint: Checkpoint) -> str:
    anatomy = checkpoint.anatomy
    strange = [name for logical, name in anatomy.stored.items() if not _known(checkpoint, anatomy.slots[logical], name)]
    said = [f"{len(strange)} that transformers does not load, such as {strange[0]}"] if strange else []
    made_up = [f"none for {name}, which transformers would make up" for name in lone_biases(checkpoint).values()]
    return "; ".join([*said, *made_up])


def _known(checkpoint: Checkpoint, slot: Slot, stored: str) -> bool:
    """Today's name, the one that overrules it, or TensorFlow's words, which transformers renames."""
    old = checkpoint.tables.storages["hf"].also.get(slot.row.kind, {}).get(slot.logical.rpartition(".")[2])
    stem = slot.name.rpartition(".")[0]
    return stored in (slot.name, slot.place.overruled_by, f"{stem}.{old}")


def _dtype(checkpoint: Checkpoint) -> str:
    raw = checkpoint.folder.config
    said = str(raw.get("dtype") or raw.get("torch_dtype") or "").removeprefix("torch.")
    stored = {t.spec.dtype for t in checkpoint.logical().values()}
    wider = sorted(d for d in stored if said in FLOAT_NAMES and rounds(d, FLOAT_NAMES[said]))
    return f"{said}, to which transformers rounds weights in {', '.join(wider)}" if wider else ""


def _labels(checkpoint: Checkpoint) -> str:
    raw, task = checkpoint.folder.config, checkpoint.facts.task
    width = checkpoint.facts.num_labels if checkpoint.anatomy.task.name != "multiple_choice" else None
    width = _CLASSES.get(task, width)
    names = raw.get("id2label")
    said = raw.get("num_labels") or (len(names) if isinstance(names, dict) else _UNSAID)
    return f"{said}, for a classifier of {width}" if width and said != width else ""
