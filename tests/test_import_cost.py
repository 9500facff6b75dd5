"""Asking for help loads nothing heavy: each command starts in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from specctl.cli.app import COMMANDS

ENGINE = ("llama_cpp", "numpy", "jinja2", "textual")
NETWORK = ("huggingface_hub", "requests", "httpx")
RUNNER = """
import json, sys
from specctl.cli.app import main
sys.argv = ["specctl", *sys.argv[1:]]
try:
    main()
except SystemExit as end:
    print("\\nLOADED" + json.dumps([end.code or 0, sorted(sys.modules)]))
"""


def run(*args: str) -> tuple[str, int, set[str]]:
    """What it printed, its exit code, and the modules it had loaded at the end."""
    done = subprocess.run(
        [sys.executable, "-c", RUNNER, *args],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    shown, _, tail = done.stdout.partition("\nLOADED")
    assert tail, done.stdout + done.stderr
    code, modules = json.loads(tail)
    return shown, code, set(modules)


@pytest.mark.parametrize("args", [("--help",), ("--version",), ()])
def test_the_way_in_loads_almost_nothing(args):
    shown, code, modules = run(*args)
    assert "specctl" in shown
    assert code == (0 if args else 2)
    assert not modules & {*ENGINE, *NETWORK, "psutil", "pynvml"}
    assert not any(name.startswith(("specctl.engine", "specctl.llama")) for name in modules)


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_help_of_a_command_loads_no_engine(command):
    shown, code, modules = run(command, "--help")
    assert code == 0
    assert "Usage" in shown
    assert command in shown
    assert not modules & {*ENGINE, *NETWORK}


def test_the_probe_sees_what_is_loaded():
    """The check above can fail: a module that the command does load is in the list."""
    _, _, modules = run("--help")
    assert {"typer", "specctl.cli.app", "specctl.errors"} <= modules
