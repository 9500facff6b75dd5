"""The chart: bars, the two lines and their labels, at every size."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from panel_cases import GOOD, HUGE, asked, cycle, interval, live, states
from rich.cells import cell_len
from textual.app import App, ComposeResult

from specctl.tui.widgets.cycles import Bar, Chart, CycleView, chart_lines, chart_of
from specctl.tui.widgets.glyphs import ASCII, UNICODE


def drawn(state, width, height, signs=UNICODE):
    return [
        line.plain.rstrip() for line in chart_lines(chart_of(state, width), width, height, signs)
    ]


def test_the_picture():
    # accepted 3 3 3 2 2 2 1 0, then two plain; break-even 0.80
    assert drawn(live(GOOD), 48, 8) == [
        "accepted per cycle  last 10",
        "3 ▏                 ███",
        "  ▏                 ███",
        "2 ▏                 ███▅▅▅",
        "  ▏                 ██████",
        "1 ▏─────────────────██████▃─── rule α×K = 1",
        "  ▏╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌███████╌╌╌ break-even 0.80",
        "  ▏                 ███████×··",
    ]


def test_below_has_a_texture_of_its_own():
    costly = [cycle(3, index % 2, index, t_v=0.06) for index in range(8)]  # 66 ms: break-even 2.30
    rows = drawn(live(costly), 48, 4)
    assert rows[-1].endswith("×▒×▒×▒×▒ rule α×K = 1")
    assert not any("█" in row for row in rows)
    ascii_rows = drawn(live(costly), 48, 4, ASCII)
    assert ascii_rows[-1].endswith("xoxoxoxo rule alphaxK = 1")
    assert all(row.isascii() for row in ascii_rows)


def test_lines_that_share_a_row_are_both_named():
    chart = Chart([Bar(4)] * 3, 0.9)
    rows = [line.plain.rstrip() for line in chart_lines(chart, 50, 3)]
    assert rows[2].endswith("╌─╌─███ break-even 0.90")
    assert rows[1].endswith("███ & rule α×K = 1")


@pytest.mark.parametrize("break_even", [0.2, 0.62, 0.99, 1.0, 1.01, 2.5, 7.0, 40.0])
@pytest.mark.parametrize("height", [3, 5, 8, 12])
@pytest.mark.parametrize("most", [1, 4, 48])
def test_both_lines_are_always_named_once(break_even, height, most):
    rows = [line.plain for line in chart_lines(Chart([Bar(0), Bar(most)], break_even), 100, height)]
    assert sum(f"break-even {break_even:.2f}" in row for row in rows) == 1
    assert sum("rule of thumb α×K = 1" in row for row in rows) == 1
    assert any(UNICODE.measured in row for row in rows)


def test_the_lines_are_apart_where_there_is_room():
    for break_even in (0.3, 0.54, 0.62, 0.8):
        rows = [line.plain for line in chart_lines(Chart([Bar(4)], break_even), 80, 10)]
        at = next(index for index, row in enumerate(rows) if "break-even" in row)
        rule = next(index for index, row in enumerate(rows) if "rule of thumb" in row)
        assert rule == at - 1 or rule < at
        assert UNICODE.measured not in rows[rule]


def test_a_large_scale_has_round_labels_and_keeps_small_bars():
    rows = drawn(live(HUGE), 60, 9)
    assert [row[:2].strip() for row in rows[1:9]] == ["", "40", "30", "", "20", "10", "", ""]
    column = rows[7].index("×")
    assert rows[7][column - 1 : column + 2] in ("█×█", "█×▁", "█×▒", "█×░")


def test_break_even_is_told_in_the_title_where_labels_have_no_room():
    assert drawn(live(GOOD), 40, 4)[0] == "accepted per cycle  ╌ break-even 0.80"
    assert drawn(live(GOOD), 45, 4)[0] == "accepted per cycle  ╌ break-even 0.80"
    assert drawn(live(GOOD), 20, 4)[0] == "accepted per cycle"


def test_without_a_plain_step_nothing_is_judged():
    state = live([cycle(3, 1, t_1=None), cycle(3, 0, 1, t_1=None)])
    rows = drawn(state, 60, 5)
    assert "break-even" not in "\n".join(rows)
    assert rows[-1].rstrip().endswith("█×")


def test_intervals_show_means_and_what_is_not_known():
    state = live([interval(), interval(accepted=0, accepted_at=())])
    rows = drawn(state, 60, 4)
    assert rows[0] == "mean accepted per drafted pass  last 2 intervals"
    assert rows[-1].endswith("█×")
    unknown = live([interval(drafted_passes=None)])
    assert drawn(unknown, 60, 4)[-1].endswith("?")


def test_only_the_newest_fit_and_the_scale_forgets_the_rest():
    bars = [Bar(40), *[Bar(2)] * 300]
    lines = [line.plain for line in chart_lines(Chart(bars, None), 40, 5)]
    assert lines[0].startswith("accepted per cycle  last 37")
    assert lines[1][:3] == "2 ▏"


def test_empty():
    assert drawn(asked(), 40, 3) == ["accepted per cycle", "reading the prompt"]
    assert drawn(live(), 40, 3) == ["accepted per cycle", "no cycles yet"]
    assert drawn(states()["opening"], 40, 3) == ["accepted per cycle", "opening the model"]


def test_a_tall_chart_explains_its_signs():
    assert drawn(live(GOOD), 54, 9)[-1].split("  ")[1:] == [
        " █ above",
        "▒ below",
        "× none accepted",
        "· no draft",
    ]
    assert "above" not in drawn(live([cycle(3, 1, t_1=None)]), 54, 9)[-1]


BARS = st.builds(Bar, st.none() | st.floats(0, 60) | st.integers(0, 48), st.booleans())


@given(
    st.lists(BARS, max_size=200),
    st.none() | st.floats(-1, 60),
    st.integers(1, 200),
    st.integers(1, 12),
    st.booleans(),
)
def test_no_line_is_too_wide_and_none_too_many(bars, break_even, width, height, ascii_only):
    signs = ASCII if ascii_only else UNICODE
    lines = chart_lines(Chart(bars, break_even), width, height, signs)
    assert len(lines) <= height
    assert all(cell_len(line.plain) <= width for line in lines)
    assert not ascii_only or all(line.plain.isascii() for line in lines)


class Screen(App[None]):
    def compose(self) -> ComposeResult:
        self.drawn = 0
        view = CycleView()
        plain = view.lines

        def counted(*args):
            self.drawn += 1
            return plain(*args)

        view.lines = counted  # type: ignore[method-assign]
        yield view


def test_the_widget_draws_only_what_is_new():
    async def go() -> None:
        app = Screen()
        async with app.run_test(size=(60, 8)) as pilot:
            view, state = app.query_one(CycleView), live(GOOD)
            view.sync(state)
            await pilot.pause()
            text = "\n".join(strip.text for strip in view.render_lines(view.region.reset_offset))
            assert "break-even 0.80" in text
            before = app.drawn
            view.sync(state)
            await pilot.pause()
            assert app.drawn == before
            state.apply(cycle(3, 3, 10))
            view.sync(state)
            await pilot.pause()
            assert app.drawn > before
            view.show(Chart([Bar(1)], None, title="another"))
            await pilot.pause()
            assert "another" in view.render().plain

    asyncio.run(go())


def test_on_a_coarse_scale_the_rule_is_no_zero_line():
    """Ten tokens on five rows: 1 lies inside the lowest row, half hidden by what stands there."""
    for break_even in (None, 3.0):
        chart = Chart([Bar(10), Bar(0)], break_even)
        rows = [line.plain for line in chart_lines(chart, 80, 6)]
        assert UNICODE.rule not in rows[-1]
        assert "rule of thumb" in rows[-1]


def test_a_break_even_below_zero_is_drawn_as_none():
    for width in (80, 44):
        text = "\n".join(line.plain for line in chart_lines(Chart([Bar(2)], -0.09), width, 6))
        assert "break-even 0.00" in text
        assert "-0" not in text
