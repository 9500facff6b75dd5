"""Where specctl keeps things. Nothing is created on import; `SPECCTL_HOME` moves all of it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import platformdirs

from specctl.errors import SpecctlError, UsageError


def _home() -> Path | None:
    home = os.environ.get("SPECCTL_HOME")
    return expanded(home, "SPECCTL_HOME") if home else None


def expanded(name: str, variable: str = "") -> Path:
    """The path of a file as a user wrote it, `~` included, in an environment `variable` or not.

    Raises:
        UsageError: it names a user that does not exist.
    """
    try:
        return Path(name).expanduser()
    except RuntimeError as error:
        said = f"{variable}={name!r}" if variable else name
        raise UsageError(f"{said}: no such user", "name an existing folder") from error


def cache_dir() -> Path:
    """Things that can be made again: the F16 copy of the demo model, fetched headers."""
    home = _home()
    return home / "cache" if home else Path(platformdirs.user_cache_dir("specctl"))


def data_dir() -> Path:
    """Things that were measured: bench results, remembered bandwidth."""
    home = _home()
    return home / "data" if home else Path(platformdirs.user_data_dir("specctl"))


def config_dir() -> Path:
    """Things the user wrote: profiles, defaults."""
    home = _home()
    return home / "config" if home else Path(platformdirs.user_config_dir("specctl"))


def config_file() -> Path:
    """The user's defaults for flags; `SPECCTL_CONFIG` names another file."""
    named = os.environ.get("SPECCTL_CONFIG")
    return expanded(named, "SPECCTL_CONFIG") if named else config_dir() / "config.toml"


def models_dir() -> Path:
    """Downloaded models; `SPECCTL_MODELS` puts them on another disk."""
    models = os.environ.get("SPECCTL_MODELS")
    return expanded(models, "SPECCTL_MODELS") if models else data_dir() / "models"


def write_whole(path: Path, text: str) -> None:
    """Write all of a file or nothing: a killed write leaves the old one. Makes its folder.

    Raises:
        SpecctlError: the file cannot be written.
    """
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file():  # /dev/stdout and the like cannot be replaced
            path.write_text(text, encoding="utf-8")
            return
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        raise SpecctlError(f"cannot write {path}: {error.strerror}") from error
