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
from portkit.layouts.files import OutputFile, output_file, output_files, write_json
from portkit.layouts.folder import RECORD, RESIDUE
from portkit.layouts.registry import LAYOUTS, layout_of
from portkit.layouts.travel import travel
from portkit.moves import Options
from portkit.output import check_apart, new_folder
from portkit.plan import Plan, make_plan
from portkit.proofs import PROOFS
from portkit.record import behind_note, make_record, warnings_of
from portkit.table.load import suggestion

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from portkit.faults.self_test import SelfTest
    from portkit.proofs.agreement import ForwardVerdict
    from portkit.proofs.facts import FactsVerdict
    from portkit.proofs.pair import Verification
    from portkit.proofs.tensors import TensorVerdict
    from portkit.runtimes.outputs import Inputs

VERIFY = {"auto": PROOFS, "none": (), **{name: (name,) for name in PROOFS}}  # word -> the proofs that it makes
SHARD = 50_000_000_000  # bytes, as transformers 5 splits


@dataclass(frozen=True)
class Conversion:
    """What a conversion did: its plan, its proofs, the folder, and warnings in the order in which they arose.

    `files` are those of the output, but for the record; of a dry run, those that would be copied. `left_behind`
    names what the source's folder has besides and was not copied.
    """

    plan: Plan
    path: Path | None
    verification: Verification | None
    warnings: tuple[str, ...]
    files: tuple[OutputFile, ...] = ()
    left_behind: tuple[str, ...] = ()
    dry_run: bool = False

    @property
    def tensors(self) -> TensorVerdict | None:
        """The tensor proof, where it was made."""
        return self.verification.tensors if self.verification else None

    @property
    def facts(self) -> FactsVerdict | None:
        """The facts proof, where it was made."""
        return self.verification.facts if self.verification else None

    @property
    def forward(self) -> ForwardVerdict | None:
        """The forward proof, where it was made."""
        return self.verification.forward if self.verification else None

    @property
    def proved(self) -> bool:
        """No proof that was made failed."""
        return self.verification is None or self.verification.holds

    def record(self) -> dict[str, Any]:
        """What `portkit.json` says of it."""
        record = make_record(self.plan, self.verification, self.files, self.left_behind, self.warnings)
        return {**record, "dry_run": True} if self.dry_run else record


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
    keep_failed: bool = False,
    dry_run: bool = False,
    max_shard_size: int = SHARD,
    open_with: dict[str, Any] | None = None,
    **options: Any,  # noqa: ANN401 - those of Options
) -> Conversion:
    """Convert a checkpoint into a new folder of layout `to`, and prove it.

    `open_with` are keywords of `open_checkpoint`, `options` fields of `moves.Options`. With `dry_run` nothing is
    written. A failed proof raises ProofFailed and leaves no folder, or with `keep_failed` one that is marked as failed.
    Raises PortkitError.
    """
    _check_choices(to, verify, force=force, keep_failed=keep_failed)
    _check_shards(to, max_shard_size)
    opening = open_with or {}
    opened = open_checkpoint(source, **opening)
    home, behind = opened.folder.home, opened.folder.left_behind()
    check_apart(home, Path(target), behind)
    plan = make_plan(opened, Options(to=to, **options))
    warnings = (*warnings_of(opened), *plan.warnings, *behind_note(behind))
    planned = Conversion(plan, None, None, warnings, left_behind=behind)
    small = travel(home, opened.anatomy.layout, to, plan.model)
    if dry_run:
        files = tuple(output_file(name, "copied", path) for name, path in small.copied.items())
        return replace(planned, files=files, warnings=(*warnings, *small.notes), dry_run=True)
    with new_folder(Path(target), force=force) as folder:
        digests, seen = _write(plan, folder, max_shard_size, small.preprocessor)
        copied = small.put(folder)
        verdict = _prove(plan, folder, VERIFY[verify], device, tuple(opening.get("mappings", ())))
        result = replace(planned, path=Path(target), verification=verdict, warnings=(*warnings, *small.notes, *seen))
        result = replace(result, files=output_files(folder, copied, digests))
        write_json(folder / RECORD, result.record())
        if not (result.proved or keep_failed):
            raise ProofFailed(replace(result, path=None))
    if not result.proved:
        raise ProofFailed(result)
    return result


def verify(
    source: Path | str | Checkpoint,
    target: Path | str | Checkpoint,
    *,
    proofs: Collection[str] = PROOFS,
    inputs: Inputs | Path | str | None = None,
    text: Path | str | None = None,
    device: str = "cpu",
    precision: str = "float32",
    runtime: str | tuple[str, str] = "auto",
    open_source: dict[str, Any] | None = None,
    open_target: dict[str, Any] | None = None,
) -> Verification:
    """Make the three proofs between two checkpoints of any layouts: does the target compute what the source does?

    `inputs` (a batch, or a file that `read_inputs` takes) or `text` (sentences for the source's tokenizer) replace the
    inputs that are chosen to cover much. `precision` is the dtype to compute in, where a framework can. `runtime`, one
    or one for each side, is "auto", "own" (its framework or an error) or "reference" (numpy in its place, fast for
    small models). `open_source` and `open_target` are keywords of `open_checkpoint`. A verdict is returned whether or
    not it holds. Raises UsageError, and what opening the folders and the inputs raises.
    """
    from portkit.proofs.models import How
    from portkit.proofs.pair import require_proofs, verify_pair

    require_proofs(proofs)
    runtimes = (runtime, runtime) if isinstance(runtime, str) else runtime
    how = (How(device, precision, runtimes[0]), How(device, precision, runtimes[1]))
    a, b = _opened(source, open_source), _opened(target, open_target)
    return verify_pair(a, b, proofs, inputs=_given(inputs, text, a, b), how=how)


def self_test(
    source: Path | str | Checkpoint,
    target: Path | str | Checkpoint | None = None,
    *,
    open_source: dict[str, Any] | None = None,
    open_target: dict[str, Any] | None = None,
) -> SelfTest:
    """Test the checker: put every known fault into the target, in memory, and see which proofs see it.

    Without a target the source is proved against itself. The reference runs both sides on short inputs. The result is
    returned whether or not it holds. Raises what opening the folders raises.
    """
    from portkit.faults.self_test import run_self_test

    a = _opened(source, open_source)
    return run_self_test(a, a if target is None else _opened(target, open_target))


def _opened(path: Path | str | Checkpoint, opening: dict[str, Any] | None) -> Checkpoint:
    return path if isinstance(path, Checkpoint) else open_checkpoint(path, **(opening or {}))


def _given(inputs: Inputs | Path | str | None, text: Path | str | None, a: Checkpoint, b: Checkpoint) -> Inputs | None:
    """The batch that a user gives, which must fit both sides; None when there is none."""
    from portkit.proofs.given import read_inputs, read_text, require_fits

    if inputs is not None and text is not None:
        raise UsageError("cannot take both", [Problem("--inputs and --text", "each is the whole batch", "one of them")])
    given = read_inputs(Path(inputs)) if isinstance(inputs, Path | str) else inputs
    if text is not None:
        given = read_text(Path(text), a.folder.home)
    if given is not None:
        require_fits(given, {"source": a.facts, "target": b.facts})
    return given


class ProofFailed(Exception):  # noqa: N818 - a verdict, not an error of the program
    """Raised by `convert` when a proof failed; carries the conversion with its verdicts, and its folder if kept."""

    def __init__(self, conversion: Conversion) -> None:
        self.conversion = conversion
        super().__init__(conversion.verification.summary if conversion.verification else "")


def _check_shards(to: str, size: int) -> None:
    if size < 1:
        raise UsageError("no such size", [Problem("--max-shard-size", "must be above 0", found=str(size))])
    if size != SHARD and not layout_of(to).shards:
        raise UsageError("no shards there", [Problem("--max-shard-size", f"{to} writes one file of weights")])


def _check_choices(to: str, verify: str, *, force: bool, keep_failed: bool) -> None:
    for what, word, known in (("--to", to, tuple(LAYOUTS)), ("--verify", verify, tuple(VERIFY))):
        if word not in known:
            raise UsageError("unknown choice", [Problem(what, f"{word!r} is none", hint=suggestion(word, known))])
    if force and keep_failed:
        why = "a folder that failed would replace the one that is there"
        raise UsageError("these do not go together", [Problem("--force and --keep-failed", why, "one of them")])


def _write(
    plan: Plan, folder: Path, max_shard_size: int, preprocessor: Mapping[str, Any] | None
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Write config, weights and residue. Returns name -> SHA-256, and what was seen in the numbers on the way."""
    layout, watch = layout_of(plan.layout), Watch({m.source: m.target.dtype for m in plan.moves})
    layout.write_config(folder, replace(plan.model, preprocessor=preprocessor))
    back = execute.restored(plan)
    specs = [*(m.target for m in plan.moves), *(t.spec for t in back)]
    numbers = chain(execute.arrays(plan, watch), (t.read() for t in back))
    digests = dict(layout.write_weights(folder, plan.form, specs, numbers, max_shard_size))
    watch.raise_if_unfit()
    if plan.kept or plan.carried:
        digests[RESIDUE] = write_safetensors(folder / RESIDUE, execute.residue_specs(plan), execute.residue(plan))
    return digests, tuple(dict.fromkeys(watch.notes))


def _prove(
    plan: Plan, folder: Path, proofs: Collection[str], device: str, mappings: tuple[Path, ...]
) -> Verification | None:
    """The proofs on the folder that was written. One that cannot look is an error: nothing is then left behind."""
    if not proofs:
        return None
    from portkit.proofs.models import How
    from portkit.proofs.pair import verify_pair

    model = plan.model
    target = open_checkpoint(
        folder, layout=plan.layout, family=model.table.family, task=model.task.name, mappings=mappings
    )
    verdict = verify_pair(plan.source, target, proofs, how=(How(device), How(device)), plan=plan)
    for error in verdict.errors.values():
        raise error
    return verdict
