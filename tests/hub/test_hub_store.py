"""What is on disk: specctl's own files and those of other programs, found and told apart."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hubserver import HubServer

from specctl.errors import UsageError
from specctl.hub import elsewhere, store
from specctl.hub.errors import NotFoundError
from specctl.hub.fetch import FetchPolicy
from specctl.hub.lookup import expand, find, parse_reference
from specctl.hub.progress import Done, Ready
from specctl.hub.pull import pull
from specctl.hub.remote import Wanted, hub_from_environment
from specctl.hub.split import split_parts

DATA = b"GGUF" + b"weights" * 1000
SHA = hashlib.sha256(DATA).hexdigest()
REPO, FILE = "org/model-GGUF", "model-Q4.gguf"


def run(steps: Any) -> Any:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def put(path: Path, data: bytes = DATA) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def hf_linked(tmp_path: Path) -> Path:
    base = tmp_path / "hf-home" / "hub" / "models--org--model-GGUF"
    blob = put(base / "blobs" / SHA)
    link = base / "snapshots" / ("1" * 40) / FILE
    link.parent.mkdir(parents=True)
    link.symlink_to(blob)
    return link


def hf_without_links(tmp_path: Path) -> Path:
    base = tmp_path / "hf-home" / "hub" / "models--org--model-GGUF"
    return put(base / "snapshots" / ("1" * 40) / FILE)


def llama_cpp(tmp_path: Path) -> Path:
    return put(tmp_path / "llama-cache" / f"org_model-GGUF_{FILE}")


def lm_studio(tmp_path: Path) -> Path:
    return put(tmp_path / ".lmstudio" / "models" / "org" / "model-GGUF" / FILE)


def ollama(tmp_path: Path) -> Path:
    models = tmp_path / "ollama-models"
    layer = {"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{SHA}"}
    manifest = json.dumps({"layers": [layer, {"mediaType": "x", "digest": "sha256:0"}]})
    put(models / "manifests" / "registry" / "library" / "model" / "4b", manifest.encode())
    return put(models / "blobs" / f"sha256-{SHA}")


PLACES = {
    "Hugging Face cache": hf_linked,
    "Hugging Face cache, copies": hf_without_links,
    "llama.cpp cache": llama_cpp,
    "LM Studio": lm_studio,
    "Ollama": ollama,
}


@pytest.fixture
def home(hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LLAMA_CACHE", str(tmp_path / "llama-cache"))
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "ollama-models"))
    return tmp_path


@pytest.mark.parametrize("place", PLACES)
def test_files_of_other_programs_are_used_and_left_alone(
    place: str, hub: HubServer, home: Path, fast: FetchPolicy
) -> None:
    model = hub.add(REPO, {FILE: DATA}).files[FILE]
    path = PLACES[place](home)
    before = path.stat()
    *_, ready, done = pull((Wanted(REPO, FILE),), hub_from_environment(), fast)
    assert isinstance(ready, Ready)
    assert isinstance(done, Done)
    assert done.paths == (path,)
    assert place.startswith(ready.where)
    assert ready.verified is True
    assert model.sent == 0
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert not store.entries()
    listed = [entry for entry in elsewhere.everything() if entry.where == ready.where]
    assert [(entry.path, entry.size) for entry in listed] == [(path, len(DATA))]
    assert listed[0].verified == "yes"  # by its name, or because it was hashed just now


@pytest.mark.parametrize("place", ["Hugging Face cache, copies", "llama.cpp cache", "LM Studio"])
def test_same_name_and_size_with_other_content_is_not_used(
    place: str, hub: HubServer, home: Path, fast: FetchPolicy
) -> None:
    hub.add(REPO, {FILE: DATA})
    PLACES[place](home).write_bytes(DATA[::-1])
    *_, done = pull((Wanted(REPO, FILE),), hub_from_environment(), fast)
    assert isinstance(done, Done)
    assert done.paths == (store.target_path(REPO, FILE),)
    assert done.fetched == len(DATA)


def test_find_needs_no_network_and_no_hash(home: Path, hub: HubServer) -> None:
    assert find(REPO, FILE) is None
    path = lm_studio(home)
    assert find(REPO, FILE) == path
    assert find(REPO, FILE, size=len(DATA)) == path
    assert find(REPO, FILE, size=len(DATA) + 1) is None
    assert find(REPO, FILE, sha256=SHA) == path  # not hashed: not known to be another
    elsewhere.remember(path, "0" * 64)
    assert find(REPO, FILE, sha256=SHA) is None
    path.write_bytes(DATA + b"!")  # touched: what was remembered no longer counts
    assert find(REPO, FILE, sha256=SHA) == path
    assert not hub.requests


def test_part_of_a_split_model_alone_elsewhere_is_of_no_use(home: Path) -> None:
    names = split_parts("big-00001-of-00002.gguf")
    folder = home / ".lmstudio" / "models" / "org" / "model-GGUF"
    put(folder / names[0])
    assert find(REPO, names[0]) is None
    put(folder / names[1])
    assert find(REPO, names[0]) == folder / names[0]


def test_unreadable_places_are_no_error(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long_path = home / ("x" * 240) / ("y" * 240)
    monkeypatch.setenv("HF_HOME", str(long_path))
    put(home / "ollama-models" / "manifests" / "r" / "l" / "m" / "t", b"not json")
    put(home / "ollama-models" / "manifests" / "r" / "l" / "n" / "t", b'{"layers": [1]}')
    put(home / "specctl-home" / "cache" / "hashes.json", b"[]")
    lm_studio(home)
    assert [entry.where for entry in elsewhere.everything()] == ["LM Studio"]


def test_cache_variables_are_read_when_asked(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert elsewhere.hf_cache() == home / "hf-home" / "hub"
    monkeypatch.delenv("HF_HOME")
    assert elsewhere.hf_cache() == home / ".cache" / "huggingface" / "hub"
    monkeypatch.setenv("HF_HUB_CACHE", "~/there")
    assert elsewhere.hf_cache() == home / "there"


# ---------------------------------------------------------------- own store


def test_import_verify_damage_remove(home: Path) -> None:
    source = put(home / "mine.gguf")
    entry = run(store.import_file(source))
    assert (entry.name, entry.verified, entry.own) == ("imported/mine.gguf", "unchanged", True)
    assert os.path.samefile(entry.path, source)
    assert run(store.verify(entry)) is True
    entry.path.write_bytes(DATA[:-1] + b"!")
    damaged = store.entry_of(entry.path)
    assert damaged.verified == "changed"
    assert run(store.verify(damaged)) is False
    assert store.remove(damaged) == len(DATA)
    assert not entry.path.parent.exists()
    assert source.exists()
    assert store.entries() == []


def test_import_copies_where_links_are_not_allowed(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: object) -> None:
        raise OSError(1, "no links here")

    monkeypatch.setattr(os, "link", no_links)
    source = put(home / "mine.gguf")
    entry = run(store.import_file(source))
    assert entry.path.read_bytes() == DATA
    assert not os.path.samefile(entry.path, source)


def test_import_of_another_file_by_the_same_name(home: Path) -> None:
    run(store.import_file(put(home / "a" / "mine.gguf")))
    run(store.import_file(put(home / "b" / "mine.gguf")))  # the same content: nothing to do
    with pytest.raises(UsageError, match="already imported"):
        run(store.import_file(put(home / "c" / "mine.gguf", b"GGUF other")))
    with pytest.raises(UsageError, match="no file"):
        run(store.import_file(home / "nowhere.gguf"))
    with pytest.raises(UsageError, match="not a GGUF"):
        run(store.import_file(put(home / "page.gguf", b"<!doctype html>")))


def test_stored_file_that_lost_its_sidecar_is_hashed_not_fetched(
    hub: HubServer, home: Path, fast: FetchPolicy
) -> None:
    model = hub.add(REPO, {FILE: DATA}).files[FILE]
    list(pull((Wanted(REPO, FILE),), hub_from_environment(), fast))
    path = store.target_path(REPO, FILE)
    store.sidecar_path(path).unlink()
    assert store.entry_of(path).verified == "no"
    list(pull((Wanted(REPO, FILE),), hub_from_environment(), fast))
    assert model.sent == len(DATA)
    assert store.entry_of(path).verified == "yes"


def test_damaged_stored_file_is_fetched_again(
    hub: HubServer, home: Path, fast: FetchPolicy
) -> None:
    hub.add(REPO, {FILE: DATA})
    list(pull((Wanted(REPO, FILE),), hub_from_environment(), fast))
    path = store.target_path(REPO, FILE)
    path.write_bytes(DATA[::-1])
    list(pull((Wanted(REPO, FILE),), hub_from_environment(), fast))
    assert path.read_bytes() == DATA


def test_only_own_files_can_be_removed(home: Path) -> None:
    path = lm_studio(home)
    with pytest.raises(UsageError, match="belongs to LM Studio"):
        store.remove(elsewhere.everything()[0])
    assert path.exists()


def test_names_that_fit_none_or_several(home: Path) -> None:
    put(store.target_path("org/one", FILE))
    put(store.target_path("org/two", FILE))
    with pytest.raises(NotFoundError, match="several files"):
        store.select([FILE], store.entries())
    with pytest.raises(NotFoundError, match="nothing here"):
        store.select(["no.gguf"], store.entries())
    assert len(store.select([f"org--one/{FILE}"], store.entries())) == 1


# ---------------------------------------------------------------- names


def test_references() -> None:
    assert parse_reference("hf:o/r/d/f.gguf") == Wanted("o/r", "d/f.gguf")
    assert parse_reference("hf:o/r/f.gguf", "v1").revision == "v1"
    for wrong in ("hf:", "hf:o/r", "hf:o/r/", "hf:o//f", "hf:/r/f"):
        with pytest.raises(UsageError, match="names no file"):
            parse_reference(wrong)


def test_splits_are_expanded_once() -> None:
    one, two = split_parts("q/m-00002-of-00002.gguf")
    assert (one, two) == ("q/m-00001-of-00002.gguf", "q/m-00002-of-00002.gguf")
    sized = Wanted("o/r", two, size=7)
    assert expand((sized, Wanted("o/r", one))) == (Wanted("o/r", one), sized)
    assert split_parts("m-1-of-2.gguf") == ("m-1-of-2.gguf",)
    for wrong in ("m-00003-of-00002.gguf", "m-00000-of-00002.gguf"):
        with pytest.raises(UsageError, match="part"):
            split_parts(wrong)
