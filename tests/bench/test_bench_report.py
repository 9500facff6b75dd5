"""From scripted cycles to exact numbers, and from noisy runs to honest words."""

from __future__ import annotations

import dataclasses
import io
import math
import random
import statistics

import pytest
from fake_bench import GOOD, PLAIN, SILENT, STEP, Cost, FakeSession, arm, plan
from rich.console import Console

from specctl.bench.conduct import Opened
from specctl.bench.identity import check
from specctl.bench.report import Report, speed, summarise, verdict
from specctl.bench.run import BenchPlan, Calibration, Run, RunDone, measure
from specctl.bench.workloads import Prompt
from specctl.cli import bench_view
from specctl.errors import EngineError, UsageError


def runs_of(session: FakeSession, what: BenchPlan) -> list[Run]:
    return [step.run for step in measure(session, what) if isinstance(step, RunDone)]


def report_of(session: FakeSession, what: BenchPlan) -> Report:
    runs = runs_of(session, what)
    return summarise(what, runs, check(what, runs, session, session.model.is_eog))


def text_of(report: Report, width: int = 100) -> str:
    out = io.StringIO()
    bench_view.report(Console(file=out, width=width), report)
    return out.getvalue()


# ---------------------------------------------------------------- numbers


def test_every_number_of_a_row_is_exact() -> None:
    report = report_of(FakeSession({("ngram-simple",): GOOD}), plan())
    (row,) = report.totals
    assert row.speed.plain_rate == pytest.approx(1 / STEP)
    assert row.speed.rate == pytest.approx(3 / 0.015)
    assert row.speed.speedup == pytest.approx(2.0)
    assert (row.speed.low, row.speed.high) == (pytest.approx(2.0), pytest.approx(2.0))
    assert row.speed.verdict == "faster"
    assert row.totals.acceptance_rate == pytest.approx(2 / 3)
    assert row.totals.accepted_per_cycle == pytest.approx(2.0)
    assert row.totals.coverage == 1.0
    assert row.totals.draft_share == pytest.approx(1 / 15)
    assert row.totals.verify_share == pytest.approx(13.5 / 15)
    assert row.totals.break_even == pytest.approx(0.5)
    assert row.totals.acceptance_by_position == (1.0, 1.0, 0.0)
    assert row.plain_ttft == pytest.approx(0.110)
    assert row.ttft == pytest.approx(0.115)
    assert row.identity.same == 6
    assert {r.workload for r in report.rows} == {"code-edit", "chat"}


def test_total_is_tokens_over_seconds_not_a_mean_of_ratios() -> None:
    long, short = tuple(range(100, 190)), tuple(range(100, 110))

    def texts(prompt: tuple[int, ...], types: tuple[str, ...]) -> tuple[int, ...]:
        return long if prompt[-1] == ord("0") % 50 else short

    good = Cost(k=1, accepted=1, t_v=0.010)  # two tokens for the price of one

    class Session(FakeSession):
        def generate(self, request):  # type: ignore[no-untyped-def]
            helps = request.tokens[-1] == ord("0") % 50
            self.costs = {("ngram-simple",): good if helps else PLAIN}
            return super().generate(request)

    report = report_of(Session(texts=texts), plan(max_tokens=90, repeats=1))
    assert [p.speed.speedup for p in report.of("ngram-simple")] == pytest.approx([2.0, 1.0])
    assert report.totals[0].speed.speedup == pytest.approx(100 / 55)  # not 1.5


def test_the_table_shows_the_numbers_and_names_best_and_worst() -> None:
    report = report_of(FakeSession({("ngram-simple",): GOOD}), plan())
    for width in (80, 100):
        text = text_of(report, width)
        assert max(map(len, text.splitlines())) <= width
        for expected in ("100.0", "200.0", "2.00×", "2.00–2.00", "67 %", "0.50", "7 %", "90 %"):
            assert expected in text, expected
        assert ("110 ms → 115 ms" if width >= 96 else "0.1→0.1") in text
        assert "best code-edit/p0 2.00×, worst chat/p1 2.00×" in text
        assert "above 1.3×: 2 of 2: code-edit/p0 2.00×, chat/p1 2.00×" in text
        assert "slower than plain: none of 2" in text
        assert "accepted at position 1, 2, …: 100 100 0 %" in text


def test_losses_are_named() -> None:
    bad = Cost(k=8, accepted=0, t_v=0.030)
    text = text_of(report_of(FakeSession({("ngram-simple",): bad}), plan()))
    assert "slower than plain: 2 of 2: chat/p1 0.33×, code-edit/p0 0.33×" in text
    assert "above 1.3×: none of 2" in text


def test_one_run_has_no_spread_and_says_so() -> None:
    report = report_of(FakeSession({("ngram-simple",): GOOD}), plan(repeats=1))
    assert report.totals[0].speed.low is None
    text = text_of(report)
    assert "one, ±10%" in text
    assert "With one run of each, ± is assumed: 10%" in " ".join(text.split())


def test_one_run_is_not_faster_than_its_tokens_per_pass() -> None:
    """Twice as fast with one token a pass: that was the machine."""
    lucky = FakeSession({("ngram-simple",): Cost(k=3, accepted=0, t_v=0.005)})
    once = report_of(lucky, plan(repeats=1)).totals[0].speed
    assert once.speedup == pytest.approx(2.0)
    assert once.verdict == "no difference shown"
    assert (
        report_of(FakeSession({("ngram-simple",): GOOD}), plan(repeats=1)).totals[0].speed.verdict
        == "faster"
    )


def test_a_prompt_that_was_never_drafted_for_is_no_gain() -> None:
    result = report_of(FakeSession({("ngram-simple",): GOOD}), plan(repeats=1))
    drafted, other = result.of("ngram-simple")
    lucky = dataclasses.replace(
        other, speed=dataclasses.replace(other.speed, speedup=9.0), drafted=False
    )
    console = Console(width=100, record=True, file=io.StringIO())
    bench_view.arm(console, result.totals[0], (lucky, drafted))
    text = console.export_text()
    assert f"best {drafted.prompt} 2.00×, worst {drafted.prompt} 2.00×" in text
    assert f"above 1.3×: 1 of 2: {drafted.prompt}" in text
    assert f"never drafted on 1 of 2: {other.prompt} 9.00×: the machine's own difference" in text
    assert all(one.drafted for one in result.prompts)
    silent = report_of(FakeSession({("ngram-simple",): SILENT}), plan(repeats=1))
    assert not any(one.drafted for one in silent.prompts)
    assert "best" not in text_of(silent)


def test_long_drafts_and_chains_fit_the_page() -> None:
    chain = arm("ngram-simple", "ngram-mod", "draft-simple", k=64)
    long = Cost(k=64, accepted=9, t_v=0.05)
    report = report_of(FakeSession({chain.spec.types: long}), plan(chain))
    for width in (80, 100):
        text = text_of(report, width)
        assert max(map(len, text.splitlines())) <= width
        assert "… p64 0 %" in text


# ---------------------------------------------------------------- honest words


def test_gain_inside_the_noise_is_no_difference() -> None:
    """Noise ±8 %, true gain 3 %: the words faster and slower must stay rare."""
    words = []
    for seed in range(150):
        rng = random.Random(seed)
        session = FakeSession(
            {("ngram-simple",): Cost(t_v=STEP / 1.03)}, pace=lambda n, r=rng: r.uniform(0.92, 1.08)
        )
        what = plan(prompts=1)
        words.append(summarise(what, runs_of(session, what), {}).totals[0].speed.verdict)
    assert words.count("no difference shown") > 0.9 * len(words)
    assert words.count("slower") < 0.04 * len(words)


def test_gain_beyond_the_noise_is_found() -> None:
    words = []
    for seed in range(50):
        rng = random.Random(seed)
        session = FakeSession(
            {("ngram-simple",): GOOD}, pace=lambda n, r=rng: r.uniform(0.92, 1.08)
        )
        what = plan(prompts=1)
        words.append(summarise(what, runs_of(session, what), {}).totals[0].speed.verdict)
    assert set(words) == {"faster"}


def test_slow_first_runs_are_thrown_away() -> None:
    """The first two generations are 40 % slower; with an arm equal to plain nothing may show."""
    session = FakeSession(pace=lambda n: 1.4 if n < 2 else 1.0)
    report = report_of(session, plan(arm("none")))
    (row,) = report.totals
    assert row.speed.speedup == pytest.approx(1.0)
    assert row.speed.noise == pytest.approx(0.02)
    assert row.speed.verdict == "no difference shown"


def test_a_slow_machine_in_a_single_run_widens_the_band() -> None:
    """One repeat; every other generation runs at 60 % of the pace, and nothing was drafted."""
    session = FakeSession({("ngram-simple",): SILENT}, pace=lambda n: 1.0 if n % 2 else 1 / 0.6)
    report = report_of(session, plan(prompts=1, repeats=1))
    (row,) = report.totals
    assert abs((row.speed.speedup or 1) - 1) > 0.1
    assert row.speed.verdict == "no difference shown"


@pytest.mark.parametrize(
    ("speedup", "noise", "word"),
    [
        (1.3, 0.08, "faster"),
        (0.7, 0.08, "slower"),
        (1.05, 0.08, "no difference shown"),
        (1 / 1.05, 0.08, "no difference shown"),
        (1.11, 0.10, "faster"),
    ],
)
def test_verdict(speedup: float, noise: float, word: str) -> None:
    assert verdict(speedup, noise) == word


def test_noise_is_the_interval_of_the_repeats() -> None:
    """Speed-ups 1.9, 2.0, 2.1 of single repeats: t(2) = 4.303 times their standard error."""
    arm_seconds = iter((2 / 1.9, 2 / 2.0, 2 / 2.1))
    each: list[float] = []

    def pace(n: int) -> float:  # generations 0 to 2 warm up, then plain and arm take turns
        order = (None, None, None, "plain", "arm", "arm", "plain", "plain", "arm")
        if order[n] == "arm":
            each.append(next(arm_seconds))
            return each[-1]
        return 1.0

    report = report_of(FakeSession({("ngram-simple",): GOOD}, pace=pace), plan(prompts=1))
    logs = [math.log(x) for x in (1.9, 2.0, 2.1)]
    expected = math.exp(4.303 * statistics.stdev(logs) / math.sqrt(3)) - 1
    found = report.totals[0].speed
    assert found.noise == pytest.approx(expected)
    assert (found.low, found.high) == (pytest.approx(1.9), pytest.approx(2.1))
    assert found.speedup == pytest.approx(2.0)


# ---------------------------------------------------------------- how it is measured


def test_arms_are_interleaved_in_alternating_order_from_equal_states() -> None:
    session = FakeSession({("ngram-simple",): GOOD})
    what = plan(repeats=2)
    runs = runs_of(session, what)
    order = [(run.repeat, run.prompt.name, run.arm) for run in runs]
    assert order == [
        (0, "p0", "plain"),
        (0, "p0", "ngram-simple"),
        (0, "p1", "ngram-simple"),
        (0, "p1", "plain"),
        (1, "p0", "ngram-simple"),
        (1, "p0", "plain"),
        (1, "p1", "plain"),
        (1, "p1", "ngram-simple"),
    ]
    generations = [call for call in session.calls if call != "reset"]
    assert generations[:3] == ["none", "ngram-simple", "none"]  # the warm-up: every arm once
    assert session.calls[::2] == ["reset"] * len(generations)


def test_every_prompt_changes_its_order_from_repeat_to_repeat() -> None:
    for prompts in (1, 2, 3, 4):
        runs = runs_of(FakeSession(), plan(arm("none"), prompts=prompts, repeats=2))
        first = {
            (run.prompt.key, run.repeat): run.arm for run in reversed(runs)
        }  # the first of each pair stays
        for key in {run.prompt.key for run in runs}:
            assert first[key, 0] != first[key, 1]


def test_estimated_duration() -> None:
    session = FakeSession({("ngram-simple",): GOOD})
    what = plan()
    first = next(step for step in measure(session, what) if isinstance(step, Calibration))
    assert first.plain_step == pytest.approx(STEP)
    tokens = len("prompt number 0")
    assert first.prompt_tokens_per_second == pytest.approx(tokens / 0.1)
    # (prompt 0.1 s + 12 steps of 10 ms) × 2 prompts × 2 arms × 3 repeats
    assert first.estimated_seconds == pytest.approx((0.1 + 0.12) * 12)


def test_progress_ends_at_all_of_it() -> None:
    steps = [s for s in measure(FakeSession(), plan(arm("none"))) if isinstance(s, RunDone)]
    assert [step.index for step in steps] == list(range(1, 13))
    assert steps[-1].fraction == pytest.approx(1.0)
    assert steps[-1].eta == pytest.approx(0.0)


def test_a_prompt_that_cannot_fit_is_said_before_anything_runs() -> None:
    session = FakeSession()
    with pytest.raises(UsageError, match=r"code-edit/p0 has 15 tokens.* 4090 .* context of 4096"):
        list(measure(session, plan(max_tokens=4090)))
    assert session.calls == []


def test_a_generation_that_fails_stops_the_benchmark() -> None:
    with pytest.raises(EngineError, match="plain on code-edit/p0 did not finish"):
        list(measure(FakeSession(finish="error"), plan()))


def test_the_same_arm_twice_is_refused() -> None:
    with pytest.raises(UsageError, match="ngram-simple is asked for twice"):
        plan(arm("ngram-simple"), arm("ngram-simple"))


def test_a_prompt_without_an_answer_is_left_out() -> None:
    def texts(prompt: tuple[int, ...], types: tuple[str, ...]) -> tuple[int, ...]:
        return () if prompt[-1] == ord("1") % 50 else tuple(range(100, 112))

    session = FakeSession({("ngram-simple",): GOOD}, texts=texts)
    report = report_of(session, plan())
    assert report.totals[0].speed.speedup == pytest.approx(2.0)
    assert [p.prompt for p in report.of("ngram-simple")] == ["code-edit/p0"]
    assert "–" in text_of(report)


def test_speed_of_no_prompts_is_unknown() -> None:
    found = speed((), "ngram-simple", {})
    assert found.speedup is None
    assert found.verdict == "no difference shown"


# ---------------------------------------------------------------- loud


def test_zero_drafts_are_loud_with_the_reason() -> None:
    session = FakeSession({("ngram-simple",): GOOD, ("ngram-mod",): SILENT})
    report = report_of(session, plan(arm("ngram-simple"), arm("ngram-mod")))
    assert "ngram-mod never drafted" in report.failures
    text = text_of(report)
    assert "ngram-mod: 0 of 72 cycles drafted, because: no match of 12 tokens (72)" in text
    assert "ngram-simple: 0 of" not in text


def test_plain_again_as_an_arm_is_no_silent_drafter() -> None:
    report = report_of(FakeSession(), plan(arm("none")))
    assert report.undrafted == ()
    assert report.failures == ()


def test_plain_that_does_not_repeat_itself_is_said() -> None:
    session = FakeSession()
    session.texts = lambda prompt, types: tuple(
        100 + len(session.calls) * (i == 5) for i in range(12)
    )
    session.rows = lambda tokens, batch: [0.0] * 100
    report = report_of(session, plan(arm("none")))
    assert report.unstable == ("code-edit/p0", "chat/p1")
    assert "plain decoding does not repeat itself" in report.failures
    assert "plain decoding itself gave two texts on chat/p1" in text_of(report)


def test_a_busy_machine_is_warned_about(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    out = io.StringIO()
    console = Console(file=out, width=100)
    bench_view.opening(console, Opened(1, (), 0.4), plan())
    assert "load average" not in out.getvalue()
    bench_view.opening(console, Opened(1, (), 1.9), plan())
    assert "load average 1.9 on 2 cores: other programs are running" in out.getvalue()
    result = report_of(FakeSession({("ngram-simple",): GOOD}), plan(repeats=1))
    bench_view.report(console, result, busy=1.9)
    assert "repeat this before you believe a single run" in " ".join(out.getvalue().split())


def test_progress_is_a_bar_on_a_terminal_and_lines_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    steps = [s for s in measure(FakeSession(), plan(arm("none"))) if isinstance(s, RunDone)]
    monkeypatch.setattr(bench_view, "LINE_EVERY", 0.0)
    out = io.StringIO()
    with bench_view.progress(Console(file=out, width=100)) as show:
        for step in steps:
            show(step)
    lines = out.getvalue().splitlines()
    assert len(lines) == 11  # the last run needs no "left"
    assert lines[0].startswith("1/12 runs, ≈ ")
    assert "\x1b" not in out.getvalue()
    terminal = io.StringIO()
    console = Console(file=terminal, width=100, force_terminal=True)
    with bench_view.progress(console) as show:
        show(steps[4])
    assert "5/12" in terminal.getvalue()
    assert "left" in terminal.getvalue()


def test_names_from_files_are_text_and_no_markup() -> None:
    what = plan(arm("ngram-simple"))
    bold = Prompt("[bold]f[/]", "[red]n[/nothing]", "text")
    what = dataclasses.replace(what, prompts=(bold,), model="[blue]m")
    text = text_of(report_of(FakeSession({("ngram-simple",): GOOD}), what))
    assert "above 1.3×: 1 of 1: [bold]f[/]/[red]n[/nothing] 2.00×" in text
    out = io.StringIO()
    bench_view.opening(Console(file=out, width=100), Opened(1, (), None), what)
    assert "[blue]m: 1 prompt × 3 × (plain, ngram-simple)" in out.getvalue()
