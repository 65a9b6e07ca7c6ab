"""What training loops and libraries leave around a model is taken off; what could be read in two ways is an error."""

from __future__ import annotations

import numpy as np
import pytest
from hf_folders import assert_same_state, config_for, facts_for, read_state, saved_state, write_hf
from refusal import refused

import portkit
from portkit.errors import RefusedError, UnknownModelError

FACTS = facts_for("bert", "sequence_classification")
CONFIG = config_for("bert", FACTS)


def state(scale=1.0):
    return {name: (array * scale).astype(np.float32) for name, array in saved_state(FACTS).items()}


def prefixed(front):
    return {f"{front}{name}": array for name, array in state().items()}


PREFIXES = {  # what stands in front of every name, and who leaves it there
    "DataParallel": "module.",
    "torch.compile": "_orig_mod.",
    "torch.compile of DDP": "_orig_mod.module.",
    "Lightning": "model.",
    "Lightning of torch.compile": "model._orig_mod.",
    "Lightning Fabric": "_forward_module.",
    "Lightning, an attribute of its own": "backbone.",
    "FSDP": "_fsdp_wrapped_module.",
    "fairscale FSDP": "_fsdp_wrapped_module._fpw_module.",
    "DeepSpeed of Lightning": "module.model.",
    "Opacus": "_module.",
    "sentence-transformers": "0.auto_model.",
    "PEFT after merging": "base_model.model.",
    "DPR": "bert_model.",
    "FARM": "language_model.model.",
    "AllenNLP": "transformer_model.",
    "a backbone inside a backbone": "bert.",
}


@pytest.mark.parametrize("front", PREFIXES.values(), ids=PREFIXES)
def test_prefix_is_taken_off_and_named(front, tmp_path):
    source = write_hf(tmp_path / "hf", prefixed(front), CONFIG)
    result = portkit.convert(source, tmp_path / "out", to="hf", verify="tensors")
    assert_same_state(read_state(tmp_path / "out"), state())
    removed = "".join(result.plan.source.anatomy.removed)
    assert sorted(removed.strip(".").split(".")) == sorted(front.strip(".").split("."))


@pytest.mark.parametrize("front", PREFIXES.values(), ids=PREFIXES)
def test_model_with_and_without_the_prefix_is_ambiguous(front, tmp_path):
    source = write_hf(tmp_path / "hf", {**prefixed(front), **state(2)}, CONFIG)
    name = "bert.embeddings.word_embeddings.weight"
    with pytest.raises(UnknownModelError, match=r"more than one model is|cannot tell which weights") as caught:
        portkit.convert(source, tmp_path / "out", to="hf")
    assert name in str(caught.value).replace(front + name, "")
    assert front + name in str(caught.value)


@pytest.mark.parametrize("front", ["student.", "model.student.", "embeddings.model."])
def test_other_prefixes_are_named_with_the_way_out(front, tmp_path):
    source = write_hf(tmp_path / "hf", prefixed(front), CONFIG)
    hint = f"--strip-prefix '{front}' reads the model below it"
    refused(UnknownModelError, "the names have an unknown prefix", hint, source=source, tmp_path=tmp_path)
    portkit.convert(source, tmp_path / "out", to="hf", verify="tensors", open_with={"strip_prefix": front})
    assert_same_state(read_state(tmp_path / "out"), state())


# ---------------------------------------------------------------- nested dictionaries, in pickles

torch = pytest.importorskip("torch")


def pickled(tmp_path, tree):
    folder = write_hf(tmp_path / "hf", {}, CONFIG)
    (folder / "model.safetensors").unlink()
    torch.save(tree, folder / "last.ckpt")
    return folder


def tensors(scale=1.0):
    return {name: torch.from_numpy(array) for name, array in state(scale).items()}


def adam():
    return {"state": {0: {"step": torch.tensor(3.0), "exp_avg": torch.ones(4)}}, "param_groups": [{"lr": 0.1}]}


NESTS = {
    "Lightning": lambda model: {
        "epoch": 3, "global_step": 7, "state_dict": {f"model.{n}": a for n, a in model.items()},
        "optimizer_states": [adam()], "lr_schedulers": [], "callbacks": {"best": torch.ones(1)}, "loops": {},
    },
    "a loop by hand": lambda model: {"model_state_dict": model, "optimizer_state_dict": adam(), "epoch": torch.tensor(3)},
    "fairseq": lambda model: {"model": model, "last_optimizer_state": adam(), "extra_state": {"epoch": 1}},
    "fastai": lambda model: {"model": model, "opt": adam()},
    "DeepSpeed": lambda model: {"module": model, "optimizer": adam(), "lr_scheduler": {"a": torch.ones(2)}, "ds_version": "1"},
    "Composer": lambda model: {
        "state": {"model": {f"model.{n}": a for n, a in model.items()}, "optimizers": {"adam": adam()}},
        "rng": [{"torch": torch.ones(8)}],
    },
    "MMEngine": lambda model: {"meta": {"epoch": 1}, "state_dict": model, "optimizer": adam()},
    "AveragedModel": lambda model: {"n_averaged": torch.tensor(5), **{f"module.{n}": a for n, a in model.items()}},
    "FSDP's optimizer": lambda model: {"model": model, "optim": {"state": {n: {"exp_avg": a} for n, a in model.items()}}},
}  # fmt: skip


@pytest.mark.parametrize("nest", NESTS.values(), ids=NESTS)
def test_model_in_a_training_checkpoint_is_found(nest, tmp_path):
    result = portkit.convert(pickled(tmp_path, nest(tensors())), tmp_path / "out", to="hf", verify="tensors")
    assert_same_state(read_state(tmp_path / "out"), state())
    assert set(result.plan.dropped.values()) <= {"training state, not a weight"}
    assert result.plan.kept == ()


@pytest.mark.parametrize(("one", "two"), [("model", "ema"), ("state_dict", "model_ema"), ("student", "teacher")])
def test_two_nested_models_are_a_choice(one, two, tmp_path):
    source = pickled(tmp_path, {one: tensors(), two: tensors(2), "optimizer": adam()})
    words = (
        "more than one model is in the file",
        f"'{one}/', '{two}/'"[:5],
        f"'{one}/'",
        f"'{two}/'",
        "--strip-prefix '",
    )
    refused(UnknownModelError, *words, source=source, tmp_path=tmp_path)
    chosen = {"open_with": {"strip_prefix": f"{two}/"}, "drop": (f"{one}/*", "optimizer/*")}
    portkit.convert(source, tmp_path / "out", to="hf", verify="tensors", **chosen)
    assert_same_state(read_state(tmp_path / "out"), state(2))


def test_shadow_weights_in_a_list_are_not_lost_in_silence(tmp_path):
    source = pickled(tmp_path, {"model": tensors(), "ema": {"shadow_params": [torch.ones(3)], "decay": 0.9}})
    refused(RefusedError, "ema/shadow_params/0: no row explains it", "--drop '", source=source, tmp_path=tmp_path)


# ---------------------------------------------------------------- weights that a tool has split or packed

QUERY = "bert.encoder.layer.1.attention.self.query"
SPLIT = {
    "LoRA, not merged": (("base_layer.weight", "lora_A.default.weight", "lora_B.default.weight"), "merge_and_unload()"),
    "pruned": (("weight_orig", "weight_mask"), "torch.nn.utils.prune.remove()"),
    "parametrised": (("parametrizations.weight.original0",), "remove_parametrizations()"),
    "weight norm": (("weight_g", "weight_v"), "remove_weight_norm()"),
    "GPTQ": (("qweight", "qzeros", "scales"), "dequantise it"),
}


@pytest.mark.parametrize(("leaves", "hint"), SPLIT.values(), ids=SPLIT)
def test_split_weights_are_refused_with_what_to_do(leaves, hint, tmp_path):
    tensors = {f"{QUERY}.{leaf}": np.ones((24, 24), np.float32) for leaf in leaves}
    rest = {name: array for name, array in state().items() if name != f"{QUERY}.weight"}
    source = write_hf(tmp_path / "hf", {**rest, **tensors}, CONFIG)
    words = (
        "these are not the weights of a plain model",
        "a tool has split or packed weights",
        f"found    {QUERY}.{leaves[0]}",
        hint,
    )
    refused(UnknownModelError, *words, source=source, tmp_path=tmp_path)


def test_adapter_alone_is_told_from_a_model(tmp_path):
    adapter = {f"base_model.model.{QUERY}.lora_{x}.weight": np.ones((4, 24), np.float32) for x in "AB"}
    source = write_hf(tmp_path / "hf", adapter, CONFIG)
    refused(UnknownModelError, "not the weights of a plain model", "(2 problems)", source=source, tmp_path=tmp_path)


def test_flat_parameters_of_fsdp(tmp_path):
    source = write_hf(tmp_path / "hf", {"_fsdp_wrapped_module._flat_param": np.ones(9, np.float32)}, CONFIG)
    refused(UnknownModelError, "FULL_STATE_DICT", source=source, tmp_path=tmp_path)
