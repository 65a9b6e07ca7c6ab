"""The library: what the command line does, as functions that return objects."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from portkit import execute
from portkit.casts import Watch
from portkit.checkpoint import Checkpoint, open_checkpoint
from portkit.errors import Problem, UsageError
from portkit.formats.safetensors_file import write_safetensors
from portkit.layouts.files import OutputFile, copy_files, hashed, output_files, travelling, write_json
from portkit.layouts.folder import RECORD, RESIDUE
from portkit.layouts.registry import LAYOUTS, layout_of
from portkit.moves import Options
from portkit.output import check_apart, new_folder
from portkit.plan import Plan, make_plan
from portkit.record import behind_note, make_record, warnings_of
from portkit.table.load import suggestion
from portkit.verify.tensors import TensorVerdict, prove_tensors

if TYPE_CHECKING:
    from portkit.verify.agreement import ForwardVerdict

VERIFY = ("auto", "none", "tensors", "forward")
SHARD = 50_000_000_000  # bytes, as transformers 5 splits


@dataclass(frozen=True)
class Conversion:
    """What a conversion did: its plan, its proofs, the folder, and warnings in the order in which they arose.

    `files` are those of the output, but for the record; of a dry run, those that would be copied. `left_behind`
    names what the source's folder has besides and was not copied.
    """

    plan: Plan
    path: Path | None
    tensors: TensorVerdict | None
    forward: ForwardVerdict | None
    warnings: tuple[str, ...]
    files: tuple[OutputFile, ...] = ()
    left_behind: tuple[str, ...] = ()

    @property
    def proved(self) -> bool:
        """No proof that was made failed."""
        return (self.tensors is None or self.tensors.equal) and (self.forward is None or self.forward.agrees)

    def record(self) -> dict[str, Any]:
        """What `portkit.json` says of it."""
        proofs = {n: v.as_dict() for n, v in (("tensors", self.tensors), ("forward", self.forward)) if v}
        record = make_record(self.plan, proofs, self.files, self.left_behind, self.warnings)
        return {**record, "dry_run": True} if self.path is None else record


def inspect(path: Path | str, **options: Any) -> Checkpoint:  # noqa: ANN401 - those of open_checkpoint
    """Open a checkpoint and say what it is. Options and errors are those of `open_checkpoint`."""
    return open_checkpoint(path, **options)


def convert(
    source: Path | str,
    target: Path | str,
    *,
    to: str,
    verify: str = "auto",
    device: str = "cpu",
    force: bool = False,
    dry_run: bool = False,
    max_shard_size: int = SHARD,
    open_with: dict[str, Any] | None = None,
    **options: Any,  # noqa: ANN401 - those of Options
) -> Conversion:
    """Convert a checkpoint into a new folder of layout `to`, and prove it.

    `open_with` are keywords of `open_checkpoint`, `options` fields of `plan.Options`. With `dry_run` nothing is
    written. A failed proof leaves no folder. Raises PortkitError.
    """
    for what, word, known in (("--to", to, tuple(LAYOUTS)), ("--verify", verify, VERIFY)):
        if word not in known:
            raise UsageError("unknown choice", [Problem(what, f"{word!r} is none", hint=suggestion(word, known))])
    if max_shard_size < 1:
        raise UsageError("no such size", [Problem("--max-shard-size", "must be above 0", found=str(max_shard_size))])
    opened = open_checkpoint(source, **(open_with or {}))
    behind = opened.folder.left_behind()
    check_apart(opened.folder.home, Path(target), behind)
    plan = make_plan(opened, Options(to=to, **options))
    warnings = (*warnings_of(opened), *plan.warnings, *behind_note(behind))
    planned = Conversion(plan, None, None, None, warnings, left_behind=behind)
    if dry_run:
        home = opened.folder.home
        return replace(planned, files=tuple(hashed(home, name, "copied") for name in travelling(home)))
    mappings = tuple((open_with or {}).get("mappings", ()))
    with new_folder(Path(target), force=force) as folder:
        odd, copied = _write(plan, folder, max_shard_size)
        result = replace(planned, path=Path(target), warnings=(*planned.warnings, *odd))
        result = _prove(result, folder, verify, device, mappings)
        if not result.proved:
            raise ProofFailed(result)
        result = replace(result, files=output_files(folder, copied))
        write_json(folder / RECORD, result.record())
    return result


class ProofFailed(Exception):  # noqa: N818 - a verdict, not an error of the program
    """Raised inside `convert` to leave no folder behind; carries the conversion with its verdicts."""

    def __init__(self, conversion: Conversion) -> None:
        self.conversion = conversion
        super().__init__(str(conversion.forward or conversion.tensors))


def _write(plan: Plan, folder: Path, max_shard_size: int) -> tuple[tuple[str, ...], tuple[str, ...]]:
    layout, watch = layout_of(plan.layout), Watch({m.source: m.target.dtype for m in plan.moves})
    layout.write_config(folder, plan.model)
    back = execute.restored(plan)
    specs = [*(m.target for m in plan.moves), *(t.spec for t in back)]
    numbers = chain(execute.arrays(plan, watch), (t.read() for t in back))
    layout.write_weights(folder, plan.form, specs, numbers, max_shard_size)
    watch.raise_if_unfit()
    if plan.kept or plan.carried:
        write_safetensors(folder / RESIDUE, execute.residue_specs(plan), execute.residue(plan))
    return tuple(dict.fromkeys(watch.notes)), copy_files(plan.source.folder.home, folder)


def _prove(result: Conversion, folder: Path, verify: str, device: str, mappings: tuple[Path, ...]) -> Conversion:
    if verify == "none":
        return result
    result = replace(result, tensors=prove_tensors(result.plan, folder, mappings))
    if verify == "tensors":
        return result
    from portkit.verify.models import prove_forward

    return replace(result, forward=prove_forward(result.plan, folder, device=device, mappings=mappings))
