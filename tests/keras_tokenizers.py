"""KerasHub's own tokenizers, for tests, in a process of their own.

    python keras_tokenizers.py FOLDER TEXTS

loads every preset in FOLDER and writes beside its files `seen.json`: the ids of the texts in TEXTS (a JSON list) by
both of KerasHub's ways, and what the preprocessor makes of a text; and `again/`, which KerasHub saves. Where there
are presets bert, roberta and xlm-roberta, KerasHub makes others of its own, made-bert and so on, from the same words.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import keras_hub
import tensorflow as tf

models = keras_hub.models


def make(folder: Path) -> None:
    """Presets from the vocabularies of others in the same folder, with KerasHub's own defaults."""
    bert = models.BertTokenizer(str(folder / "bert" / "assets/tokenizer/vocabulary.txt"), lowercase=True)
    assets = folder / "roberta" / "assets/tokenizer"
    roberta = models.RobertaTokenizer(str(assets / "vocabulary.json"), str(assets / "merges.txt"))
    xlm_roberta = models.XLMRobertaTokenizer(str(folder / "xlm-roberta" / "assets/tokenizer/vocabulary.spm"))
    preprocessors = {
        "bert": models.BertTextClassifierPreprocessor(bert, sequence_length=12),
        "roberta": models.RobertaMaskedLMPreprocessor(roberta, sequence_length=12),
        "xlm-roberta": models.XLMRobertaTextClassifierPreprocessor(xlm_roberta, sequence_length=12),
    }
    for name, preprocessor in preprocessors.items():
        target = folder / f"made-{name}"
        preprocessor.save_to_preset(str(target))
        (target / "config.json").write_bytes((folder / name / "config.json").read_bytes())


def see(folder: Path, texts: list[str]) -> None:
    tokenizer = models.Tokenizer.from_preset(str(folder))
    graph = tf.data.Dataset.from_tensor_slices(texts).map(tokenizer)
    described = json.loads((folder / "preprocessor.json").read_text(encoding="utf-8"))
    preprocessor = getattr(models, described["class_name"]).from_preset(str(folder))
    made = preprocessor("a fox")
    made = made[0] if isinstance(made, tuple) else made
    preprocessor.save_to_preset(str(folder / "again"))
    seen = {
        "class": type(tokenizer).__name__,
        "ids": [[int(number) for number in tokenizer(text)] for text in texts],
        "graph": [[int(number) for number in ids] for ids in graph],
        "token_ids": [int(number) for number in made["token_ids"]],
        "padding_mask": [int(number) for number in made["padding_mask"]],
        "ends": [tokenizer.start_token_id, tokenizer.end_token_id, tokenizer.pad_token_id, tokenizer.mask_token_id],
    }
    (folder / "seen.json").write_text(json.dumps(seen), encoding="utf-8")


if __name__ == "__main__":
    place = Path(sys.argv[1])
    if (place / "roberta").exists():
        make(place)
    for each in sorted(place.iterdir()):
        see(each, json.loads(sys.argv[2]))
