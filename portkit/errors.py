"""The one exception family of portkit.

    PortkitError
    ├── UsageError               the request makes no sense as given
    ├── UnreadableError          a file or folder cannot be read as what it claims to be
    ├── UnwritableError          the system refuses to write a file or folder
    ├── TableError               a mapping table is wrong
    ├── UnknownModelError        no table, task or prefix explains what the file holds
    │   └── AmbiguousModelError  more than one model does
    ├── UnknownTensorError       no tensor of a model has the name that was given
    ├── RefusedError             readable, but the conversion would lose or invent
    ├── MissingRuntimeError      a framework that was asked for is not installed
    └── RuntimeFailedError       a framework was run and failed

The exit code of UsageError is 2, that of all others 3.

Every error carries its problems as fields. All problems that can be found are found first, then raised once, sorted.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass

_ADVICE = {
    errno.ENOSPC: "the disk is full: free some room there, or write to another one",
    errno.EDQUOT: "your quota is used up: free some of it, or write to another disk",
    errno.EFBIG: "files may not grow so large there: raise the limit (ulimit -f), or write to another disk",
    errno.EROFS: "write to a place where you may",
    errno.EACCES: "write to a place where you may",
    errno.EPERM: "write to a place where you may",
}
_FIELD_CHARS = 600  # of one field of a problem
_LISTED = 100  # problems that an error's text lists


def printable(text: str, most: int = 2000) -> str:
    """Text for a terminal: one line, nothing that moves the cursor or turns the direction, the middle of long ones out.

    Names come from files of strangers; what is no printable character is written as Python would escape it.
    """
    if len(text) > most:
        text = f"{text[: most * 2 // 3]}…({len(text)} characters)…{text[-most // 4 :]}"
    return text if text.isprintable() else "".join(c if c.isprintable() else _escaped(c) for c in text)


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


@dataclass(frozen=True, order=True)
class Problem:
    """One thing that is wrong: where it is, what was expected, what was found, what to do next."""

    where: str
    what: str
    expected: str = ""
    found: str = ""
    hint: str = ""

    def __str__(self) -> str:
        where, what = printable(self.where, _FIELD_CHARS), printable(self.what, _FIELD_CHARS)
        lines = [f"{where}: {what}" if where else what]
        for label, text in (("expected", self.expected), ("found", self.found), ("hint", self.hint)):
            first, *rest = text.splitlines() or [""]
            lines += [f"  {label:<9}{printable(first, _FIELD_CHARS)}"] if text else []
            lines += [f"  {'':<9}{printable(line, _FIELD_CHARS)}" for line in rest[:_LISTED]]
        return "\n".join(lines)


class PortkitError(Exception):
    """Base of everything portkit raises on purpose.

    `title` says what could not be done, `problems` lists why, sorted by place.
    """

    exit_code = 3

    def __init__(self, title: str, problems: list[Problem] | tuple[Problem, ...] = ()) -> None:
        self.title = title
        self.problems = tuple(sorted(set(problems)))
        super().__init__(str(self))

    def __str__(self) -> str:
        if not self.problems:
            return self.title
        count = "1 problem" if len(self.problems) == 1 else f"{len(self.problems)} problems"
        listed = [f"- {p}".replace("\n", "\n  ") for p in self.problems[:_LISTED]]
        more = len(self.problems) - len(listed)
        return "\n".join([f"{self.title} ({count})", *listed, *([f"- … and {more} more"] if more else [])])


class UsageError(PortkitError):
    """The request contradicts itself or names something that does not exist."""

    exit_code = 2


class UnreadableError(PortkitError):
    """A file or folder is not what it claims to be: truncated, hostile, or of an unknown kind."""


class UnwritableError(PortkitError):
    """The system refuses to write a file or folder; `cause` is what it said, `left` what that leaves behind."""

    def __init__(self, where: object, cause: OSError, left: str = "nothing was left behind") -> None:
        self.cause = cause
        hint = "; ".join(filter(None, (_ADVICE.get(cause.errno or 0), left)))
        found = cause.strerror or str(cause)
        super().__init__("the output was not written", [Problem(str(where), "cannot be written", "", found, hint)])


class TableError(PortkitError):
    """A mapping table is wrong."""


class UnknownModelError(PortkitError):
    """No table, task or prefix explains the tensors of a checkpoint."""


class AmbiguousModelError(UnknownModelError):
    """The names hold a model more than once, as a whole or in some tensors."""


class UnknownTensorError(PortkitError):
    """No tensor of a model has the name that was given."""


class RefusedError(PortkitError):
    """A conversion that would lose, invent or change something that it may not."""


class MissingRuntimeError(PortkitError):
    """A framework that was asked for is not installed."""


class RuntimeFailedError(PortkitError):
    """A framework was started and failed."""


def unreadable(where: object, what: str, *, expected: str = "", found: str = "", hint: str = "") -> UnreadableError:
    """An UnreadableError with one problem, at `where`."""
    return UnreadableError("cannot read the checkpoint", [Problem(str(where), what, expected, found, hint)])
