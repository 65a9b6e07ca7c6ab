"""What a layout must be able to do. One module per layout; nothing else knows its conventions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from portkit.config import Config
    from portkit.facts import Facts
    from portkit.table.schema import Dialect, Table, Task
    from portkit.tensors import Array, TensorSpec


@dataclass(frozen=True)
class Model:
    """A model as a layout is to write it: its table, task and dialect, its config and facts, and what its files hold.

    `dtype` is the one of its weights, `growth` the rows that the dialect adds in front of and behind the position
    table, `carried` the raw config.json that this layout had before, where that is known,
    `parameters` how many numbers the backbone holds, `preprocessor` what KerasHub's tasks want to hold of a tokenizer.
    """

    table: Table
    task: Task
    dialect: Dialect | None
    config: Config
    facts: Facts
    dtype: str
    growth: tuple[int, int]
    carried: Mapping[str, Any]
    parameters: int = 0
    preprocessor: Mapping[str, Any] | None = None


class Layout(Protocol):
    """The conventions of one framework's folders."""

    @property
    def name(self) -> str:
        """As users write it."""

    @property
    def formats(self) -> tuple[str, ...]:
        """That it can be written in; the first is the default."""

    @property
    def shards(self) -> bool:
        """Whether the weights may be written in several files."""

    def logical_raw(self, raw: Mapping[str, Any], table: Table) -> tuple[Mapping[str, Any], Dialect | None]:
        """A raw config.json without what a dialect did to it, and that dialect."""

    def write_config(self, folder: Path, model: Model) -> None:
        """Write config.json."""

    def write_weights(
        self,
        folder: Path,
        form: str,
        specs: Sequence[TensorSpec],
        arrays: Iterable[Array],
        max_shard_size: int,
    ) -> Mapping[str, str]:
        """Write the weights, one array at a time, in the order of `specs`.

        Returns name -> SHA-256 of those files that could be hashed while they were written.
        """
