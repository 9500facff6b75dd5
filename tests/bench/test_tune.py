"""The search for the best settings on a scripted machine: what must come out is known exactly."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_bench import STEP, Cost
from tune_kit import ALONE, PAIR, Machine, job, prompts, search, state, times, winner

from specctl.bench.report import verdict
from specctl.bench.tune import Standing, apart, candidates, choose, variants
from specctl.bench.tune_job import tune
from specctl.bench.tune_k import suggested_k
from specctl.bench.tune_steps import Disqualified, Said, StageBegan
from specctl.bench.workloads import Prompt, in_turns
from specctl.errors import UsageError

pytest.importorskip("numpy")


# ---------------------------------------------------------------- what is kept


@pytest.mark.parametrize(
    "best", ["ngram-suffix", "ngram-cache", "draft-simple k=2", "draft-simple k=8"]
)
def test_the_best_is_found_wherever_it_stands(tmp_path: Path, best: str) -> None:
    machine = Machine({"auto": times(1.2), "draft-simple k=4": times(1.15), best: times(1.6)})
    answer, _ = search(tmp_path, machine)
    assert winner(answer) == best
    found = next(s for s in answer.standings if s.name == best)
    assert found.stage == "final"
    assert found.speed.speedup == pytest.approx(1.6, rel=0.02)
    assert answer.choice.reasons[0].startswith(f"{best} is 1.6")


def test_plain_stays_where_everything_is_slower(tmp_path: Path) -> None:
    answer, _ = search(tmp_path, Machine())
    assert winner(answer) is None
    assert "nothing beats plain decoding" in answer.choice.reasons[0]


def test_plain_stays_inside_the_noise(tmp_path: Path) -> None:
    chance = random.Random(7)
    wobble = [chance.uniform(0.75, 1.25) for _ in range(5000)]
    machine = Machine({"ngram-suffix": times(1.03)}, noise=lambda n: wobble[n])
    answer, _ = search(tmp_path, machine)
    assert winner(answer) is None
    assert "beyond the noise" in answer.choice.reasons[0]
    still = Machine({"ngram-suffix": times(1.05)})
    quiet, _ = search(tmp_path / "quiet", still, job(tmp_path))
    assert winner(quiet) == "ngram-suffix"  # the same is seen where there is no noise


@pytest.mark.parametrize(
    ("speedup", "repeats", "kept"),
    [(1.25, 1, False), (1.44, 1, False), (1.47, 1, True), (1.25, 3, True), (0.74, 1, False)],
)
def test_one_look_counts_only_beyond_what_looks_differ_by(
    tmp_path: Path, speedup: float, repeats: int, kept: bool
) -> None:
    answer, _ = search(tmp_path, Machine({"ngram-suffix": times(1.5)}))
    row = next(s for s in answer.standings if s.name == "ngram-suffix" and s.stage == "final")
    noise = 0.12 if repeats == 1 else 0.05
    found = replace(
        row.speed, speedup=speedup, noise=noise, repeats=repeats, verdict=verdict(speedup, noise)
    )
    choice = choose([replace(row, speed=found)])
    assert (choice.winner is not None) is kept
    reason = choice.reasons[0]
    assert ("--minutes" in reason) is (repeats == 1)
    if not kept:
        assert "one look counts only beyond ±45%" in reason
        assert f"{speedup:.2f}× (±12%, assumed), so plain decoding stays" in reason


def test_one_look_that_is_noisier_than_that_must_be_beyond_its_noise(tmp_path: Path) -> None:
    answer, _ = search(tmp_path, Machine({"ngram-suffix": times(1.5)}))
    row = next(s for s in answer.standings if s.name == "ngram-suffix")
    wide = replace(row.speed, speedup=1.4, noise=0.5, repeats=1, verdict="no difference shown")
    choice = choose([replace(row, speed=wide)])
    assert choice.winner is None
    assert "only beyond ±50%" in choice.reasons[0]


def test_one_look_beyond_its_tokens_per_pass_chooses_nothing(tmp_path: Path) -> None:
    """The report has found no difference in it, however fast the machine was just then."""
    answer, _ = search(tmp_path, Machine({"ngram-suffix": times(1.5)}))
    row = next(s for s in answer.standings if s.name == "ngram-suffix")
    lucky = replace(row.speed, speedup=1.8, noise=0.1, repeats=1, verdict="no difference shown")
    assert choose([replace(row, speed=lucky)]).winner is None
    faster = replace(lucky, verdict="faster")
    assert choose([replace(row, speed=faster)]).winner is not None


@pytest.mark.parametrize(("speedup", "kept"), [(1.2, None), (1.6, "ngram-suffix")])
def test_a_search_without_time_for_repeats_says_so(
    tmp_path: Path, speedup: float, kept: str | None
) -> None:
    some = [one for one in ALONE if one.name == "ngram-suffix"]
    machine = Machine({"ngram-suffix": times(speedup)})
    what = job(tmp_path, some, prompts=prompts(1), minutes=0.13)
    answer, steps = search(tmp_path, machine, what)
    last = [s.stage for s in steps if isinstance(s, StageBegan)][-1]
    assert last.repeats == 1
    assert winner(answer) == kept
    assert "--minutes" in answer.choice.reasons[0]


def test_plain_stays_where_nothing_drafts(tmp_path: Path) -> None:
    machine = Machine({one.name: Cost() for one in ALONE})
    answer, _ = search(tmp_path, machine, job(tmp_path, ALONE))
    assert winner(answer) is None
    assert "nothing drafted" in answer.choice.reasons[0]


def test_of_two_that_cannot_be_told_apart_the_simpler_is_kept(tmp_path: Path) -> None:
    machine = Machine({"ngram-suffix": times(1.50), "draft-simple k=4": times(1.515)})
    answer, _ = search(tmp_path, machine)
    assert winner(answer) == "ngram-suffix"
    assert "are within ±2%: took the simpler one" in answer.choice.reasons[1]
    clear = Machine({"ngram-suffix": times(1.50), "draft-simple k=4": times(1.60)})
    answer, _ = search(tmp_path / "clear", clear, job(tmp_path))
    assert winner(answer) == "draft-simple k=4"
    assert "ngram-suffix is behind it" in answer.choice.reasons[1]


def test_a_bug_puts_the_fastest_out(tmp_path: Path) -> None:
    def texts(prompt: tuple[int, ...], types: tuple[str, ...]) -> tuple[int, ...]:
        wrong = 1 if types == ("draft-simple",) else 2
        return (*range(100, 120), *([wrong] * 980))

    machine = Machine({"draft-simple k=4": times(2.0), "ngram-suffix": times(1.3)}, texts=texts)
    answer, steps = search(tmp_path, machine)
    assert winner(answer) == "ngram-suffix"
    out = {step.candidate for step in steps if isinstance(step, Disqualified)}
    assert "draft-simple k=4" in out
    assert {one.candidate for one in answer.disqualified} == out
    final = [s for s in steps if isinstance(s, StageBegan) and s.stage.name == "final"]
    assert "draft-simple k=4" not in final[0].stage.candidates


# ---------------------------------------------------------------- threads, K, KV


def test_threads_are_tuned_first_with_plain_decoding(tmp_path: Path) -> None:
    what = job(tmp_path, ALONE, threads=(4, 3, 8))
    machine = Machine({"auto": times(1.5)}, threads={4: 1.0, 3: 1.3, 8: 0.7})
    answer, steps = search(tmp_path, machine, what)
    assert answer.threads == 3
    stages = [step.stage for step in steps if isinstance(step, StageBegan)]
    assert [(s.threads, s.candidates) for s in stages[:3]] == [
        (4, ("none",)),
        (3, ("none",)),
        (8, ("none",)),
    ]
    assert {s.threads for s in stages[3:]} == {3}
    assert answer.threads_why == (
        "threads 3: 1.30× the speed of 4 (plain decoding, one after the other: ±12%)",
        "threads 8: 0.70× the speed of 4 (plain decoding, one after the other: ±12%)",
        "threads kept: 3, the fastest beyond its noise",
    )
    level, _ = search(tmp_path / "level", Machine(threads={3: 1.01, 8: 1.01}), what)
    assert level.threads == 4  # as without tuning where the difference is not shown
    assert level.threads_why[-1] == (
        "threads kept: 4, as without tuning: no other is faster beyond its noise"
    )
    alone, _ = search(tmp_path / "alone", Machine(), job(tmp_path, ALONE))
    assert alone.threads_why == ()  # one number was asked for


def test_threads_that_seem_faster_stay_out_within_their_noise(tmp_path: Path) -> None:
    """Every other repeat takes twice as long: 1.5× is inside what that makes of the noise."""
    what = job(tmp_path, ALONE, threads=(2, 1))
    machine = Machine(threads={1: 1.5}, noise=lambda n: 1.0 + (n // 2) % 2)
    answer, steps = search(tmp_path, machine, what)
    assert answer.threads == 2
    first, last = answer.threads_why
    assert first.startswith("threads 1: 1.5")
    assert last.startswith("threads kept: 2, as without tuning")
    said = [step.text for step in steps if isinstance(step, Said)]
    assert first in said


@pytest.mark.parametrize("stopped", [False, True])
def test_threads_there_was_no_time_for_are_named(tmp_path: Path, stopped: bool) -> None:
    what = job(tmp_path, ALONE, threads=(2, 1), minutes=0.2, max_tokens=None)
    machine = Machine(noise=lambda n: 2.0, stop_at=12 if stopped else None)
    if stopped:
        with pytest.raises(KeyboardInterrupt):
            list(tune(what, machine.open, state(tmp_path, what, machine)))
        machine.stop_at = None
    answer, _ = search(tmp_path, machine, what)
    assert answer.threads_why == ("threads 1: not tried, for lack of time (more --minutes)",)


def test_k_star_of_the_first_round_is_tried_and_kept(tmp_path: Path) -> None:
    """Up to 6 tokens stand; a cycle costs 1 + 0.1 k plain steps: K* is 6, which nobody named."""

    def cost(k: int) -> Cost:
        return Cost(k=k, accepted=min(k, 6), t_v=STEP * (1 + 0.1 * k))

    machine = Machine({f"draft-simple k={k}": cost(k) for k in range(1, 17)})
    answer, steps = search(tmp_path, machine)
    assert any("K* = 6" in step.text for step in steps if isinstance(step, Said))
    assert winner(answer) == "draft-simple k=6"


def test_the_drafts_kv_type_is_tried_in_a_session_of_its_own(tmp_path: Path) -> None:
    machine = Machine({"draft-simple k=4": times(1.6)})
    answer, _ = search(tmp_path, machine)
    assert (True, "q8_0", 2) in machine.opened
    found = {s.name for s in answer.standings}
    assert "draft-simple k=4, draft KV q8_0" in found
    assert winner(answer) == "draft-simple k=4"  # level with it, and simpler


def test_auto_is_tried_without_the_draft_too() -> None:
    auto = next(one for one in PAIR if one.name == "auto")
    with_draft, without = auto, variants(auto)[1]
    assert with_draft.group(True) == (True, "f16")
    assert without.group(True) == (False, "f16")
    assert not without.draft
    assert without.simplicity < with_draft.simplicity


def test_suggested_k_needs_two_arms_and_may_say_none(tmp_path: Path) -> None:
    answer, _ = search(tmp_path, Machine({"draft-simple k=4": times(1.6)}))
    some = [s for s in answer.standings if s.name == "draft-simple k=4"]
    assert suggested_k("draft-simple", some) is None


# ---------------------------------------------------------------- small things


def test_candidates_are_what_the_files_allow() -> None:
    assert not any(one.draft for one in ALONE)
    assert all(name not in "".join(one.name for one in ALONE) for name in ("draft-", "mtp"))
    mtp = candidates(("draft-mtp",), ())
    assert "ngram-suffix,draft-mtp n-max=2" in {one.name for one in mtp}
    assert not any(one.draft for one in mtp)  # the heads are the target's own
    names = [one.name for one in PAIR]
    assert len(names) == len(set(names))
    assert {"draft-simple k=2", "draft-simple k=4", "draft-simple k=8"} <= set(names)


def test_prompts_are_taken_from_every_family_in_turn() -> None:
    some = [Prompt(f, f"{f}{n}", "x") for f in ("creative", "code-edit", "chat") for n in range(2)]
    order = [prompt.family for prompt in in_turns(some)]
    assert order == ["code-edit", "chat", "creative"] * 2


def test_two_sessions_are_compared_by_their_speedups(tmp_path: Path) -> None:
    answer, _ = search(tmp_path, Machine({"draft-simple k=4": times(1.6)}))
    rows: dict[str, Standing] = {s.name: s for s in answer.standings}
    one, other = rows["draft-simple k=4"], rows["draft-simple k=4, draft KV q8_0"]
    assert one.group != other.group
    found = apart(one, other)
    assert found.speedup == pytest.approx(1.0, rel=0.01)
    assert found.noise > max(one.speed.noise, other.speed.noise)


@pytest.mark.parametrize("changes", [{"minutes": 0}, {"prompts": ()}, {"candidates": ()}])
def test_what_cannot_be_searched_is_a_usage_error(tmp_path: Path, changes: Any) -> None:
    with pytest.raises(UsageError):
        job(tmp_path, **{"some": PAIR, **changes})
