"""Where things are kept, and that asking for it creates nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from specctl import paths

FOLDERS = (paths.cache_dir, paths.data_dir, paths.config_dir, paths.models_dir)


def test_specctl_home_moves_everything(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECCTL_HOME", str(tmp_path / "home"))
    found = [folder() for folder in FOLDERS]
    assert all(tmp_path / "home" in path.parents for path in found)
    assert len(set(found)) == len(found)
    assert list(tmp_path.iterdir()) == []


def test_without_it_the_system_says_where(monkeypatch):
    monkeypatch.delenv("SPECCTL_HOME")
    assert all(folder().is_absolute() for folder in FOLDERS)
    assert all("specctl" in folder().parts for folder in FOLDERS)


@pytest.mark.parametrize("variable", ["SPECCTL_MODELS", "SPECCTL_HOME"])
def test_tilde_is_the_users_home(monkeypatch, variable):
    monkeypatch.setenv(variable, "~/elsewhere")
    assert Path.home() / "elsewhere" in (paths.models_dir(), *paths.models_dir().parents)
