"""Every fault of the line: nothing lost, nothing half under a final name."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hubserver import File, HubServer
from transfer_kit import DATA, WANT, check_whole, final, half_fetched, notes, run

from specctl.hub import partial, store
from specctl.hub.errors import (
    DamagedError,
    MovedError,
    NetworkError,
)
from specctl.hub.fetch import FetchPolicy
from specctl.hub.progress import Note, Progress
from specctl.hub.pull import pull
from specctl.hub.remote import hub_from_environment


def test_whole_file(hub: HubServer, model: File, fast: FetchPolicy) -> None:
    events = run(fast)
    assert check_whole(events).fetched == len(DATA)
    last = [event for event in events if isinstance(event, Progress)][-1]
    assert (last.done, last.total, last.count) == (len(DATA), len(DATA), 1)
    sidecar = store.read_sidecar(final())
    assert sidecar is not None
    assert (sidecar.sha256, sidecar.verified, sidecar.commit) == (model.sha256, True, "1" * 40)
    assert sorted(p.name for p in final().parent.iterdir()) == [
        "model-Q4.gguf",
        "model-Q4.gguf.specctl.json",
    ]


def test_second_pull_fetches_nothing(hub: HubServer, model: File, fast: FetchPolicy) -> None:
    run(fast)
    assert check_whole(run(fast)).fetched == 0
    assert model.sent == len(DATA)


def test_cut_lines_are_resumed_at_the_byte(hub: HubServer, model: File, fast: FetchPolicy) -> None:
    hub.faults.cuts = [200_000, 1, 700_001]
    events = run(fast)
    check_whole(events)
    assert model.sent == len(DATA)
    assert "resuming at byte 900002" in notes(events)


def test_a_cut_without_progress_gives_up(hub: HubServer, model: File, fast: FetchPolicy) -> None:
    hub.faults.cuts = [1000] + [0] * 20
    with pytest.raises(NetworkError):
        run(fast)
    assert hub.requests["cdn GET"] == 1 + fast.attempts - 1
    assert not final().exists()
    assert partial.part_path(final()).read_bytes() == DATA[:1000]


def test_stall_at_99_percent(hub: HubServer, model: File, fast: FetchPolicy) -> None:
    hub.faults.stalls = [len(DATA) * 99 // 100]
    events = run(fast)
    check_whole(events)
    assert model.sent == len(DATA)
    assert "nothing came for 0.3 s" in notes(events)


def test_trickle_counts_as_stall(hub: HubServer, model: File, fast: FetchPolicy) -> None:
    hub.faults.block, hub.faults.pause = 10, 0.02  # 500 B/s at most, never silent for 0.3 s
    hub.faults.on_body = lambda: None
    steps = pull((WANT,), hub_from_environment(), dataclasses.replace(fast, least_rate=5000))
    note = next(event for event in steps if isinstance(event, Note))
    assert "bytes came in" in note.text
    hub.faults.block, hub.faults.pause = 1 << 16, 0.0
    check_whole(list(steps))


def test_windows(hub: HubServer, model: File, fast: FetchPolicy) -> None:
    check_whole(run(dataclasses.replace(fast, window=400_000, checkpoint=100_000)))
    assert hub.requests["cdn GET"] == 4
    assert model.sent == len(DATA)


def test_server_that_ignores_ranges(hub: HubServer, model: File, fast: FetchPolicy) -> None:
    half_fetched(hub, fast, 400_000)
    hub.faults.no_ranges = True
    check_whole(run(fast))
    assert model.sent == len(DATA)  # all of it again: skipped through, not appended


def test_ignored_range_and_another_beginning(
    hub: HubServer, model: File, fast: FetchPolicy
) -> None:
    half_fetched(hub, fast, 400_000)
    with open(partial.part_path(final()), "r+b") as part:
        part.write(b"other")
    hub.faults.no_ranges = True
    events = run(fast)
    check_whole(events)
    assert "not the beginning" in notes(events)


def test_server_that_refuses_ranges(hub: HubServer, model: File, fast: FetchPolicy) -> None:
    half_fetched(hub, fast, 400_000)
    hub.faults.refuse_ranges = True
    check_whole(run(fast))


def test_part_damaged_on_disk_is_fetched_once_more(
    hub: HubServer, model: File, fast: FetchPolicy
) -> None:
    half_fetched(hub, fast, 400_000)
    with open(partial.part_path(final()), "r+b") as part:
        part.write(b"other")
    events = run(fast)
    check_whole(events)
    assert "wrong hash; fetching it once more" in notes(events)


def test_wrong_content_never_gets_the_name(hub: HubServer, model: File, fast: FetchPolicy) -> None:
    model.served = bytes(len(DATA))
    with pytest.raises(DamagedError, match="wrong hash"):
        run(fast)
    assert not final().exists()
    assert not partial.part_path(final()).exists()


@pytest.mark.parametrize("lie", ["listed_size", "linked_size", "content_length"])
@pytest.mark.parametrize("off", [-1, 1])
def test_size_lies(hub: HubServer, model: File, fast: FetchPolicy, lie: str, off: int) -> None:
    setattr(model, lie, len(DATA) + off)
    with pytest.raises(DamagedError, match="listed with"):
        run(fast)
    assert not final().exists()
    if lie != "content_length":  # known from the headers alone: before byte 1
        assert model.sent == 0


def test_more_bytes_than_announced(hub: HubServer, model: File, fast: FetchPolicy) -> None:
    half_fetched(hub, fast, 400_000)
    model.served = DATA + b"more"
    with pytest.raises(DamagedError, match="listed with"):
        run(fast)
    assert not final().exists()


def test_more_bytes_without_any_announcement(
    hub: HubServer, model: File, fast: FetchPolicy
) -> None:
    model.served, model.content_length = DATA + b"more", -1
    with pytest.raises(DamagedError, match="listed with"):
        run(fast)
    assert not final().exists()


def test_body_without_a_length(hub: HubServer, model: File, fast: FetchPolicy) -> None:
    model.content_length = -1
    hub.faults.cuts = [400_000]
    events = run(fast)
    check_whole(events)
    assert model.sent == len(DATA)
    assert "the server stopped at byte 400000" in notes(events)


def test_part_longer_than_the_file_starts_over(
    hub: HubServer, model: File, fast: FetchPolicy
) -> None:
    half_fetched(hub, fast, 400_000)
    with open(partial.part_path(final()), "ab") as part:
        part.write(bytes(len(DATA)))
    events = run(fast)
    check_whole(events)
    assert "longer" in notes(events)


def test_changed_between_runs_starts_over(hub: HubServer, model: File, fast: FetchPolicy) -> None:
    half_fetched(hub, fast, 400_000)
    model.data = DATA[::-1]
    hub.repos[WANT.repo].commit = "2" * 40
    events = run(fast)
    check_whole(events, DATA[::-1])
    assert "changed on the hub; starting at byte 0" in notes(events)


def test_new_commit_with_the_same_content_resumes(
    hub: HubServer, model: File, fast: FetchPolicy
) -> None:
    half_fetched(hub, fast, 400_000)
    hub.repos[WANT.repo].commit = "2" * 40
    check_whole(run(fast))
    assert model.sent == len(DATA) - 400_000


def test_changed_under_the_pull(hub: HubServer, model: File, fast: FetchPolicy) -> None:
    def change() -> None:
        model.data = DATA[::-1]
        hub.repos[WANT.repo].commit = "2" * 40

    hub.faults.cuts, hub.faults.on_body = [400_000], change
    events = run(fast)
    check_whole(events, DATA[::-1])
    assert "looking it up again" in notes(events)


def test_another_hash_than_listed(hub: HubServer, model: File, fast: FetchPolicy) -> None:
    model.etag = "0" * 64
    with pytest.raises(MovedError):
        run(fast)
    assert model.sent == 0


def test_stored_copy_is_replaced_when_the_hub_has_a_new_one(
    hub: HubServer, model: File, fast: FetchPolicy
) -> None:
    run(fast)
    model.data = DATA[::-1]
    hub.repos[WANT.repo].commit = "2" * 40
    events = run(fast)
    check_whole(events, DATA[::-1])
    assert "the stored copy is not what the hub has now" in notes(events)


def test_after_a_reboot_only_flushed_bytes_count(
    hub: HubServer, model: File, fast: FetchPolicy
) -> None:
    half_fetched(hub, fast, 400_000)
    path = final().with_name(final().name + ".part.json")
    journal = json.loads(path.read_text())
    assert journal["durable"] == 400_000
    path.write_text(json.dumps({**journal, "durable": 300_000, "boot": "another"}))
    events = run(fast)
    check_whole(events)
    assert model.sent == len(DATA) - 300_000
    assert "restarted since" in notes(events)


def test_part_without_journal_is_not_trusted(
    hub: HubServer, model: File, fast: FetchPolicy
) -> None:
    half_fetched(hub, fast, 400_000)
    final().with_name(final().name + ".part.json").write_text("{")
    check_whole(run(fast))
    assert model.sent == len(DATA)
