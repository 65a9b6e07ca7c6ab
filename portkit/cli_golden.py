"""The commands about goldens: options, one call of the library, a rendered report, an exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from portkit.cli_options import device, reading

_PATH = click.Path(path_type=Path)


@click.group()
def golden() -> None:
    """Record and check numbers that a checkpoint must reproduce."""


@golden.command()
@click.argument("golden", type=_PATH)
@click.argument("checkpoint", type=_PATH)
@reading
@device
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def check(golden: Path, checkpoint: Path, as_json: bool, **options: Any) -> None:  # noqa: ANN401
    """Check that CHECKPOINT is and computes what GOLDEN says.

    The checkpoint may be in another layout than the one that the file GOLDEN was recorded from.
    """
    from portkit.golden.check import golden_check
    from portkit.render_golden import render_golden_check

    verdict = golden_check(golden, checkpoint, **options)
    click.echo(json.dumps(verdict.as_dict(), indent=2) if as_json else render_golden_check(verdict, golden.name))
    click.get_current_context().exit(verdict.exit_code)


@golden.command()
@click.argument("checkpoint", type=_PATH)
@click.argument("out", type=_PATH)
@reading
@click.option("--inputs", type=_PATH, help="Safetensors or JSON file of input_ids and what belongs to them.")
@click.option("--about", default="", help="One line that says what is recorded.")
@device
@click.option("--force", is_flag=True, help="Replace OUT.")
def record(checkpoint: Path, out: Path, **options: Any) -> None:  # noqa: ANN401
    """Record what CHECKPOINT is and computes into the file OUT."""
    from portkit.golden.record import golden_record
    from portkit.render_golden import render_golden_record

    click.echo(render_golden_record(golden_record(checkpoint, out, **options), out))
