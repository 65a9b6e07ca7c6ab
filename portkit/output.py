"""Output folders appear whole or not at all: written beside the target under a hidden name, then renamed."""

from __future__ import annotations

import ctypes
import glob
import hashlib
import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from portkit.errors import PortkitError, Problem, RefusedError, UnreadableError, UnwritableError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

_EXCHANGE = 2  # RENAME_EXCHANGE of Linux's renameat2
_HERE = -100  # AT_FDCWD
_LONG_NAME = 200  # bytes; file systems take 255, and a hidden name has up to 40 more


def check_apart(source: Path, target: Path, others: tuple[str, ...]) -> None:
    """Raise UsageError for an output that would take away the folder around its source, or where one stands.

    It may take its source's own place unless that loses `others`, the files there that are not copied.
    """
    place, home, here = (Path(os.path.realpath(path)) for path in (target, source, Path.cwd()))
    faults = {
        "holds the source": place in home.parents,
        "is, or holds, the folder that you are in": place in (here, *here.parents),
        f"is the source, and files there are not copied: {', '.join(others[:5])}": place == home and bool(others),
    }
    hint = "choose another place for the output"
    problems = [Problem(str(target), what, hint=hint) for what, wrong in faults.items() if wrong]
    if problems:
        raise UsageError("the output would replace a folder in use", problems)


@contextmanager
def new_folder(target: Path, *, force: bool = False) -> Iterator[Path]:
    """A fresh folder that becomes `target` when the block ends, and vanishes when it raises.

    With `force` an old target stays until the new one is complete. Raises RefusedError when the target exists, and
    UnwritableError for what the system says against writing it: the disk is full, a file too large.
    """
    target = Path.cwd() / target
    try:
        _check_target(target, force=force)
        target.parent.mkdir(parents=True, exist_ok=True)
        _sweep(target)
        partial = Path(tempfile.mkdtemp(prefix=f"{_hidden(target)}{os.getpid()}-", dir=target.parent))
    except OSError as e:
        raise _not_written(target, e) from e
    try:
        yield partial
        partial.chmod(0o777 & ~_umask())
        _sync(partial)
        _publish(partial, target)
    except UnwritableError as e:
        raise _not_written(target, e.cause) from e
    except OSError as e:
        raise _not_written(target, e) from e
    finally:
        _remove(partial)


def _check_target(target: Path, *, force: bool) -> None:
    there, astray = os.path.lexists(target), target.is_symlink() and not target.exists()
    if there and not force:
        what = "is already there" + (", a link to nothing" if astray else "")
        hint = "--force replaces it, once the new one is complete"
        raise RefusedError("the output folder exists", [Problem(str(target), what, hint=hint)])
    if there and not astray and not target.is_dir():
        raise RefusedError("the output is a file", [Problem(str(target), "is a file, and the output is a folder")])


def _hidden(target: Path) -> str:
    """What the hidden names of a target start with; of a long name its hash, so that they are no longer than it."""
    name = os.fsencode(target.name)
    short = target.name if len(name) <= _LONG_NAME else hashlib.sha256(name).hexdigest()
    return f".{short}.portkit-"


def _sweep(target: Path) -> None:
    """Remove what a killed conversion to the same target left."""
    for old in target.parent.glob(f"{glob.escape(_hidden(target))}*"):
        pid = old.name.removeprefix(_hidden(target)).partition("-")[0]
        if pid.isdigit() and not Path(f"/proc/{pid}").exists() and Path("/proc").exists():
            shutil.rmtree(old, ignore_errors=True)


def _publish(partial: Path, target: Path) -> None:
    """Rename; an old target is exchanged in one step where the system can, so that there is no moment without one."""
    if not os.path.lexists(target):
        partial.rename(target)
    elif not _exchange(partial, target):
        old = partial.with_name(partial.name + "-old")
        target.rename(old)
        partial.rename(target)
        _remove(old)


def _remove(partial: Path) -> None:
    """What is left under the hidden name: nothing, an unfinished folder, or the old target, which may be a link."""
    if partial.is_symlink():
        partial.unlink()
    else:
        shutil.rmtree(partial, ignore_errors=True)


def _exchange(a: Path, b: Path) -> bool:
    rename = getattr(ctypes.CDLL(None), "renameat2", None)
    return rename is not None and rename(_HERE, os.fsencode(a), _HERE, os.fsencode(b), _EXCHANGE) == 0


def _sync(folder: Path) -> None:
    """Nothing is forced to disk but the folder's own entries: a rename is never seen before its files."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _not_written(target: Path, error: OSError) -> PortkitError:
    """The error in words about the folder that was asked for: nobody knows the hidden one."""
    left = "the folder that was there is as it was" if os.path.lexists(target) else "nothing was left behind"
    named = str(error.filename or "")
    if named and _hidden(target) not in named:  # a parent of the folder, or a file to be copied into it
        problem = Problem(named, "cannot be used", found=error.strerror or str(error), hint=left)
        return UnreadableError("the output was not written", [problem])
    return UnwritableError(target, error, left)
