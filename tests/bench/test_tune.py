"""The search for the best settings on a scripted machine: what must come out is known exactly."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from fake_bench import STEP, Cost, FakeSession

from specctl.bench.report import verdict
from specctl.bench.tune import (
    Candidate,
    Pace,
    Standing,
    apart,
    candidates,
    choose,
    first_size,
    later_size,
    spread,
    variants,
)
from specctl.bench.tune_job import COUNTING, tune
from specctl.bench.tune_k import suggested_k
from specctl.bench.tune_state import State
from specctl.bench.tune_steps import Answer, Disqualified, Job, Ran, Said, StageBegan, Step
from specctl.bench.workloads import Prompt
from specctl.errors import UsageError
from specctl.settings import EngineSettings, Request, Sampling, SpecSettings

pytest.importorskip("numpy")

PAIR = candidates(("draft-simple",), ("draft-simple",))
ALONE = candidates((), ())
SLOW = Cost(k=3, accepted=0, t_d=0.002, t_v=0.018)


def times(speedup: float, k: int = 4, accepted: int = 3) -> Cost:
    """An arm that is this much faster than plain decoding."""
    return Cost(k=k, accepted=accepted, t_v=(accepted + 1) * STEP / speedup)


@dataclass
class Machine:
    """Opens scripted sessions and keeps the time. `speeds` by candidate, `threads` by number;
    `noise` multiplies the seconds of each generation; `stop_at`: Ctrl-C in that one.
    """

    speeds: dict[str, Cost] = field(default_factory=dict)
    threads: dict[int, float] = field(default_factory=dict)
    noise: Callable[[int], float] = lambda n: 1.0
    texts: Callable[[tuple[int, ...], tuple[str, ...]], tuple[int, ...]] | None = None
    stop_at: int | None = None
    now: float = 0.0
    generated: int = 0
    opened: list[tuple[bool, str, int | None]] = field(default_factory=list)

    def clock(self) -> float:
        return self.now

    def open(
        self, model: Path, draft: Path | None, specs: Sequence[SpecSettings], settings: Any
    ) -> FakeSession:
        self.opened.append((draft is not None, settings.draft.kv_type_k, settings.threads))
        slow = 1 / self.threads.get(settings.threads, 1.0)
        return Scripted(self, slow)


class Scripted(FakeSession):
    def __init__(self, machine: Machine, slow: float) -> None:
        super().__init__(
            texts=machine.texts, pace=lambda n: slow * machine.noise(machine.generated)
        )
        self.machine = machine
        self.rows = lambda tokens, batch: [0.0] * 1200

    def generate(self, request: Request) -> Iterator[Any]:
        machine, spec = self.machine, self.spec
        if machine.stop_at is not None and machine.generated >= machine.stop_at:
            raise KeyboardInterrupt
        name = ",".join(spec.types) + (f" k={spec.k}" if spec.k else "")
        if len(spec.types) > 1:
            name += f" n-max={spec.draft.n_max}"
        self.costs = {
            spec.types: machine.speeds.get(name, SLOW if spec.types != ("none",) else Cost())
        }
        for record in super().generate(request):
            yield record
        machine.generated += 1
        machine.now += record.seconds


def prompts(count: int = 4) -> tuple[Prompt, ...]:
    return tuple(Prompt(("code-edit", "chat")[n % 2], f"p{n}", f"prompt {n}") for n in range(count))


def job(tmp_path: Path, some: Sequence[Candidate] = PAIR, **changes: Any) -> Job:
    for name in ("target.gguf", "draft.gguf"):
        (tmp_path / name).write_bytes(b"GGUF")
    drafted = any(one.draft for one in some)
    values: dict[str, Any] = {
        "model": tmp_path / "target.gguf",
        "draft": tmp_path / "draft.gguf" if drafted else None,
        "candidates": tuple(some),
        "methods": ("draft-simple",) if drafted else (),
        "prompts": prompts(),
        "settings": EngineSettings(),
        "sampling": Sampling(),
        "threads": (2,),
        "minutes": 10.0,
        "max_tokens": 32,
        **changes,
    }
    return Job(**values)


def state(tmp_path: Path, what: Job, machine: Machine, head: Any = "the same") -> State:
    every = (*what.prompts, COUNTING)
    return State(tmp_path / "tune" / "state.jsonl", {"head": head}, every, machine.clock)


def search(tmp_path: Path, machine: Machine, what: Job | None = None) -> tuple[Answer, list[Step]]:
    what = what or job(tmp_path)
    steps = list(tune(what, machine.open, state(tmp_path, what, machine)))
    last = steps[-1]
    assert isinstance(last, Answer)
    return last, steps


def winner(answer: Answer) -> str | None:
    return answer.choice.winner.name if answer.choice.winner else None


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


# ---------------------------------------------------------------- stopped, and gone on with


@pytest.mark.parametrize("stop_at", [1, 6, 13, 20, 40, 70, 100, 150])
def test_stopped_anywhere_it_goes_on_to_the_same_answer(tmp_path: Path, stop_at: int) -> None:
    speeds = {"auto": times(1.3), "draft-simple k=4": times(1.4), "ngram-cache": times(1.1)}
    what = job(tmp_path, threads=(2, 1))
    whole, steps = search(tmp_path / "whole", Machine(dict(speeds)), what)
    machine = Machine(dict(speeds), stop_at=stop_at)
    with pytest.raises(KeyboardInterrupt):
        list(tune(what, machine.open, state(tmp_path, what, machine)))
    kept = state(tmp_path, what, machine)
    machine.stop_at = None
    before, runs = machine.generated, kept.runs
    again = list(tune(what, machine.open, kept))
    answer = again[-1]
    assert isinstance(answer, Answer)
    assert winner(answer) == winner(whole)
    assert answer.choice.reasons == whole.choice.reasons
    assert answer.runs == whole.runs
    done = sum(isinstance(step, Ran) for step in again)
    assert done == sum(isinstance(step, Ran) for step in steps) - runs
    assert before < machine.generated


def test_stopped_twice_nothing_is_measured_twice(tmp_path: Path) -> None:
    what = job(tmp_path, minutes=1.0)
    machine = Machine({"auto": times(1.3)})
    for stop_at in (22, 50):
        machine.stop_at = stop_at
        with pytest.raises(KeyboardInterrupt):
            list(tune(what, machine.open, state(tmp_path, what, machine)))
    kept = state(tmp_path, what, machine)
    keys = [(place, run.key) for place, part in kept._parts.items() for run in part.runs]
    assert len(keys) == len(set(keys)) > 10


def test_another_search_starts_anew_and_says_so(tmp_path: Path) -> None:
    what = job(tmp_path)
    machine = Machine(stop_at=14)
    with pytest.raises(KeyboardInterrupt):
        list(tune(what, machine.open, state(tmp_path, what, machine)))
    assert state(tmp_path, what, machine).runs
    other = state(tmp_path, what, machine, head="another")
    assert (other.runs, other.replaced) == (0, True)


@pytest.mark.parametrize("cut", [1, 5, 40, 400])
def test_a_file_that_was_cut_off_is_used_up_to_there(tmp_path: Path, cut: int) -> None:
    what = job(tmp_path)
    machine = Machine({"ngram-suffix": times(1.4)}, stop_at=25)
    with pytest.raises(KeyboardInterrupt):
        list(tune(what, machine.open, state(tmp_path, what, machine)))
    file = tmp_path / "tune" / "state.jsonl"
    text = file.read_text(encoding="utf-8")
    file.write_text(text[:-cut], encoding="utf-8")
    machine.stop_at = None
    kept = state(tmp_path, what, machine)
    assert kept.runs > 0
    answer = list(tune(what, machine.open, kept))[-1]
    assert isinstance(answer, Answer)
    assert winner(answer) == "ngram-suffix"
    assert all(line.startswith("{") for line in file.read_text(encoding="utf-8").splitlines())


def test_what_is_no_state_at_all_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "tune" / "state.jsonl"
    file.parent.mkdir()
    file.write_bytes(b"\xff\xfe nonsense")
    what = job(tmp_path)
    assert state(tmp_path, what, Machine()).replaced


# ---------------------------------------------------------------- what it may cost


@pytest.mark.parametrize("minutes", [0.5, 1.0, 3.0, 10.0])
@pytest.mark.parametrize("slow", [0.2, 1.0, 5.0])
def test_the_budget_is_kept(tmp_path: Path, minutes: float, slow: float) -> None:
    machine = Machine({"auto": times(1.3), "ngram-suffix": times(1.2)}, noise=lambda n: slow)
    what = job(tmp_path, minutes=minutes, prompts=prompts(8), max_tokens=None)
    answer, steps = search(tmp_path, machine, what)
    assert machine.now <= minutes * 60 * 1.1
    assert answer.seconds == pytest.approx(machine.now, rel=0.02)
    used = answer.seconds / (minutes * 60)
    most = any(
        s.stage.prompts == 8 and s.stage.repeats == 5 for s in steps if isinstance(s, StageBegan)
    )
    assert used > 0.5 or most  # what is there is used


def test_a_budget_too_small_for_all_tries_the_promising_ones(tmp_path: Path) -> None:
    machine = Machine({"auto": times(1.5)}, noise=lambda n: 4.0)
    answer, steps = search(tmp_path, machine, job(tmp_path, minutes=0.9, max_tokens=None))
    left_out = [step.text for step in steps if isinstance(step, Said) and "not tried" in step.text]
    assert any("ngram-cache" in text for text in left_out)
    assert {s.name for s in answer.standings} >= {"auto", "ngram-suffix", "draft-simple k=4"}


def test_time_left_falls_to_nothing(tmp_path: Path) -> None:
    _, steps = search(tmp_path, Machine({"auto": times(1.5)}))
    left = [step.left for step in steps if isinstance(step, Ran)]
    assert left[0] > 10 * left[-1]
    assert left[-1] == pytest.approx(0, abs=1)


def test_sizes_fit_or_are_the_least() -> None:
    pace = Pace(step=0.05, rate=100.0, lengths=(100,) * 6, factors={"auto": 2.0})
    for seconds in (10.0, 60.0, 200.0, 1000.0):
        size = first_size(PAIR, pace, True, seconds, None)
        assert size.seconds <= seconds or (size.prompts, size.tokens) == (1, 32)
        later = later_size(PAIR[:2], pace, True, seconds, 64, (5, 4, 3))
        assert later is None or later.seconds <= seconds
    sizes = [later_size(PAIR[:2], pace, True, s, 64, (5, 4, 3)) for s in (1.0, 170.0, 900.0)]
    assert [size and (size.prompts, size.repeats) for size in sizes] == [None, (3, 3), (6, 5)]


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
    order = [prompt.family for prompt in spread(some)]
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
