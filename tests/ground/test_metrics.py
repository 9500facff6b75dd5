"""Each number against values worked out by hand."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specctl.events import Cycle, Decision, Finished, Interval, PromptDone
from specctl.metrics import Totals, add, fold


def cycle(k, accepted, emitted=None, t_d=0.01, t_v=0.03, t_o=0.01, t_1=0.02):
    """A cycle of 50 ms against plain steps of 20 ms; it emits A + 1 tokens unless told."""
    emitted = accepted + 1 if emitted is None else emitted
    return Cycle(
        index=0,
        asked=("ngram-simple",),
        source="ngram-simple" if k else None,
        limit=8,
        drafted=tuple(range(k)),
        accepted=accepted,
        emitted=tuple(range(emitted)),
        text="",
        t_d=t_d,
        t_v=t_v,
        t_o=t_o,
        t_native=0.9 * (t_d + t_v),
        t_1=t_1,
        n_past=10,
        clock=0.0,
        decision=Decision("draft" if k else "plain", "by hand"),
    )


def plain(t_1=0.02):
    return cycle(0, 0, t_d=0.0, t_v=0.02, t_o=0.0, t_1=t_1)


# K A E: a full accept (4 4 5), a rejection at once (3 0 1), two plain cycles, and a stop string
# that leaves one token of three accepted ones (5 3 1)
HAND = [cycle(4, 4), cycle(3, 0), plain(), plain(), cycle(5, 3, emitted=1)]


def interval(**changes):
    values = {
        "seconds": 2.0,
        "passes": 10,
        "drafted_passes": 4,
        "drafted": 12,
        "accepted": 6,
        "emitted": 16,
        "accepted_at": (4, 2),
        "drafted_at": (4, 4, 4),
        "exact": True,
        "source": "server",
        "clock": 2.0,
    }
    return Interval(**{**values, **changes})


def test_counts_by_hand():
    t = fold(HAND)
    assert (t.cycles, t.drafted_cycles) == (5, 3)
    assert (t.drafted, t.accepted, t.emitted) == (12, 7, 9)
    assert t.acceptance_rate == 7 / 12  # ΣA / ΣK, not the mean of 1, 0 and 0.6
    assert t.mean_draft_length == 4
    assert t.accepted_per_cycle == 7 / 3
    assert t.tokens_per_pass == 9 / 5  # what reached the answer, plain passes included
    assert t.mean_acceptance_length == 1 + 7 / 3  # drafted cycles only
    assert t.coverage == 3 / 5


def test_acceptance_by_position_divides_by_those_who_drafted_that_far():
    # drafted at 1…5: 3 3 3 2 1; accepted at 1…5: 2 2 2 1 0
    assert fold(HAND).acceptance_by_position == (2 / 3, 2 / 3, 2 / 3, 1 / 2, 0.0)


def test_times_by_hand():
    t = fold(HAND)
    assert t.t_c == pytest.approx(3 * 0.05 + 2 * 0.02)
    assert t.seconds == t.t_c
    assert t.break_even == pytest.approx(3 * 0.05 / (3 * 0.02) - 1)  # 1.5 accepted per cycle
    assert t.net_gain == pytest.approx(9 * 0.02 - 0.19)
    assert t.estimated_speedup == pytest.approx((9 / 5) * 0.02 / (0.19 / 5))
    assert t.tokens_per_second == pytest.approx(9 / 0.19)
    assert t.draft_share == pytest.approx(0.03 / 0.19)
    assert t.verify_share == pytest.approx((3 * 0.03 + 2 * 0.02) / 0.19)


def test_a_stop_inside_a_cycle_does_not_lower_acceptance():
    """A is counted before the text is cut, E after."""
    cut, whole = fold([cycle(5, 3, emitted=1)]), fold([cycle(5, 3)])
    assert cut.acceptance_rate == whole.acceptance_rate == 3 / 5
    assert (cut.tokens_per_pass, whole.tokens_per_pass) == (1, 4)


def test_nothing_known_yet_is_none_never_zero():
    t = fold([PromptDone(5, 0, 1.0), Finished("length", 5, 0, 1.0)])
    assert t == Totals()
    names = (
        "acceptance_rate mean_draft_length accepted_per_cycle tokens_per_pass break_even standing "
        "mean_acceptance_length coverage estimated_speedup draft_share verify_share "
        "tokens_per_second"
    )
    for name in names.split():
        assert getattr(t, name) is None, name
    assert t.acceptance_by_position == ()


def test_plain_decoding_alone():
    t = fold([plain()] * 4)
    assert (t.tokens_per_pass, t.coverage) == (1.0, 0.0)
    assert t.acceptance_rate is t.break_even is t.standing is t.mean_acceptance_length is None
    assert t.estimated_speedup == pytest.approx(1.0)


def test_cycles_before_t_1_is_known_are_not_judged():
    t = fold([cycle(4, 0, t_1=None), cycle(4, 4, t_1=0.02), plain(t_1=None)])
    assert t.acceptance_rate == 4 / 8
    assert t.break_even == pytest.approx(1.5)
    assert t.standing == "above"  # the unjudged rejection is not held against it
    assert t.net_gain == pytest.approx(5 * 0.02 - 0.05)
    assert t.estimated_speedup == pytest.approx(5 * 0.02 / 0.05)
    unknown = fold([cycle(4, 2, t_1=None)])
    assert unknown.break_even is unknown.standing is unknown.estimated_speedup is None


@pytest.mark.parametrize(
    ("accepted", "standing"),
    # needed 1.5 per cycle, the band is 5 % of 2.5
    [([1, 1], "below"), ([1, 2], "at"), ([2, 2], "above"), ([1, 2, 2, 2, 1], "at"), ([3, 0], "at")],
)
def test_standing(accepted, standing):
    assert fold([cycle(4, a) for a in accepted]).standing == standing


def test_break_even_of_the_rule_of_thumb():
    """1.0 accepted per cycle is needed exactly where a cycle costs two plain steps."""
    assert fold([cycle(2, 1, t_d=0.0, t_v=0.04, t_o=0.0)]).break_even == pytest.approx(1.0)


def test_high_acceptance_with_low_coverage_is_visible():
    """L says 4.0 where τ says 1.3: the one cannot stand for the other."""
    t = fold([cycle(3, 3), *[plain()] * 9])
    assert t.mean_acceptance_length == 4.0
    assert t.tokens_per_pass == pytest.approx(1.3)
    assert t.coverage == pytest.approx(0.1)


def test_intervals_by_hand():
    t = fold([interval()])
    assert t.acceptance_rate == 0.5
    assert t.mean_draft_length == 3
    assert t.accepted_per_cycle == 1.5
    assert t.tokens_per_pass == 1.6
    assert t.coverage == 0.4
    assert t.acceptance_by_position == (1.0, 0.5, 0.0)
    assert t.tokens_per_second == 8.0
    assert t.break_even is t.standing is t.draft_share is None
    assert t.exact


def test_unknown_passes_leave_their_numbers_unknown():
    """Nothing is divided by a count that was not told, alone or mixed with what was."""
    for around in ([], [interval()], HAND):
        t = fold([*around, interval(passes=None)])
        assert t.tokens_per_pass is t.coverage is None
        assert t.acceptance_rate is not None
        t = fold([*around, interval(drafted_passes=None)])
        assert t.coverage is t.accepted_per_cycle is t.mean_draft_length is None
        assert t.mean_acceptance_length is None
        assert t.tokens_per_pass is not None
        assert fold([*around, interval(drafted_at=None)]).acceptance_by_position == ()


def test_inexact_sums_stay_inexact():
    assert not fold([interval(exact=False), interval()]).exact


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1), st.randoms())
def test_the_order_of_cycles_does_not_matter(pairs, rnd: random.Random):
    made = [cycle(k, min(k, a)) for k, a in pairs]
    mixed = made[:]
    rnd.shuffle(mixed)
    one, other = fold(made), fold(mixed)
    assert one.acceptance_by_position == other.acceptance_by_position
    assert one.acceptance_rate == other.acceptance_rate
    assert all(0 <= p <= 1 for p in one.acceptance_by_position)
    assert one.accepted == sum(one.accepted_at)
    assert one.drafted == sum(one.drafted_at)
    assert one.emitted == one.accepted + one.cycles


def test_add_leaves_the_old_totals_alone():
    before = fold(HAND)
    after = add(before, plain())
    assert (before.cycles, after.cycles) == (5, 6)


def test_a_slow_plain_cycle_is_no_loss_of_drafting():
    """Nor is the pass that finds the end: plain decoding needs it, too."""
    slow, ending = replace(plain(), t_v=0.05), replace(plain(), emitted=())
    t = fold([cycle(4, 4), slow, ending])
    assert t.net_gain == pytest.approx(5 * 0.02 - 0.05)
    assert t.estimated_speedup == pytest.approx((5 * 0.02 + 0.05 + 0.02) / (0.05 + 0.05 + 0.02))


def test_an_interval_is_judged_as_its_cycles_would_be():
    # 4 drafted passes of 40 ms (8 accepted) and 6 plain ones of 20 ms = t_1
    cycles = [cycle(4, 2, t_d=0.0, t_v=0.04, t_o=0.0, t_1=0.02)] * 4 + [plain(0.02)] * 6
    sums = interval(seconds=0.28, passes=10, drafted_passes=4, accepted=8, emitted=18, t_1=0.02)
    seen, told = fold(cycles), fold([sums])
    assert seen.break_even == pytest.approx(1.0)
    assert told.break_even == pytest.approx(seen.break_even)
    assert told.estimated_speedup == pytest.approx(18 * 0.02 / 0.28)
    assert told.estimated_speedup == pytest.approx(seen.estimated_speedup)
    assert told.standing == seen.standing == "above"


def test_an_interval_without_a_plain_speed_is_not_judged():
    t = fold([interval(), interval(t_1=0.02, passes=None), interval(t_1=0.02, emitted=None)])
    assert (t.break_even, t.estimated_speedup, t.standing) == (None, None, None)


def test_unknown_output_leaves_speed_unknown():
    t = fold([interval(), interval(emitted=None)])
    assert (t.tokens_per_second, t.tokens_per_pass) == (None, None)
    assert t.acceptance_rate == 12 / 24


def test_shares_of_a_time_that_is_not_split_are_unknown():
    whole = replace(cycle(4, 2), split=False)
    t = fold([cycle(4, 2), whole])
    assert (t.draft_share, t.verify_share) == (None, None)
    timed = fold([interval(seconds=2.0, t_d=0.5)])
    assert (timed.draft_share, timed.verify_share) == (0.25, None)


def test_acceptance_over_drafted_passes_where_lengths_are_not_told():
    t = fold([interval(drafted_at=None)])
    assert t.acceptance_by_position == ()
    assert t.acceptance_of_drafted == (4 / 4, 2 / 4)
    assert fold([interval(drafted_passes=None)]).acceptance_of_drafted == ()
