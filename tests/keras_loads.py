"""Presets that portkit wrote, loaded by KerasHub's own classes in a process of its own; what was loaded is saved.

python keras_loads.py FOLDER...

A folder is loaded by Backbone, TextClassifier or MaskedLM, as its name ends. The variables go to
FOLDER/KERAS_BACKEND.safetensors by their paths, what was warned of to FOLDER/KERAS_BACKEND.json.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from pathlib import Path

from keras_saves import values
from safetensors.numpy import save_file

KINDS = ("Backbone", "TextClassifier", "MaskedLM")


def main(folders: list[Path]) -> None:
    if os.environ["KERAS_BACKEND"] == "torch":
        sys.modules.setdefault("tensorflow", None)  # Keras would import it for its data pipelines: seconds
    import keras_hub

    for folder in folders:
        kind = next(kind for kind in KINDS if folder.name.endswith(kind))
        options = {} if kind == "Backbone" else {"preprocessor": None}
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = getattr(keras_hub.models, kind).from_preset(str(folder), **options)
        said = [str(w.message) for w in caught if not issubclass(w.category, DeprecationWarning)]
        backend = os.environ["KERAS_BACKEND"]
        (folder / f"{backend}.json").write_text(json.dumps({"class": type(model).__name__, "warnings": said}))
        save_file(values(model), folder / f"{backend}.safetensors")


if __name__ == "__main__":
    main([Path(word) for word in sys.argv[1:]])
