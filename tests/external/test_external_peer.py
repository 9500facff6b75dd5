"""Answers on our own clock, from servers of every kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from answering import PROMPT_TOKENS, SWITCH, Answering

from specctl import metrics
from specctl.errors import RemoteError, UsageError
from specctl.events import Cycle, Interval, PromptDone
from specctl.external.errors import GoneError, JunkError, NotAnEngineError
from specctl.external.peer import Peer
from specctl.external.timed import Timed, body

CHAT = [{"role": "user", "content": "say words"}]


@pytest.fixture
def peer() -> Iterator[Callable[..., tuple[Answering, Peer]]]:
    opened: list[Any] = []

    def make(kind: str, model: str | None = None, **changes: Any) -> tuple[Answering, Peer]:
        engine = Answering(kind, **changes)
        opened.append(engine)
        engine.__enter__()
        opened.append(Peer(engine.url, None, model))
        return engine, opened[-1]

    yield make
    for one in reversed(opened):
        one.__exit__(None, None, None)


def one(peer: Peer, tokens: int = 12, ignore_eos: bool = True) -> Timed:
    (answer,) = peer.ask([CHAT], tokens, ignore_eos)
    return answer


def totals(answer: Timed) -> metrics.Totals:
    return metrics.fold(answer.records)


@pytest.mark.parametrize("kind", ["llama-server", "vllm", "sglang", "trtllm", "specctl", "openai"])
def test_tokens_text_and_time_of_every_kind(peer: Callable[..., Any], kind: str) -> None:
    engine, found = peer(kind)
    answer = one(found)
    assert answer.text == "".join(f"w{n} " for n in range(1, 13))
    assert (answer.tokens, answer.first_tokens, answer.finish) == (12, 1, "length")
    assert answer.prompt_tokens == PROMPT_TOKENS
    assert engine.pace < answer.first < answer.last
    # four passes after the first token, whatever it streams
    assert answer.last - answer.first >= 4 * engine.pace
    assert found.engine == (None if kind == "openai" else kind)


def test_llama_server_shows_its_cycles(peer: Callable[..., Any]) -> None:
    _, found = peer("llama-server")
    answer = one(found)
    assert isinstance(answer.records[0], PromptDone)
    cycles = [record for record in answer.records if isinstance(record, Cycle)]
    assert [(len(c.drafted), c.accepted, len(c.emitted)) for c in cycles] == [
        *[(0, 0, 1), (3, 2, 3), (3, 2, 3), (3, 2, 3), (3, 1, 2)],
    ]


@pytest.mark.parametrize("kind", ["vllm", "trtllm", "specctl"])
def test_the_others_count(peer: Callable[..., Any], kind: str) -> None:
    _, found = peer(kind)
    answer = one(found)
    assert all(isinstance(record, Interval) for record in answer.records)
    sums = totals(answer)
    assert (sums.drafted_cycles, sums.drafted, sums.accepted) == (4, 12, 7)
    assert sums.acceptance_rate == pytest.approx(7 / 12)
    again = totals(one(found))  # each answer its own
    assert (again.drafted_cycles, again.drafted, again.accepted) == (4, 12, 7)


@pytest.mark.parametrize("kind", ["llama-server", "vllm", "openai"])
def test_an_answer_that_was_held_back_has_no_rate(peer: Callable[..., Any], kind: str) -> None:
    _, found = peer(kind, trouble="held")
    answer = one(found, 32)
    assert (answer.tokens, answer.first_tokens) == (32, 32)  # none of them is timed
    assert any("came in one piece" in note for note in answer.notes)
    for other in found.ask([CHAT] * 2, 32, True):  # of a wave only the whole time counts
        assert other.first_tokens == 1


def test_counters_that_fail_leave_the_answer(peer: Callable[..., Any]) -> None:
    engine, found = peer("vllm", trouble="deaf")
    answer = one(found)
    assert (answer.tokens, answer.records) == (12, ())
    assert "its counters could not be read after an answer" in answer.notes
    engine.trouble = ""
    assert "its counters could not be read before an answer" in one(found).notes
    engine.fault = ""
    assert totals(one(found)).drafted == 12
    engine.close()
    with pytest.raises(GoneError):
        one(found)


def test_an_engine_that_tells_nothing(peer: Callable[..., Any]) -> None:
    _, found = peer("openai", trouble="mute")
    answer = one(found)
    assert answer.records == ()
    assert answer.tokens == 12  # chunks
    assert any("chunks of text" in note for note in answer.notes)
    assert any("taken for one" in note for note in answer.notes)


def test_others_at_the_same_server_are_noticed(peer: Callable[..., Any]) -> None:
    engine, found = peer("vllm")
    plain = engine._events

    def busy(asked: dict[str, Any]) -> Iterator[str]:
        engine.cycle(3, 2)
        return plain(asked)

    engine._events = busy
    assert any("others ask it" in note for note in one(found).notes)


def test_several_at_once_are_really_at_once(peer: Callable[..., Any]) -> None:
    engine, found = peer("llama-server", pace=0.02)
    answers = found.ask([CHAT] * 4, 6, True)
    assert engine.most_at_once == 4
    assert [answer.tokens for answer in answers] == [6] * 4
    assert max(a.sent for a in answers) - min(a.sent for a in answers) < 0.02


# ---------------------------------------------------------------- what is sent


def test_what_an_engine_knows_is_sent_and_nothing_else() -> None:
    def sent(kind: Any, ignore: bool = True) -> dict[str, Any]:
        return body(kind, "m", CHAT, 5, ignore)

    assert sent("llama-server")["cache_prompt"] is False
    assert sent("llama-server")["ignore_eos"] is True
    assert "ignore_eos" not in sent("llama-server", ignore=False)
    assert sent("vllm")["ignore_eos"] is True
    assert "cache_prompt" not in sent("vllm")
    for strict in ("specctl", None):
        assert "ignore_eos" not in sent(strict)
    assert set(sent(None)) == {
        *("model", "messages", "max_tokens", "temperature", "stream", "stream_options"),
    }
    assert sent(None)["temperature"] == 0


def test_a_switch_that_works_makes_one_server_both_arms(peer: Callable[..., Any]) -> None:
    engine, found = peer("llama-server", switch=True)
    off = found.switched_off()
    assert off is not None
    assert totals(one(off)).drafted == 0
    assert engine.asked[-1][SWITCH] == 0
    assert totals(one(found)).drafted > 0
    off.close()


def test_a_switch_that_does_nothing_is_found_out(peer: Callable[..., Any]) -> None:
    _, found = peer("llama-server")  # as llama.cpp since it no longer reads it
    assert found.switched_off() is None
    _, other = peer("vllm", switch=True)
    assert other.switched_off() is None


# ---------------------------------------------------------------- trouble


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        ({"trouble": "status", "status": 429}, "answers 429"),
        ({"trouble": "status", "status": 500}, "answers 500"),
        ({"trouble": "cut"}, "ended in the middle"),
        ({"trouble": "error"}, "out of memory"),
        ({"trouble": "endless"}, "ignores max_tokens"),
        ({"trouble": "longer"}, "it wrote 13 tokens where 12 were asked for"),
        ({"trouble": "page"}, "ended in the middle"),
    ],
)
def test_an_answer_that_is_none(
    peer: Callable[..., Any], trouble: dict[str, Any], words: str
) -> None:
    _, found = peer("llama-server", pace=0.0, **trouble)
    with pytest.raises(JunkError, match=words):
        one(found)
    with pytest.raises(RemoteError):
        found.ask([CHAT] * 3, 12, True)


def test_a_server_that_is_gone(peer: Callable[..., Any]) -> None:
    engine, found = peer("vllm")
    engine.close()
    with pytest.raises(GoneError, match="cannot be reached"):
        one(found)
    with pytest.raises(GoneError):
        Peer(engine.url)


def test_a_model_it_does_not_serve_names_those_it_does(peer: Callable[..., Any]) -> None:
    _, found = peer("vllm", model="tiny-model")
    assert found.model == "tiny-model"
    with pytest.raises(UsageError, match="serves no model 'other'") as caught:
        peer("vllm", model="other")
    assert "tiny-model" in (caught.value.hint or "")


def test_a_models_name_cannot_steer_the_terminal(
    peer: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "a\x1b]0;PWNED\x07\x1b[31m" + "b" * 300
    monkeypatch.setattr("answering.MODEL", name)
    engine, found = peer("openai")
    assert found.shown_model.isprintable()
    assert len(found.shown_model) == 200
    one(found)
    assert engine.asked[-1]["model"] == name  # the server's own, letter by letter
    with pytest.raises(UsageError) as caught:
        peer("openai", model="other")
    assert (caught.value.hint or "").isprintable()


def test_a_stranger_is_no_engine(peer: Callable[..., Any]) -> None:
    with Answering("openai") as engine:
        engine.fault = "page"
        with pytest.raises(NotAnEngineError):
            Peer(engine.url)
