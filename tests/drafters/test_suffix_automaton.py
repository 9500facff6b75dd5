from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from specctl.drafters.suffix_automaton import MANY, ROOT, SuffixAutomaton

TEXT = st.lists(st.integers(-1, 2), max_size=48)  # -1 stands for a barrier


def build(text: list[int]) -> tuple[SuffixAutomaton, list[int]]:
    automaton = SuffixAutomaton()
    for token in text:
        if token < 0:
            automaton.barrier()
        else:
            automaton.append(token)
    return automaton, list(automaton.text)


def ends(text: list[int], part: list[int]) -> list[int]:
    width = len(part)
    return [i + width - 1 for i in range(len(text) - width + 1) if text[i : i + width] == part]


def find(automaton: SuffixAutomaton, part: list[int]) -> int:
    state = ROOT
    for token in part:
        state = automaton.step(state, token)
        if state < 0:
            return -1
    return state


@given(TEXT)
def test_every_substring_its_count_and_its_last_place(tokens: list[int]) -> None:
    automaton, text = build(tokens)
    for start in range(len(text)):
        for stop in range(start + 1, len(text) + 1):
            part = text[start:stop]
            state, places = find(automaton, part), ends(text, part)
            assert automaton.count(state) == len(places)
            assert automaton.last(state) == places[-1]
            follow = {text[place + 1] for place in places if place + 1 < len(text)}
            assert {token for token, _ in automaton.steps(state)} == follow
            rest = text[places[-1] + 1 :]
            barrier = next((i for i, token in enumerate(rest) if token < 0), len(rest))
            assert list(automaton.after(state)) == rest[:barrier]
    assert find(automaton, [5]) == -1
    assert len(automaton) <= max(2, 2 * len(text))


@given(TEXT)
def test_the_longest_earlier_suffix_is_the_last_link(tokens: list[int]) -> None:
    automaton, text = build(tokens)
    longest = 0
    for length in range(1, len(text)):
        if len(ends(text, text[-length:])) > 1:
            longest = length
    link = automaton.link(automaton.state)
    assert automaton.length(max(link, ROOT)) == longest
    if longest:
        assert link == find(automaton, text[-longest:])


@given(TEXT)
def test_links_lead_to_shorter_and_strictly_more_frequent_states(tokens: list[int]) -> None:
    automaton, _ = build(tokens)
    state = automaton.state
    while state > ROOT:
        up = automaton.link(state)
        assert automaton.length(up) < automaton.length(state)
        assert up == ROOT or automaton.count(up) > automaton.count(state)
        state = up


def test_counts_stop_at_many_and_are_exact_below() -> None:
    rng = random.Random(3)
    text = [rng.choice([0, 0, 0, 1]) for _ in range(600)]
    automaton, _ = build(text)
    saturated = 0
    for length in range(1, 12):
        for start in range(0, 500, 7):
            part = text[start : start + length]
            places = ends(text, part)
            state = find(automaton, part)
            assert automaton.count(state) == min(MANY, len(places))
            saturated += len(places) > MANY
            if len(places) < MANY:
                assert automaton.last(state) == places[-1]
    assert saturated


def test_nothing_matches_across_a_barrier() -> None:
    automaton, _ = build([1, 2, 3, -1, 3, 1, -1, 3, 1])
    assert find(automaton, [3, 1]) > 0
    assert automaton.count(find(automaton, [3, 1])) == 2
    assert find(automaton, [3, 3]) == -1
