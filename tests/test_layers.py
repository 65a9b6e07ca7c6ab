"""Modules import downward only, and the command starts without a framework."""

from __future__ import annotations

import ast
import graphlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import portkit

PACKAGE = Path(portkit.__file__).parent
ORDER = (  # from the bottom up; modules on one line know nothing of each other
    ("errors", "dense", "facts", "keras_json"),
    ("tensors",),
    ("axes", "casts"),
    ("table",),
    ("fold",),
    ("formats", "names", "config"),
    ("candidates", "tokenizers"),
    ("anatomy", "layouts", "runtimes", "output"),
    ("checks", "sizes", "spare", "memory"),
    ("checkpoint",),
    ("pooler", "accounting", "common", "homes", "ties"),
    ("moves",),
    ("labels",),
    ("target",),
    ("plan",),
    ("execute", "explain"),
    ("proofs",),
    ("golden", "faults"),
    ("record",),
    ("render_proofs", "render_faults"),
    ("difference",),
    ("api", "junit"),
    ("render", "render_golden", "render_explain", "cli_options"),
    ("cli_diff", "cli_golden", "cli_explain", "cli_verify"),
    ("cli",),
    ("__main__",),
)
RANK = {name: rank for rank, names in enumerate(ORDER) for name in names}
HEAVY = ("numpy", "torch", "transformers", "keras", "tensorflow")


def modules() -> dict[str, Path]:
    """Dotted name below the package -> file; a package is named by its `__init__`."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports_of(path: Path) -> Iterator[str]:
    """Dotted names below the package that a module imports anywhere, inside functions too."""
    known = modules()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            deeper = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name.removeprefix("portkit.") in known else node.module for name in deeper]
        else:
            names = []
        yield from (name.removeprefix("portkit.") for name in names if name.startswith("portkit."))


IMPORTS = {name: sorted(set(imports_of(path))) for name, path in modules().items() if name}


def test_every_module_has_its_place():
    assert {name.partition(".")[0] for name in IMPORTS} == set(RANK)
    assert sum(map(len, IMPORTS.values())) > 150  # the imports were seen


@pytest.mark.parametrize("name", IMPORTS)
def test_imports_go_downward(name):
    top = name.partition(".")[0]
    others = {other.partition(".")[0] for other in IMPORTS[name]} - {top}
    assert {other: RANK[other] for other in others if RANK[other] >= RANK[top]} == {}


def test_no_circle_inside_a_package():
    assert len(tuple(graphlib.TopologicalSorter(IMPORTS).static_order())) >= len(IMPORTS)


def test_relative_imports_are_not_used():
    for path in modules().values():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        assert not [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.level], path


@pytest.mark.parametrize(
    "program",
    ["import portkit", "from portkit.cli import main; main(['--help'], standalone_mode=False)"],
    ids=["import", "help"],
)
def test_start_needs_no_framework(program):
    ask = f"import sys; {program}; print('loaded', [n for n in {HEAVY} if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "loaded []"
