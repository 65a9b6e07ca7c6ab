"""The facts of a golden: those of the model, and what its classes are called."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from portkit.config import given_names
from portkit.facts import Facts

if TYPE_CHECKING:
    from portkit.checkpoint import Checkpoint
    from portkit.golden.form import FactValue

LABELS = "labels"
NAMES = (*Facts.__dataclass_fields__, LABELS)


def facts_said(checkpoint: Checkpoint) -> dict[str, FactValue]:
    """Name -> value. `labels` is a JSON list, and only there where somebody named the classes."""
    names = given_names(checkpoint.config, checkpoint.facts.num_labels)
    return {**asdict(checkpoint.facts), **({LABELS: json.dumps(names, ensure_ascii=False)} if names else {})}
