"""Looks at a server that counts as the engines do, and misbehaves as servers do."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fake_engine import FakeEngine

from specctl.events import Interval
from specctl.external.errors import JunkError
from specctl.external.poll import Plan, open_server, watch
from specctl.external.remark import Remark
from specctl.metrics import fold


def looks(engine: FakeEngine, *steps: Callable[[], object]) -> Callable[[float], bool]:
    """A wait that does one step before each look, and ends after the last."""
    left = list(steps)

    def wait(seconds: float) -> bool:
        if not left:
            return True
        left.pop(0)()
        return False

    return wait


@pytest.mark.parametrize("kind", ["llama-server", "vllm", "trtllm"])
def test_records_add_up_to_the_counters(line, kind):
    with FakeEngine(kind) as engine:
        for _ in range(5):
            engine.cycle(4, 2)  # before anybody watches
        first = engine.counts.accepted, engine.counts.drafted
        connection = line(engine)
        seen, before = open_server(connection, probing=False)

        def work() -> None:
            for accepted in (4, 0, 3):
                engine.cycle(4, accepted)
            engine.cycle(0, 0)

        wait = looks(engine, *[work] * 4, lambda: None)
        out = list(watch(connection, seen, Plan(), wait, first=before))
    t = fold(one for one in out if isinstance(one, Interval))
    assert (t.accepted, t.drafted) == (
        engine.counts.accepted - first[0],
        engine.counts.drafted - first[1],
    )
    assert t.drafted_cycles == 12
    if kind == "trtllm":
        assert t.draft_share == pytest.approx(0.25)
    else:
        assert t.cycles == 16
        assert t.tokens_per_second == pytest.approx(t.emitted / (16 * 0.02))


def test_sglang_watched(line):
    with FakeEngine("sglang") as engine:
        connection = line(engine)
        seen, _ = open_server(connection, probing=False)

        def request() -> None:
            engine.cycle(0, 0)
            for accepted in (4, 1, 0):
                engine.cycle(4, accepted)
            engine.counts.requests += 1

        out = list(watch(connection, seen, Plan(), looks(engine, request, request)))
    t = fold(one for one in out if isinstance(one, Interval))
    assert (t.drafted_cycles, t.drafted, t.accepted, t.emitted) == (6, 24, 10, 18)
    assert not t.exact
    assert any("derived" in one.text for one in out if isinstance(one, Remark))


def test_a_server_that_goes_away_and_comes_back(line):
    with FakeEngine("llama-server") as engine:
        connection = line(engine)
        seen, _ = open_server(connection, probing=False)

        def back() -> None:
            engine.restart()
            engine.open()
            engine.cycle(4, 4)

        wait = looks(
            engine, lambda: [engine.cycle(4, 2) for _ in range(3)], engine.close, lambda: None, back
        )
        out = list(watch(connection, seen, Plan(), wait))
    t = fold(one for one in out if isinstance(one, Interval))
    assert (t.drafted, t.accepted) == (16, 10)
    words = [one.text for one in out if isinstance(one, Remark)]
    assert sum("waiting for it" in text for text in words) == 1  # said once, not at each look
    assert any("answers again" in text for text in words)


def test_trouble_in_between_is_waited_out(line):
    with FakeEngine("vllm") as engine:
        connection = line(engine)
        seen, _ = open_server(connection, probing=False)

        def fault(name: str) -> Callable[[], None]:
            return lambda: setattr(engine, "fault", name)

        def mended() -> None:
            engine.fault = ""
            engine.cycle(4, 3)

        wait = looks(engine, fault("junk"), fault("error"), mended)
        out = list(watch(connection, seen, Plan(), wait))
    assert fold(one for one in out if isinstance(one, Interval)).accepted == 3


@pytest.mark.parametrize("generated", [True, False], ids=["with generated", "without"])
def test_what_the_first_look_takes_from_trtllm_is_not_lost(line, generated):
    with FakeEngine("trtllm") as engine:
        if not generated:
            engine._prometheus_metrics = lambda: (404, "text/plain", b"")  # type: ignore[method-assign]
        for accepted in (4, 1):
            engine.cycle(4, accepted)
        connection = line(engine)
        seen, first = open_server(connection, probing=False)
        assert (first.sums.drafts, first.sums.accepted) == (2, 5)
        engine.cycle(4, 3)  # between the two: a further read at the start would take it as well
        wait = looks(engine, lambda: engine.cycle(4, 2))
        out = list(watch(connection, seen, Plan(), wait, first=first))
    t = fold(one for one in out if isinstance(one, Interval))
    words = [one.text for one in out if isinstance(one, Remark)]
    if generated:
        assert (t.drafted_cycles, t.accepted, t.emitted) == (2, 5, 7)
        assert any("2 drafts from before this watch: 5 of 8" in text for text in words)
    else:
        assert (t.drafted_cycles, t.accepted) == (4, 10)
    assert not any("missing" in text for text in words)


def test_iterations_lost_right_after_the_first_look_are_noticed(line):
    with FakeEngine("trtllm") as engine:
        engine.cycle(4, 4)
        connection = line(engine)
        seen, first = open_server(connection, probing=False)

        def others() -> None:
            engine.cycle(4, 1)
            engine.iterations.clear()  # somebody else reads
            engine.cycle(4, 2)

        out = list(watch(connection, seen, Plan(), looks(engine, others), first=first))
    assert any("1 iteration is missing" in one.text for one in out if isinstance(one, Remark))


def test_the_first_look_must_succeed(line):
    with FakeEngine("vllm") as engine:
        connection = line(engine)
        seen, _ = open_server(connection, probing=False)
        engine.fault = "junk"
        with pytest.raises(JunkError):
            next(watch(connection, seen, Plan(), lambda _: True))


def test_a_specctl_server_without_cycles_is_counted(line):
    with FakeEngine("specctl") as engine:
        connection = line(engine)
        seen, _ = open_server(connection, probing=False)

        def work() -> None:
            engine.cycle(4, 3)
            engine.cycle(4, 4)
            engine.counts.generated -= 2  # it ended inside the draft

        out = list(watch(connection, seen, Plan(), looks(engine, work)))
    (one,) = (one for one in out if isinstance(one, Interval))
    assert (one.accepted, one.emitted) == (7, 7)
    assert one.passes == 2  # it counts them: nothing is derived
