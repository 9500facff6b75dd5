"""Names of models in chat and bench: pulled after a yes (a hub on loopback), or why not."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from fetch_kit import PAIR, SHORT, HubServer, own_hub, run

from specctl import demo
from specctl.errors import UsageError

native = [pytest.mark.native, pytest.mark.skipif(sys.platform == "win32", reason="no pty")]


@pytest.fixture
def hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_models: Mapping[str, Path]
) -> Iterator[HubServer]:
    """The hub has the pair; nothing of it is here."""
    with own_hub(tmp_path, monkeypatch, tiny_models) as server:
        yield server


# ---------------------------------------------------------------- commands


class TestOnAPipe:
    pytestmark = native

    def test_the_command_that_is_named_fetches_it(self, hub: HubServer) -> None:
        done = run("chat", "-m", PAIR, *SHORT)
        assert done.returncode == 1
        assert f"{PAIR} is not on this machine (" in done.stderr
        assert hub.sent == 0
        command = done.stderr.partition("fetch it: specctl ")[2].strip()
        fetched = run(*shlex.split(command))
        assert fetched.returncode == 0, fetched.stderr
        assert len(fetched.stdout.split()) == 2
        asked = hub.requests.total()
        talked = run("chat", "-m", PAIR, *SHORT, HF_HUB_OFFLINE="1")
        assert talked.returncode == 0, talked.stderr
        assert "accepted/cycle" in talked.stderr
        assert hub.requests.total() == asked

    def test_offline_names_what_is_missing(self, hub: HubServer) -> None:
        done = run("chat", "-m", PAIR, *SHORT, HF_HUB_OFFLINE="1")
        assert done.returncode == 1
        assert "HF_HUB_OFFLINE forbids fetching: org/clock/clock.gguf, org/clock-" in done.stderr
        assert not hub.requests

    def test_bench_compares_the_draft_that_a_name_brings(
        self, hub: HubServer, tmp_path: Path
    ) -> None:
        assert run("pull", PAIR).returncode == 0
        prompts = tmp_path / "own.txt"
        prompts.write_text("amber anchor apple")
        done = run("bench", "-m", PAIR, "--prompts", str(prompts), "-n", "16", "-r", "1")
        assert done.returncode == 0, done.stderr
        assert "(plain, draft-simple k=4)" in " ".join(done.stderr.split())

    @pytest.mark.demo
    def test_nothing_named_is_the_demo_model_and_said(self, hub: HubServer) -> None:
        done = run("chat", "-n", "4", text="hello")
        assert done.returncode == 0, done.stderr
        assert "no --model named: the demo model" in done.stderr
        assert "specctl recommend" in done.stderr

    def test_nothing_named_and_no_demo_model(
        self, monkeypatch: pytest.MonkeyPatch, hub: HubServer
    ) -> None:
        from specctl.cli.fetching import demo_without_asking

        monkeypatch.setattr(demo, "_DEMO_PACKAGE", "no-such-package")
        with pytest.raises(UsageError, match="no --model named") as caught:
            demo_without_asking("bench")
        assert "specctl bench --model" in (caught.value.hint or "")


class TestOnATerminal:
    pytestmark = native

    def test_a_yes_pulls_and_the_chat_begins(self, hub: HubServer) -> None:
        from terminal import Terminal

        with Terminal("chat", "--plain", "-m", PAIR, *SHORT) as terminal:
            at = terminal.wait(f"{PAIR} is not here: ")
            at = terminal.wait("Pull it now? [Y/n]", after=at)
            terminal.type("")
            at = terminal.wait("fetched in", after=at)
            at = terminal.wait("\n> ", after=at)
            terminal.type("amber")
            terminal.wait("accepted/cycle", after=at)
        assert hub.sent == sum(len(f.data) for r in hub.repos.values() for f in r.files.values())

    def test_a_no_fetches_nothing(self, hub: HubServer) -> None:
        from terminal import Terminal

        with Terminal("chat", "-m", "hf:org/clock/clock.gguf", *SHORT) as terminal:
            terminal.wait("MiB. Pull it now? [Y/n]")  # the size is the hub's
            terminal.type("n")
            terminal.wait("later: specctl pull hf:org/clock/clock.gguf")
            assert terminal.exit_code() == 1
        assert hub.sent == 0

    def test_nothing_named_proposes_the_best_and_gets_it(self, hub: HubServer) -> None:
        from terminal import Terminal

        arguments = ("chat", "--plain", "--ctx", "512", *SHORT)
        with Terminal(*arguments) as terminal:
            at = terminal.wait("Best for this machine: clock:F32")
            at = terminal.wait("download ", after=at)
            at = terminal.wait("[p] pull it", after=at)
            terminal.type("?")
            at = terminal.wait("one of p", after=at)
            at = terminal.wait("[q] quit", after=at)
            terminal.type("p")
            at = terminal.wait("fetched in", after=at)
            at = terminal.wait("\n> ", after=at)
            terminal.type("amber")
            terminal.wait("24 tokens", after=at)
        with Terminal(*arguments) as terminal:
            at = terminal.wait("[u] use it, it is here")
            at = terminal.wait("[u]", after=at)  # also what Enter chooses
            terminal.type("q")
            assert terminal.exit_code() == 0
