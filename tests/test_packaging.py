"""What is in the repository is in the wheel, and the house rules that a program can check."""

from __future__ import annotations

import fnmatch
import importlib
import inspect
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from specctl.cli.app import COMMANDS

ROOT = Path(__file__).parent.parent
SETUPTOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"][
    "setuptools"
]
MOVED = {name: ROOT / path for name, path in SETUPTOOLS["package-dir"].items()}
LONGEST = 400  # lines


def folder_of(package: str) -> Path:
    return MOVED.get(package) or ROOT / package.replace(".", "/")


def packages_on_disk() -> set[str]:
    """Every importable folder: those under specctl/, and the moved ones under their real path."""
    found = {
        ".".join(path.parent.relative_to(ROOT).parts)
        for path in (ROOT / "specctl").rglob("__init__.py")
        if not any(parent.is_symlink() for parent in path.parents)
    }
    return found | {name for name, path in MOVED.items() if (path / "__init__.py").exists()}


def tracked(folder: Path) -> list[Path]:
    """Files of one folder that git tracks; all files where there is no git."""
    if shutil.which("git") and (ROOT / ".git").exists():
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--", "."], cwd=folder, capture_output=True, check=True
        ).stdout.decode()
        names = [folder / name for name in listed.split("\0") if name and "/" not in name]
    else:
        names = list(folder.iterdir())
    return [path for path in names if path.is_file() and not path.is_symlink()]


def test_every_package_is_listed_and_every_listed_one_is_there():
    assert packages_on_disk() == set(SETUPTOOLS["packages"])


@pytest.mark.parametrize("package", SETUPTOOLS["packages"])
def test_every_data_file_is_packaged(package):
    patterns = SETUPTOOLS["package-data"].get(package, [])
    left_out = [
        path.name
        for path in tracked(folder_of(package))
        if path.suffix != ".py" and not any(fnmatch.fnmatch(path.name, p) for p in patterns)
    ]
    assert left_out == [], f"add them to package-data of {package}"


@pytest.mark.parametrize("package", sorted(SETUPTOOLS["package-data"]))
def test_every_data_pattern_finds_something(package):
    names = [path.name for path in folder_of(package).iterdir()]
    for pattern in SETUPTOOLS["package-data"][package]:
        assert fnmatch.filter(names, pattern), f"{package}: {pattern}"


@pytest.mark.parametrize("package", SETUPTOOLS["packages"])
def test_every_package_imports(package):
    assert importlib.import_module(package).__name__ == package


def test_no_file_is_longer_than_a_reader_bears():
    long = {
        str(path.relative_to(ROOT)): n
        for path in (ROOT / "specctl").rglob("*.py")
        if (n := len(path.read_text(encoding="utf-8").splitlines())) > LONGEST
    }
    assert long == {}


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_is_there_and_explains_itself(name):
    target, summary = COMMANDS[name]
    module, _, function = target.partition(":")
    command = getattr(importlib.import_module(module), function)
    assert inspect.getdoc(command)
    assert summary.endswith((".", "?"))
