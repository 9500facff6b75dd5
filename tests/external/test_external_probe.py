"""Streams of a llama-server to cycles: the captured ones, and what no server should send."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fake_engine import chat_events
from hypothesis import given
from hypothesis import strategies as st

from specctl.events import Cycle, Finished, PromptDone
from specctl.external.errors import JunkError
from specctl.external.probe import Chunk, Cycles, read_chunk, records
from specctl.metrics import fold

PAYLOADS = sorted((Path(__file__).parent / "payloads").glob("llama-server-*.json"))


def cycles_of(chunks) -> list[Cycle]:
    cycles = Cycles()
    out = []
    for tokens, drafted, accepted in chunks:
        out += cycles.enter(Chunk(tokens, drafted or 0, accepted or 0, tokens * 10.0))
    return out + cycles.finish()


@pytest.mark.parametrize("path", PAYLOADS, ids=lambda path: path.stem)
def test_cycles_of_a_captured_stream_add_up_to_the_servers_counters(path):
    value = json.loads(path.read_text())
    counted = dict(
        line.rsplit(" ", 1) for line in value["metrics_full"].splitlines() if line[0] != "#"
    )
    t = fold(cycles_of(value["chunks"]))
    assert t.cycles == int(counted["llamacpp:n_decode_total"])
    assert t.drafted_cycles == int(counted["llamacpp:spec_decode_num_drafts_total"])
    assert t.drafted == int(counted["llamacpp:spec_decode_num_draft_tokens_total"])
    assert t.accepted == int(counted["llamacpp:spec_decode_num_accepted_tokens_total"])
    assert t.emitted == int(counted["llamacpp:tokens_predicted_total"])
    name = 'llamacpp:spec_decode_num_accepted_tokens_per_pos_total{{position="{}"}}'
    positions = [int(counted.get(name.format(i), 0)) for i in range(len(t.accepted_at))]
    assert list(t.accepted_at) == positions


def test_the_first_cycles_of_a_captured_stream():
    value = json.loads(next(p for p in PAYLOADS if "simple" in p.stem).read_text())
    seen = [(len(c.drafted), c.accepted, len(c.emitted)) for c in cycles_of(value["chunks"])]
    assert seen[:4] == [(0, 0, 1), (4, 0, 1), (4, 4, 5), (4, 4, 5)]


def test_records_of_a_stream_with_text_and_times():
    value = json.loads(next(p for p in PAYLOADS if "ngram" in p.stem).read_text())
    seen = list(records(chat_events(value["chunks"]), 0.0))
    assert isinstance(seen[0], PromptDone)
    assert seen[0].prompt_tokens == 33
    assert isinstance(seen[-1], Finished)
    assert (seen[-1].reason, seen[-1].emitted_tokens) == ("length", 48)
    cycles = [one for one in seen if isinstance(one, Cycle)]
    assert "".join(c.text for c in cycles).split() == [f"w{i}" for i in range(1, 49)]
    assert [round(c.t_c, 6) for c in cycles] == [0.0] + [0.02] * 38
    assert cycles[-1].t_1 == pytest.approx(0.02)  # its own plain passes
    assert cycles[-1].clock == pytest.approx(0.76)
    assert cycles[-1].n_past == 33 + 47
    t = fold(cycles)
    assert t.verify_share is None  # whole cycles only
    assert t.break_even == pytest.approx(0.0)


passes = st.lists(
    st.integers(0, 5).flatmap(lambda k: st.tuples(st.just(k), st.integers(0, k))),
    min_size=1, max_size=30,
)  # fmt: skip


@given(passes)
def test_any_run_is_found_again_from_a_chunk_a_token(run):
    chunks, tokens, drafted, accepted = [], 0, 0, 0
    for k, a in run:
        drafted, accepted = drafted + k, accepted + a
        for _ in range(a + 1):
            tokens += 1
            chunks.append((tokens, drafted, accepted))
    seen = [(len(c.drafted), c.accepted, len(c.emitted)) for c in cycles_of(chunks)]
    assert seen == [(k, a, a + 1) for k, a in run]


@given(passes, st.lists(st.booleans(), min_size=200, max_size=200))
def test_sums_stay_true_where_text_is_held_back(run, dropped):
    chunks, tokens, drafted, accepted = [], 0, 0, 0
    for k, a in run:
        drafted, accepted = drafted + k, accepted + a
        for _ in range(a + 1):
            tokens += 1
            chunks.append((tokens, drafted, accepted))
    kept = [c for c, drop in zip(chunks, dropped, strict=False) if not drop] + [chunks[-1]]
    t = fold(cycles_of(kept))
    assert (t.drafted, t.accepted, t.emitted) == (drafted, accepted, tokens)


def test_an_answer_that_stops_inside_a_draft():
    seen = cycles_of([(1, 0, 0), (2, 4, 4), (3, 4, 4)])
    assert [(c.accepted, len(c.emitted)) for c in seen] == [(0, 1), (4, 2)]


@pytest.mark.parametrize(
    ("first", "then"),
    [((5, 4, 4), (4, 4, 4)), ((5, 4, 4), (6, 3, 3)), ((1, 0, 0), (2, 3, 4))],
)
def test_counts_that_fall_or_cannot_be(first, then):
    cycles = Cycles()
    cycles.enter(Chunk(*first, 10.0))
    with pytest.raises(JunkError):
        cycles.enter(Chunk(*then, 20.0))


@pytest.mark.parametrize(
    "data",
    ["{", "[]", "[" * 100_000, '{"error":{"message":"no model"}}', '{"error":"x"}',
     '{"timings":{"predicted_n":"4"}}', '{"timings":{"predicted_n":NaN}}',
     '{"timings":{"draft_n":1e99}}', '{"timings":{"predicted_n":99999999}}'],
)  # fmt: skip
def test_events_that_are_none(data):
    with pytest.raises(JunkError):
        read_chunk(data)


@pytest.mark.parametrize("data", ["{}", '{"choices":[]}', '{"choices":[5],"timings":null}'])
def test_events_without_timings_are_passed_over(data):
    assert read_chunk(data) is None


def test_a_stream_without_timings_says_what_is_needed():
    with pytest.raises(JunkError, match="no timings"):
        list(records(['{"choices":[{"delta":{"content":"x"}}]}', "[DONE]"], 0.0))
