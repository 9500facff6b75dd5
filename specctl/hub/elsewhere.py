"""Model files that other programs already put on this machine; only ever read.

Hugging Face cache, llama.cpp's cache, LM Studio's models, Ollama's blobs. Folders are looked up in
the environment at call time. Files whose name is their own sha256 (HF cache with links, Ollama)
need no hashing; what was hashed once is remembered by size and time of change.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from specctl import paths
from specctl.hub.partial import write_json
from specctl.hub.remote import hf_home
from specctl.hub.store import Entry, Verified

HF = "Hugging Face cache"
LLAMA = "llama.cpp cache"
LM_STUDIO = "LM Studio"
OLLAMA = "Ollama"
_SHA256 = re.compile(r"[0-9a-f]{64}")


def _from(variable: str) -> Path | None:
    value = os.environ.get(variable)
    return Path(os.path.expandvars(value)).expanduser() if value else None


def _user_cache() -> Path:
    return _from("XDG_CACHE_HOME") or Path.home() / ".cache"


def hf_cache() -> Path:
    """`HF_HUB_CACHE`, else `hub` in `HF_HOME`, else the default place."""
    direct = _from("HF_HUB_CACHE") or _from("HUGGINGFACE_HUB_CACHE")
    return direct or hf_home() / "hub"


def llama_cache() -> Path:
    """`LLAMA_CACHE`, else the place llama.cpp takes on this system."""
    direct = _from("LLAMA_CACHE")
    if direct:
        return direct
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "llama.cpp"
    if sys.platform == "win32":
        return (_from("LOCALAPPDATA") or Path.home()) / "llama.cpp"
    return _user_cache() / "llama.cpp"


def lm_studio_folders() -> tuple[Path, ...]:
    """LM Studio's model folders, old place and new."""
    pointer = Path.home() / ".lmstudio-home-pointer"
    homes = [Path.home() / ".lmstudio", Path.home() / ".cache" / "lm-studio"]
    with contextlib.suppress(OSError):
        homes.insert(0, Path(pointer.read_text().strip()))
    return tuple(dict.fromkeys(home / "models" for home in homes))


def ollama_folders() -> tuple[Path, ...]:
    """`OLLAMA_MODELS`, the user's folder, and the one of the Linux service."""
    direct = _from("OLLAMA_MODELS")
    service = Path("/usr/share/ollama/.ollama/models")
    return ((direct,) if direct else ()) + (Path.home() / ".ollama" / "models", service)


def candidates(repo: str, file: str, sha256: str | None) -> Iterator[Entry]:
    """Files that may be this one, likeliest first; the caller compares size and hash."""
    for path in _hf_snapshots(repo, file):
        yield from _entry(f"{repo}/{file}", path, HF)
    owner, _, name = repo.partition("/")
    flat = f"{owner}_{name}_{file.replace('/', '_')}"
    yield from _entry(flat, llama_cache() / flat, LLAMA)
    for folder in lm_studio_folders():
        yield from _entry(f"{repo}/{file}", folder / owner / name / Path(file).name, LM_STUDIO)
    if sha256:
        for folder in ollama_folders():
            yield from _entry(f"sha256-{sha256}", folder / "blobs" / f"sha256-{sha256}", OLLAMA)


def _hf_snapshots(repo: str, file: str) -> list[Path]:
    """The file in every snapshot of a repo: the one of `main` first, then the newest."""
    base = hf_cache() / ("models--" + repo.replace("/", "--"))
    try:
        main = (base / "refs" / "main").read_text().strip()
    except OSError:
        main = ""
    try:
        snapshots = [path for path in (base / "snapshots").iterdir() if (path / file).is_file()]
        snapshots.sort(key=lambda path: (path.name != main, -path.stat().st_mtime))
    except OSError:
        return []
    return [path / file for path in snapshots]


def everything() -> list[Entry]:
    """Every GGUF file of the other programs, each content once."""
    found: dict[str, Entry] = {}
    for entry in _walk():
        found.setdefault(os.path.realpath(entry.path), entry)
    return sorted(found.values(), key=lambda entry: (entry.where, entry.name))


def _walk() -> Iterator[Entry]:
    for path in _glob(hf_cache(), "models--*/snapshots/*/**/*.gguf"):
        inner = path.relative_to(hf_cache()).parts
        repo = inner[0].removeprefix("models--").replace("--", "/", 1)
        yield from _entry("/".join((repo, *inner[3:])), path, HF)
    for path in _glob(llama_cache(), "*.gguf"):
        yield from _entry(path.name, path, LLAMA)
    for folder in lm_studio_folders():
        for path in _glob(folder, "*/*/*.gguf"):
            yield from _entry(path.relative_to(folder).as_posix(), path, LM_STUDIO)
    for folder in ollama_folders():
        for path in _glob(folder / "manifests", "*/*/*/*"):
            yield from _ollama_model(folder, path)


def _ollama_model(folder: Path, manifest: Path) -> Iterator[Entry]:
    name = ":".join(manifest.parts[-2:])
    try:
        layers = json.loads(manifest.read_text())["layers"]
        digests = [
            layer["digest"].replace(":", "-")
            for layer in layers
            if layer["mediaType"] == "application/vnd.ollama.image.model"
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return
    for digest in digests:
        if re.fullmatch(r"sha256-[0-9a-f]{64}", digest):
            yield from _entry(name, folder / "blobs" / digest, OLLAMA)


def _glob(folder: Path, pattern: str) -> list[Path]:
    try:
        return sorted(folder.glob(pattern))
    except OSError:
        return []


def _entry(name: str, path: Path, where: str) -> Iterator[Entry]:
    try:
        if not path.is_file():
            return
        size = path.stat().st_size
    except OSError:
        return
    sha256 = _named_by_hash(path) or recall(path)
    verified: Verified = "yes" if sha256 else "no"
    repo, _, _ = name.rpartition("/")
    yield Entry(name, path, size, where, verified, repo or None, sha256)


def _named_by_hash(path: Path) -> str | None:
    name = Path(os.path.realpath(path)).name.removeprefix("sha256-")
    return name if _SHA256.fullmatch(name) else None


def _memory() -> Path:
    return paths.cache_dir() / "hashes.json"


def recall(path: Path) -> str | None:
    """The hash that was once taken of this file, if size and time of change are still the same."""
    try:
        known = json.loads(_memory().read_text())[os.path.realpath(path)]
        status = path.stat()
        if known["size"] == status.st_size and known["mtime_ns"] == status.st_mtime_ns:
            return str(known["sha256"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return None


def remember(path: Path, sha256: str) -> None:
    """Keep a hash for `recall`; a cache folder that cannot be written is no error."""
    try:
        known = json.loads(_memory().read_text())
    except (OSError, ValueError):
        known = {}
    try:
        status = path.stat()
        known[os.path.realpath(path)] = {
            "size": status.st_size,
            "mtime_ns": status.st_mtime_ns,
            "sha256": sha256,
        }
        _memory().parent.mkdir(parents=True, exist_ok=True)
        write_json(_memory(), known)
    except OSError:
        pass
