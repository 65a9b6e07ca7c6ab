"""Is a folder a preset that KerasHub can be trusted with? Looked at before Keras sees it.

KerasHub's loader builds whatever class a JSON file names, gives a head that no file holds random numbers, and
leaves out what its config does not ask for; all of it without a word.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from portkit.errors import PortkitError, Problem, RuntimeFailedError, unreadable
from portkit.formats.source import read_small
from portkit.formats.strict_json import parse_object

if TYPE_CHECKING:
    from pathlib import Path

CONFIG, TASK = "config.json", "task.json"
WEIGHTS, SHARDS, TASK_WEIGHTS = "model.weights.h5", "model.weights.json", "task.weights.h5"

_MAX_JSON = 64 << 20
_KEYS = ("module", "class_name", "config", "registered_name", "build_config")
_NESTED = ("backbone", "preprocessor", "dtype")  # the only fields of a config that hold objects
_FREE = ("name", "trainable", "dtype", "dropout")  # fields of a backbone that inference does not read


def require_preset(folder: Path, class_name: str, backbone_name: str) -> None:
    """Raise unless the folder holds all that `class_name` is loaded from, and nothing that builds another object.

    `backbone_name` is the class of its backbone, or `class_name` itself. Raises RuntimeFailedError with every
    problem, UnreadableError where a file is no JSON object.
    """
    config = _read_object(folder / CONFIG)
    problems = _object_problems(CONFIG, config, backbone_name)
    problems += _missing_weights(folder)
    if class_name != backbone_name:
        problems += _task_problems(folder, class_name, backbone_name, config)
    if problems:
        raise RuntimeFailedError(f"{class_name} does not load {folder} as it is", problems)


def weight_files(folder: Path) -> tuple[Path, ...]:
    """The files of the backbone's weights. As in KerasHub, model.weights.h5 wins over shards.

    Raises UnreadableError for an index that names files outside the folder.
    """
    if (folder / WEIGHTS).is_file():
        return (folder / WEIGHTS,)
    places = _read_object(folder / SHARDS).get("weight_map")
    listed = list(places.values()) if isinstance(places, dict) else []
    names = {name for entry in listed for name in (entry if isinstance(entry, list) else [entry])}
    strange = [name for name in names if not isinstance(name, str) or "/" in name or "\\" in name]
    if strange or not names:
        found = ", ".join(sorted(map(repr, strange))) or "none"
        raise unreadable(folder / SHARDS, "names no usable shards", expected="names of files beside it", found=found)
    return tuple(folder / name for name in sorted(map(str, names)))


def _read_object(path: Path) -> dict[str, object]:
    return parse_object(read_small(path, _MAX_JSON, "a preset's file"), path, "the file")


def _missing_weights(folder: Path) -> list[Problem]:
    if not (folder / WEIGHTS).is_file() and not (folder / SHARDS).is_file():
        return [Problem(WEIGHTS, "no such file", f"{WEIGHTS}, or {SHARDS} with shards")]
    return [Problem(path.name, "no such file") for path in weight_files(folder) if not path.is_file()]


def _task_problems(folder: Path, class_name: str, backbone_name: str, config: dict[str, object]) -> list[Problem]:
    problems = []
    if not (folder / TASK_WEIGHTS).is_file():
        hint = "KerasHub would give the head random numbers and say nothing"
        problems.append(Problem(TASK_WEIGHTS, "no such file", "the head's weights", hint=hint))
    try:
        task = _read_object(folder / TASK)
    except PortkitError as error:
        return [*problems, *error.problems]
    problems += _object_problems(TASK, task, class_name)
    inner = task.get("config")
    backbone = inner.get("backbone") if isinstance(inner, dict) else None
    where = f"{TASK} config.backbone"
    problems += _object_problems(where, backbone, backbone_name)
    if isinstance(backbone, dict) and _deciding(backbone) != _deciding(config):
        hint = "the task is built from the one, a backbone alone from the other"
        problems.append(Problem(where, f"differs from {CONFIG}", hint=hint))
    return problems


def _deciding(described: dict[str, object]) -> dict[str, object]:
    config = described.get("config")
    return {k: v for k, v in config.items() if k not in _FREE} if isinstance(config, dict) else {}


def _object_problems(where: str, described: object, class_name: str) -> list[Problem]:
    if not isinstance(described, dict) or not isinstance(described.get("config"), dict):
        return [Problem(where, "describes no Keras object", f"class_name {class_name}, with its config")]
    found = [described.get("class_name"), described.get("registered_name")]
    problems = []
    if found not in ([class_name, f"keras_hub>{class_name}"], [class_name, f"keras_nlp>{class_name}"]):
        expected = f"{class_name}, registered as keras_hub>{class_name}"
        problems.append(Problem(where, "describes another object", expected, f"{found[0]}, registered as {found[1]}"))
    what = "not a key of a preset: Keras may run what it describes"
    problems += [Problem(f"{where} {key}", what) for key in described if key not in _KEYS]
    what = "not a plain value: Keras would build an object from it"
    return problems + [
        Problem(f"{where} config.{key}", what, found=type(value).__name__)
        for key, value in described["config"].items()
        if not _is_plain(key, value)
    ]


def _is_plain(key: str, value: object) -> bool:
    if key == "dtype" and isinstance(value, dict):  # a map of policies is a quantised model's
        named = value.get("config")
        return value.get("class_name") == "DTypePolicy" and isinstance(named, dict) and [*named] == ["name"]
    return key in _NESTED or not isinstance(value, dict | list)
