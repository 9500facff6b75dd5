"""The engine behind the screen, with a real tiny model and no screen."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from specctl import recording
from specctl.cli.desk import EngineDesk
from specctl.engine.dialogue import Dialogue, Manner
from specctl.engine.session import open_session
from specctl.errors import ModelError, UsageError
from specctl.events import Cycle, Finished, PromptDone, Started
from specctl.settings import EngineSettings, Sampling, SpecSettings
from specctl.tui.desk import Again, Ask, Change, Command, Job, Open
from specctl.tui.messages import Changed, Event, Forgotten, Note, Ready

pytestmark = pytest.mark.native

GREEDY = Sampling(temperature=0)


@pytest.fixture
def desk(tiny_models: Mapping[str, Path]) -> Iterator[EngineDesk]:
    """A desk on the clock pair, drafting with the small model; opened."""

    def opener(stack: contextlib.ExitStack) -> Dialogue:
        spec = SpecSettings(types=("draft-simple",))
        settings = EngineSettings(n_ctx=512, threads=1)
        session = stack.enter_context(
            open_session(tiny_models["clock"], tiny_models["clock-draft"], (spec,), settings)
        )
        return Dialogue(session, Manner(GREEDY, 40))

    desk = EngineDesk(opener)
    yield desk
    desk.close()


def done(desk: EngineDesk, job: Job) -> list[Event]:
    return list(desk.do(job))


def text(events: list[Event]) -> str:
    return "".join(e.text for e in events if isinstance(e, Cycle | Finished))


def notes(events: list[Event]) -> list[str]:
    return [e.text for e in events if isinstance(e, Note)]


def test_opening_says_what_is_open(desk):
    ready = done(desk, Open())[0]
    assert isinstance(ready, Ready)
    assert ready.model == "clock.gguf"
    assert ready.draft_model == "clock-draft.gguf"
    assert (ready.spec_types, ready.k, ready.k_max) == (("draft-simple",), None, 3)
    names = [choice.spec_types for choice in desk.choices()]
    assert names[0] == ("draft-simple",)
    assert ("auto",) in names
    assert names[-1] == ("none",)


def test_a_model_that_does_not_open_is_kept_for_the_command_to_report():
    def opener(_stack: contextlib.ExitStack) -> Dialogue:
        raise ModelError("no such file")

    desk = EngineDesk(opener)
    with pytest.raises(ModelError):
        done(desk, Open())
    assert isinstance(desk.failure, ModelError)
    with pytest.raises(UsageError, match="not open"):
        done(desk, Ask("amber"))


def test_an_answer_is_its_records_with_the_question_in_the_first(desk):
    done(desk, Open())
    events = done(desk, Ask("amber"))
    started = events[0]
    assert isinstance(started, Started)
    assert started.message == "amber"
    assert isinstance(events[-1], Finished)
    assert any(e.rejected for e in events if isinstance(e, Cycle))


def test_a_change_in_the_middle_holds_from_the_next_cycle_and_leaves_the_text(desk):
    done(desk, Open())
    whole = text(done(desk, Ask("amber")))
    done(desk, Command("/reset"))
    events: list[Event] = []
    for event in desk.do(Ask("amber")):
        events.append(event)
        if isinstance(event, Cycle) and event.index == 5:
            desk.change(Change(spec_types=("none",)))
    at = next(i for i, e in enumerate(events) if isinstance(e, Changed))
    before, after = events[:at], events[at + 1 :]
    assert sum(bool(e.drafted) for e in before if isinstance(e, Cycle)) >= 2
    assert not any(e.drafted for e in after if isinstance(e, Cycle))
    assert text(events) == whole


def test_a_change_that_cannot_be_is_a_warning_and_the_answer_goes_on(desk):
    done(desk, Open())
    events: list[Event] = []
    for event in desk.do(Ask("amber")):
        events.append(event)
        if isinstance(event, Cycle) and event.index == 1:
            desk.change(Change(spec_types=("no-such-thing",)))
    warned = [e for e in events if isinstance(e, Note)]
    assert [note.kind for note in warned] == ["warning"]
    assert "no-such-thing" in warned[0].text
    finished = events[-1]
    assert isinstance(finished, Finished)
    assert finished.emitted_tokens == 40


def test_k_and_temperature_change_where_nothing_runs(desk):
    done(desk, Open())
    desk.change(Change(k=2))
    desk.change(Change(temperature=0.5))
    changed = [e for e in done(desk, Change()) if isinstance(e, Changed)]
    assert (changed[-1].k, changed[-1].k_max, changed[-1].temperature) == (2, 2, 0.5)
    desk.change(Change(k=0))
    changed = [e for e in done(desk, Change()) if isinstance(e, Changed)]
    assert (changed[-1].k, changed[-1].k_max) == (None, 3)


def test_stopping_keeps_the_text_and_the_turn(desk):
    done(desk, Open())
    events: list[Event] = []
    for event in desk.do(Ask("amber")):
        events.append(event)
        if isinstance(event, Cycle) and event.index == 3:
            desk.stop()
    finished = events[-1]
    assert isinstance(finished, Finished)
    assert finished.reason == "cancelled"
    assert 4 <= finished.emitted_tokens < 40
    assert text(done(desk, Ask("bread")))


def test_again_takes_the_answer_back(desk):
    done(desk, Open())
    first = done(desk, Ask("amber"))
    again = done(desk, Again())
    assert [e.message for e in (*first, *again) if isinstance(e, Started)] == ["amber", "amber"]
    assert text(again) == text(first)  # greedy: the same prompt gives the same text
    seeds = [e.seed for e in (*first, *again) if isinstance(e, Started)]
    assert seeds[0] != seeds[1]


def test_again_with_nothing_asked(desk):
    done(desk, Open())
    with pytest.raises(UsageError, match="no answer yet"):
        done(desk, Again())


def test_commands_answer_in_notes_and_reset_empties_the_screen(desk):
    done(desk, Open())
    done(desk, Ask("amber"))
    assert any("drafted" in line for line in notes(done(desk, Command("/stats"))))
    assert any(isinstance(e, Forgotten) for e in done(desk, Command("/reset")))
    with pytest.raises(UsageError, match="/nonsense"):
        done(desk, Command("/nonsense"))


def test_recording_begins_and_ends_in_the_middle(desk):
    done(desk, Open())
    done(desk, Ask("amber"))
    path = desk.record()
    assert path is not None
    events = done(desk, Ask("bread"))
    assert desk.record() is None
    done(desk, Ask("cedar"))
    assert list(recording.read(path)) == [e for e in events if not isinstance(e, Note | Changed)]
    assert json.loads(path.read_text().splitlines()[0])["message"] == "bread"


def test_a_recording_that_starts_inside_an_answer_begins_with_its_question(desk):
    done(desk, Open())
    done(desk, Ask("amber"))
    paths: list[Path | None] = []
    for event in desk.do(Ask("bread")):
        if isinstance(event, Cycle) and event.index in (3, 5, 7):
            paths.append(desk.record())  # on, off, on again in a file of the same second
    first, stopped, second = paths
    assert first is not None
    assert stopped is None
    assert second is not None
    started, prompt, cycle, *_ = recording.read(first)
    assert isinstance(started, Started)
    assert isinstance(prompt, PromptDone)
    assert started.message == "bread"
    assert recording.IN_THE_MIDDLE in started.notes
    assert isinstance(cycle, Cycle)
    assert cycle.index == 3
    assert recording.head(first) == started
    assert desk.record() is None
    assert isinstance(list(recording.read(second))[-1], Finished)
