"""/save and /load: the same prompt comes back, and no other file is harmed."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from specctl.errors import SpecctlError, UsageError
from specctl.settings import EngineSettings, Sampling, SpecSettings

pytestmark = pytest.mark.native

SETTINGS = EngineSettings(n_ctx=512, threads=1)


@pytest.fixture
def talk(tiny_models: Mapping[str, Path]) -> Any:
    """`with talk("clock") as dialogue: …`: a dialogue with a tiny model."""
    import contextlib

    from specctl.engine.dialogue import Dialogue, Manner
    from specctl.engine.session import open_session

    @contextlib.contextmanager
    def opened(name: str = "clock", system: str | None = None, temperature: float = 0.0) -> Any:
        manner = Manner(Sampling(temperature=temperature), max_tokens=8)
        with open_session(tiny_models[name], None, (SpecSettings(),), SETTINGS) as session:
            yield Dialogue(session, manner, system)

    return opened


def say(dialogue: Any, message: str) -> tuple[tuple[int, ...], str]:
    """The prompt's tokens and the answer."""
    question = dialogue.ask(message)
    list(dialogue.answer(question))
    return question.prompt.tokens, dialogue.conversation.pairs[-1][1]


def test_a_loaded_conversation_goes_on_as_if_it_had_not_stopped(talk: Any, tmp_path: Path) -> None:
    from specctl.engine.transcript import load, restore, save

    file = tmp_path / "chat.json"
    with talk(system="be brief") as dialogue:
        say(dialogue, "amber “é” 🦊")
        say(dialogue, "apple")
        save(dialogue, file)
        pairs = dialogue.conversation.pairs
        tokens, answer = say(dialogue, "anchor")
    with talk() as dialogue:
        alone, _ = say(dialogue, "anchor")
        notes = restore(dialogue, load(file))
        assert dialogue.conversation.pairs == pairs
        assert dialogue.conversation.system == "be brief"
        assert say(dialogue, "anchor") == (tokens, answer)
        assert alone != tokens
    assert notes == ("2 turns and the system message loaded",)
    data = json.loads(file.read_text(encoding="utf-8"))
    assert data["model"].endswith(".gguf")
    assert data["settings"]["sampling"]["temperature"] == 0.0
    assert str(tmp_path) not in file.read_text(encoding="utf-8")


def test_another_model_reads_it_with_a_note(talk: Any, tmp_path: Path) -> None:
    from specctl.engine.transcript import load, restore, save

    file = tmp_path / "chat.json"
    with talk(temperature=0.5) as dialogue:
        say(dialogue, "amber")
        save(dialogue, file)
        first = dialogue.session.model.path.name
    with talk("slow", system="other") as dialogue:
        notes = restore(dialogue, load(file))
        say(dialogue, "apple")
        assert dialogue.conversation.turns == 2
        assert dialogue.conversation.system is None
        restore(dialogue, load(file))
        with pytest.raises(UsageError, match="no answer yet"):
            dialogue.again()
    assert notes[0] == "1 turn loaded"
    assert any("system message from before is gone" in note for note in notes)
    assert any(first in note and "reads them as its own" in note for note in notes)
    assert any("temperature was 0.5, is 0 (/temp 0.5)" in note for note in notes)


def test_nothing_else_is_overwritten(talk: Any, tmp_path: Path) -> None:
    from specctl.engine.transcript import load, save

    with talk() as dialogue:
        with pytest.raises(UsageError, match="no conversation to save"):
            save(dialogue, tmp_path / "empty.json")
        say(dialogue, "amber")
        for name, text in (
            ("notes.txt", "my notes"),
            ("empty", ""),
            ("result.json", '{"schema": "specctl-bench/1"}'),
            ("list.json", "[]"),
            ("bytes.bin", "\x00"),
        ):
            file = tmp_path / name
            file.write_text(text)
            with pytest.raises(UsageError, match="no saved conversation"):
                save(dialogue, file)
            assert file.read_text() == text
        with pytest.raises(UsageError, match="a folder"):
            save(dialogue, tmp_path)
        with pytest.raises(UsageError, match="no folder"):
            save(dialogue, tmp_path / "no" / "chat.json")
        file = tmp_path / "chat.json"
        save(dialogue, file)
        say(dialogue, "apple")
        save(dialogue, file)  # its own kind
        assert len(load(file).turns) == 2
        newer = json.loads(file.read_text()) | {"schema": "specctl-chat/2"}
        file.write_text(json.dumps(newer))
        save(dialogue, file)
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is not a saved conversation"),
        ("{", "is not a saved conversation"),
        ("[" * 100_000, "is not a saved conversation"),
        ("\udcff", "is not a saved conversation"),
        ("[]", "is not a saved conversation"),
        ('{"schema": "specctl-bench/1"}', "is not a saved conversation"),
        ('{"schema": "specctl-chat/7"}', "specctl-chat/7"),
        ('{"schema": "specctl-chat/1"}', "no list of turns"),
    ],
)
def test_other_files_are_told(tmp_path: Path, text: str, said: str) -> None:
    from specctl.engine.transcript import load

    file = tmp_path / "other.json"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(UsageError) as told:
        load(file)
    assert said in told.value.message
    assert "other.json" in told.value.message
    with pytest.raises(UsageError, match="cannot read"):
        load(tmp_path / "none.json")


GOOD = {
    "schema": "specctl-chat/1",
    "model": "m.gguf",
    "system": None,
    "settings": {"sampling": {"temperature": 0.5}},
    "turns": [{"user": "a", "assistant": "b"}, {"user": "c", "assistant": "d"}],
}


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (("turns",), {}, "no list of turns"),
        (("turns", 1), "x", "turn 2 is damaged: 'x' is not a turn"),
        (("turns", 1, "user"), 3, "turn 2, user is damaged: 3 is not a text"),
        (("turns", 0, "assistant"), None, "turn 1, assistant is damaged"),
        (("turns", 0, "user"), "\ud800", "turn 1, user is damaged: no whole characters"),
        (("system",), ["x"], "system is damaged"),
        (("model",), None, "model is damaged"),
    ],
)
def test_damage_is_told_by_its_place(place: tuple[Any, ...], value: Any, said: str) -> None:
    from specctl.engine.transcript import from_dict

    assert from_dict(GOOD).turns == (("a", "b"), ("c", "d"))
    assert from_dict(GOOD).temperature == 0.5
    assert from_dict({**GOOD, "settings": []}).temperature is None
    broken: Any = copy.deepcopy(GOOD)
    *way, last = place
    inner = broken
    for key in way:
        inner = inner[key]
    inner[last] = value
    with pytest.raises(SpecctlError) as told:
        from_dict(broken, "chat.json")
    assert said in told.value.message
    assert told.value.message.startswith("chat.json")
