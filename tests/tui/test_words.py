"""The sentences: each case of standing, each length, and that no rate stands alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from panel_cases import BAD, GOOD, HUGE, PLAIN, REJECTED, T_1, UNKNOWN, cycle, interval, states

from specctl.metrics import Totals, fold
from specctl.tui import words
from specctl.units import GIB

DRAFT = ("draft-simple",)


def said(records, spec=DRAFT, width=80, keys=True):
    return words.standing_sentence(fold(records), spec, records, width, keys)


@pytest.mark.parametrize(
    ("width", "sentence"),
    [
        (80, "above: ≈ 1.6×   you need 0.80 accepted per cycle, you get 2.00"),
        (55, "above: ≈ 1.6×  need 0.80 per cycle, get 2.00"),
        (40, "above ≈ 1.6×: need 0.80, get 2.00"),
        (20, "above ≈ 1.6×"),
        (3, "above ≈ 1.6×"),
    ],
)
def test_above_in_every_length(width, sentence):
    # plain worth: 8 drafted cycles emit 24 tokens of 20 ms, 2 plain ones are worth their 40 ms:
    # 0.52 s, taken: 8 x 36 + 40 = 328 ms, 1.585
    assert said(GOOD, width=width) == sentence


@pytest.mark.parametrize(
    ("width", "sentence"),
    [
        (
            120,
            "below: ≈ 0.83×   you need 0.80 accepted per cycle, you get 0.50: "
            "press F2 to switch off, F5 smaller K",
        ),
        (80, "below: ≈ 0.83×  need 0.80 per cycle, get 0.50: F2 switches off, F5 smaller K"),
        (55, "below ≈ 0.83×: need 0.80, get 0.50; F2 switches off"),
        (40, "below ≈ 0.83×: F2 switches off"),
        (20, "below ≈ 0.83×"),
    ],
)
def test_below_says_what_to_press(width, sentence):
    assert said(BAD, width=width) == sentence


def test_below_without_keys_says_only_what_is():
    assert said(BAD, keys=False) == (
        "below: ≈ 0.83×   you need 0.80 accepted per cycle, you get 0.50"
    )


def test_under_auto_another_drafter_is_the_remedy():
    assert "F3 other drafter" in said(BAD, ("auto",), 120)


def test_at_break_even():
    records = [cycle(3, accepted, index) for index, accepted in enumerate((1, 1, 1, 1, 0))]
    assert said(records) == (
        "at break-even: ≈ 1.00×   you need 0.80 accepted per cycle, you get 0.80"
    )


def test_all_rejected():
    assert said(REJECTED, width=40, keys=False) == "below ≈ 0.56×: need 0.80, get 0.00"


def test_paying_drafts_under_costly_look_ups():
    """Drafted cycles pay, but what looking costs in all others eats it: 0.84 s of 0.972 s."""
    records = [cycle(3, 2), *(cycle(0, 0, index, t_d=0.004) for index in range(1, 40))]
    assert said(records) == (
        "above where it drafts (2 % of cycles), ≈ 0.86× in all: need 0.80, get 2.00"
    )


def test_rare_drafts_that_pay_are_not_said_of_the_whole():
    records = [cycle(3, 2), *(cycle(0, 0, index) for index in range(1, 20))]
    assert said(records).startswith("above where it drafts (5 % of cycles), ≈ 1.06× in all")
    assert said([cycle(3, 2), *records[1:3]]).startswith("above: ")


def test_break_even_not_measured():
    records = [cycle(3, 2, t_1=None)]
    assert said(records) == "break-even not measured yet; rule of thumb 2.00 > 1"
    assert said(records, width=30) == "break-even not measured yet"


def test_sources_without_cycles_never_measure_it():
    assert said([interval()]) == (
        "break-even not measured: this source shows no cycles; rule of thumb 1.50 > 1"
    )
    assert said([UNKNOWN], width=60) == "break-even not measured: this source shows no cycles"


def test_no_drafts_tells_the_commonest_reason_and_its_share():
    assert said(PLAIN) == (
        "no drafts yet: no match of 7 (8 of 10 cycles): F3 picks another drafter"
    )
    assert said(PLAIN, width=40) == "no drafts yet: no match of 7"


def test_auto_that_decodes_plainly():
    reason = "off: needs 1.31 accepted per cycle, would get 0.42"
    records = [cycle(0, 0, index, reason) for index in range(3)]
    assert said(records, ("auto",), 70) == (
        "auto decodes plainly: needs 1.31 accepted per cycle, would get 0.42"
    )
    assert said(records, ("auto",), 55) == "auto decodes plainly: needs 1.31, would get 0.42"


def test_switched_off_is_not_judged_by_what_was_before():
    assert said(GOOD, ("none",)) == "plain decoding: F2 switches speculation on"
    assert said(GOOD, ("none",), keys=False) == "plain decoding"


def test_nothing_yet():
    assert said([]) == "nothing generated yet"


@given(st.sampled_from(sorted(states())), st.booleans(), st.integers(1, 200))
def test_a_sentence_is_as_long_as_it_may_be(name, keys, width):
    state = states()[name]
    args = (state.now(), state.spec_types, list(state.cycles))
    forms = words.standing_forms(*args, keys)
    assert [len(form) for form in forms] == sorted((len(form) for form in forms), reverse=True)
    got = words.standing_sentence(*args, width, keys)
    assert got in forms
    assert len(got) <= max(width, len(forms[-1]))
    assert not any(len(got) < len(form) <= width for form in forms)


def test_the_commonest_reason_counts_kinds_not_figures():
    assert words.commonest_reason(PLAIN) == ("no match of 7", 8, 10)
    assert words.commonest_reason([]) == ("", 0, 0)
    assert words.commonest_reason(HUGE) == ("", 0, 4)


def test_the_acceptance_rate_is_never_alone():
    assert words.acceptance(fold(GOOD)) == "α 0.67, drafted 80 %"
    assert words.acceptance(fold([UNKNOWN])) == "α 0.50, drafted ? %"
    assert words.acceptance(fold(PLAIN)) == "α –, drafted 0 %"
    assert words.acceptance(Totals()) == "α –, drafted –"


def test_plain_speed():
    assert words.plain_speed(T_1) == "plain 50.0 (measured)"
    assert words.plain_speed(None) == "plain not measured yet"


def test_full_memory():
    assert words.vram_warning(int(15.7 * GIB), 16 * GIB) == words.VRAM_IS_FULL
    assert words.vram_warning(15 * GIB, 16 * GIB) == ""
    assert words.vram_warning(None, None) == ""
    assert words.context_warning(95, 100) == "context 95 % full: /reset starts a new conversation"
    assert words.context_warning(89, 100) == words.context_warning(5, 0) == ""


def test_bytes():
    assert words.bytes_of(3 * GIB // 2, 16 * GIB) == "1.5 of 16.0 GiB"
    assert words.bytes_of(GIB, None) == "1.0 GiB"
    assert words.bytes_of(None, None) == "– GiB"


def below_zero(count: int) -> list:
    """Drafted cycles that measured cheaper than the plain step of 20 ms."""
    return [cycle(3, 2, index, t_d=0.0, t_v=0.018) for index in range(count)]


def test_a_break_even_below_zero_is_never_a_need():
    records = below_zero(words.FEW)
    assert fold(records).break_even < 0
    assert said(records, width=120) == (
        f"above: {words.times_faster(fold(records))}   need 0.00 per cycle, get 2.00: "
        "drafted cycles cost no more than plain ones here"
    )
    assert "need 0.00 (noise), get 2.00" in said(records, width=45)
    assert words.watched(fold(records)).endswith(
        "needs 0.00 · drafted cycles cost no more than plain ones here"
    )
    for keys in (True, False):
        forms = words.standing_forms(fold(records), DRAFT, records, keys)
        assert not any("-0" in form for form in forms)


def test_a_few_cycles_below_zero_judge_nothing():
    records = below_zero(words.FEW - 1)
    assert said(records) == "too few cycles yet to measure break-even (7 of 8 drafted)"
    assert said(records, width=20) == "too few cycles yet"
    assert "too few cycles yet" in words.watched(fold(records))


def test_auto_within_noise_of_plain_advises_nothing():
    """Two drafts that do not pay in 60 plain cycles: 0.97 of plain, and auto drafts no more."""
    lost = [cycle(3, 0, 0), cycle(3, 0, 1), *(cycle(0, 0, index) for index in range(2, 62))]
    assert fold(lost).standing == "below"
    assert 0.95 <= fold(lost).estimated_speedup < 1
    assert "F2" not in said(lost, ("auto",), 120)
    assert "F2" in said(lost, DRAFT, 120)
