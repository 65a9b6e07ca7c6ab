"""The README's table of directions is what conversions do today."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_the_table_is_what_the_script_finds(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(ROOT / "scripts"), *sys.path])
    import directions

    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    written = readme.partition(directions.BEGIN)[2].partition(directions.END)[0]
    assert written.strip() == directions.table(), "run: python scripts/directions.py"
