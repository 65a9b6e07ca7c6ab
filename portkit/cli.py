"""The command line: options, one call of the library, a rendered report, an exit code. No logic lives here."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from portkit import __version__
from portkit.cli_diff import diff
from portkit.cli_explain import explain
from portkit.cli_golden import golden
from portkit.cli_options import device, reading, tables, verdicts_to
from portkit.cli_verify import verify
from portkit.errors import PortkitError
from portkit.proofs import PROOFS

if TYPE_CHECKING:
    from portkit.api import Conversion

_EPILOG = "Exit codes: 0 done and equal, 1 a difference or a failed proof, 2 wrong usage, 3 could not look."


class _Group(click.Group):
    """Turns the one exception family into its words on stderr and its exit code."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except PortkitError as e:
            click.echo(f"portkit: {e}", err=True)
            ctx.exit(e.exit_code)


def _spare_threads() -> None:
    """Where nothing is multiplied, the threads that numpy starts for that would cost a seventh of a conversion."""
    if "numpy" not in sys.modules:  # it reads this once, when it is imported
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def _keep_memory() -> None:
    """Make glibc keep what is freed for the next tensor; to return and fetch it again takes longer than to compare.

    Its thresholds for that rise to the largest block that was freed, up to 32 MB (mallopt(3), M_MMAP_THRESHOLD). This
    one is never written to, so it costs nothing; other systems ignore it.
    """
    bytes(31 << 20)


@click.group(cls=_Group, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="portkit")
def main() -> None:
    """Port checkpoints of BERT-like encoders between frameworks, and prove that they compute the same."""
    _keep_memory()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal that has no "…" shows its escape
            stream.reconfigure(errors="backslashreplace")


for _command in (diff, explain, golden, verify):
    main.add_command(_command)


@main.command()
@click.argument("path", type=click.Path(path_type=Path))
@reading
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def inspect(path: Path, as_json: bool, **opening: Any) -> None:  # noqa: ANN401 - options of the reading group
    """Say what a checkpoint is: family, task, pooler, head, facts."""
    _spare_threads()
    from portkit.api import inspect as look
    from portkit.record import describe
    from portkit.render import render_inspection

    found = describe(look(path, **opening))
    click.echo(json.dumps(found, indent=2) if as_json else render_inspection(found))


@main.command()
@click.argument("source", type=click.Path(path_type=Path))
@click.argument("target", type=click.Path(path_type=Path))
@click.option("--to", required=True, metavar="LAYOUT", help="Layout to write: hf, keras or burn.")
@reading
@click.option("--format", "form", help="File format of the weights; for burn: bpk, safetensors or mpk.")
@click.option("--dialect", help="Another convention of the layout, such as bert-burn.")
@click.option(
    "--pooler",
    type=click.Choice(["keep", "drop", "require", "synthesize"]),
    default="keep",
    show_default=True,
    help="What the source has; none (it goes into the residue); fail without one; zeros where there is none.",
)
@click.option(
    "--head-style",
    type=click.Choice(["keep", "bert", "roberta"]),
    default="keep",
    show_default=True,
    help="Where a sentence head's tanh layer lives: in the backbone's pooler, or in the head.",
)
@click.option("--dtype", type=click.Choice(["float32", "float16", "bfloat16", "float64"]), help="Cast the weights.")
@click.option("--drop", multiple=True, metavar="PATTERN", help="Leave out tensors of these names.")
@click.option(
    "--residue/--no-residue",
    default=None,
    help="Keep beside the weights also what no row explains, or nothing; by default what the target has no place for.",
)
@click.option("--labels", metavar="NAME,…", help="Name the classes, in order, of a model that only counts them.")
@click.option("--max-shard-size", type=int, default=50_000_000_000, help="Bytes per Hugging Face shard.")
@click.option(
    "--verify",
    type=click.Choice(["auto", "none", *PROOFS]),
    default="auto",
    show_default=True,
    help="Which proofs to make; auto: all three.",
)
@click.option("--keep-failed", is_flag=True, help="Keep a folder whose proof failed, marked as failed.")
@device
@click.option("--strict", is_flag=True, help="Refuse a target that computes another function.")
@click.option("--force", is_flag=True, help="Replace the target once the new one is complete.")
@click.option("--dry-run", is_flag=True, help="Print the plan, tensor by tensor; write nothing.")
@click.option("--junit", type=click.Path(path_type=Path), help="Write the proofs' verdicts as JUnit XML too.")
@click.option("--json", "as_json", is_flag=True, help="Print the record.")
def convert(source: Path, target: Path, as_json: bool, junit: Path | None, **options: Any) -> None:  # noqa: ANN401
    """Convert a checkpoint into a new folder, and prove it."""
    if options["verify"] in ("none", "tensors") or options["dry_run"]:
        _spare_threads()
    from portkit.api import ProofFailed
    from portkit.api import convert as run

    names = ("layout", "family", "task", "config", "strip_prefix", "mappings")
    opening = {name: options.pop(name) for name in names}
    options["labels"] = tuple(map(str.strip, options["labels"].split(","))) if options["labels"] else ()
    with verdicts_to(junit) as write:
        try:
            result, code = run(source, target, open_with=opening, **options), 0
        except ProofFailed as e:
            result, code = e.conversion, 1
        write(result.verification)
    _report(result, as_json=as_json)
    click.get_current_context().exit(code)


def _report(result: Conversion, *, as_json: bool) -> None:
    from portkit.render import render_conversion

    click.echo(json.dumps(result.record(), indent=2) if as_json else render_conversion(result))


@main.group()
def mappings() -> None:
    """The mapping tables."""


@mappings.command("list")
@tables
def list_tables(mappings: tuple[Path, ...]) -> None:
    """Name all families."""
    from portkit.render import render_families
    from portkit.table.load import load_tables

    click.echo(render_families(load_tables(mappings)))


@mappings.command("show")
@click.argument("family")
@tables
def show_table(family: str, mappings: tuple[Path, ...]) -> None:
    """Print a family's rows: logical names, and places in each layout."""
    from portkit.render import render_table
    from portkit.table.load import load_tables, require_family

    known = load_tables(mappings)
    click.echo(render_table(require_family(known, family), known))


@mappings.command("check")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
def check_tables_command(files: tuple[Path, ...]) -> None:
    """Check all tables, and those of FILES.

    Names are unique, shapes fit, and every row leads back from every layout.
    """
    from portkit.table.check import check_tables
    from portkit.table.load import load_tables

    looked = check_tables(load_tables(files))
    click.echo(f"checked {looked.tables} families, {looked.models} models, {looked.slots} slots: no problem found")
