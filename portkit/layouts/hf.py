"""Hugging Face folders, written as transformers 5's `save_pretrained` writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from portkit.config import write_config
from portkit.formats.sharded import write_sharded
from portkit.layouts.files import label_fields, write_json
from portkit.tensors import NUMPY_DTYPES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from portkit.layouts.base import Model
    from portkit.table.schema import Dialect, Table
    from portkit.tensors import Array, TensorSpec

_NOT_CARRIED = (
    "torch_dtype", "_name_or_path", "num_labels", "_num_labels",  # transformers 5 no longer writes them
    "auto_map",  # code beside the source, which is not copied: the class that is written is transformers' own
)  # fmt: skip


class HfLayout:
    """config.json with sorted keys, model.safetensors or shards with an index."""

    name = "hf"
    formats = ("safetensors",)
    shards = True

    def logical_raw(self, raw: Mapping[str, Any], table: Table) -> tuple[Mapping[str, Any], Dialect | None]:
        """Hugging Face configs have no dialects."""
        return raw, None

    def write_config(self, folder: Path, model: Model) -> None:
        """Write config.json: the carried fields, those of the table over them, class, dtype and labels."""
        carried = {k: v for k, v in model.carried.items() if k not in _NOT_CARRIED}
        raw = write_config(model.table, self.name, model.config, carried)
        raw |= {
            "architectures": [model.task.classes[self.name]],
            "dtype": NUMPY_DTYPES[model.dtype].name,
            "model_type": model.table.layouts[self.name].model_type,
        }
        write_json(folder / "config.json", {**raw, **label_fields(model)})

    def write_weights(
        self,
        folder: Path,
        form: str,
        specs: Sequence[TensorSpec],
        arrays: Iterable[Array],
        max_shard_size: int,
    ) -> Mapping[str, str]:
        """Write model.safetensors, or shards of at most `max_shard_size` bytes."""
        return write_sharded(folder, specs, arrays, max_shard_size=max_shard_size, metadata={"format": "pt"})
