"""What a hub or its storage may answer, split models, full disks, no network."""

from __future__ import annotations

import shutil
from collections import namedtuple
from pathlib import Path

import pytest
from hubserver import TOKEN, File, HubServer
from transfer_kit import DATA, WANT, check_whole, final, half_fetched, notes, run

from specctl.errors import HubError
from specctl.hub.errors import (
    DiskFullError,
    GatedError,
    NetworkError,
    NotFoundError,
    OfflineError,
    RateLimitError,
    ServerError,
    StoreError,
)
from specctl.hub.fetch import FetchPolicy
from specctl.hub.progress import Done, Progress, Ready
from specctl.hub.remote import Wanted


@pytest.mark.parametrize("where", ["api_statuses", "resolve_statuses", "statuses"])
@pytest.mark.parametrize("status", [429, 500, 503])
def test_transient_refusals(
    hub: HubServer, model: File, fast: FetchPolicy, where: str, status: int
) -> None:
    setattr(hub.faults, where, [(status, {})] * 2)
    check_whole(run(fast))


def test_retry_after_is_waited_for(hub: HubServer, model: File, fast: FetchPolicy) -> None:
    hub.faults.api_statuses = [(429, {"Retry-After": "1"})]
    events = run(fast)
    check_whole(events)
    assert "again in 1.0 s" in notes(events)
    assert events[-1].seconds >= 1  # type: ignore[union-attr]


def test_retry_after_beyond_patience(hub: HubServer, model: File, fast: FetchPolicy) -> None:
    hub.faults.statuses = [(429, {"Retry-After": "3600"})]
    with pytest.raises(RateLimitError, match="again in 1 h") as caught:
        run(fast)
    assert "HF_TOKEN" in (caught.value.hint or "")
    assert not final().exists()


def test_expired_storage_address_is_asked_for_again(
    hub: HubServer, model: File, fast: FetchPolicy
) -> None:
    hub.faults.statuses = [(403, {})]
    events = run(fast)
    check_whole(events)
    assert "storage behind the hub answered 403" in notes(events)


def test_lasting_server_error(hub: HubServer, model: File, fast: FetchPolicy) -> None:
    hub.faults.api_statuses = [(500, {})] * 50
    with pytest.raises(ServerError, match="500"):
        run(fast)


def test_token_goes_to_the_hub_only(
    hub: HubServer, model: File, fast: FetchPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    check_whole(run(fast))
    seen: dict[str, set[str | None]] = {}
    for kind, _, headers in hub.log:
        seen.setdefault(kind, set()).add(headers.get("authorization"))
    assert seen == {"api": {f"Bearer {TOKEN}"}, "cdn": {None}}


def test_gated_draft_is_refused_before_byte_1_of_the_target(
    hub: HubServer, model: File, fast: FetchPolicy
) -> None:
    hub.add("org/gated", {"draft.gguf": b"d"}, gated=True)
    with pytest.raises(GatedError):
        run(fast, WANT, Wanted("org/gated", "draft.gguf"))
    assert model.sent == 0


def test_small_file_by_git_hash(hub: HubServer, model: File, fast: FetchPolicy) -> None:
    readme = Wanted(WANT.repo, "README.md")
    check_whole(run(fast, readme), b"hello")
    hub.repos[WANT.repo].files["README.md"].data = b"jello"
    check_whole(run(fast, readme), b"jello")


def test_mirror_without_sizes(hub: HubServer, model: File, fast: FetchPolicy) -> None:
    hub.repos[WANT.repo].sizes = False
    check_whole(run(fast))


def test_hub_without_hashes_is_said(hub: HubServer, model: File, fast: FetchPolicy) -> None:
    hub.faults.no_hash = True
    hub.repos[WANT.repo].files[WANT.file].lfs = False
    events = run(fast)
    assert "not verified" in notes(events)
    assert [e.verified for e in events if isinstance(e, Ready)] == [None]


def test_login_page_in_between(hub: HubServer, model: File, fast: FetchPolicy) -> None:
    hub.faults.html = True
    with pytest.raises(HubError, match="does not answer like a hub"):
        run(fast)


def test_pair_is_one_job(hub: HubServer, model: File, fast: FetchPolicy) -> None:
    hub.add("org/draft", {"draft.gguf": b"d" * 1000})
    events = run(fast, WANT, Wanted("org/draft", "draft.gguf"))
    bars = [event for event in events if isinstance(event, Progress)]
    assert {bar.total for bar in bars} == {len(DATA) + 1000}
    assert bars[-1].done == len(DATA) + 1000
    assert [event.index for event in bars] == sorted(event.index for event in bars)


def test_rate_and_remaining_time_count_fetched_bytes_only(
    hub: HubServer, model: File, fast: FetchPolicy
) -> None:
    hub.add("org/draft", {"draft.gguf": DATA})
    draft, big = Wanted("org/draft", "draft.gguf"), Wanted("org/big", "1.gguf")
    run(fast, WANT, draft)  # before and after the big ones: here already
    hub.add("org/big", {"1.gguf": DATA, "2.gguf": DATA})
    hub.faults.block, hub.faults.pause = 75_000, 0.04  # 1.9 MB/s at most
    bars = [
        event
        for event in run(fast, WANT, big, Wanted("org/big", "2.gguf"), draft)
        if isinstance(event, Progress)
    ]
    rated = [bar for bar in bars if bar.rate is not None]
    assert {bar.index for bar in rated} == {2, 3}
    for bar in rated:
        assert bar.rate <= 2e6
        left = len(DATA) * (4 - bar.index) - bar.file_done
        assert bar.eta == pytest.approx(left / bar.rate)
    assert (bars[-1].done, bars[-1].total) == (3 * len(DATA), 4 * len(DATA))


# ---------------------------------------------------------------- splits


def split_repo(hub: HubServer, numbers: tuple[int, ...]) -> list[str]:
    names = [f"Q8/big-{n:05d}-of-00003.gguf" for n in numbers]
    hub.add("org/big", {name: name.encode() * 100 for name in names})
    return names


def test_one_part_pulls_all(hub: HubServer, fast: FetchPolicy) -> None:
    names = split_repo(hub, (1, 2, 3))
    done = run(fast, Wanted("org/big", names[1]))[-1]
    assert isinstance(done, Done)
    assert [path.name for path in done.paths] == [name.rpartition("/")[2] for name in names]
    assert done.total == sum(len(name) * 100 for name in names)
    assert hub.requests["api GET"] == 1 + 3  # one listing, one address per part


def test_incomplete_set_is_refused_before_byte_1(hub: HubServer, fast: FetchPolicy) -> None:
    names = split_repo(hub, (1, 3))
    with pytest.raises(NotFoundError, match="only 2 of the 3 parts"):
        run(fast, Wanted("org/big", names[0]))
    assert hub.sent == 0


# ---------------------------------------------------------------- disk


def test_no_room_is_refused_with_numbers(
    hub: HubServer, model: File, fast: FetchPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    asked = []

    def free(folder: Path) -> object:
        asked.append(folder)
        return usage(0, 0, len(DATA))  # exactly the file, but no margin

    monkeypatch.setattr(shutil, "disk_usage", free)
    with pytest.raises(DiskFullError, match=r"1\.4 MiB to fetch and 16\.0 MiB margin, 1\.4 MiB"):
        run(fast)
    assert model.sent == 0
    assert final().is_relative_to(asked[0])


def test_bytes_that_are_here_need_no_room(
    hub: HubServer, model: File, fast: FetchPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    half_fetched(hub, fast, 1_400_000)
    usage = namedtuple("usage", "total used free")
    room = 100_000 + 16 * 1024**2
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(0, 0, room))
    check_whole(run(fast))


def test_store_that_is_no_folder(
    hub: HubServer, model: File, fast: FetchPolicy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SPECCTL_MODELS", str(tmp_path / "file" / "models"))
    with pytest.raises(StoreError, match="cannot write"):
        run(fast)


@pytest.mark.parametrize("name", ["../../evil.gguf", "/etc/evil.gguf", "a\\..\\b.gguf"])
def test_names_cannot_leave_the_store(hub: HubServer, fast: FetchPolicy, name: str) -> None:
    hub.add("org/evil", {name: b"x"})
    with pytest.raises(StoreError, match="file name"):
        run(fast, Wanted("org/evil", name))


# ---------------------------------------------------------------- offline


def test_offline_says_what_it_would_need(hub: HubServer, model: File, fast: FetchPolicy) -> None:
    run(fast)
    hub.requests.clear()
    check_whole(run(fast, offline=True))
    other = Wanted(WANT.repo, "other.gguf", size=3 << 30)
    with pytest.raises(OfflineError, match=r"other\.gguf \(3\.0 GiB\)"):
        run(fast, WANT, other, offline=True)
    assert not hub.requests


def test_offline_variable_is_read_when_asked(
    hub: HubServer, model: File, fast: FetchPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(fast)  # huggingface_hub is imported by now
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(OfflineError, match="HF_HUB_OFFLINE"):
        run(fast, Wanted(WANT.repo, "README.md"))


def test_no_network_uses_what_is_here(
    hub: HubServer, model: File, fast: FetchPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(fast)
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    events = run(fast)
    check_whole(events)
    assert "using the files that are here" in notes(events)
    with pytest.raises(NetworkError, match="cannot be reached"):
        run(fast, Wanted(WANT.repo, "README.md"))
