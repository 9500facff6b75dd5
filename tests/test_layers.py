"""The floors hold, and the contracts that say so would notice if they did not."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CONFIG = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
FACES = {"specctl.profiles", "specctl.tui"}  # data, and a screen that has a contract of its own


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("importlinter")
    code = "from importlinter.cli import lint_imports_command as run; run()"
    return subprocess.run(
        [sys.executable, "-c", code, "--no-cache", "--no-logo"],
        cwd=folder,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )


@pytest.fixture(scope="module")
def copy(tmp_path_factory) -> Path:
    """The package and its contracts, to be broken."""
    folder = tmp_path_factory.mktemp("layers")
    shutil.copy(ROOT / "pyproject.toml", folder)
    shutil.copytree(
        ROOT / "specctl", folder / "specctl", ignore=shutil.ignore_patterns("__pycache__")
    )
    return folder


def test_contracts_hold():
    done = lint(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


@pytest.mark.parametrize(
    ("module", "line", "broken"),
    [
        ("llama/model.py", "import specctl.engine.loop", "Data flows one way"),
        ("engine/loop.py", "import specctl.bench", "Data flows one way"),
        ("drafters/base.py", "from specctl import engine", "Data flows one way"),
        ("settings.py", "from specctl.metrics import Totals", "Data flows one way"),
        ("errors.py", "import specctl.units", "Data flows one way"),
        ("gguf/shape.py", "from specctl.llama import model", "The wing that knows"),
        ("engine/judge.py", "import specctl.plan", "The wing that runs"),
    ],
)
def test_a_bad_import_is_noticed(copy, module, line, broken):
    path = copy / "specctl" / module
    good = path.read_text(encoding="utf-8")
    try:
        path.write_text(good + f"\n{line}\n", encoding="utf-8")
        done = lint(copy)
    finally:
        path.write_text(good, encoding="utf-8")
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"{broken}" in done.stdout.partition("Broken contracts")[2]


def test_every_module_has_a_floor():
    """What no layer names could import anything."""
    contract = CONFIG["tool"]["importlinter"]["contracts"][0]
    named = {name.strip() for layer in contract["layers"] for name in layer.split("|")}
    found = {
        f"specctl.{path.stem}"
        for path in (ROOT / "specctl").iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    found -= {"specctl.__init__", "specctl.__main__", *FACES}
    assert found <= named, f"give a floor to {', '.join(sorted(found - named))}"
    assert all((ROOT / name.replace(".", "/")).exists() or name in found for name in named)


@pytest.mark.parametrize(
    ("file", "line", "allowed"),
    [
        ("specctl/llama/x.py", "import llama_cpp", True),
        ("specctl/llama/x.py", "import ctypes", True),
        ("specctl/engine/x.py", "import llama_cpp", False),
        ("specctl/engine/x.py", "from llama_cpp import llama_cpp", False),
        ("specctl/drafters/x.py", "import ctypes", False),
        ("specctl/cli/x.py", "import typer", True),
        ("specctl/bench/x.py", "from rich.table import Table", False),
        ("specctl/hub/x.py", "import typer", False),
        ("specctl/bench/x.py", "import textual", False),
        ("specctl/plan/x.py", "import profiles", False),
    ],
)
def test_libraries_stay_in_their_rooms(file, line, allowed):
    ruff = shutil.which("ruff") or str(Path(sys.executable).with_name("ruff"))
    if not Path(ruff).exists():
        pytest.skip("ruff is not installed")
    done = subprocess.run(
        [ruff, "check", "--no-cache", "--select", "TID251", "--stdin-filename", file, "-"],
        input=line + "\n",
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode == 0) == allowed, done.stdout + done.stderr
