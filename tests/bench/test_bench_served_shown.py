"""What is said of servers: the same on every face, and nothing of the machine that only asked."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_served import FAST_REPLY, PLAIN_REPLY, FakeFleet, Reply, conducted, interval, plan
from rich.console import Console

from specctl import paths
from specctl.bench import page, svg, words
from specctl.bench.compare import compare
from specctl.bench.results import Outcome, document, kept_path, load_of_others, write
from specctl.bench.run import PLAIN
from specctl.bench.stored import Stored, parse
from specctl.cli import bench_engine, bench_kept, bench_view, home_rows


def shown(draw: Any) -> str:
    file = io.StringIO()
    draw(Console(file=file, width=140))
    return " ".join(file.getvalue().split())


def stored(outcome: Outcome, **machine: Any) -> Stored:
    """Read back; of an idle machine, or of this one."""
    data = json.loads(json.dumps(document(outcome)))
    idle = {"load_before": 0.1, "load_after": 0.1, "cpu": "Client CPU", "system": "Linux"}
    data["machine"].update(idle, **machine)
    return parse(data)


# ---------------------------------------------------------------- never drafted


def silent(arm: str, chats: Sequence[Any]) -> list[Reply]:
    """Counters that tell of drafts (none) and not of passes: coverage is not known."""
    told = interval(passes=None, drafted_passes=0, drafted=0, accepted=0)
    return [PLAIN_REPLY if arm == PLAIN else replace(PLAIN_REPLY, records=(told,))] * len(chats)


def test_never_drafted_is_said_by_every_face(tmp_path: Path) -> None:
    outcome = conducted(tmp_path, FakeFleet(silent))
    kept = stored(outcome)
    (total,) = kept.totals
    assert total.coverage is None
    write(paths.data_dir() / "bench" / "a.json", document(outcome))
    (row,) = home_rows.results().rows
    for said in (
        shown(
            lambda console: console.print(
                bench_view.speeds(outcome.report.totals, True, undrafted=outcome.report.undrafted)
            )
        ),
        shown(lambda console: bench_kept.show(console, kept)),
        svg.word(kept, total),
        str(getattr(row, "arms", "")),
        " ".join(outcome.failures),
    ):
        assert words.NEVER in said


def test_never_drafted_stands_before_a_speed_up_that_is_not_known() -> None:
    fast = conducted_speed(speedup=None)
    assert words.verdict(fast, undrafted=True) == words.NEVER
    assert words.verdict(fast) == words.UNKNOWN


def conducted_speed(**changes: Any) -> Any:
    from specctl.bench.report import Speed

    base = Speed(None, 10.0, 1.5, None, None, 0.1, 1, "no difference shown")
    return replace(base, **changes)


# ---------------------------------------------------------------- whose machine


def test_a_given_servers_result_is_not_said_to_be_of_the_clients_machine(tmp_path: Path) -> None:
    there = FakeFleet(started=False)
    kept = stored(conducted(tmp_path, there))
    text = shown(lambda console: bench_kept.show(console, kept))
    assert "llama-server b1, asked from Client CPU, Linux" in text
    assert "asked from Client CPU" in svg.picture(kept)
    data = json.loads(json.dumps(document(conducted(tmp_path, there))))
    assert "asked from</td>" in page.page(data)
    ours = stored(conducted(tmp_path, FakeFleet()))
    assert "asked from" not in shown(lambda console: bench_kept.show(console, ours))


def test_nor_are_other_programs(tmp_path: Path) -> None:
    there = conducted(tmp_path, FakeFleet(started=False))
    kept = stored(there, load_before=900.0)
    assert "running where it was asked from (load average 900.0)" in shown(
        lambda console: bench_kept.show(console, kept)
    )
    notes = " ".join(compare(kept, kept).notes)
    assert "running during A where it was asked from (load average 900.0)" in notes
    ours = stored(conducted(tmp_path, FakeFleet()), load_before=900.0)
    assert "running (load average 900.0)" in shown(lambda console: bench_kept.show(console, ours))


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [(None, None, None), (4.0, 1.0, 4.0), (0.1, 7.0, 5.0), (0.1, 3.0, None), (2.0, None, None)],
)
def test_the_load_of_others_is_without_our_own_threads(
    before: float | None, after: float | None, expected: float | None
) -> None:
    assert load_of_others(before, after, threads=2, cores=4) == expected


# ---------------------------------------------------------------- batches


def odd_batch(arm: str, chats: Sequence[Any]) -> list[Reply]:
    """In waves the arm is silent and writes another text; single requests are as they should be."""
    if arm == PLAIN or len(chats) == 1:
        return [PLAIN_REPLY if arm == PLAIN else FAST_REPLY] * len(chats)
    return [replace(one, text="other") for one in silent(arm, chats)]


def test_what_goes_wrong_in_batches_is_shown_kept_and_strict(tmp_path: Path) -> None:
    outcome = conducted(tmp_path, FakeFleet(odd_batch), batches=(2,))
    assert outcome.report.failures == ()
    assert outcome.failures == ("in batches ngram-simple never drafted",)
    kept = stored(outcome)
    assert kept.served is not None
    assert kept.served.batch_failures == ("ngram-simple never drafted",)
    (row,) = kept.served.batches
    assert svg.word(kept, row) == words.NEVER
    assert svg.word(kept, kept.totals[0]) == "faster"
    for text in (
        shown(lambda console: bench_engine.show_batches(console, outcome)),
        shown(lambda console: bench_kept.show(console, kept)),
    ):
        assert "in batches ngram-simple never drafted" in text
        assert "1 wave with a differing text" in text
    drawn = page.page(json.loads(json.dumps(document(outcome))))
    assert "in batches ngram-simple never drafted" in drawn
    assert "waves with a differing text: 1" in drawn


def test_each_wave_is_kept_with_how_its_texts_compare(tmp_path: Path) -> None:
    runs = document(conducted(tmp_path, FakeFleet(odd_batch), batches=(1, 2)))["served"][
        "batch_runs"
    ]
    found = {
        (run["prompt"], run["arm"]): run["identity"] and run["identity"]["status"] for run in runs
    }
    assert found == {
        ("batch 1/wave-1", PLAIN): None,
        ("batch 1/wave-2", PLAIN): None,
        ("batch 2/wave-1", PLAIN): None,
        ("batch 1/wave-1", "ngram-simple"): "same",
        ("batch 1/wave-2", "ngram-simple"): "same",
        ("batch 2/wave-1", "ngram-simple"): "differs",
    }


def test_plain_that_does_not_repeat_itself_in_a_batch_is_strict(tmp_path: Path) -> None:
    texts = iter(range(1000))

    def answers(arm: str, chats: Sequence[Any]) -> list[Reply]:
        if len(chats) == 1:
            return [PLAIN_REPLY if arm == PLAIN else FAST_REPLY]
        return [replace(FAST_REPLY, text=str(next(texts))) for _ in chats]

    outcome = conducted(tmp_path, FakeFleet(answers), plan(repeats=2), batches=(2,))
    assert "in batches plain decoding does not repeat itself" in outcome.failures


# ---------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("Qwen/Qwen2.5-7B-Instruct", "llama-server-Qwen2.5-7B-Instruct"),
        ("/models/Qwen2.5-7B.Q8_0.gguf", "llama-server-Qwen2.5-7B.Q8_0"),
        ("odd name: x", "llama-server-odd-name-x"),
    ],
)
def test_a_kept_result_has_the_whole_name_of_its_model(
    tmp_path: Path, model: str, name: str
) -> None:
    outcome = replace(conducted(tmp_path, FakeFleet(started=False)), model=Path(model))
    assert kept_path(outcome).stem.endswith(f"-{name}")
