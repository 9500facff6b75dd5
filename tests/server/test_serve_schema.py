"""What may be asked: every field that is not known and means something is refused by name."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specctl.server.schema import ApiError, Wanted, read
from specctl.settings import Sampling

DEFAULT = Wanted(
    "chat", (), "", Sampling(temperature=0.7), 99, (), False, False, None, None, None, ""
)
ASK = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


def asked(**fields: Any) -> Wanted:
    return read("chat", json.dumps({**ASK, **fields}).encode(), DEFAULT)


def test_what_is_said_counts_and_the_rest_is_the_servers() -> None:
    wanted = asked(
        temperature=0, top_p=0.5, seed=7, max_completion_tokens=5, stop="x", user="u", stream=True,
        stream_options={"include_usage": True}, frequency_penalty=0.5, n=1, logit_bias={},
        metadata={"a": "b"}, tools=[], logprobs=False,
    )  # fmt: skip
    assert wanted.sampling == Sampling(0.0, top_p=0.5, frequency_penalty=0.5, seed=7)
    assert (wanted.max_tokens, wanted.stop, wanted.conversation) == (5, ("x",), "u")
    assert wanted.stream
    assert wanted.include_usage
    assert asked().max_tokens == 99
    assert asked().sampling.temperature == 0.7
    assert asked().sampling.seed != asked().sampling.seed


def test_contents_in_parts_and_developers_are_taken() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    wanted = asked(messages=[{"role": "developer", "content": parts}, ASK["messages"][0]])
    assert wanted.messages[0] == {"role": "system", "content": "ab"}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 2}, "n"),
        ({"logprobs": True}, "logprobs"),
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"logit_bias": {"5": 1}}, "logit_bias"),
        ({"prediction": {"type": "content", "content": "x"}}, "prediction"),
        ({"reasoning_effort": "low"}, "reasoning_effort"),
        ({"temprature": 1}, "temprature"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"frequency_penalty": 500}, None),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"stop": [""]}, "stop"),
        ({"stop": ["x"] * 17}, "stop"),
        ({"stream": "yes"}, "stream"),
        ({"seed": "x"}, "seed"),
        ({"messages": []}, "messages"),
        ({"messages": ["hi"]}, "messages"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages"),
        ({"messages": [{"role": "user"}]}, "messages"),
        ({"response_format": {"type": "xml"}}, "response_format"),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        ({"response_format": {"type": "json_object"}, "grammar": "root ::="}, "grammar"),
        ({"chat_template_kwargs": {"x": 1}}, "chat_template_kwargs"),
    ],
)
def test_what_cannot_be_done_is_refused_by_name(fields: dict[str, Any], param: str | None) -> None:
    with pytest.raises(ApiError) as caught:
        asked(**fields)
    error = caught.value.body["error"]
    assert (caught.value.status, error["type"]) == (400, "invalid_request_error")
    if param is not None:
        assert error["param"] == param


@pytest.mark.parametrize("prompt", ["", [], ["a", "b"], [1, "a"], [True], None, 3, [[]]])
def test_prompts_of_completions(prompt: Any) -> None:
    with pytest.raises(ApiError):
        read("text", json.dumps({"prompt": prompt}).encode(), DEFAULT)
    assert read("text", b'{"prompt": [[1, 2]]}', DEFAULT).prompt == (1, 2)


@given(st.binary(max_size=40) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["messages", "role", "content", "stop", "n", "seed", "x"]), inner
    ),
).map(lambda value: json.dumps(value).encode()))  # fmt: skip
def test_any_body_is_a_request_or_a_400(body: bytes) -> None:
    for kind in ("chat", "text"):
        try:
            read(kind, body, DEFAULT)  # type: ignore[arg-type]
        except ApiError as error:
            assert error.status == 400  # noqa: PT017


@pytest.mark.parametrize("half", ["\\ud800", "\\uDC00"])
def test_half_a_surrogate_pair_never_reaches_an_answer(half: str) -> None:
    body = json.dumps(ASK).replace("hi", half).encode()
    assert read("chat", body, DEFAULT).messages[0]["content"] == "?"
    with pytest.raises(ApiError) as refused:
        read("chat", body.replace(b'"model"', b'"' + half.encode() + b'"'), DEFAULT)
    assert refused.value.status == 400
    json.dumps(refused.value.body, ensure_ascii=False).encode()


def test_a_number_no_float_holds_is_refused() -> None:
    with pytest.raises(ApiError, match="too large"):
        asked(temperature=10**400)
