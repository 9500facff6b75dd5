"""The fold behind the screen, without a screen."""

from __future__ import annotations

import records as r

from specctl.metrics import fold
from specctl.tui.messages import Changed, Forgotten, Note, Ready, Recalled
from specctl.tui.state import HISTORY, Live, Span

READY = Ready("target.gguf", None, ("auto",), None, 48, 4096, 2, 0.7)


def live(*events: object) -> Live:
    out = Live()
    for event in events:
        out.apply(event)  # type: ignore[arg-type]
    return out


def test_a_turn_is_its_accepted_tokens_by_origin_the_targets_own_and_ghosts():
    state = live(
        READY,
        r.started("hi"),
        r.prompt(),
        r.cycle(0, ("The", " cat", " sat"), drafted=4, rejected=" on a"),
        r.cycle(1, (" down",)),
        r.finished(4, text="."),
    )
    assert state.turns[0].question == "hi"
    assert state.turns[0].spans == [
        Span("The cat", "ngram-suffix"),
        Span(" sat"),
        Span(" on a", "ngram-suffix", ghost=True),
        Span(" down."),
    ]
    assert state.turns[0].text == "The cat sat down."
    assert state.phase == "ready"


def test_thinking_is_apart_and_may_have_begun_in_the_prompt():
    state = live(
        READY,
        r.started(thinking=True),
        r.prompt(),
        r.cycle(0, ("so</think>",)),
        r.cycle(1, ("yes",)),
    )
    assert state.turns[0].thinking == "so"
    assert state.turns[0].text == "yes"


def test_the_numbers_are_those_of_metrics():
    cycles = [r.cycle(i, ("x",) * (i % 4 + 1), drafted=4 if i % 3 else i % 4) for i in range(60)]
    state = live(READY, r.started(), r.prompt(), *cycles)
    assert state.totals == fold(cycles)
    assert state.answer == fold(cycles)
    assert state.now(7) == fold(cycles[-7:])
    assert state.held == cycles[-1].n_past + 1 + len(cycles[-1].emitted)


def test_totals_go_on_and_the_answer_starts_over_with_each_turn():
    one, two = r.cycle(0, ("a", "b"), drafted=1), r.cycle(0, ("c",))
    state = live(READY, r.started(), one, r.finished(2), r.started(), two)
    assert state.totals == fold([one, two])
    assert state.answer == fold([two])


def test_history_is_bounded():
    state = live(READY, r.started(), *(r.cycle(i) for i in range(HISTORY + 50)))
    assert len(state.cycles) == HISTORY
    assert state.answer.cycles == HISTORY + 50


def test_long_text_of_one_kind_is_kept_in_pieces_that_stay_small():
    state = live(READY, r.started(), *(r.cycle(i, ("word ",)) for i in range(4000)))
    assert state.turns[0].text == "word " * 4000
    assert max(len(span.text) for span in state.turns[0].spans) < 600


def test_the_log_tells_changes_of_the_decision_not_every_cycle():
    state = live(
        READY,
        r.started(),
        *(r.cycle(i, reason="off: nothing to propose") for i in range(5)),
        r.cycle(5, ("a", "b"), drafted=3, reason="match 4"),
        *(r.cycle(i, reason="off: nothing to propose") for i in range(6, 9)),
    )
    told = [(line.cycle, line.text) for line in state.log]
    assert told == [
        (0, "off: nothing to propose"),
        (5, "match 4"),
        (6, "off: nothing to propose"),
    ]


def test_a_warning_leaves_the_answer_running_and_an_error_ends_it():
    state = live(READY, r.started(), r.cycle(0), Note("no such drafter", "warning"))
    assert state.phase == "writing"
    state.apply(Note("the engine failed", "error"))
    assert state.phase == "ready"
    assert state.turns[0].error == "the engine failed"
    assert state.turns[0].done


def test_an_error_between_answers_spoils_none_of_them():
    state = live(READY, r.started(), r.cycle(0), r.finished(1), Note("no such file", "error"))
    assert state.turns[0].error == ""
    assert state.log[-1].text == "no such file"


def test_an_error_before_the_model_is_open_is_the_end():
    assert live(Note("no such model", "error")).phase == "failed"


def test_what_is_in_force_follows_changes():
    state = live(READY, Changed(("none",), 4, 0, 0.2))
    assert (state.spec_types, state.k, state.k_max, state.temperature) == (("none",), 4, 0, 0.2)


def test_a_recording_needs_no_ready():
    state = live(r.started(notes=("on the CPU",)), r.prompt(), r.cycle(0))
    assert state.ready is not None
    assert state.ready.model == "target.gguf"
    assert state.log[0].text == "on the CPU"


def test_a_new_and_a_recalled_conversation():
    state = live(READY, r.started(), r.cycle(0), r.finished(1), Forgotten())
    assert state.turns == []
    state.apply(Recalled((("q", "a <think>t</think>b"),)))
    assert [(turn.question, turn.text, turn.done) for turn in state.turns] == [("q", "a b", True)]
