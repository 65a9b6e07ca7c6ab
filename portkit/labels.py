"""Names of the classes: those that a checkpoint has or had, and those that a user gives where nobody named them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from portkit import memory
from portkit.config import numbered_labels
from portkit.errors import Problem, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from portkit.checkpoint import Checkpoint


def target_names(source: Checkpoint, asked: Iterable[str], count: int | None) -> tuple[str, ...] | None:
    """The source's names, else those that an earlier conversion saw; where both only count, those that are `asked` for.

    `count` is how many classes the target's head has, None where it has none. Raises UsageError for names that do not
    fit, or where the classes have names.
    """
    known = source.config.labels or memory.labels(source.folder)
    if not (asked := tuple(asked)):
        return known
    if problems := _problems(asked, known, count):
        raise UsageError("the classes cannot be named so", problems)
    return asked


def _problems(asked: tuple[str, ...], known: tuple[str, ...] | None, count: int | None) -> list[Problem]:
    if count is None:
        return [Problem("--labels", "the target has no classes to name")]
    problems = []
    if len(asked) != count:
        problems.append(
            Problem("--labels", "a name for each class, in the order of their ids", f"{count}", f"{len(asked)}")
        )
    if len(set(asked)) != len(asked) or "" in asked:
        problems.append(Problem("--labels", "each name must stand once, and none be empty", found=", ".join(asked)))
    if known and len(known) == count and known not in (numbered_labels(count), asked):
        hint = "without --labels these are kept; to rename them, edit id2label in the target's config.json"
        problems.append(Problem("--labels", "the classes have names", found=", ".join(known), hint=hint))
    return problems
