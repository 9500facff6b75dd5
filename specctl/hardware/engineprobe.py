"""Ask the installed engine what it is, in a child process: a crash or hang there is an answer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from specctl.enginefacts import EngineDevice, EngineFacts

TIMEOUT = 30.0  # seconds; a cold disk and a first GPU start are slow, a hang is longer
CHILD = (sys.executable, "-m", "specctl.llama.probe")


def probe_engine(timeout: float = TIMEOUT, command: Sequence[str] = CHILD) -> EngineFacts | str:
    """The facts of the installed llama-cpp-python build, or one line that says why there are none.

    `timeout` in seconds. Never raises: no engine is a normal state of this machine.
    """
    try:
        child = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "GGML_NO_BACKTRACE": "1"},
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"the engine did not answer within {timeout:g} s"
    except OSError as error:
        return f"the engine probe could not be started: {error}"
    if child.returncode != 0:
        return f"the engine probe {_ending(child.returncode)}{_last_line(child.stderr)}"
    return _read(child.stdout)


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f": {lines[-1][:200]}" if lines else ""


def _read(stdout: str) -> EngineFacts | str:
    lines = stdout.strip().splitlines()
    try:
        said = json.loads(lines[-1])
        return str(said["reason"]) if "reason" in said else _facts(said)
    except (IndexError, ValueError, KeyError, TypeError) as error:
        return f"the engine probe's answer cannot be read ({type(error).__name__})"


def _facts(said: dict[str, Any]) -> EngineFacts:
    known = said["architectures"]
    return EngineFacts(
        version=str(said["version"]),
        backends=tuple(said["backends"]),
        devices=tuple(EngineDevice(**device) for device in said["devices"]),
        architectures=None if known is None else frozenset(known),
        gpu_offload=bool(said["gpu_offload"]),
        system_info=str(said["system_info"]),
    )
