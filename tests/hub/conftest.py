"""A loopback hub, and an environment in which nothing else is asked."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hubserver import File, HubServer
from transfer_kit import DATA, WANT

from specctl.hub.fetch import FetchPolicy

FAST = FetchPolicy(
    stall_seconds=0.3, connect_seconds=2, attempts=4, backoff_seconds=0.01, lock_seconds=1.0
)


def _clean(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("HF_", "HUGGING", "TRANSFORMERS_", "OLLAMA_", "LLAMA_")):
            monkeypatch.delenv(name)
        if name.upper().endswith("_PROXY") or name.startswith(("SSL_CERT", "XDG_")):
            monkeypatch.delenv(name)
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(environment))
    monkeypatch.setenv("HF_HOME", str(environment / "hf-home"))


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    """A server, named by HF_ENDPOINT."""
    _clean(tmp_path, monkeypatch)
    with HubServer() as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        yield server


@pytest.fixture
def fast() -> FetchPolicy:
    """The same policy, in tenths of seconds."""
    return FAST


@pytest.fixture
def model(hub: HubServer) -> File:
    """The file of `transfer_kit` on it."""
    return hub.add(WANT.repo, {WANT.file: DATA, "README.md": File(b"hello", lfs=False)}).files[
        WANT.file
    ]
