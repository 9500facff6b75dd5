"""A benchmark of servers: the same definitions as in-process, on the client's clock."""

from __future__ import annotations

import gc
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_served import (
    FAST_REPLY,
    PLAIN_REPLY,
    STEP,
    FakeFleet,
    Reply,
    conducted,
    cycle,
    failing,
    interval,
    plan,
)

from specctl.bench import page
from specctl.bench.compare import compare, unlike
from specctl.bench.results import SCHEMA, SERVED_SCHEMA, Outcome, document, kept_path
from specctl.bench.run import PLAIN, Arm, RunDone
from specctl.bench.served import check_batches, waves
from specctl.bench.served_conduct import Subject, conduct_served
from specctl.bench.stored import parse
from specctl.errors import RemoteError, UsageError
from specctl.events import Cycle
from specctl.settings import SpecSettings

WARM_UPS = 2


def kept(outcome: Outcome) -> dict[str, Any]:
    """As a file holds it, of an idle machine."""
    data = json.loads(json.dumps(document(outcome)))
    data["machine"].update(load_before=0.1, load_after=0.1)
    return data


# ---------------------------------------------------------------- figures


def test_the_time_from_first_to_last_token_is_for_the_tokens_after_the_first(
    tmp_path: Path,
) -> None:
    report = conducted(tmp_path, FakeFleet()).report
    (total,) = report.totals
    assert total.speed.plain_rate == pytest.approx(1 / STEP)
    assert total.speed.rate == pytest.approx(12 / 0.06)
    assert total.speed.speedup == pytest.approx(2.0)
    assert total.speed.verdict == "faster"
    assert (total.plain_ttft, total.ttft) == (0.5, 0.5)
    assert total.identity.same == 2
    assert [row.workload for row in report.rows] == ["code-edit", "chat"]


def test_a_first_chunk_of_several_tokens_is_not_timed(tmp_path: Path) -> None:
    def answers(arm: str, chats: Any) -> list[Reply]:
        return [PLAIN_REPLY if arm == PLAIN else replace(FAST_REPLY, first_tokens=4)]

    (total,) = conducted(tmp_path, FakeFleet(answers)).report.totals
    assert total.speed.rate == pytest.approx(9 / 0.06)


def test_break_even_is_against_the_plain_run_of_the_same_prompt(tmp_path: Path) -> None:
    (total,) = conducted(tmp_path, FakeFleet()).report.totals
    assert total.totals.acceptance_rate == pytest.approx(2 / 3)
    assert total.totals.accepted_per_cycle == 2
    assert total.totals.break_even == pytest.approx(0.015 / STEP - 1)
    assert total.totals.coverage == 1.0


def test_break_even_is_on_the_servers_clock_where_plain_shows_its_passes(tmp_path: Path) -> None:
    records = (cycle(0, 0, 0.0, index=0), *(cycle(0, 0, 0.008) for _ in range(12)))

    def answers(arm: str, chats: Any) -> list[Reply]:
        return [replace(PLAIN_REPLY, records=records) if arm == PLAIN else FAST_REPLY]

    (total,) = conducted(tmp_path, FakeFleet(answers)).report.totals
    assert total.totals.break_even == pytest.approx(0.015 / 0.008 - 1)  # 10 ms by our clock


def test_without_a_plain_arm_there_is_no_break_even(tmp_path: Path) -> None:
    records = tuple(cycle(3, 2, 0.015, t_1=0.005) for _ in range(4))  # its own guess

    def answers(arm: str, chats: Any) -> list[Reply]:
        return [replace(FAST_REPLY, records=records)]

    (total,) = conducted(tmp_path, FakeFleet(answers), plan(baseline=False)).report.totals
    assert total.totals.break_even is None
    assert total.totals.accepted_per_cycle == 2


def test_the_prompts_pass_is_no_pass_of_one_token(tmp_path: Path) -> None:
    first = cycle(0, 0, 0.0, index=0)

    def answers(arm: str, chats: Any) -> list[Reply]:
        if arm == PLAIN:
            return [replace(PLAIN_REPLY, records=(first, *[cycle(0, 0, STEP)] * 12))]
        mine = (first, *[cycle(0, 0, STEP)] * 4, *[cycle(3, 2, STEP)] * 4)
        return [replace(FAST_REPLY, records=mine)]

    outcome = conducted(tmp_path, FakeFleet(answers))
    arm = [run for run in outcome.runs if run.arm != PLAIN]
    assert [(run.single_passes, run.single_seconds) for run in arm] == [(4, 4 * STEP)] * 2
    assert outcome.report.totals[0].speed.noise == pytest.approx(0.10)  # the pace was the same
    assert outcome.report.totals[0].totals.coverage == pytest.approx(4 / 9)  # there it is counted


def test_counters_of_a_whole_answer_serve_as_well(tmp_path: Path) -> None:
    def answers(arm: str, chats: Any) -> list[Reply]:
        return [PLAIN_REPLY if arm == PLAIN else replace(FAST_REPLY, records=(interval(),))]

    (total,) = conducted(tmp_path, FakeFleet(answers)).report.totals
    assert total.totals.acceptance_rate == pytest.approx(7 / 12)
    assert total.totals.coverage == pytest.approx(4 / 6)
    # (60 ms − 2 plain passes) / (4 drafts · 10 ms) − 1
    assert total.totals.break_even == pytest.approx(0.04 / 0.04 - 1)


def test_a_server_that_tells_nothing_is_not_called_silent(tmp_path: Path) -> None:
    def answers(arm: str, chats: Any) -> list[Reply]:
        return [PLAIN_REPLY if arm == PLAIN else replace(FAST_REPLY, records=())]

    report = conducted(tmp_path, FakeFleet(answers)).report
    assert report.undrafted == ()
    assert report.totals[0].totals.coverage is None
    assert report.failures == ()


def test_a_server_that_drafted_nothing_is(tmp_path: Path) -> None:
    silent = interval(drafted_passes=0, drafted=0, accepted=0)

    def answers(arm: str, chats: Any) -> list[Reply]:
        return [replace(PLAIN_REPLY, records=(silent,))]

    report = conducted(tmp_path, FakeFleet(answers)).report
    assert report.failures == ("ngram-simple never drafted",)
    assert report.undrafted[0].reasons == (("not told by the server", 12),)


def test_an_answer_without_time_is_left_out(tmp_path: Path) -> None:
    def answers(arm: str, chats: Any) -> list[Reply]:
        short = "number 0" in chats[0][-1]["content"]
        one = PLAIN_REPLY if arm == PLAIN else FAST_REPLY
        return [replace(one, tokens=1, last=0.5) if short else one]

    report = conducted(tmp_path, FakeFleet(answers)).report
    assert report.prompts[0].speed.speedup is None
    assert report.totals[0].speed.speedup == pytest.approx(2.0)


# ---------------------------------------------------------------- order


def test_both_up_runs_are_interleaved_and_one_is_asked_at_a_time(tmp_path: Path) -> None:
    fleet = FakeFleet()
    conducted(tmp_path, fleet)
    assert fleet.log == [
        *("open plain", "plain ×1 n13 False", "open ngram-simple", "ngram-simple ×1 n13 False"),
        *("plain ×1 n13 True", "ngram-simple ×1 n13 True"),
        *("ngram-simple ×1 n13 True", "plain ×1 n13 True"),
        *("close ngram-simple", "close plain"),
    ]


def test_in_turn_only_one_is_up(tmp_path: Path) -> None:
    fleet = FakeFleet(together=False, servers="in turn")
    outcome = conducted(tmp_path, fleet)
    assert [line for line in fleet.log if "×" not in line] == [
        *("open plain", "close plain", "open ngram-simple", "close ngram-simple"),
    ]
    assert outcome.report.totals[0].speed.speedup == pytest.approx(2.0)
    assert any("one server after the other" in line for line in outcome.report.conditions)


# ---------------------------------------------------------------- texts


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"text": "worse"}, "differs from byte 3 on"),
        ({"text": "wörds"}, "differs from byte 1 on"),
        ({"text": "word"}, "the arm's text ends at byte 4"),
        ({"text": "words!"}, "plain's text ends at byte 5"),
        ({"tokens": 12}, "the same text in 12 tokens, plain's in 13"),
    ],
)
def test_a_differing_text_is_neither_tie_nor_bug(
    tmp_path: Path, change: dict[str, Any], why: str
) -> None:
    def answers(arm: str, chats: Any) -> list[Reply]:
        return [PLAIN_REPLY if arm == PLAIN else replace(FAST_REPLY, **change)]

    report = conducted(tmp_path, FakeFleet(answers)).report
    (first, *_) = report.differences
    assert first.identity.status == "differs"
    assert first.identity.why.startswith(why)
    assert "cannot be told over HTTP" in first.identity.why
    assert report.totals[0].identity.differs == 2
    assert (report.bugs, report.failures) == ((), ())


def test_plain_that_does_not_repeat_itself_is_told_by_its_text(tmp_path: Path) -> None:
    texts = iter("abcdefgh")

    def answers(arm: str, chats: Any) -> list[Reply]:
        return [replace(PLAIN_REPLY, text=next(texts)) if arm == PLAIN else FAST_REPLY]

    report = conducted(tmp_path, FakeFleet(answers), plan(repeats=2)).report
    assert report.unstable == ("code-edit/p0", "chat/p1")


# ---------------------------------------------------------------- batches


def test_waves_ask_every_prompt_and_are_filled_up() -> None:
    made = waves(plan(prompts=3).prompts, (1, 2, 4))
    assert [(w.prompt.family, len(w.members)) for w in made] == [
        *[("batch 1", 1)] * 3,
        *[("batch 2", 2)] * 2,
        ("batch 4", 4),
    ]
    assert [m.name for w in made if w.prompt.family == "batch 2" for m in w.members] == [
        *("p0", "p1"),
        *("p2", "p0"),
    ]


def test_throughput_of_a_wave_counts_all_its_time_and_tokens(tmp_path: Path) -> None:
    def answers(arm: str, chats: Any) -> list[Reply]:
        if len(chats) == 1:
            return [PLAIN_REPLY if arm == PLAIN else FAST_REPLY]
        last = 2.0 if arm == PLAIN else 1.6  # the gain shrinks
        return [
            replace(PLAIN_REPLY, sent=100.0 + n / 10, last=last - 0.1) for n in range(len(chats))
        ]

    outcome = conducted(tmp_path, FakeFleet(answers, slots=4), batches=(1, 2))
    served = outcome.served
    assert served is not None
    assert served.batches is not None
    one, two = served.batches.rows
    assert (one.workload, two.workload) == ("batch 1", "batch 2")
    assert one.speed.plain_rate == pytest.approx(13 / 0.62)  # prompts included
    assert two.speed.plain_rate == pytest.approx(26 / 2.0)
    assert two.speed.rate == pytest.approx(26 / 1.6)
    assert two.speed.speedup == pytest.approx(1.25)
    assert outcome.report.totals[0].speed.speedup == pytest.approx(2.0)  # waves are not in it
    assert len(outcome.runs) == 4


def test_texts_of_a_wave_are_compared_one_by_one(tmp_path: Path) -> None:
    def answers(arm: str, chats: Any) -> list[Reply]:
        odd = len(chats) == 2 and arm != PLAIN
        return [
            replace(PLAIN_REPLY, text="other" if odd and n else "words") for n in range(len(chats))
        ]

    served = conducted(tmp_path, FakeFleet(answers), batches=(2,)).served
    assert served is not None
    assert served.batches is not None
    (difference,) = served.batches.differences
    assert difference.identity.why.startswith("1 of 2 answers: differs from byte 0")


def test_the_pace_of_plain_passes_is_no_noise_of_a_batch(tmp_path: Path) -> None:
    def answers(arm: str, chats: Any) -> list[Reply]:
        slow = STEP if arm == PLAIN else 2 * STEP  # rows of other answers are in these passes
        records = tuple(cycle(0, 0, slow) for _ in range(12))
        return [replace(PLAIN_REPLY, records=records)] * len(chats)

    outcome = conducted(tmp_path, FakeFleet(answers), batches=(2,))
    assert outcome.served is not None
    assert outcome.served.batches is not None
    assert outcome.served.batches.rows[0].speed.noise == pytest.approx(0.10)
    assert outcome.report.totals[0].speed.noise == pytest.approx(1.1 * 2 - 1)  # one at a time it is


def test_what_is_not_looked_at_again_is_not_kept(tmp_path: Path) -> None:
    def answers(arm: str, chats: Any) -> list[Reply]:
        records = tuple(cycle(0, 0, STEP, text="word") for _ in range(12))
        return [replace(PLAIN_REPLY, records=records) for _ in chats]

    def alive() -> list[Cycle]:
        return [one for one in gc.get_objects() if isinstance(one, Cycle)]

    gc.collect()
    before = alive()  # other tests' garbage: held, so that it neither goes nor counts
    known = {id(one) for one in before}
    steps = conduct_served(plan(), (2,), FakeFleet(answers), Subject(tmp_path, None, 0))
    runs = 0
    for step in steps:
        if isinstance(step, RunDone):
            runs += 1
        if runs == 6:  # two prompts and a wave, twice
            break
    texts = [one.text for one in alive() if id(one) not in known]
    assert texts.count("") == 2 * 12  # of the arm's single requests, for break-even
    assert texts.count("word") == 12  # of the last answer, which is still in hand


def test_more_at_once_than_there_are_prompts_is_said(tmp_path: Path) -> None:
    def said(*sizes: int) -> bool:
        conditions = conducted(tmp_path, FakeFleet(slots=8), batches=sizes).report.conditions
        return any("above 2 a wave asks prompts more than once" in line for line in conditions)

    assert said(1, 4)
    assert not said(1, 2)


@pytest.mark.parametrize("sizes", [(0,), (1000,), (1, -2), (257,)])
def test_batches_that_cannot_be(sizes: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match=r"is not in 1 … 256"):
        check_batches(sizes)


def test_batches_are_sorted_once_each() -> None:
    assert check_batches([4, 1, 4]) == (1, 4)


# ---------------------------------------------------------------- failures


def test_a_server_that_dies_leaves_what_every_arm_has_done(tmp_path: Path) -> None:
    outcome = conducted(tmp_path, FakeFleet(failing(WARM_UPS + 3)))
    assert outcome.interrupted
    assert [prompt.name for prompt in outcome.plan.prompts] == ["p0"]
    assert len(outcome.runs) == 2
    assert outcome.served is not None
    assert outcome.served.failure == "plain on chat/p1: the server is gone"
    assert outcome.report.totals[0].speed.speedup == pytest.approx(2.0)
    stored = parse(kept(outcome))
    assert stored.interrupted
    assert stored.served is not None
    assert "the server is gone" in stored.served.failure
    assert "the server is gone" in page.page(kept(outcome))


def test_a_server_that_dies_in_a_batch_keeps_the_batches_before(tmp_path: Path) -> None:
    fleet = FakeFleet(failing(WARM_UPS + 4 + 4 + 1))  # singles, batch 1, half of batch 2
    outcome = conducted(tmp_path, fleet, batches=(1, 2))
    assert outcome.served is not None
    assert outcome.served.batches is not None
    assert [row.workload for row in outcome.served.batches.rows] == ["batch 1"]
    assert len(outcome.plan.prompts) == 2
    assert outcome.served.failure.startswith("ngram-simple on batch 2/wave-1")


@pytest.mark.parametrize("calls", [0, WARM_UPS, WARM_UPS + 1])
def test_nothing_done_is_the_servers_own_error(tmp_path: Path, calls: int) -> None:
    with pytest.raises(RemoteError, match="the server is gone"):
        conducted(tmp_path, FakeFleet(failing(calls)))


def test_ctrl_c_keeps_what_is_complete(tmp_path: Path) -> None:
    outcome = conducted(tmp_path, FakeFleet(failing(WARM_UPS + 2, KeyboardInterrupt())))
    assert outcome.interrupted
    assert outcome.served is not None
    assert outcome.served.failure == ""
    with pytest.raises(KeyboardInterrupt):
        conducted(tmp_path, FakeFleet(failing(WARM_UPS, KeyboardInterrupt())))


# ---------------------------------------------------------------- without plain decoding


def test_without_a_baseline_the_speed_up_is_not_known(tmp_path: Path) -> None:
    fleet = FakeFleet(servers="no plain", started=False, engine="vllm")
    outcome = conducted(tmp_path, fleet, plan(baseline=False), batches=(2,))
    (total,) = outcome.report.totals
    assert total.speed.rate == pytest.approx(200)
    assert (total.speed.speedup, total.speed.plain_rate, total.plain_ttft) == (None, None, None)
    assert total.totals.break_even is None
    assert "open plain" not in fleet.log
    assert any("speed-up not known" in line for line in outcome.report.conditions)
    stored = parse(kept(outcome))
    assert stored.totals[0].speed.speedup is None
    text = page.page(kept(outcome))
    assert "not known" in text
    assert "never drafted" not in text


# ---------------------------------------------------------------- what is said


def lines(tmp_path: Path, batches: tuple[int, ...] = (), **changes: Any) -> str:
    outcome = conducted(tmp_path, FakeFleet(**changes), batches=batches)
    return "\n".join(outcome.report.conditions)


def test_conditions_say_what_is_not_equal(tmp_path: Path) -> None:
    said = lines(tmp_path, method="ngram-mod")
    for words in ("clock: ours", "sampling:", "chat template:", "switched off in each request"):
        assert words in said
    for words in ("warm-up:", "ignore_eos", "the same in all arms", "keeps the pool of ngram-mod"):
        assert words in said
    theirs = lines(tmp_path, started=False, servers="given", engine="vllm", can_ignore_eos=False,
                   ignore_eos=False)  # fmt: skip
    assert "the server's own, not told" in theirs
    assert "repeats may find their prompt read already" in theirs
    assert "the server has no ignore_eos" in theirs
    assert "keeps the pool" not in theirs
    assert "answers end where the model ends them" in lines(tmp_path, ignore_eos=False)
    assert "works on 4 at once" in lines(tmp_path, (8,), slots=4)
    assert "at once:" not in lines(tmp_path, (4,), slots=4)


def test_notes_of_answers_are_said_once(tmp_path: Path) -> None:
    def answers(arm: str, chats: Any) -> list[Reply]:
        return [replace(PLAIN_REPLY, notes=("chunks stand for tokens",))] * len(chats)

    conditions = conducted(tmp_path, FakeFleet(answers)).report.conditions
    assert conditions.count("chunks stand for tokens") == 1


# ---------------------------------------------------------------- kept, compared


def test_a_result_has_a_schema_of_its_own_and_is_read_back(tmp_path: Path) -> None:
    outcome = conducted(tmp_path, FakeFleet(), batches=(1, 2))
    data = kept(outcome)
    assert data["schema"] == SERVED_SCHEMA
    assert data["served"]["engine"] == "llama-server"
    assert [row["workload"] for row in data["served"]["batches"]] == ["batch 1", "batch 2"]
    assert data["runs"][0]["tokens_hash"] is None
    assert (data["runs"][0]["tokens"], data["runs"][0]["timed_tokens"]) == (13, 12)
    assert len({run["text_hash"] for run in data["runs"]}) == 1
    stored = parse(data)
    assert stored.served is not None
    assert [row.speed.speedup for row in stored.served.batches] == [
        row["speedup"] for row in data["served"]["batches"]
    ]
    assert stored.where == "llama-server"
    assert list(stored.conditions) == data["report"]["conditions"]
    assert kept_path(outcome).name.endswith("-llama-server-fake.json")
    text = page.page(data)
    assert "How the gain changes with the batch" in text
    assert "clock: ours" in text


def test_what_a_running_server_does_not_tell_is_not_claimed(tmp_path: Path) -> None:
    data = kept(conducted(tmp_path, FakeFleet(started=False, servers="one")))
    assert data["model"] == {"file": "their-model", "bytes": None}
    assert data["settings"] == {}
    stored = parse(data)
    assert stored.threads_said == "threads not told"
    assert "context" not in page.page(data)


@pytest.fixture
def in_process(tmp_path: Path) -> dict[str, Any]:
    """The same prompts and model in-process."""
    pytest.importorskip("numpy")
    from fake_bench import GOOD, FakeSession, finished

    what = replace(plan(), max_tokens=13)
    session = FakeSession({("ngram-simple",): GOOD})
    data = json.loads(json.dumps(document(finished(tmp_path, session, what))))
    data["machine"].update(load_before=0.1, load_after=0.1, threads=2)
    return data


def test_engines_are_compared_only_where_that_is_asked(
    tmp_path: Path, in_process: dict[str, Any]
) -> None:
    assert in_process["schema"] == SCHEMA
    ours, theirs = parse(in_process, "A"), parse(kept(conducted(tmp_path, FakeFleet())), "B")
    with pytest.raises(UsageError, match="engine: in-process in A, llama-server in B") as caught:
        compare(ours, theirs)
    assert "--across-engines" in (caught.value.hint or "")
    found = compare(ours, theirs, across=True)
    (*_, last) = found.pairs
    assert last.change == pytest.approx(2.0 / last.a.speed.speedup)
    said = " ".join(found.notes)
    assert "in-process the clock is that of the loop" in said
    assert "look-up drafters in-process are specctl's own" in said


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: data.update(max_tokens=14), "max-tokens: 13 in A, 14 in B"),
        (lambda data: data.update(ignore_eog=False), "past the end of a text: goes on in A"),
        (lambda data: data["model"].update(bytes=5), "model: fake.gguf, 4 bytes in A"),
        (lambda data: data["prompts"][0].update(text_hash="x"), "another text under the same"),
        (lambda data: data["prompts"][0].update(prompt="chat/z"), "prompts only in A"),
        (lambda data: data["machine"].update(threads=1), "threads: 2 in A, 1 in B"),
        (lambda data: data["settings"].update(n_ctx=99), "n_ctx: 4096 in A, 99 in B"),
    ],
)
def test_across_engines_everything_else_must_be_the_same(
    tmp_path: Path, in_process: dict[str, Any], change: Any, words: str
) -> None:
    data = kept(conducted(tmp_path, FakeFleet()))
    ours = parse(in_process)
    assert unlike(ours, parse(data), across=True) == ()
    change(data)
    assert any(words in reason for reason in unlike(ours, parse(data), across=True))


def test_two_results_of_servers_are_compared_as_any(tmp_path: Path) -> None:
    one = parse(kept(conducted(tmp_path, FakeFleet())))
    assert unlike(one, one) == ()
    other = parse(kept(conducted(tmp_path, FakeFleet(engine="vllm", started=False))))
    assert any(reason.startswith("engine:") for reason in unlike(one, other))


def test_arms_are_named_as_they_are_asked(tmp_path: Path) -> None:
    arms = (
        Arm("ngram-simple k=2", SpecSettings(types=("ngram-simple",), k=2)),
        Arm("ngram-simple k=4", SpecSettings(types=("ngram-simple",), k=4)),
    )
    report = conducted(tmp_path, FakeFleet(), plan(arms=arms)).report
    assert report.arms == ("ngram-simple k=2", "ngram-simple k=4")
    assert [row.speed.speedup for row in report.totals] == [pytest.approx(2.0)] * 2
