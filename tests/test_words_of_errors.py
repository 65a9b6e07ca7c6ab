"""The words of every error stand in a test: titles, and what is wrong."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from portkit import errors

PACKAGE = Path(errors.__file__).parent
TITLED = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, Exception)}
WHAT = {"unreadable", "Problem"}  # their second argument says what is wrong
NEVER = {
    # A checkpoint that was opened has every tensor of its task, and a pooler is looked at before.
    "the target needs it and the source has none",
}


@dataclass(frozen=True)
class Said:
    """Words of an error: the longest piece of a text without holes, and where it stands."""

    where: str
    words: str


def texts(node: ast.expr) -> Iterator[list[str]]:
    """The texts that an expression may be, each as its pieces between the holes; none for what is a name."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield [node.value]
    elif isinstance(node, ast.JoinedStr):
        yield [part.value for part in node.values if isinstance(part, ast.Constant)]
    elif isinstance(node, ast.IfExp):
        yield from texts(node.body)
        yield from texts(node.orelse)


def said_in(path: Path) -> Iterator[Said]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            continue
        place = 0 if node.func.id in TITLED else 1 if node.func.id in WHAT else None
        if place is None or len(node.args) <= place:
            continue
        for pieces in texts(node.args[place]):
            words = max((piece.strip() for piece in pieces), key=len, default="")
            if words:
                yield Said(f"{path.relative_to(PACKAGE)}:{node.lineno}", words)


def words_of_tests() -> str:
    """All texts of all tests, those of regular expressions also without their backslashes."""
    files = sorted(Path(__file__).parent.rglob("*.py"))
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in files if path != Path(__file__)]
    found = [
        n.value for tree in trees for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)
    ]
    text = "\n".join(found)
    return f"{text}\n{text.replace(chr(92), '')}"


SAID = [said for path in sorted(PACKAGE.rglob("*.py")) for said in said_in(path)]


def test_the_words_of_every_error_are_tested():
    assert len(SAID) > 300
    text = words_of_tests()
    assert {said for said in SAID if said.words not in text and said.words not in NEVER} == set()


def test_nothing_is_excused_that_is_gone():
    assert {said.words for said in SAID} >= NEVER
