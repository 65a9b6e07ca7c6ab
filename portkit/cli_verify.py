"""The command `portkit verify`: options, one call of the library, a report, an exit code. No logic lives here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from portkit.cli_options import device, tables, verdicts_to
from portkit.errors import Problem, UsageError
from portkit.proofs import PROOFS

_PATH = click.Path(path_type=Path)


@click.command()
@click.argument("source", type=_PATH)
@click.argument("target", type=_PATH, required=False)
@click.option("--proofs", default=",".join(PROOFS), show_default=True, help="Which proofs, with commas between.")
@click.option("--inputs", type=_PATH, help="Ids to run: safetensors or JSON with input_ids, attention_mask, …")
@click.option("--text", type=_PATH, help="Sentences to run, one per line, through the source's tokenizer.")
@device
@click.option(
    "--precision",
    type=click.Choice(["float32", "float16", "bfloat16", "float64"]),
    default="float32",
    show_default=True,
    help="What to compute in, where a framework can.",
)
@click.option(
    "--runtime",
    type=click.Choice(["auto", "own", "reference"]),
    default="auto",
    show_default=True,
    help="own: the frameworks or an error; reference: numpy instead of both; auto: numpy for one that is missing.",
)
@click.option("--family", help="Family of both models, when config.json does not tell.")
@click.option("--task", help="Task of both models, when the names fit several.")
@tables
@click.option("--junit", type=_PATH, help="Write the verdicts as JUnit XML too.")
@click.option("--self-test", is_flag=True, help="Test the checker: put every known fault into TARGET, or SOURCE.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def verify(
    source: Path,
    target: Path | None,
    proofs: str,
    self_test: bool,
    as_json: bool,
    junit: Path | None,
    **options: Any,  # noqa: ANN401
) -> None:
    """Prove that TARGET computes what SOURCE computes.

    There are three proofs: tensors, facts and a forward pass. The last line of the report is made for jobs:
    portkit verify: PASS tensors=pass facts=pass forward=pass
    """
    from portkit.api import verify as run
    from portkit.render_proofs import render_verification

    opening = {name: options.pop(name) for name in ("family", "task", "mappings")}
    if self_test:
        _self_test(source, target, opening, as_json=as_json)
    if target is None:
        raise UsageError(
            "nothing to compare with", [Problem("TARGET", "is missing", hint="only --self-test needs none")]
        )
    wanted = tuple(name.strip() for name in proofs.split(",") if name.strip())
    with verdicts_to(junit) as write:
        verdict = run(source, target, proofs=wanted, open_source=opening, open_target=opening, **options)
        write(verdict)
    click.echo(json.dumps(verdict.as_dict(), indent=2) if as_json else render_verification(verdict))
    click.get_current_context().exit(verdict.exit_code)


def _self_test(source: Path, target: Path | None, opening: dict[str, Any], *, as_json: bool) -> None:
    from portkit.api import self_test as run
    from portkit.render_faults import render_self_test

    context = click.get_current_context()
    _refuse_others(context, ("proofs", "inputs", "text", "device", "precision", "runtime", "junit"))
    result = run(source, target, open_source=opening, open_target=opening)
    click.echo(json.dumps(result.as_dict(), indent=2) if as_json else render_self_test(result))
    context.exit(result.exit_code)


def _refuse_others(context: click.Context, names: tuple[str, ...]) -> None:
    """The self-test always makes all three proofs, by the reference: an option that says otherwise is not ignored."""
    given = [n for n in names if context.get_parameter_source(n) is not ParameterSource.DEFAULT]
    problems = [Problem(f"--{name}", "is of no use with --self-test") for name in given]
    if problems:
        raise UsageError("these do not go together", problems)
