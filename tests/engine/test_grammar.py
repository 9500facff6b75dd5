"""A grammar binds the text, and drafting changes nothing of it: greedy, sampled, cut drafts."""

from __future__ import annotations

import dataclasses
import re
import string
import time
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Self

import numpy as np
import pytest
import tiny
from hypothesis import given, settings
from hypothesis import strategies as st
from lossless_kit import PLAIN, Table, collect, spec_of, start, transition_tail
from lossless_kit import Run as Folded

from specctl.drafters.base import Draft
from specctl.drafters.registry import Resources, build
from specctl.engine import loop
from specctl.engine.constraint import Constraint
from specctl.engine.dialogue import Dialogue, Manner
from specctl.engine.judge import judge
from specctl.engine.session import Session
from specctl.engine.steptime import StepTime
from specctl.engine.text import Assembler
from specctl.errors import DeadEndError, EngineError, UsageError
from specctl.sampling import Law, law
from specctl.settings import DraftSettings, Grammar, Request, Sampling, SpecSettings, limit_drafts

pytestmark = pytest.mark.native

WORDS = Grammar('root ::= (" " [a-c] [a-z]*)+')  # a third of what the clock would say
IN_WORDS = re.compile(r"( [a-c][a-z]*)+ ?")  # the last word may not have begun
SPECS = {
    "ngram-suffix": spec_of("ngram-suffix"),
    "draft-simple": spec_of("draft-simple"),
    "auto": spec_of("auto"),
    "chain": spec_of("ngram-simple", "draft-simple"),
}
OPEN = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)


@pytest.fixture(scope="module")
def session(tiny_models: Mapping[str, Path]) -> Iterator[Session]:
    with start(tiny_models["clock"], tiny_models["clock-draft"]) as opened:
        yield opened


def say(
    session: Session,
    spec: SpecSettings,
    grammar: Grammar,
    sampling: Sampling | None = None,
    n: int = 60,
    prompt: tuple[int, ...] = (tiny.word("amber"),),
) -> Folded:
    session.use(spec)
    return collect(session.generate(Request(prompt, n, sampling or Sampling(), grammar=grammar)))


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize(
    "sampling",
    [Sampling(), dataclasses.replace(OPEN, seed=7), Sampling(temperature=0.8, top_k=5, seed=3)],
    ids=["greedy", "open", "top-k"],
)
def test_drafting_changes_nothing_of_the_text(
    session: Session, name: str, sampling: Sampling
) -> None:
    plain = say(session, PLAIN, WORDS, sampling)
    drafted = say(session, SPECS[name], WORDS, sampling)
    assert plain.tokens == drafted.tokens
    assert IN_WORDS.fullmatch(plain.text)
    if name == "draft-simple":
        assert drafted.totals.drafted_cycles
        assert drafted.totals.accepted


def test_without_the_grammar_the_text_is_another(session: Session) -> None:
    session.use(PLAIN)
    free = collect(session.generate(Request((tiny.word("amber"),), 60)))
    assert not IN_WORDS.fullmatch(free.text)


def test_no_row_is_spent_on_what_the_grammar_forbids(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Uncut drafts give the same text with more rows: that is what cutting saves."""
    cut = say(session, SPECS["draft-simple"], WORDS)
    assert any("the grammar cut" in cycle.decision.reason for cycle in cut.cycles)
    for cycle in cut.cycles:
        assert all(_is_word(session, token) for token in cycle.drafted)
    monkeypatch.setattr(Constraint, "cut", lambda self, draft: (draft, None))
    uncut = say(session, SPECS["draft-simple"], WORDS)
    assert uncut.tokens == cut.tokens
    assert uncut.totals.drafted > cut.totals.drafted
    assert uncut.totals.acceptance_rate < cut.totals.acceptance_rate


def _is_word(session: Session, token: int) -> bool:
    return IN_WORDS.fullmatch(session.model.piece(token).decode()) is not None


def test_a_law_that_is_not_masked_is_noticed(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Constraint, "mask", lambda self, logits, wanted: logits)
    with pytest.raises(EngineError, match="outside the grammar"):
        say(session, PLAIN, WORDS)


# ---------------------------------------------------------------- any grammar

LETTERS = string.ascii_lowercase[:6]


@st.composite
def grammars(draw: st.DrawFn, depth: int = 3) -> tuple[str, str]:
    """GBNF, and the same as a regular expression; short enough to end within 100 tokens."""
    kind = draw(st.sampled_from(["text", "class"] + ["join", "or", "times"] * (depth > 0)))
    if kind == "text":
        text = draw(st.sampled_from(["a", "xyz", " amber", '{"k": ', "é", "😀", "-"]))
        return '"' + text.replace('"', '\\"') + '"', re.escape(text)
    if kind == "class":
        chars = "".join(draw(st.sets(st.sampled_from(LETTERS + "0ß"), min_size=1)))
        negated = "^" if draw(st.booleans()) else ""
        return f"[{negated}{chars}]", f"[{negated}{chars}]"
    if kind == "times":
        (gbnf, regex), most = draw(grammars(depth=depth - 1)), draw(st.integers(1, 2))
        return f"({gbnf}){{0,{most}}}", f"(?:{regex}){{0,{most}}}"
    left, right = draw(grammars(depth=depth - 1)), draw(grammars(depth=depth - 1))
    between = " | " if kind == "or" else " "
    return f"({left[0]}{between}{right[0]})", f"(?:{left[1]}{between.strip()}{right[1]})"


@settings(max_examples=60)
@given(grammars(), st.integers(0, 1 << 32), st.sampled_from(sorted(SPECS)), st.booleans())
def test_the_text_always_matches_its_grammar(
    session: Session, pair: tuple[str, str], seed: int, name: str, greedy: bool
) -> None:
    gbnf, regex = pair
    sampling = Sampling() if greedy else dataclasses.replace(OPEN, seed=seed)
    plain = say(session, PLAIN, Grammar(f"root ::= {gbnf}"), sampling, n=150)
    assert plain.finished.reason == "eog"
    assert re.fullmatch(regex, plain.text, re.DOTALL), (gbnf, plain.text)
    drafted = say(session, SPECS[name], Grammar(f"root ::= {gbnf}"), sampling, n=150)
    assert drafted.tokens == plain.tokens


# ---------------------------------------------------------------- the law


class NoneOf:
    """A grammar without memory: every token but these."""

    def __init__(self, forbidden: frozenset[int]) -> None:
        self.forbidden = forbidden

    def allowed(self, ids: np.ndarray) -> np.ndarray:
        return ~np.isin(ids, list(self.forbidden))

    def accept(self, token: int) -> None:
        assert token not in self.forbidden

    def clone(self) -> Self:
        return type(self)(self.forbidden)

    def close(self) -> None:
        pass


FORBIDDEN = frozenset(range(tiny.FIRST_WORD, tiny.SIZE, 2))


def tail_of_sampled_drafts(draws: int) -> float:
    """Chi-square tail of the text of sampled drafts under the masked law of each last token."""
    target, pairs = tiny.clock_target(), []
    spec = spec_of("draft-simple", k=4, draft=DraftSettings(n_max=4, sampling="sampled"))
    for seed in range(draws // 200):
        work = loop.Run(
            target=Table(target),
            drafter=build(limit_drafts(spec)[0], Resources(tiny.SIZE, Table(tiny.clock_draft()))),
            request=Request((tiny.FIRST_WORD + 1,), 200, dataclasses.replace(OPEN, seed=seed)),
            assembler=Assembler(lambda token: b""),
            is_eog=lambda token: False,
            step_time=StepTime(),
            started=time.perf_counter(),
            constraint=Constraint(NoneOf(FORBIDDEN), lambda token: b""),
        )
        tokens = (tiny.FIRST_WORD + 1, *collect(loop.generate(work)).tokens)
        pairs += pairwise(tokens)
    rows = np.log(target.laws()).astype(np.float32)
    rows[:, sorted(FORBIDDEN)] = -np.inf
    laws = {}
    for last in {last for last, _ in pairs}:
        masked = law(rows[last], (), OPEN)
        laws[last] = np.zeros(tiny.SIZE)
        laws[last][masked.ids] = masked.probs
    return transition_tail(pairs, laws)


def test_sampled_drafts_that_are_cut_keep_the_masked_law() -> None:
    assert tail_of_sampled_drafts(10_000) > 1e-4


def share_of_the_drafts_token(draws: int = 2000) -> float:
    """The target likes tokens 0 and 1 alike; the draft 0 and, as much, 2, which is forbidden."""
    row = np.log(np.array([[0.3, 0.3, 0.4], [0.3, 0.3, 0.4]], np.float32))
    q = Law(np.array([0, 2]), np.array([0.5, 0.5]))
    rng, firsts = np.random.default_rng(4), 0
    for seed in range(draws):
        constraint = Constraint(NoneOf(frozenset({2})), lambda token: b"")
        drawn = Draft((q.draw(rng.random()),), "x", laws=(q,))
        draft, law_of_cut = constraint.cut(drawn)
        sampling = dataclasses.replace(OPEN, seed=seed)
        verdict = judge(row, draft, [0], sampling, constraint, law_of_cut)
        firsts += (verdict.token if not verdict.accepted else draft.tokens[0]) == 0
    return firsts / draws


def test_forgetting_the_law_of_what_was_cut_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing anew instead of from the residual: too many tokens that the draft likes."""
    assert abs(share_of_the_drafts_token() - 0.5) < 0.05  # 4.5 standard deviations
    cut = Constraint.cut
    monkeypatch.setattr(Constraint, "cut", lambda self, draft: (cut(self, draft)[0], None))
    assert abs(share_of_the_drafts_token() - 0.75) < 0.05


@given(st.integers(0, 1 << 30), st.integers(0, 50), st.integers(1, 300))
def test_the_mask_is_exact_in_what_is_wanted(seed: int, wanted: int, forbidden: int) -> None:
    rng = np.random.default_rng(seed)
    logits = rng.integers(-20, 20, 1000).astype(np.float32)  # many ties
    banned = frozenset(int(i) for i in np.argsort(-logits, kind="stable")[:forbidden])
    full = logits.copy()
    full[list(banned)] = -np.inf
    masked = Constraint(NoneOf(banned), lambda token: b"").mask(logits, wanted)
    for top_k in (wanted,) if wanted else (0, 7, 400):
        sampling = dataclasses.replace(OPEN, top_k=top_k)
        assert np.array_equal(law(masked, (), sampling).ids, law(full, (), sampling).ids)
    if wanted:
        assert masked.argmax() == full.argmax()


def test_nothing_allowed_is_an_error_with_a_reason() -> None:
    rules = NoneOf(frozenset(range(10)))
    with pytest.raises(DeadEndError, match="no token of this model as the first one"):
        Constraint(rules, lambda token: b"").mask(np.zeros(10, np.float32), 1)
    late = Constraint(NoneOf(frozenset(range(10))), lambda token: b"")
    late.accept(10)
    with pytest.raises(DeadEndError, match=r"after 1 token$"):
        late.mask(np.zeros(10, np.float32), 0)


@pytest.mark.parametrize("only", [0, 63, 64, 575, 576, 999])
def test_the_first_token_is_found_wherever_it_is(only: int) -> None:
    rules = NoneOf(frozenset(range(1000)) - {only})
    Constraint(rules, lambda token: b"").check(1000)
    with pytest.raises(DeadEndError):
        Constraint(rules, lambda token: b"").check(only)


NOTHING = Grammar("root ::= [^\\U00000001-\\U0010FFFF]")  # no character at all
DEAD_END = Grammar('root ::= " amber birch cedar" [^\\U00000001-\\U0010FFFF]')


def test_what_nothing_can_match_is_refused_before_the_prompt_is_read(session: Session) -> None:
    session.use(PLAIN)
    for grammar in (NOTHING, dataclasses.replace(NOTHING, after="</think>")):
        with pytest.raises(DeadEndError, match="as the first one"):
            next(session.generate(Request((tiny.word("amber"),), 5, grammar=grammar)))


@pytest.mark.parametrize("name", ["auto", "draft-simple"])
def test_a_dead_end_in_the_middle_leaves_a_usable_session(session: Session, name: str) -> None:
    fresh = say(session, SPECS[name], WORDS)
    with pytest.raises(DeadEndError, match=r"after \d+ tokens$"):
        say(session, SPECS[name], DEAD_END)
    assert say(session, SPECS[name], WORDS).tokens == fresh.tokens


# ---------------------------------------------------------------- thinking


def test_the_grammar_waits_for_the_end_of_the_thinking(session: Session) -> None:
    after = dataclasses.replace(WORDS, after="bird")
    waiting = Constraint(NoneOf(frozenset({5})), lambda token: bytes([token]), "bird")
    for byte in b"the big b":
        waiting.accept(byte)
    assert waiting.waiting
    drafted = Draft(tuple(b"ird\x04\x05\x04"), "x", laws=(None,) * 6, confidences=(0.5,) * 6)
    short, drawn = waiting.cut(drafted)
    assert bytes(short.tokens) == b"ird\x04"
    assert drawn is None
    assert (len(short.laws or ()), len(short.confidences or ())) == (4, 4)
    assert waiting.waiting  # looking ahead moved nothing
    for byte in b"ird":
        waiting.accept(byte)
    assert not waiting.waiting
    free = say(session, SPECS["draft-simple"], after)
    assert not IN_WORDS.fullmatch(free.text)  # the clock never says bird


THINKING = "{% if enable_thinking is defined and enable_thinking %}<think>{% endif %}"


def thinker(session: Session, template: str, think: bool | None) -> Dialogue:
    session.template.knows_thinking = "enable_thinking" in template
    session.template.writes_think_tags = "<think>" in template
    session.template._formatter = session.template._compile(tiny.CHATML + template)
    return Dialogue(session, Manner(Sampling(), 20, think=think, grammar=WORDS.gbnf))


def test_a_grammar_switches_thinking_off_unless_it_is_asked_for(session: Session) -> None:
    dialogue = thinker(session, THINKING, None)
    assert any("thinking is off" in note for note in dialogue.notes)
    assert not dialogue.ask("amber").prompt.thinking
    asked = thinker(session, THINKING, True)
    assert not any("thinking is off" in note for note in asked.notes)
    assert asked.ask("amber").prompt.thinking


def test_a_model_that_opens_the_tag_itself_finds_it_opened(session: Session) -> None:
    silent = "{% if not enable_thinking %}<think></think>{% endif %}"
    prompt = thinker(session, silent, True).ask("amber").prompt
    assert prompt.thinking
    assert b"".join(map(session.model.piece, prompt.tokens)).endswith(b"<think>\n")


def test_thinking_that_is_marked_otherwise_is_refused(session: Session) -> None:
    with pytest.raises(UsageError, match="between <think> tags"):
        thinker(session, "{% if enable_thinking %}{% endif %}", True).ask("amber")
