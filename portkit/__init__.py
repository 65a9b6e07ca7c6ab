"""Port BERT-like checkpoints between Hugging Face, KerasHub and Burn, and prove that they compute the same function.

>>> import portkit
>>> result = portkit.convert("all-MiniLM-L6-v2", "minilm-burn", to="burn")  # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from portkit.errors import PortkitError

if TYPE_CHECKING:
    from portkit.api import convert, inspect
    from portkit.difference.compare import diff

__all__ = ["PortkitError", "__version__", "convert", "diff", "inspect"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:  # noqa: ANN401 - whatever the api module has
    """Load the library on first use: `portkit --help` needs none of it."""
    if name in ("convert", "inspect"):
        from portkit import api

        return getattr(api, name)
    if name == "diff":
        from portkit.difference.compare import diff

        return diff
    raise AttributeError(f"module 'portkit' has no attribute {name!r}")
