"""Options that several commands share."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from portkit.proofs.pair import Verification


device = click.option(
    "--device",
    type=click.Choice(["auto", "cpu", "cuda", "wgpu"]),
    default="cpu",
    show_default=True,
    help="Where the forward pass runs; wgpu is Burn's alone.",
)
tables = click.option(
    "--mapping",
    "mappings",
    multiple=True,
    type=click.Path(path_type=Path),
    help="A table of your own; repeatable.",
)


def reading(command: Callable[..., None]) -> Callable[..., None]:
    """Options that say how a checkpoint is to be read."""
    for option in reversed(
        [
            click.option("--from", "layout", metavar="LAYOUT", help="Layout of the source; detected when left out."),
            click.option("--family", help="Family of the model, when config.json does not tell."),
            click.option("--task", help="Task of the model; backbone reads what is below a head, whatever that is."),
            click.option("--config", type=click.Path(path_type=Path), help="A config.json that lies elsewhere."),
            click.option("--strip-prefix", help="Read the model whose names start so."),
            tables,
        ]
    ):
        command = option(command)
    return command


def verdicts_to(junit: Path | None) -> AbstractContextManager[Callable[[Verification | None], None]]:
    """What writes verdicts as JUnit XML; without a file nothing is written, and nothing imported for it."""
    if junit is None:
        return nullcontext(lambda _verdict: None)
    from portkit.junit import written

    return written(junit)
