"""Looks to intervals: what is recorded adds up to what the counters moved."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specctl.events import Interval
from specctl.external.ledger import PATIENCE, Ledger
from specctl.external.readings import Reading, Sums
from specctl.external.remark import Remark
from specctl.metrics import fold


def sums(cycles, **changes) -> Sums:
    """What a server has counted after these (drafted, accepted) passes of one sequence."""
    drafted = [c for c in cycles if c[0]]
    most = max((k for k, _ in drafted), default=0)
    values = {
        "drafts": len(drafted),
        "drafted": sum(k for k, _ in drafted),
        "accepted": sum(a for _, a in drafted),
        "accepted_at": tuple(sum(a > i for _, a in drafted) for i in range(most)),
        "generated": sum(a + 1 for _, a in cycles),
    }
    return Sums(**{**values, **changes})


def intervals(ledger: Ledger, looks) -> list[Interval]:
    out = []
    for at, look in enumerate(looks):
        reading = look if isinstance(look, Reading) else Reading(look)
        out += [one for one in ledger.enter(reading, float(at)) if isinstance(one, Interval)]
    return out


def said(ledger: Ledger, look: Reading, at: float) -> list[str]:
    return [one.text for one in ledger.enter(look, at) if isinstance(one, Remark)]


passes = st.lists(
    st.integers(0, 6).flatmap(lambda k: st.tuples(st.just(k), st.integers(0, k))), max_size=40
)


@given(passes, st.lists(st.integers(0, 40), max_size=6), st.integers(0, 3))
def test_the_sum_of_intervals_is_what_the_counters_moved(cycles, cuts, first):
    ends = sorted({min(cut, len(cycles)) for cut in cuts} | {len(cycles)})
    start = cycles[:first]
    looks = [sums(start), *(sums(start + cycles[:end]) for end in ends)]
    t = fold(intervals(Ledger("s", 0.0), looks))
    moved = sums(cycles)
    assert (t.drafted_cycles, t.drafted, t.accepted) == (
        moved.drafts,
        moved.drafted,
        moved.accepted,
    )
    assert t.emitted == moved.generated
    assert t.cycles == len(cycles)
    assert t.accepted_at[: len(moved.accepted_at)] == moved.accepted_at


@given(passes, passes)
def test_a_restart_loses_nothing_that_is_seen(before, after):
    ledger = Ledger("s", 0.0)
    looks = [
        Reading(sums([]), began=1.0),
        Reading(sums(before), began=1.0),
        Reading(sums(after), began=2.0),
    ]
    t = fold(intervals(ledger, looks))
    whole = sums(before + after)
    assert (t.drafted, t.accepted, t.emitted) == (
        whole.drafted,
        whole.accepted,
        whole.generated,
    )


def test_a_restart_is_told_by_counters_that_all_fell():
    ledger = Ledger("s", 0.0)
    ledger.enter(Reading(sums([(4, 3)] * 10)), 0.0)
    out = ledger.enter(Reading(sums([(4, 2)] * 3)), 1.0)
    assert "restarted" in out[0].text
    assert (out[1].drafted, out[1].accepted) == (12, 6)


def test_one_counter_that_falls_alone_is_a_lie_and_left_out():
    ledger = Ledger("s", 0.0)
    ledger.enter(Reading(sums([(4, 3)] * 10)), 0.0)
    more = sums([(4, 3)] * 20, accepted=5, accepted_at=())
    out = ledger.enter(Reading(more), 1.0)
    assert [type(one) for one in out] == [Remark]
    assert "fell" in out[0].text
    after = sums([(4, 3)] * 22, accepted=5 + 6, accepted_at=())
    (kept,) = ledger.enter(Reading(after), 2.0)
    assert (kept.drafted, kept.accepted) == (8, 6)


def test_counters_that_lag_behind_each_other_are_waited_for():
    ledger = Ledger("s", 0.0)
    ledger.enter(Reading(sums([])), 0.0)
    whole = sums([(4, 3)] * 5)
    half = sums([(4, 3)] * 5, drafted=0, drafts=0)  # accepted came first
    assert ledger.enter(Reading(half), 1.0) == []
    (one,) = ledger.enter(Reading(whole), 2.0)
    assert (one.drafted, one.accepted, one.seconds) == (20, 15, 2.0)


def test_counters_that_never_fit_are_left_out_and_said():
    ledger = Ledger("s", 0.0)
    ledger.enter(Reading(Sums(generated=0)), 0.0)
    out = []
    for at in range(PATIENCE + 1):
        out += ledger.enter(Reading(Sums(1, 4, 9, generated=10 + at)), 1.0 + at)
    assert [type(one) for one in out] == [Remark]
    assert "9 accepted of 4 drafted" in out[0].text


@pytest.mark.parametrize(
    ("lie", "words"),
    [
        ({"drafts": 30}, "30 drafts with 20 tokens"),
        ({"drafts": 0, "accepted_at": ()}, "in no draft"),
        ({"accepted_at": (5, 6)}, "later position"),
        ({"accepted_at": (7,)}, "later position"),
    ],
)
def test_lies_are_named(lie, words):
    ledger = Ledger("s", 0.0)
    ledger.enter(Reading(sums([])), 0.0)
    texts = []
    for at in range(PATIENCE + 1):
        texts += said(ledger, Reading(sums([(4, 3)] * 5, **lie)), 1.0 + at)
    assert words in texts[0]


def test_an_idle_server_gives_nothing_and_its_pause_is_no_time_of_generation():
    ledger = Ledger("s", 0.0)
    idle, busy = Reading(sums([])), Reading(sums([(4, 3)]))
    assert intervals(ledger, [idle] * 50) == []
    (one,) = ledger.enter(busy, 50.0)
    assert one.seconds == 1.0
    assert one.clock == 50.0


def test_counters_that_move_at_a_requests_end_have_its_whole_time():
    ledger = Ledger("s", 0.0)
    running = Reading(sums([]), running=1)
    assert intervals(ledger, [Reading(sums([])), running, running, running]) == []
    (one,) = ledger.enter(Reading(sums([(4, 3)] * 5), running=0), 4.0)
    assert one.seconds == pytest.approx(4.0)


def test_the_servers_own_clock_goes_before_ours():
    ledger = Ledger("s", 0.0)
    ledger.enter(Reading(sums([], seconds=100.0)), 0.0)
    (one,) = ledger.enter(Reading(sums([(4, 3)], seconds=100.5)), 60.0)
    assert one.seconds == pytest.approx(0.5)


def test_a_baseline_judges():
    ledger = Ledger("s", 0.0, t_1=0.02)
    ledger.enter(Reading(sums([], seconds=0.0)), 0.0)
    # 10 drafted passes at 40 ms and 10 plain ones at 20 ms: 2 × t_1 a draft, so 1 is needed
    cycles = [(4, 3)] * 10 + [(0, 0)] * 10
    (one,) = ledger.enter(Reading(sums(cycles, seconds=0.6)), 1.0)
    t = fold([one])
    assert t.break_even == pytest.approx(1.0)
    assert t.standing == "above"


def test_drained_sums_are_differences_already():
    ledger = Ledger("trtllm", 0.0)
    before = Reading(Sums(2, 8, 5, generated=100, seconds=0.1), drained=True)
    looks = [
        Reading(Sums(1, 4, 1, generated=107, seconds=0.1), drained=True),
        Reading(Sums(), drained=True),
        Reading(Sums(1, 4, 2, generated=3, seconds=0.1), drained=True),  # it began anew
    ]
    # how many tokens were generated while the first list filled is not known: told, not summed
    (told,) = said(ledger, before, 0.0)
    assert "2 drafts from before this watch: 5 of 8" in told
    t = fold(intervals(ledger, looks))
    assert (t.drafted_cycles, t.drafted, t.accepted) == (2, 8, 3)
    assert (t.emitted, t.cycles) == (7 + 3, 7 + 3 - 3)


def test_a_drained_list_without_generated_tokens_counts_from_the_first():
    looks = [Reading(Sums(2, 8, 5), drained=True), Reading(Sums(1, 4, 1), drained=True)]
    t = fold(intervals(Ledger("trtllm", 0.0), looks))
    assert (t.drafted_cycles, t.drafted, t.accepted) == (3, 12, 6)
    assert not t.emitted_known


def test_without_generated_tokens_there_is_no_speed():
    (one,) = intervals(Ledger("s", 0.0), [Sums(), Sums(1, 4, 2)])
    assert one.emitted is None
    assert one.passes is None


def test_nominal_lengths_follow_the_gauge_of_the_moment():
    ledger = Ledger("sglang", 0.0)
    looks = [
        Reading(Sums(0, 0, 0, generated=0), nominal=4.0),
        Reading(Sums(10, 0, 20, generated=30), nominal=4.0),
        Reading(Sums(20, 0, 22, generated=42), nominal=1.0),
    ]
    first, second = intervals(ledger, looks)
    assert (first.drafted, second.drafted) == (40, 10)
