"""The command that explains one tensor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from portkit.cli_options import reading


@click.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.argument("tensor")
@reading
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def explain(path: Path, tensor: str, as_json: bool, **opening: Any) -> None:  # noqa: ANN401
    """Say where TENSOR lies, and where it goes in each layout.

    TENSOR is any of its names: the logical one, or the one that it has in some layout.
    """
    from portkit.explain import explain_tensor
    from portkit.render_explain import render_explanation

    found = explain_tensor(path, tensor, **opening)
    click.echo(json.dumps(found.as_dict(), indent=2) if as_json else render_explanation(found))
