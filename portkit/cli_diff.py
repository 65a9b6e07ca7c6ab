"""The command `portkit diff`: options, one call of the library, a rendered report, an exit code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from portkit.cli_options import tables

if TYPE_CHECKING:
    from collections.abc import Callable

_READING = {  # option -> keyword of open_checkpoint, help
    "from": ("layout", "Layout of {side}; detected when left out."),
    "family": ("family", "Family of {side}, when its config.json does not tell."),
    "task": ("task", "Task of {side}, when its names fit several."),
    "config": ("config", "A config.json for {side} that lies elsewhere."),
    "strip-prefix": ("strip_prefix", "Of {side}, read the model whose names start so."),
}


def _reading(command: Callable[..., None]) -> Callable[..., None]:
    """Options that say how each side is to be read: `--a-family`, `--b-family`, …"""
    for side in ("b", "a"):
        for name, (keyword, text) in reversed(_READING.items()):
            kind = click.Path(path_type=Path) if name == "config" else None
            said = text.format(side=side.upper())
            command = click.option(f"--{side}-{name}", f"{side}_{keyword}", type=kind, help=said)(command)
    return command


@click.command()
@click.argument("a", type=click.Path(path_type=Path))
@click.argument("b", type=click.Path(path_type=Path))
@click.option("--ignore", multiple=True, metavar="PATTERN", help="Leave out tensors and fields of these names.")
@click.option("--atol", type=float, default=0.0, help="Absolute difference that is tolerated.")
@click.option("--rtol", type=float, default=0.0, help="Difference relative to B that is tolerated.")
@_reading
@tables
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--html", type=click.Path(path_type=Path, dir_okay=False), help="Write a page that shows everything.")
def diff(a: Path, b: Path, as_json: bool, html: Path | None, **options: Any) -> None:  # noqa: ANN401
    """Compare two checkpoints of any layouts, tensor by tensor.

    Where they differ, it says what may have happened.
    """
    from portkit.difference.compare import diff as compare
    from portkit.difference.html import write_page
    from portkit.difference.text import render_diff

    mappings = options.pop("mappings")
    opening = {side: _opening(options, side) | {"mappings": mappings} for side in ("a", "b")}
    result = compare(a, b, open_a=opening["a"], open_b=opening["b"], **options)
    if html:
        write_page(html, result)
    click.echo(json.dumps(result.as_dict(), indent=2) if as_json else render_diff(result))
    click.get_current_context().exit(result.exit_code)


def _opening(options: dict[str, Any], side: str) -> dict[str, Any]:
    """Take the reading options of one side out of all options."""
    return {keyword: options.pop(f"{side}_{keyword}") for keyword, _ in _READING.values()}
