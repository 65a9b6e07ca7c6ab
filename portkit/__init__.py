"""Port checkpoints of BERT-like encoders between frameworks, and prove that they compute the same function.

>>> import portkit
>>> result = portkit.convert("all-MiniLM-L6-v2", "minilm-burn", to="burn")  # doctest: +SKIP
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from portkit.errors import PortkitError

if TYPE_CHECKING:
    from portkit.api import convert, inspect, verify
    from portkit.difference.compare import diff
    from portkit.explain import explain_tensor
    from portkit.golden.check import golden_check
    from portkit.golden.record import golden_record

__all__ = [
    "PortkitError",
    "__version__",
    "convert",
    "diff",
    "explain_tensor",
    "golden_check",
    "golden_record",
    "inspect",
    "verify",
]
__version__ = "0.1.0"

_HOMES = {
    "convert": "portkit.api",
    "inspect": "portkit.api",
    "verify": "portkit.api",
    "diff": "portkit.difference.compare",
    "explain_tensor": "portkit.explain",
    "golden_check": "portkit.golden.check",
    "golden_record": "portkit.golden.record",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever the api module has
    """Load the library on first use: `portkit --help` needs none of it."""
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'portkit' has no attribute {name!r}")
