"""A search that was stopped, its file, and what becomes of a file that was changed by hand."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tune_kit import Machine, job, search, state, times, winner

from specctl.bench.tune_job import tune
from specctl.bench.tune_steps import Answer, Job, Ran
from specctl.errors import SpecctlError

pytest.importorskip("numpy")


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


@pytest.mark.parametrize("cut", [0, 1, 8])
def test_killed_while_its_first_line_was_written_it_starts_anew(tmp_path: Path, cut: int) -> None:
    what, file, _ = stopped(tmp_path, 6)
    head = file.read_text("utf-8").splitlines()[0]
    file.write_text(head[: len(head) - cut], "utf-8")
    begun = state(tmp_path, what, Machine())
    assert (begun.runs, begun.replaced) == (0, False)
    answer = list(tune(what, Machine(dict(SPEEDS)).open, begun))[-1]
    assert isinstance(answer, Answer)
    assert state(tmp_path, what, Machine()).runs == answer.runs


# ---------------------------------------------------------------- changed by hand

SPEEDS = {"auto": times(1.3), "draft-simple k=4": times(1.4)}
Line = dict[str, Any]


def stopped(folder: Path, stop_at: int = 60) -> tuple[Job, Path, list[Line]]:
    """A search of one round and some of the next: its file, and the lines of it."""
    folder.mkdir(exist_ok=True)
    what, machine = job(folder), Machine(dict(SPEEDS), stop_at=stop_at)
    (folder / "tune" / "state.jsonl").unlink(missing_ok=True)
    with pytest.raises(KeyboardInterrupt):
        list(tune(what, machine.open, state(folder, what, machine)))
    file = folder / "tune" / "state.jsonl"
    return what, file, [json.loads(line) for line in file.read_text("utf-8").splitlines()]


def put(file: Path, lines: list[Line]) -> None:
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")


def first(lines: list[Line], kind: str, arm: str | None = None) -> Line:
    return next(
        line
        for line in lines
        if line.get("kind") == kind and (arm is None or line["run"]["arm"] == arm)
    )


def change(kind: str, *path: Any, to: Any) -> Callable[[list[Line]], Line]:
    def apply(lines: list[Line]) -> Line:
        line = first(lines, kind)
        inside: Any = line
        for key in path[:-1]:
            inside = inside[key]
        inside[path[-1]] = to
        return line

    return apply


def double(lines: list[Line]) -> Line:
    line = first(lines, "run")
    lines.append(dict(line))
    return lines[-1]


def plain_goes(lines: list[Line]) -> Line:
    text = first(lines, "texts")
    lines.remove(
        next(
            one
            for one in lines
            if one.get("kind") == "run" and one["run"]["arm"] == "plain" and one["stage"] == 0
        )
    )
    return text


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (
            change("run", "run", "totals", "t_v", to=float("nan")),
            "run, totals, t_v is damaged: nan",
        ),
        (change("run", "run", "ttft", to=-0.1), "run, ttft is damaged: -0.1 is not at least 0"),
        (change("run", "seconds", to=float("inf")), "seconds is damaged: inf"),
        (change("run", "run", "arm", to="ngram-fast"), "'ngram-fast' is not one of plain, none"),
        (change("run", "run", "prompt", to="chat/x"), "'chat/x' is not one of threads/count"),
        (change("run", "run", "repeat", to=7), "run, repeat is damaged: 7 is not below the 2"),
        (
            change("run", "run", "tokens", to=[1, "two"]),
            "tokens[1] is damaged: 'two' is not a count",
        ),
        (change("run", "run", "tokens", to=[]), "emitted is damaged"),
        (change("run", "run", "passes", 0, "emitted", to=2), "emitted is damaged"),
        (change("run", "run", "totals", "cycles", to=True), "cycles is damaged: True"),
        (change("run", "run", "nots", to=[]), "'nots' is not a key here"),
        (change("run", "stage", to=12), "stage is damaged: 12 is not one of the"),
        (change("stage", "stage", "threads", to=0), "threads is damaged: 0 is not at least 1"),
        (change("stage", "stage", "name", to="half"), "'half' is not one of threads"),
        (change("stage", "stage", "max_tokens", to=99), "2 × 16 tokens with 2 threads is due"),
        (change("lengths", "lengths", to=[5]), "a list of 1, and 4 are due"),
        (
            change("texts", "texts", 0, 3, "status", to="fine"),
            "'fine' is not one of same, tie, bug",
        ),
        (change("texts", "texts", to=[]), "not one text for each run"),
        (change("texts", "kind", to="text"), "'text' is not one of lengths, stage, run, texts"),
        (double, "holds the same"),
        (plain_goes, "runs of plain are missing"),
    ],
)
def test_a_value_that_cannot_be_is_named_with_its_line(
    tmp_path: Path, damage: Callable[[list[Line]], Line], words: str
) -> None:
    what, file, lines = stopped(tmp_path)
    line = damage(lines)
    put(file, lines)
    before, machine = file.read_bytes(), Machine(dict(SPEEDS))
    with pytest.raises(SpecctlError) as caught:
        list(tune(what, machine.open, state(tmp_path, what, machine)))
    number = 1 + next(n for n, one in enumerate(lines) if one is line)
    assert f"state.jsonl, line {number}" in caught.value.message
    assert words in caught.value.message
    assert "--fresh" in str(caught.value.hint)
    assert file.read_bytes() == before  # what was measured is still there


@pytest.mark.parametrize(
    ("head", "words"),
    [
        (None, "line 1 is damaged: not the head of a search"),
        (b'{"schema":"specctl-tune/9"}\n', "its schema is 'specctl-tune/9', not 'specctl-tune/1'"),
        (b"\xff\xfe nonsense\n", "line 1 is damaged: not a JSON object"),
        (b"[]\n", "line 1 is damaged: not a JSON object"),
        (b"\n", "line 1 is damaged: not a JSON object"),
    ],
)
def test_a_first_line_that_cannot_be_is_refused_as_any_other(
    tmp_path: Path, head: bytes | None, words: str
) -> None:
    what, file, _ = stopped(tmp_path)
    _, _, rest = file.read_bytes().partition(b"\n")
    file.write_bytes((head or b"") + rest)
    before = file.read_bytes()
    with pytest.raises(SpecctlError) as caught:
        state(tmp_path, what, Machine())
    assert words in caught.value.message
    assert "--fresh" in str(caught.value.hint)
    assert file.read_bytes() == before


def test_bytes_that_are_no_text_in_the_middle_are_refused_by_line(tmp_path: Path) -> None:
    what, file, _ = stopped(tmp_path)
    rows = file.read_bytes().split(b"\n")
    rows[3] = b"\xff\xfe"
    file.write_bytes(b"\n".join(rows))
    with pytest.raises(SpecctlError, match=r"line 4 is damaged"):
        state(tmp_path, what, Machine())
    assert file.read_bytes() == b"\n".join(rows)


def test_a_candidate_that_no_round_tries_is_refused(tmp_path: Path) -> None:
    what, file, lines = stopped(tmp_path)
    number, line = next(
        (n, one)
        for n, one in enumerate(lines, 1)
        if one.get("kind") == "stage" and one["stage"]["name"] == "first"
    )
    line["stage"]["candidates"].append("ngram-fast")
    put(file, lines)
    machine = Machine(dict(SPEEDS))
    with pytest.raises(SpecctlError, match=f"line {number} is damaged: 'ngram-fast' is no cand"):
        list(tune(what, machine.open, state(tmp_path, what, machine)))


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place inside a JSON value; of long lists the first two."""
    yield path
    some = value.items() if isinstance(value, dict) else enumerate(value[:2])
    for key, inside in some if isinstance(value, dict | list) else ():
        if isinstance(inside, dict | list):
            yield from places(inside, (*path, key))
        else:
            yield (*path, key)


ODD = st.one_of(
    st.sampled_from([float("nan"), float("inf"), -1, -0.5, 0, 10**40, 1e300, None, True, "", "x"]),
    st.sampled_from([[], {}, [[]], "plain", "none", "auto", "same"]),
    st.integers(-3, 50),
    st.floats(),
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_no_odd_value_breaks_a_search(tmp_path: Path, data: st.DataObject) -> None:
    """It goes on to an answer, or says which line cannot be: nothing else ever comes out."""
    what, file, lines = stopped(tmp_path, stop_at=data.draw(st.sampled_from([3, 30, 60])))
    number = data.draw(st.integers(1, len(lines) - 1))
    path = data.draw(st.sampled_from([one for one in places(lines[number]) if one]))
    inside: Any = lines[number]
    for key in path[:-1]:
        inside = inside[key]
    if data.draw(st.booleans()):
        inside[path[-1]] = data.draw(ODD)
    else:
        del inside[path[-1]]
    put(file, lines)
    machine = Machine(dict(SPEEDS))
    try:
        *_, last = tune(what, machine.open, state(tmp_path, what, machine))
    except SpecctlError as error:
        last, said = None, error.message
    if last is None:
        assert "state.jsonl, line " in said
    else:
        assert isinstance(last, Answer)
        assert 0 <= last.seconds < float("inf")
