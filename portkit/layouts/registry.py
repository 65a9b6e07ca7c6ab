"""All layouts by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from portkit.layouts.burn import BurnLayout
from portkit.layouts.hf import HfLayout
from portkit.layouts.keras import KerasLayout

if TYPE_CHECKING:
    from portkit.layouts.base import Layout

LAYOUTS: dict[str, Layout] = {layout.name: layout for layout in (HfLayout(), KerasLayout(), BurnLayout())}


def layout_of(name: str) -> Layout:
    """The layout of that name; KeyError when there is none."""
    return LAYOUTS[name]
