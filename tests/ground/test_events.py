"""Records survive JSON; what is not a record is refused with words."""

from __future__ import annotations

import dataclasses
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specctl.errors import SpecctlError
from specctl.events import (
    SCHEMA,
    Cycle,
    Decision,
    Finished,
    Interval,
    PromptDone,
    Started,
    from_dict,
    to_dict,
)

counts = st.integers(0, 1 << 40)
seconds = st.floats(0, 1e9)
texts = st.text(st.characters(codec="utf-8"), max_size=20)
tokens = st.lists(st.integers(0, 1 << 20), max_size=8).map(tuple)
decisions = st.builds(
    Decision,
    action=st.sampled_from(("draft", "plain")),
    reason=texts,
    expected=st.none() | seconds,
    needed=st.none() | seconds,
)
records = st.one_of(
    st.builds(
        Started,
        model=texts,
        draft_model=st.none() | texts,
        spec_types=st.lists(texts, max_size=3).map(tuple),
        k_max=counts,
        prompt_tokens=counts,
        n_ctx=counts,
        threads=counts,
        temperature=seconds,
        seed=counts,
        unix_time=seconds,
        notes=st.lists(texts, max_size=2).map(tuple),
        schema=st.just(SCHEMA),
    ),
    st.builds(PromptDone, prompt_tokens=counts, reused_tokens=counts, seconds=seconds),
    st.builds(
        Cycle,
        index=counts,
        asked=st.lists(texts, max_size=3).map(tuple),
        source=st.none() | texts,
        limit=counts,
        drafted=tokens,
        accepted=counts,
        emitted=tokens,
        text=texts,
        t_d=seconds,
        t_v=seconds,
        t_o=seconds,
        t_native=seconds,
        t_1=st.none() | seconds,
        n_past=counts,
        clock=seconds,
        decision=decisions,
        pieces=st.lists(texts, max_size=3).map(tuple),
    ),
    st.builds(
        Interval,
        seconds=seconds,
        passes=st.none() | counts,
        drafted_passes=st.none() | counts,
        drafted=counts,
        accepted=counts,
        emitted=counts,
        accepted_at=tokens,
        drafted_at=st.none() | tokens,
        exact=st.booleans(),
        source=texts,
        clock=seconds,
    ),
    st.builds(
        Finished,
        reason=st.sampled_from(("stop", "eog", "length", "context", "cancelled", "error")),
        prompt_tokens=counts,
        emitted_tokens=counts,
        seconds=seconds,
        text=texts,
        detail=texts,
    ),
)


@given(records)
def test_round_trip_through_json(record):
    assert from_dict(json.loads(json.dumps(to_dict(record)))) == record


@given(records)
def test_keys_of_a_newer_version_are_ignored(record):
    data = {**to_dict(record), "of_the_future": [1, {"a": 2}]}
    if isinstance(record, Cycle):
        data["decision"] = {**data["decision"], "of_the_future": 1}
    assert from_dict(data) == record


@given(records, st.data())
def test_a_missing_or_wrong_field_is_named(record, data):
    fields = dataclasses.fields(record)
    name = data.draw(st.sampled_from([f.name for f in fields]))
    wrong = {**to_dict(record), name: {"not": "this"}}
    if name != "decision":
        with pytest.raises(SpecctlError, match=name):
            from_dict(wrong)
    required = [f.name for f in fields if f.default is dataclasses.MISSING]
    missing = to_dict(record)
    del missing[data.draw(st.sampled_from(required))]
    with pytest.raises(SpecctlError, match=r"damaged .* record: .*missing"):
        from_dict(missing)


CYCLE = to_dict(
    Cycle(
        0, (), None, 0, (), 0, (1,), "a", 0.0, 0.1, 0.0, 0.1, None, 3, 0.1, Decision("plain", "x")
    )
)


@pytest.mark.parametrize(
    "change",
    [
        {"accepted": "2"},
        {"accepted": True},
        {"accepted": 1.5},
        {"drafted": ["a"]},
        {"drafted": 3},
        {"t_v": "0.1"},
        {"t_v": None},
        {"decision": {"action": "perhaps", "reason": "x"}},
        {"decision": {"action": "plain"}},
        {"decision": {}},
        {"decision": "plain"},
        {"text": 5},
    ],
)
def test_wrong_types_are_refused(change):
    with pytest.raises(SpecctlError, match="damaged cycle record"):
        from_dict({**CYCLE, **change})


def test_newer_schema_says_update():
    started = Started("m", None, ("none",), 0, 1, 512, 1, 0.0, 0, 1.0)
    with pytest.raises(SpecctlError, match=f"newer than {SCHEMA}") as caught:
        from_dict({**to_dict(started), "schema": SCHEMA + 1})
    assert "update" in caught.value.hint
    with pytest.raises(SpecctlError, match="schema"):
        from_dict({**to_dict(started), "schema": "1"})


@pytest.mark.parametrize("data", [{}, {"type": "cycles"}, {"type": None}, {"type": ["cycle"]}])
def test_unknown_types_are_refused(data):
    with pytest.raises(SpecctlError, match="not a record type"):
        from_dict(data)


def test_times_of_a_cycle_add_up():
    cycle = dataclasses.replace(from_dict(CYCLE), t_d=0.25, t_v=0.5, t_o=0.125, t_native=0.625)
    assert cycle.t_c == 0.875
    assert cycle.t_p == 0.25
