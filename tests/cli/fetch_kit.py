"""A pair on a loopback hub, a profile of the user's that describes it, and the command."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "hub"))
from hubserver import HubServer

PROFILE = """
family = "own"

[[model]]
id = "clock"
name = "Clock"
licence = "mit"
params = 0.001
params_active = 0.001
role = "target"
released = "2026-11"
quality = 5
quality_source = "for this test"

[model.shape]
arch = "llama"
source = "written by the test"
n_layer = 2
n_embd = 320
n_head = 2
n_vocab = 320
context_length = 4096
kv_width_k = 32
kv_width_v = 32
n_attention = 2
head_dim = 32
n_ff = 32

[[model.files]]
repo = "org/clock"
list = [{{ quant = "F32", file = "clock.gguf", bytes = {size} }}]

[[model.draft]]
method = "draft-simple"
status = "measured"
source = "for this test"
model = "clock-small"
quant = "F32"
k = 4

[[model.draft]]
method = "draft-eagle3"
status = "listed"
source = "for this test"
repo = "org/head"
file = "head.gguf"
bytes = 1000

[[model.draft]]
method = "draft-dflash"
status = "listed"
source = "for this test"
repo = "org/block"
file = "block-DFlash2.gguf"
bytes = 1000

[[model]]
id = "clock-small"
name = "Clock, small"
licence = "mit"
params = 0.0005
params_active = 0.0005
role = "draft"
released = "2026-11"
quality = 1
quality_source = "for this test"

[[model.files]]
repo = "org/clock-small"
list = [{{ quant = "F32", file = "clock-draft.gguf", bytes = {small} }}]

[[model]]
id = "parts"
name = "A model in parts"
licence = "mit"
params = 0.001
params_active = 0.001
role = "target"
released = "2026-11"
quality = 1
quality_source = "for this test"

[[model.files]]
repo = "org/split"
list = [{{ quant = "Q8_0", parts = ["c-00001-of-00002.gguf", "c-00002-of-00002.gguf"], bytes = 9 }}]

[[model]]
id = "own-pair"
name = "A model of this machine"
licence = "mit"
params = 0.001
params_active = 0.001
role = "target"
released = "2026-11"
quality = 1
quality_source = "for this test"

[[model.files]]
folder = "models"
list = [{{ quant = "F32", file = "own.gguf" }}]
"""
PAIR = "clock:F32+draft-simple"
SHORT = ("-n", "24", "--temperature", "0")


@contextmanager
def own_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_models: Mapping[str, Path]
) -> Iterator[HubServer]:
    """The hub has the pair; a profile of the user's describes it; nothing of it is here."""
    for name in list(os.environ):
        if name.startswith(("HF_", "HUGGING", "LLAMA_", "OLLAMA_", "XDG_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    target, small = (tiny_models[name].read_bytes() for name in ("clock", "clock-draft"))
    profiles = tmp_path / "specctl-home" / "config" / "profiles"
    profiles.mkdir(parents=True)
    (profiles / "own.toml").write_text(PROFILE.format(size=len(target), small=len(small)))
    with HubServer() as server:
        server.add("org/clock", {"clock.gguf": target})
        server.add("org/clock-small", {"clock-draft.gguf": small})
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        yield server


def run(*arguments: str, text: str = "amber", **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "specctl", *arguments],
        input=text,
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, **environ},
        timeout=120,
        check=False,
    )
