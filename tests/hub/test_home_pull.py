"""A pull from the home screen, against a hub on loopback: progress, stop, going on, refusals."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
from hubserver import HubServer

from specctl import paths
from specctl.cli.home_desk import LocalDesk, Simulation
from specctl.cli.home_rows import pull_action
from specctl.cli.home_store import downloaded
from specctl.hub import store
from specctl.tui.home_state import Action, Event, ModelRow, Pulled, Pulling

sys.path.append(str(Path(__file__).parents[1] / "cli"))
from terminal import Terminal

NAME = "hf:org/big/big.gguf"
DATA = b"GGUF" + bytes(6 << 20)


@pytest.fixture
def desk() -> LocalDesk:
    return LocalDesk(Simulation())


def pull(desk: LocalDesk, stop_at: int | None = None) -> list[Event]:
    """All events; stopped as soon as so many bytes are here."""
    events: list[Event] = []
    for event in desk.pull(pull_action(NAME, NAME, "6.0 MiB")):
        events.append(event)
        if stop_at is not None and isinstance(event, Pulling) and event.done >= stop_at:
            desk.stop_pull()
    return events


def test_a_pull_ends_with_what_came(hub: HubServer, desk: LocalDesk) -> None:
    hub.add("org/big", {"big.gguf": DATA})
    *steps, last = pull(desk)
    assert isinstance(last, Pulled)
    assert last.kind == "note"
    assert "6.0 MiB fetched in" in last.text
    assert all(step.total == len(DATA) for step in steps if isinstance(step, Pulling))
    assert [entry.path.read_bytes() for entry in store.entries()] == [DATA]
    assert pull(desk)[-1] == Pulled(f"{NAME}: already here")


def test_stopped_it_keeps_its_part_and_goes_on_there(hub: HubServer, desk: LocalDesk) -> None:
    hub.add("org/big", {"big.gguf": DATA})
    hub.faults.pause = 0.05
    events = pull(desk, stop_at=1)
    assert isinstance(events[-1], Pulled)
    assert "stopped; what was fetched is kept" in events[-1].text
    assert not store.entries()
    (part,) = store.parts()
    assert 0 < part.have < len(DATA)
    row = next(row for row in downloaded().rows if isinstance(row, ModelRow) and "half" in row.note)
    assert row.actions[0].argv == ("pull", NAME)  # Enter goes on with it
    hub.faults.pause = 0.0
    hub.log.clear()
    assert "fetched" in pull(desk)[-1].text  # type: ignore[union-attr]
    ranges = [headers["range"] for kind, _, headers in hub.log if kind == "cdn"]
    assert {int(re.findall(r"\d+", one)[0]) for one in ranges} == {part.have}
    assert store.entries()[0].path.read_bytes() == DATA


def test_a_refusal_is_said_with_its_hint(hub: HubServer, desk: LocalDesk) -> None:
    hub.add("org/big", {"big.gguf": DATA}, gated=True)
    (*_, last) = pull(desk)
    assert isinstance(last, Pulled)
    assert last.kind == "error"
    assert "org/big" in last.text


def test_offline_nothing_is_asked_and_the_question_says_so(
    hub: HubServer, desk: LocalDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.add("org/big", {"big.gguf": DATA})
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert "HF_HUB_OFFLINE" in pull_action(NAME, NAME, "6.0 MiB").ask[-1]
    (*_, last) = pull(desk)
    assert isinstance(last, Pulled)
    assert last.kind == "error"
    assert not hub.requests


def test_looking_asks_nothing_of_the_network(hub: HubServer, desk: LocalDesk) -> None:
    paths.models_dir().mkdir(parents=True)
    list(desk.look())
    assert not hub.requests


def test_a_name_that_means_nothing_is_an_error_not_a_crash(desk: LocalDesk) -> None:
    (*_, last) = desk.pull(Action("pull", ("pull", "no-such-model")))
    assert isinstance(last, Pulled)
    assert last.kind == "error"
    assert "no-such-model" in last.text


def test_the_question_names_bytes_and_destination(hub: HubServer, tmp_path: Path) -> None:
    ask = pull_action("x:Q4_K_M", "x:Q4_K_M+draft-simple", "≈ 5.3 GiB").ask
    assert ask[0] == "x:Q4_K_M+draft-simple: ≈ 5.3 GiB to fetch"
    assert ask[1].startswith(f"into {paths.models_dir()}, ")
    assert ask[1].endswith(" free")


@pytest.mark.skipif(sys.platform == "win32", reason="no pty")
def test_leaving_the_screen_in_the_middle_keeps_the_part(hub: HubServer, desk: LocalDesk) -> None:
    hub.add("org/big", {"big.gguf": DATA})
    hub.faults.pause = 0.1
    pull(desk, stop_at=1)
    (before,) = store.parts()
    with Terminal("dashboard", LINES="24") as terminal:
        terminal.wait("half-fetched")
        os.write(terminal.master, b"\x1b[F")  # End: half-fetched files come last
        at = terminal.wait(f"specctl pull {NAME}")
        os.write(terminal.master, b"\r")
        at = terminal.wait("Pull it?", after=at)
        os.write(terminal.master, b"\r")
        at = terminal.wait("MiB of 6.0 MiB", after=at)
        os.write(terminal.master, b"\x11")
        assert terminal.exit_code() == 0
        assert terminal.settings_restored()
        end = terminal.raw.rpartition("\x1b[?1049l")[2]
        assert f"what was fetched is kept: specctl pull {NAME}" in " ".join(end.split())
        assert "Traceback" not in terminal.text
    (after,) = store.parts()
    assert before.have <= after.have < len(DATA)
