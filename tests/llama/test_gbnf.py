"""Grammars as text and as state: what is refused, how, and that llama.cpp never aborts."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
import tiny

from specctl.errors import EngineError, GrammarError
from specctl.llama import gbnf
from specctl.llama.grammar import Grammar
from specctl.llama.model import Model
from specctl.settings import ModelSettings

pytestmark = pytest.mark.native


@pytest.fixture(scope="module")
def model(tiny_models: Mapping[str, Path]) -> Iterator[Model]:
    opened = Model(tiny_models["clock"], ModelSettings(gpu_layers=0))
    yield opened
    opened.close()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty"),
        ("\n# only a comment\n", "no rule `root`"),
        ('answer ::= "a"', "no rule `root`"),
        ('# the answer\nroot = "a"', "line 2: after `root` comes ::="),
        ('root ::= "a" (\n', "expecting ')' at the end"),
        ('root ::= "a"\nroot2 = "b"', "line 2: expecting ::="),
        ("root ::= missing", "Undefined rule identifier 'missing'"),
        ('root ::= "a', "unexpected end of input"),
        ("root ::= [a-", "unexpected end of input"),
        ('root ::= root "a" | "b"', "left recursion"),
        ('root ::= a "x"\na ::= b | "y"\nb ::= a "z"', "left recursion"),
        ('root ::= ""*', "no usable grammar"),
        ("root ::= *", "expecting preceding item"),
        ('root ::= "\\q"', "no usable grammar"),
        ('root ::= "a"{3,1}', "line 1: {3,1} asks for at least 3 and at most 1"),
        ('root ::= "a"{5000}', "repetitions exceeds"),
        ('root ::= "a"{99999999999999999999999}', "no usable grammar"),
        ("root ::= " + "(" * 100_000, "deeper than 200"),
        ('root ::= "a\0b"', "NUL"),
        ('root ::= "' + "a" * (1 << 20) + '"', "larger than 1 MiB"),
    ],
)
def test_a_broken_grammar_says_what_is_wrong(text: str, said: str) -> None:
    with pytest.raises(GrammarError) as caught:
        gbnf.check(text)
    assert said in caught.value.message
    assert caught.value.exit_code == 2


def test_a_grammar_that_the_parser_never_finishes_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """2^40 ways down to the leaf: llama.cpp's left-recursion check walks them all."""
    rules = [f"r{i} ::= r{i + 1} r{i + 1} | r{i + 1}" for i in range(40)]
    text = "\n".join(["root ::= r0", *rules, 'r40 ::= "a"?'])
    monkeypatch.setattr(gbnf, "TIMEOUT", 1.0)
    start = time.monotonic()
    with pytest.raises(GrammarError, match="not read it after 1 s"):
        gbnf.check(text)
    assert time.monotonic() - start < 5


@pytest.mark.parametrize(
    "text",
    [
        'root ::= "yes" | "no"',
        'root ::= |\n  "a"',
        "root ::= [^\\n]{0,5} # up to {3,1} characters (((",
        'root ::= "({[3,1]})" ',
        'root ::= [({] x\nx ::= "\\"" ',
        "root ::= <|im_end|> | <[5]> | !<|im_start|>",
        'root   ::=   "ü😀"\r\n',
    ],
)
def test_a_good_grammar_is_taken(text: str, model: Model) -> None:
    Grammar(model, text).close()


def test_a_token_that_this_model_lacks_is_named_as_the_reason(model: Model) -> None:
    with pytest.raises(GrammarError, match="names a token"):
        Grammar(model, "root ::= <no such token>")


def say(grammar: Grammar, text: bytes) -> None:
    for byte in text:
        grammar.accept(byte)


def test_the_state_says_what_may_come_and_refuses_the_rest(model: Model) -> None:
    grammar = Grammar(model, 'root ::= ("ab" | "ac" | " amber") "!"')
    every = np.arange(model.n_vocab)
    assert set(every[grammar.allowed(every)]) == {ord("a"), ord(" "), tiny.word("amber")}
    with pytest.raises(EngineError, match="outside the grammar"):
        grammar.accept(ord("b"))
    with pytest.raises(EngineError, match="outside the grammar"):
        grammar.accept(tiny.IM_END)  # llama.cpp would abort the process
    say(grammar, b"a")
    assert set(every[grammar.allowed(every)]) == {ord("b"), ord("c")}
    other = grammar.clone()
    say(other, b"c!")
    say(grammar, b"b!")
    assert set(every[other.allowed(every)]) == {tiny.IM_END, tiny.END_OF_TEXT}
    other.close()
    assert grammar.allowed(np.array([tiny.IM_END]))[0]
    grammar.accept(tiny.IM_END)
    grammar.close()
    grammar.close()
    with pytest.raises(EngineError, match="closed"):
        grammar.accept(ord("a"))


def test_control_tokens_are_no_characters(model: Model) -> None:
    """`<|im_start|>` is written as nothing: between quotes it would not be what was asked for."""
    every = np.arange(model.n_vocab)
    grammar = Grammar(model, "root ::= [^a]+")
    assert not grammar.allowed(np.array([tiny.IM_START]))[0]
    assert grammar.allowed(every).sum() > 100
    grammar.close()
    named = Grammar(model, 'root ::= <|im_start|> "a"')
    assert set(every[named.allowed(every)]) == {tiny.IM_START}
    named.close()


def test_bytes_that_are_no_text_are_no_characters(model: Model) -> None:
    """llama.cpp takes F9 83 AE 89, a surrogate or an overlong form for a character."""
    grammar = Grammar(model, "root ::= [^a]+")
    for start, second in ((0xE0, range(0xA0, 0xC0)), (0xED, range(0x80, 0xA0)),
                          (0xF0, range(0x90, 0xC0)), (0xF4, range(0x80, 0x90)),
                          (0xE1, range(0x80, 0xC0))):  # fmt: skip
        other = grammar.clone()
        other.accept(start)
        after = other.clone()
        every = np.arange(model.n_vocab)
        assert set(every[after.allowed(every)]) == set(second)
        other.close()
        after.close()
    assert not grammar.allowed(np.array([0xC0, 0xC1, 0xF5, 0xFF])).any()
    grammar.close()


def test_more_alternatives_than_a_token_can_be_compared_with_are_refused() -> None:
    words = " | ".join(f'"|{i}"' for i in range(60_000))  # the bars between quotes do not count
    begin = time.monotonic()
    with pytest.raises(GrammarError, match="has 59999 alternatives, more than 20000"):
        gbnf.check(f"root ::= {words}")
    assert time.monotonic() - begin < 2.0


def test_many_alternatives_are_said_to_be_slow() -> None:
    assert "has 1500 alternatives" in gbnf.slow('root ::= "a" # |\n' + '| "|"' * 1500)
    assert gbnf.slow("root ::= [a|b]" + '| "x"' * 500) == ""
