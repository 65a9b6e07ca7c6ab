"""Folders for Burn: a config.json that bert-burn and the crate portkit-burn load, and weights with Burn's names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from portkit.config import write_config
from portkit.errors import Problem, RefusedError, UnreadableError
from portkit.formats.burnpack import write_burnpack
from portkit.formats.named_mpk import write_named_mpk
from portkit.formats.safetensors_file import write_safetensors
from portkit.layouts.files import label_fields, write_json
from portkit.table.load import suggestion

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from portkit.layouts.base import Model
    from portkit.table.schema import Dialect, Table
    from portkit.tensors import Array, TensorSpec

_OURS = "portkit"  # the key under which a dialect keeps what it changed


class BurnLayout:
    """model.bpk, model.safetensors or model.mpk, and config.json."""

    name = "burn"
    formats = ("bpk", "safetensors", "mpk")

    def logical_raw(self, raw: Mapping[str, Any], table: Table) -> tuple[Mapping[str, Any], Dialect | None]:
        """Undo what a dialect did to the config.

        Raises UnreadableError for an unknown dialect, RefusedError for positions that are not the family's.
        """
        _require_positions(raw, table)
        ours = raw.get(_OURS)
        if not isinstance(ours, dict):
            return raw, None
        name = str(ours.get("dialect"))
        if name not in table.dialects:
            problem = Problem(
                "config.json portkit.dialect",
                f"unknown dialect {name!r}",
                hint=suggestion(name, table.dialects),
            )
            raise UnreadableError("cannot read the checkpoint", [problem])
        undone = {k: v for k, v in ours.items() if k in table.config}
        return {**raw, **undone}, table.dialects[name]

    def write_config(self, folder: Path, model: Model) -> None:
        """Write config.json: bert-burn's fields, those of the crate portkit-burn, and what the dialect changed."""
        facts = model.facts
        front, back = model.growth
        rows = facts.max_position_embeddings + front + back
        raw = write_config(model.table, self.name, model.config, model.carried)
        raw |= {
            "model_type": model.table.layouts[self.name].model_type,
            "architectures": [model.task.classes[self.name]],
            "max_position_embeddings": rows,
            "max_seq_len": facts.usable_length,
            "with_pooling_layer": facts.has_pooler,
            "task": model.task.name,
            "head_style": facts.head_style,
            "num_labels": facts.num_labels,
            "position_scheme": facts.position_scheme,
            "position_offset": front if facts.position_scheme == "absolute" else 0,
            "lm_head_act": facts.lm_head_act if "masked_lm" in model.task.groups else None,
            "lm_head_eps": facts.lm_head_eps if "masked_lm" in model.task.groups else None,
        }
        raw.pop(_OURS, None)
        if model.dialect:
            raw[_OURS] = {
                "dialect": model.dialect.name,
                "max_position_embeddings": facts.max_position_embeddings,
            }
        write_json(folder / "config.json", {k: v for k, v in {**raw, **label_fields(model)}.items() if v is not None})

    def write_weights(
        self,
        folder: Path,
        form: str,
        specs: Sequence[TensorSpec],
        arrays: Iterable[Array],
        max_shard_size: int,
    ) -> Mapping[str, str]:
        """Write one weight file; Burn has no shards."""
        path = folder / f"model.{form}"
        if form == "bpk":
            return {path.name: write_burnpack(path, specs, arrays)}
        if form == "safetensors":
            metadata = {"format": "pt", "producer": "portkit"}
            return {path.name: write_safetensors(path, specs, arrays, metadata=metadata)}
        return {path.name: write_named_mpk(path, specs, arrays, constants=_constants(specs))}


def _require_positions(raw: Mapping[str, Any], table: Table) -> None:
    """portkit-burn counts positions as config.json says; tables are moved as the family has them.

    A file that says nothing is bert-burn's own. The offset of a dialect is the number of rows that it adds.
    """
    scheme = table.facts["position_scheme"]
    expected = {"position_scheme": scheme}
    expected |= {"position_offset": 0} if scheme == "absolute" and not isinstance(raw.get(_OURS), dict) else {}
    problems = [
        Problem(f"config.json {name}", f"{table.family} computes other positions", repr(value), repr(raw[name]))
        for name, value in expected.items()
        if raw.get(name) not in (None, value)
    ]
    if problems:
        raise RefusedError("config.json cannot be used", problems)


def _constants(specs: Sequence[TensorSpec]) -> dict[str, Any]:
    """What every feed-forward record needs: `gelu` for Burn 0.14 to 0.20, `activation` for 0.21's first releases."""
    blocks = sorted({s.name.partition("linear_inner.")[0] for s in specs if ".pwff.linear_inner." in s.name})
    return {f"{b}gelu": None for b in blocks} | {f"{b}activation": {"Gelu": None} for b in blocks}
