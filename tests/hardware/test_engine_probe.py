"""The engine's facts through a child process, and what a broken child becomes."""

from __future__ import annotations

import json
import sys

import pytest

from specctl.enginefacts import EngineDevice, EngineFacts
from specctl.hardware.engineprobe import probe_engine

GOOD = {
    "version": "9.9",
    "backends": ["CUDA", "CPU"],
    "devices": [
        {
            "name": "CUDA0",
            "description": "Card",
            "kind": "gpu",
            "memory_free": 1,
            "memory_total": 2,
            "device_id": "0000:01:00.0",
        }
    ],
    "architectures": ["llama"],
    "gpu_offload": True,
    "system_info": "CPU",
}


def _python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def _saying(text: str) -> list[str]:
    return _python(f"print({text!r})")


def test_good_answer_after_noise() -> None:
    got = probe_engine(command=_python(f"print('noise'); print({json.dumps(GOOD)!r})"))
    assert got == EngineFacts(
        "9.9",
        ("CUDA", "CPU"),
        (EngineDevice("CUDA0", "Card", "gpu", 1, 2, "0000:01:00.0"),),
        frozenset({"llama"}),
        True,
        "CPU",
    )


def test_build_that_does_not_tell_architectures() -> None:
    got = probe_engine(command=_saying(json.dumps({**GOOD, "architectures": None})))
    assert isinstance(got, EngineFacts)
    assert got.architectures is None


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (_saying('{"reason": "llama-cpp-python is not installed"}'), "is not installed"),
        (_saying("<html>"), "cannot be read"),
        (_saying("[]"), "cannot be read"),
        (_saying("7"), "cannot be read"),
        (_saying(json.dumps({**GOOD, "devices": [{"name": "x"}]})), "cannot be read"),
        (_python("pass"), "cannot be read"),
        (_python("raise SystemExit('library broken')"), "exit code 1: library broken"),
        (["/no/such/program"], "could not be started"),
    ],
)
def test_every_failure_is_a_reason(command: list[str], words: str) -> None:
    got = probe_engine(command=command)
    assert isinstance(got, str)
    assert words in got
    assert "\n" not in got


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_a_crash_is_a_reason() -> None:
    got = probe_engine(command=_python("import os; os.abort()"))
    assert isinstance(got, str)
    assert "SIGABRT" in got


def test_a_hang_is_a_reason() -> None:
    got = probe_engine(timeout=0.3, command=_python("import time; time.sleep(60)"))
    assert got == "the engine did not answer within 0.3 s"


@pytest.mark.native
def test_the_installed_build() -> None:
    got = probe_engine()
    assert isinstance(got, EngineFacts), got
    assert "CPU" in got.backends
    assert any(device.kind == "cpu" for device in got.devices)
    assert got.version.startswith("0.")
    assert "CPU" in got.system_info
    assert got.architectures is not None
    # qwen2 and bert exist only inside longer strings of an ELF library
    assert {"llama", "qwen2", "qwen3", "bert", "gemma3", "eagle3"} <= got.architectures
    # strings of the library that are no architectures, and a name nobody has
    assert not {"qwen99", "attn_norm", "tokenizer", "chatml", "wen2", "cuda"} & got.architectures
    assert len(got.architectures) > 100


@pytest.mark.native
def test_tails_of_strings_are_candidates_in_elf_only() -> None:
    from specctl.llama.probe import candidates

    strings = b"\0rwkv6qwen2\0Not-This\0a\0"
    whole, tails = candidates(b"\x7fELF" + strings)
    assert whole == {"rwkv6qwen2"}
    assert "qwen2" in tails
    assert "6qwen2" not in tails
    assert candidates(b"MZ" + strings) == ({"rwkv6qwen2"}, set())


def test_without_llama_cpp_the_child_says_so() -> None:
    code = (
        "import sys; sys.modules['llama_cpp'] = None\n"
        "import importlib.util\n"
        "real = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda n, *a: None if n == 'llama_cpp' else real(n, *a)\n"
        "import runpy; runpy.run_module('specctl.llama.probe', run_name='__main__')"
    )
    assert probe_engine(command=_python(code)) == "llama-cpp-python is not installed"
