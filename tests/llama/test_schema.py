"""JSON schemas: what becomes of them, what is said of those that cannot be a grammar, and where."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny
from hypothesis import given
from hypothesis import strategies as st

from specctl.errors import GrammarError
from specctl.llama import gbnf
from specctl.llama.grammar import Grammar
from specctl.llama.model import Model
from specctl.llama.schema import from_schema
from specctl.settings import ModelSettings

pytestmark = pytest.mark.native


@pytest.fixture(scope="module")
def model(tiny_models: Mapping[str, Path]) -> Iterator[Model]:
    opened = Model(tiny_models["clock"], ModelSettings(gpu_layers=0))
    yield opened
    opened.close()


def converted(schema: Any) -> tuple[str, tuple[str, ...]]:
    return from_schema(json.dumps(schema))


SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 3},
        "n": {"type": "integer", "minimum": 3},
    },
    "required": ["name"],
}


def test_a_schema_becomes_a_grammar_and_says_what_it_leaves_out(model: Model) -> None:
    text, ignored = converted(SCHEMA)
    assert ignored == ("minimum",)
    grammar = Grammar(model, text)
    for byte in b'{"name":"abc"':
        grammar.accept(byte)
    assert not grammar.allowed(np.array([ord("d")]))[0]
    for byte in b', "n": 12}':
        grammar.accept(byte)
    assert grammar.allowed(np.array([tiny.IM_END]))[0]
    grammar.close()


@pytest.mark.parametrize(
    ("schema", "left_out"),
    [
        ({}, ()),
        ({"type": "array", "items": {}, "title": "any"}, ()),
        ({"type": "object", "additionalProperties": True}, ()),
        (
            {"type": "object", "properties": {"minimum": {"type": "null"}}, "minProperties": 1},
            ("minProperties",),
        ),
        ({"type": "object", "patternProperties": {"^a": {"not": 3}}}, ("patternProperties",)),
        ({"type": "object", "required": ["b"]}, ("required",)),
        ({"properties": {"a": {"type": "null"}}, "required": ["b"]}, ("required of 'b'",)),
        ({"type": "string", "format": "email"}, ("format",)),
        ({"type": "string", "format": "date-time"}, ()),
        # one keyword of several is read: the others bind nothing
        ({"type": "string", "pattern": "^a*$", "minLength": 3}, ("minLength",)),
        ({"enum": ["a"], "minLength": 3}, ("minLength",)),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"type": "null"}}, "maxLength": 1}, ("maxLength",)),
        ({"type": "array", "prefixItems": [{"type": "null"}], "minItems": 2}, ("minItems",)),
        ({"anyOf": [{"type": "number", "multipleOf": 2}]}, ("multipleOf",)),
    ],
)
def test_what_a_grammar_does_not_enforce_is_named(schema: Any, left_out: tuple[str, ...]) -> None:
    text, ignored = converted(schema)
    assert ignored == left_out
    gbnf.check(text)


def test_a_definition_may_contain_itself() -> None:
    tree = {"type": "object", "properties": {"left": {"$ref": "#/$defs/tree"}}}
    text, _ = converted({"$ref": "#/$defs/tree", "$defs": {"tree": tree}})
    gbnf.check(text)


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"enum": []}, "at #/enum: an empty list: nothing matches"),
        ({"type": "string", "minLength": 5, "maxLength": 2}, "minLength 5 is above maxLength 2"),
        (
            {"properties": {"a": {"type": "array", "items": {"enum": [1]}, "minItems": 3,
                                  "maxItems": 1}}},
            "at #/properties/a: minItems 3 is above maxItems 1: nothing matches",
        ),
        (
            {"type": "object", "properties": {"a": {}}, "required": ["b"],
             "additionalProperties": False},
            "'b' is required and may not be there: nothing matches",
        ),
        ({"type": "string", "pattern": "^a{3,1}$"}, "at #/pattern: {3,1} in it: nothing matches"),
        ({"type": "nonsense"}, 'at #/type: "nonsense" is no type'),
        ({"anyOf": [{"type": "string"}, {"type": ["x"]}]}, 'at #/anyOf/1/type: "x" is no type'),
        ({"$ref": "https://example.com/a"}, '"https://example.com/a" leaves the schema'),
        (
            {"type": "object", "properties": {"a": {"$ref": "#"}}},
            "at #/properties/a/$ref: \"#\" is the schema itself: a recursive root is not supported",
        ),
        ({"enum": ["\ud800"]}, "holds half of a surrogate pair (\\ud800 … \\udfff)"),
        (
            {"properties": {f"p{n}": {"type": "null"} for n in range(2000)}},
            "at #/properties: 2000 are too many optional properties",
        ),
        ({"$ref": "#/$defs/none"}, "leads nowhere: there is no '$defs'"),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, "leads round in a circle"),
        (
            {"properties": {"a": {"$ref": "#/$defs/x/t"}, "b": {"$ref": "#/$defs/y/t"}},
             "$defs": {"x": {"t": {"type": "null"}}, "y": {"t": {"type": "string"}}}},
            "ends like '#/$defs/x/t'",
        ),
        ({"properties": 3}, "at #/properties: 3 is no object of schemas"),
        ({"properties": {"a": True}}, "at #/properties/a: true stands where a schema must be"),
        ({"type": "string", "pattern": "a+"}, "must begin with ^ and end with $"),
        ({"type": "string", "pattern": "^(?=a)b$"}, "has a (?…), which is not supported"),
        ({"type": "string", "pattern": "^[$"}, "cannot be made a grammar: Unbalanced"),
        ({"not": {"type": "null"}}, "a grammar cannot be made of `not` alone"),
        ({"allOf": [{"type": "string"}]}, "at #/allOf/0: allOf is read of parts with properties"),
        ({"type": "string", "minLength": "x"}, 'at #/minLength: "x" is no count'),
        ({"type": "object", "required": "b"}, 'at #/required: "b" is no list of names'),
        ({"enum": "abc"}, 'at #/enum: "abc" is no list of values'),
        (True, "is an object, not true"),
        ([1], "is an object, not [1]"),
    ],
)  # fmt: skip
def test_a_schema_that_cannot_be_a_grammar_is_refused_with_its_place(
    schema: Any, said: str
) -> None:
    with pytest.raises(GrammarError, match=re.escape(said)):
        converted(schema)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "there is nothing in it"),
        ("{type: object}", "Expecting property name enclosed in double quotes: line 1"),
        ('{"const": NaN}', "NaN is no number of JSON"),
        ("[" * 100_000, "nests too deep"),
        ('{"anyOf":[' * 3000 + "{}" + "]}" * 3000, "nests too deep"),
    ],
)
def test_what_is_no_json_is_said_to_be_none(text: str, said: str) -> None:
    with pytest.raises(GrammarError, match=said):
        from_schema(text)


def test_both_halves_of_a_pair_are_a_character(model: Model) -> None:
    text, _ = from_schema('{"enum": ["\\ud83d\\ude00"]}')
    Grammar(model, text).close()


def test_a_token_that_is_none_is_said_without_the_parsers_own_words(
    model: Model, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(GrammarError, match=r"of this model: <no such token>$"):
        Grammar(model, "root ::= <no such token> | <|im_end|>")
    Grammar(model, "root ::= !<|im_end|> [a-z]").close()
    assert capfd.readouterr().err == ""


def test_half_a_pair_in_a_grammar_is_refused() -> None:
    with pytest.raises(GrammarError, match="half of a surrogate pair"):
        gbnf.check('root ::= "\ud800"')


def test_a_schema_too_deep_for_the_parser_is_refused() -> None:
    text, _ = converted({"type": "array", "items": {"enum": [1]}, "maxItems": 5000})
    with pytest.raises(GrammarError, match="deeper than 200"):
        gbnf.check(text)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "minLength": 10**9},
        {"type": "array", "items": {"type": "string", "maxLength": 10**6}},
        {"type": "array", "items": {"type": "integer"}, "minItems": 10**9},
        {"type": "string", "pattern": "^(a{1000}){1000}$"},
    ],
)
def test_a_schema_that_would_be_written_out_a_million_times(schema: Any) -> None:
    begin = time.monotonic()
    with pytest.raises(GrammarError, match="is above"):
        converted(schema)
    assert time.monotonic() - begin < 1.0
    assert converted({"type": "string", "maxLength": 100})[0]


KEYS = [
    "type", "properties", "required", "additionalProperties", "items", "prefixItems", "minItems",
    "maxItems", "minLength", "maxLength", "pattern", "format", "enum", "const", "anyOf", "oneOf",
    "allOf", "$ref", "$defs", "a", "not",
]  # fmt: skip
WORDS = ["string", "object", "array", "integer", "#/$defs/a", "#/a", "^a*$", "date", "uuid", "a"]


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-2, 5) | st.sampled_from(WORDS),
        lambda inner: st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
        max_leaves=12,
    )
)  # fmt: skip
def test_any_json_is_a_grammar_or_refused_in_words(schema: Any) -> None:
    try:
        text, _ = converted(schema)
    except GrammarError as error:
        assert "stdin" not in error.message  # noqa: PT017 - the converter's own words
        return
    assert "root ::= " in text
