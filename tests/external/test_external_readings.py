"""Scrapes to sums: captured payloads, each engine's own series, and junk."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from fake_engine import FakeEngine
from hypothesis import given
from hypothesis import strategies as st

from specctl.errors import UsageError
from specctl.external.errors import JunkError
from specctl.external.exposition import Series, parse, render
from specctl.external.ledger import lifetime, why_wrong
from specctl.external.readings import PREFIX, Iterations, read_series
from specctl.external.wire import address
from specctl.metrics import fold

PAYLOADS = sorted((Path(__file__).parent / "payloads").glob("llama-server-*.json"))


def captured(name: str) -> dict:
    return json.loads(
        (Path(__file__).parent / "payloads" / f"llama-server-{name}.json").read_text()
    )


@pytest.mark.parametrize("path", PAYLOADS, ids=lambda path: path.stem)
def test_a_captured_scrape_gives_the_passes_that_the_server_counted(path):
    text = json.loads(path.read_text())["metrics_full"]
    samples = parse(text)
    reading = read_series("llama-server", samples)
    interval = lifetime(reading, "llama-server")
    assert why_wrong(reading) == ""
    # one request on one slot: its llama_decode calls are the passes; the prompt's is the first
    assert interval.passes == samples.count("llamacpp:n_decode_total")
    assert interval.emitted == 48
    assert sum(interval.accepted_at) == interval.accepted


def test_the_numbers_of_a_captured_scrape():
    t = fold([lifetime(read_series("llama-server", parse(captured("ngram")["metrics_full"])), "s")])
    assert (t.drafted_cycles, t.drafted, t.accepted, t.emitted) == (3, 24, 9, 48)
    assert t.acceptance_rate == 9 / 24
    assert t.mean_acceptance_length == 4.0  # what its log says
    assert t.tokens_per_pass == 48 / 39  # and what that leaves out
    assert t.coverage == 3 / 39
    assert t.tokens_per_second == pytest.approx(9.74, abs=0.01)
    assert t.acceptance_of_drafted[:2] == (2 / 3, 1 / 3)


def test_vllm_is_summed_over_its_engines_and_created_series_are_ignored():
    text = "".join(
        f'vllm:spec_decode_num_{name}_total{{engine="{engine}"}} {value}\n'
        f'vllm:spec_decode_num_{name}_created{{engine="{engine}"}} 1.7e9\n'
        for engine in (0, 1)
        for name, value in (("drafts", 43), ("draft_tokens", 129), ("accepted_tokens", 60))
    )
    text += (
        'vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="1"} 18.0\n'
        'vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="1",position="0"} 42.0\n'
        'vllm:generation_tokens_total{engine="0"} 200\n'
    )
    sums = read_series("vllm", parse(text)).sums
    assert (sums.drafts, sums.drafted, sums.accepted, sums.generated) == (86, 258, 120, 200)
    assert sums.accepted_at == (42, 18)
    assert sums.seconds is None


def test_sglang_is_derived_and_says_so():
    engine = FakeEngine("sglang")
    engine.counts.requests = 1
    engine.cycle(0, 0)  # the prompt's pass
    for accepted in (4, 0, 2):
        engine.cycle(4, accepted)
    reading = read_series("sglang", parse(engine.text()))
    interval = lifetime(reading, "sglang")
    assert (interval.drafted_passes, interval.drafted, interval.accepted) == (3, 12, 6)
    assert not interval.exact
    plain = read_series("sglang", parse(FakeEngine("sglang", speculative=False).text()))
    assert plain.exact
    assert plain.speculates is None


def test_iterations_of_trtllm_are_summed_and_what_is_missing_is_noticed():
    engine = FakeEngine("trtllm")
    for accepted in (3, 0, 4):
        engine.cycle(4, accepted, 0.007)
    reader = Iterations()
    first = reader.read(engine.iterations, None)
    assert (first.sums.drafts, first.sums.drafted, first.sums.accepted) == (3, 12, 7)
    assert first.sums.seconds == pytest.approx(0.021)
    assert first.sums.t_d == pytest.approx(0.021 / 4)
    assert first.sums.generated is None
    engine.iterations.clear()
    engine.cycle(4, 1)
    engine.iterations.clear()  # somebody else has read it
    engine.cycle(4, 2)
    second = reader.read(engine.iterations, None)
    assert second.sums.accepted == 2
    assert "1 iteration is missing" in second.notes[0]
    assert reader.read([], None).notes == ()
    engine.restart()
    engine.cycle(4, 0)
    assert "restarted" in reader.read(engine.iterations, None).notes[0]


@pytest.mark.parametrize(
    "value",
    [None, {}, "x", [1], [{"iterLatencyMS": "7"}], [{"iterLatencyMS": float("inf")}],
     [{"specDecodingStats": {"numDraftTokens": -1}}], [{"iterLatencyMS": True}]],
)  # fmt: skip
def test_iterations_that_are_none(value):
    with pytest.raises(JunkError):
        Iterations().read(value, None)


@pytest.mark.parametrize("value", ["NaN", "-1", "+Inf", "1e300"])
def test_counters_that_are_no_counts_are_refused_by_name(value):
    samples = parse(f"llamacpp:spec_decode_num_drafts_total {value}\n")
    with pytest.raises(JunkError, match="drafts_total"):
        read_series("llama-server", samples)


@pytest.mark.parametrize("position", ["-1", "x", "99999999999999999999", "", "²"])
def test_positions_that_are_none(position):
    name = "llamacpp:spec_decode_num_accepted_tokens_per_pos_total"
    with pytest.raises(JunkError, match="position"):
        read_series("llama-server", parse(f'{name}{{position="{position}"}} 1\n'))


@pytest.mark.parametrize("engine", PREFIX)
def test_a_page_of_something_else_is_no_reading(engine):
    with pytest.raises(JunkError, match="no"):
        read_series(engine, parse("node_cpu_seconds_total 5\n"))


labels = st.dictionaries(
    st.from_regex(r"[a-zA-Z][a-zA-Z0-9_]{0,8}", fullmatch=True), st.text(max_size=12), max_size=3
)


@given(st.lists(st.tuples(labels, st.floats(0, 1e15)), min_size=1, max_size=5))
def test_what_is_written_is_read_back(values):
    series = Series("specctl_watch_x", "gauge", "a \\ b\nc", tuple(values))
    page = render([series], {"model": 'a"b\\c\nd'})
    found = parse(page).by_name["specctl_watch_x"]
    assert [value for _, value in found] == [value for _, value in values]
    for (given_labels, _), (seen, _) in zip(values, found, strict=True):
        assert dict(seen) == {"model": 'a"b\\c\nd', **given_labels}


@given(st.text(max_size=300))
def test_any_text_is_read_or_refused(text):
    try:
        samples = parse(text)
    except JunkError:
        return
    for name in samples.by_name:
        try:
            samples.total(name)
            samples.by_position(name)
        except JunkError:
            pass


@given(st.text(alphabet='llamacpp:_total{}="\\ \n0123456789.eE+-#HELPTY', max_size=120))
def test_nearly_right_text_is_read_or_refused(text):
    with contextlib.suppress(JunkError):
        found = parse(text).by_name.values()
        assert all(isinstance(value, float) for samples in found for _, value in samples)


@pytest.mark.parametrize("position", ["000000001999999999", "0" * 5000, "999999999", "-1", "x"])
def test_a_position_that_is_none(position: str) -> None:
    samples = parse(f'drafted{{position="{position}"}} 10\n')
    with pytest.raises(JunkError, match="no draft position"):
        samples.by_position("drafted")


@pytest.mark.parametrize("text", ["http://[::1", "http://", "ftp://a", "http://a:0"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(UsageError, match="is not a web address"):
        address(text)
