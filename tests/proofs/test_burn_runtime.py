from __future__ import annotations

import os
import sys

import numpy as np
import pytest
from models import small_facts

from portkit.errors import MissingRuntimeError, RuntimeFailedError
from portkit.proofs.inputs import choose_inputs
from portkit.runtimes import burn_runtime as runtime
from portkit.runtimes.outputs import device_of

pytestmark = pytest.mark.skipif(os.name == "nt", reason="the stand-in program is a script with a #! line")
PYTHON = sys.executable
ECHO = """
import sys
from safetensors.numpy import load_file, save_file
words = sys.argv[1:]
assert words[0] == "forward", words
given = dict(zip(words[1::2], words[2::2]))
assert sorted(given) == ["--device", "--inputs", "--model", "--outputs"], given
inputs = load_file(given["--inputs"])
assert all(str(array.dtype) == "int64" for array in inputs.values())
logits = inputs["input_ids"] + 10 * inputs["attention_mask"] + 100 * inputs["token_type_ids"]
save_file({"logits": logits.astype("float32")}, given["--outputs"], {"device": given["--device"] + ": an adapter"})
"""


def program(folder, body, name="portkit-burn"):
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!{PYTHON}\n{body}")
    path.chmod(0o755)
    return path


@pytest.fixture
def nowhere(monkeypatch, tmp_path):
    """No program can be found: neither variable, nor beside Python, nor on the PATH."""
    for name in ("PORTKIT_BURN", "PORTKIT_BURN_LEGACY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setattr(runtime.sys, "executable", str(tmp_path / "python" / "python"))
    return tmp_path


def test_protocol(monkeypatch, tmp_path):
    monkeypatch.setenv("PORTKIT_BURN", str(program(tmp_path, ECHO)))
    inputs = choose_inputs(small_facts())
    outputs = runtime.run_burn(tmp_path, inputs, device="wgpu")
    expected = inputs.input_ids + 10 * inputs.attention_mask + 100 * inputs.token_type_ids
    np.testing.assert_array_equal(outputs["logits"], expected.astype(np.float32))
    assert device_of(outputs) == "wgpu: an adapter"


def test_found_by_variable_then_beside_python_then_on_the_path(monkeypatch, nowhere):
    assert not runtime.burn_available()
    on_path = program(nowhere / "path", ECHO)
    assert runtime.find_burn() == on_path
    beside = program(nowhere / "python", ECHO)
    assert runtime.find_burn() == beside
    chosen = program(nowhere / "chosen", ECHO)
    monkeypatch.setenv("PORTKIT_BURN", str(chosen))
    assert runtime.find_burn() == chosen
    assert runtime.burn_available()
    assert not runtime.burn_available(legacy=True)


def test_legacy_program_is_another_one(monkeypatch, nowhere):
    program(nowhere / "path", "raise SystemExit(1)")
    legacy = program(nowhere / "path", ECHO, "portkit-burn-legacy")
    assert runtime.find_burn(legacy=True) == legacy
    assert "logits" in runtime.run_burn(nowhere, choose_inputs(small_facts()), legacy=True)


def test_missing_program_says_how_to_get_it(nowhere):
    with pytest.raises(MissingRuntimeError) as caught:
        runtime.run_burn(nowhere, choose_inputs(small_facts()))
    assert str(caught.value) == (
        "cannot run the model in Burn (1 problem)\n"
        "- portkit-burn: the program is not installed\n"
        "    expected PORTKIT_BURN or PATH leads to it\n"
        "    found    nothing beside this Python or on the PATH\n"
        "    hint     pip install ./burn, or cargo install --path burn"
    )
    with pytest.raises(MissingRuntimeError, match=r"hint     cargo install --path burn/legacy$"):
        runtime.find_burn(legacy=True)


def test_variable_that_leads_nowhere_is_not_passed_over(monkeypatch, nowhere):
    program(nowhere / "path", ECHO)
    monkeypatch.setenv("PORTKIT_BURN", "/no/such/program")
    assert not runtime.burn_available()
    with pytest.raises(MissingRuntimeError, match="PORTKIT_BURN=/no/such/program, which is no file"):
        runtime.find_burn()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            "import sys\nsys.exit('error: no weights in here')",
            r"exit code 1\s+found\s+error: no weights in here",
        ),
        ("raise SystemExit(7)", r"exit code 7\s+found\s+nothing on stderr"),
        ("", r"Burn gave no outputs[\s\S]*its outputs cannot be read: .*No such file"),
        ("import sys\nopen(sys.argv[7], 'w').write('{}')", r"its outputs cannot be read: .*header"),
    ],
    ids=["words", "silent", "nothing", "garbage"],
)
def test_failures_carry_what_the_program_said(monkeypatch, tmp_path, body, words):
    monkeypatch.setenv("PORTKIT_BURN", str(program(tmp_path, body)))
    with pytest.raises(RuntimeFailedError, match=words):
        runtime.run_burn(tmp_path, choose_inputs(small_facts()))


def test_program_that_cannot_be_started(monkeypatch, tmp_path):
    path = tmp_path / "portkit-burn"
    path.write_bytes(b"\x7fELF, but no")
    path.chmod(0o755)
    monkeypatch.setenv("PORTKIT_BURN", str(path))
    with pytest.raises(RuntimeFailedError, match="Burn cannot be started"):
        runtime.run_burn(tmp_path, choose_inputs(small_facts()))
