"""OpenAI's requests and responses as values: what may be asked, and how it is answered.

A field that is not known here and would change the meaning is refused by name, never ignored.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from specctl.errors import ContextFullError, DeadEndError, GrammarError, SpecctlError, UsageError
from specctl.events import FinishReason
from specctl.metrics import Totals
from specctl.settings import Sampling

Json = dict[str, Any]
Kind = Literal["chat", "text"]

# Said, and without a bearing on the answer here.
_HARMLESS = {
    "metadata", "store", "service_tier", "safety_identifier", "parallel_tool_calls",
    "prompt_cache_retention", "stream_options",
}  # fmt: skip
_READ = {
    "model", "stream", "user", "prompt_cache_key", "max_tokens", "max_completion_tokens", "stop",
    "seed", "temperature", "top_p", "top_k", "min_p", "repeat_penalty", "frequency_penalty",
    "presence_penalty", "n", "response_format", "grammar", "logprobs",
}  # fmt: skip
_OWN = {
    "chat": {"messages", "chat_template_kwargs", "top_logprobs"},
    "text": {"prompt", "echo", "suffix", "best_of"},
}
_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
_OFF: tuple[object, ...] = (
    None,
    False,
    0,
    [],
    {},
    "",
)  # values of an unknown field that ask for nothing
_LONGEST_STOP = 16  # stop strings of one request


class ApiError(Exception):
    """An answer in OpenAI's error shape."""

    def __init__(
        self, status: int, message: str, *, param: str | None = None, code: str | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code

    @property
    def body(self) -> Json:
        """`{"error": {message, type, param, code}}`."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        said = {"message": self.message, "type": kind, "param": self.param, "code": self.code}
        return {"error": said}


def as_api_error(error: SpecctlError, wanted: Wanted) -> ApiError:
    """What the engine refused, as a client should hear it."""
    message = error.message + (f" ({error.hint})" if error.hint else "")
    if isinstance(error, ContextFullError):
        return ApiError(400, message, code="context_length_exceeded")
    if isinstance(error, GrammarError):
        param = "response_format" if wanted.grammar is None else "grammar"
        dead = isinstance(error, DeadEndError)
        code = "unsatisfiable_grammar" if dead else "invalid_grammar"
        return ApiError(400, message, param=param, code=code)
    if isinstance(error, UsageError):
        return ApiError(400, message)
    return ApiError(500, message, code="engine_error")


@dataclass(frozen=True, slots=True)
class Wanted:
    """One request. `schema` is a JSON schema as text, `grammar` GBNF; at most one of them.

    `conversation` is whose turn it is in the queue: `prompt_cache_key`, or `user`.
    """

    kind: Kind
    messages: tuple[Mapping[str, str], ...]
    prompt: str | tuple[int, ...]
    sampling: Sampling
    max_tokens: int | None
    stop: tuple[str, ...]
    stream: bool
    include_usage: bool
    think: bool | None
    schema: str | None
    grammar: str | None
    conversation: str
    usage_so_far: bool = False  # on every chunk, as vLLM's continuous_usage_stats


def read(kind: Kind, body: bytes, default: Wanted) -> Wanted:
    """A body as a request; what it leaves out is `default`'s.

    Raises:
        ApiError: 400, with the field in `param`.
    """
    try:
        asked: Any = json.loads(body)
        # half a surrogate pair is no text and cannot be written: a question mark instead
        if b"\\ud" in body.lower() or b"\xed" in body:
            asked = json.loads(json.dumps(asked, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError) as error:
        raise ApiError(400, f"the body is no JSON: {error}", code="invalid_json") from error
    if not isinstance(asked, dict):
        raise ApiError(400, "the body is JSON, but no object", code="invalid_json")
    _refuse_unknown(kind, asked)
    schema, grammar = _bound(asked)
    options = _typed(asked, "stream_options", dict, {})
    return replace(
        default,
        kind=kind,
        messages=_messages(asked) if kind == "chat" else (),
        prompt=_prompt(asked) if kind == "text" else "",
        sampling=_sampling(asked, default.sampling),
        max_tokens=_max_tokens(asked, default.max_tokens),
        stop=_stop(asked),
        stream=_typed(asked, "stream", bool, False),
        include_usage=_typed(options, "include_usage", bool, False),
        usage_so_far=_typed(options, "continuous_usage_stats", bool, False),
        think=_think(asked, default.think),
        schema=schema,
        grammar=grammar,
        conversation=_typed(asked, "prompt_cache_key", str, "") or _typed(asked, "user", str, ""),
    )


def _refuse_unknown(kind: Kind, asked: Json) -> None:
    for name, value in asked.items():
        if name in _READ or name in _OWN[kind] or name in _HARMLESS:
            continue
        if not any(value is off or (value == off and type(value) is type(off)) for off in _OFF):
            raise ApiError(400, f"{name} is not supported here", param=name, code="unsupported")
    for name in ("logprobs", "top_logprobs", "echo", "suffix"):
        if asked.get(name):
            raise ApiError(400, f"{name} is not supported here", param=name, code="unsupported")
    for name in ("n", "best_of"):
        if asked.get(name) not in (None, 1):
            raise ApiError(
                400, f"{name} must be 1: there is one context", param=name, code="unsupported"
            )


def _typed(asked: Json, name: str, kind: type, default: Any) -> Any:
    value = asked.get(name)
    if value is None:
        return default
    if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
        raise ApiError(400, f"{name} cannot be {str(value)[:80]!r}", param=name)
    return value


def _number(asked: Json, name: str, default: float) -> float:
    value = asked.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ApiError(400, f"{name} must be a number", param=name)
    try:
        return float(value)
    except OverflowError:
        raise ApiError(400, f"{name} is too large", param=name) from None


def _sampling(asked: Json, default: Sampling) -> Sampling:
    """The server's own where nothing is said; without a seed a new one."""
    names = ("temperature", "top_p", "min_p", "repeat_penalty", "frequency_penalty",
             "presence_penalty")  # fmt: skip
    changes: Json = {name: _number(asked, name, getattr(default, name)) for name in names}
    changes["top_k"] = _typed(asked, "top_k", int, default.top_k)
    changes["seed"] = _typed(asked, "seed", int, secrets.randbits(32)) % (1 << 64)
    try:
        return replace(default, **changes)
    except SpecctlError as error:
        name = next((n for n in (*names, "top_k") if n.replace("_", "-") in error.message), None)
        name = name or next((n for n in names if n.split("_")[0] in error.message), None)
        raise ApiError(400, error.message, param=name) from error


def _max_tokens(asked: Json, default: int | None) -> int | None:
    for name in ("max_completion_tokens", "max_tokens"):
        value = _typed(asked, name, int, None)
        if value is not None:
            if value < 1:
                raise ApiError(400, f"{name} {value} is below 1", param=name)
            return int(value)
    return default


def _stop(asked: Json) -> tuple[str, ...]:
    value = asked.get("stop")
    if value is None:
        return ()
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) and text for text in texts):
        raise ApiError(400, "stop must be a text, or a list of texts", param="stop")
    if len(texts) > _LONGEST_STOP:
        raise ApiError(400, f"more than {_LONGEST_STOP} stop texts", param="stop")
    return tuple(texts)


def _think(asked: Json, default: bool | None) -> bool | None:
    """llama-server's and vLLM's `chat_template_kwargs: {"enable_thinking": …}`."""
    options = _typed(asked, "chat_template_kwargs", dict, {})
    for name in options:
        if name != "enable_thinking":
            raise ApiError(
                400,
                f"chat_template_kwargs.{name} is not supported here",
                param="chat_template_kwargs",
                code="unsupported",
            )
    value: bool | None = _typed(options, "enable_thinking", bool, default)
    return value


def _bound(asked: Json) -> tuple[str | None, str | None]:
    """(JSON schema, GBNF) that the answer must match."""
    grammar: str | None = _typed(asked, "grammar", str, None)
    wished = _typed(asked, "response_format", dict, {"type": "text"})
    kind = wished.get("type")
    if kind == "text":
        return None, grammar
    if grammar is not None:
        raise ApiError(400, "grammar and response_format exclude each other", param="grammar")
    if kind == "json_object":
        return json.dumps(wished.get("schema") or {"type": "object"}), None
    if kind == "json_schema":
        inner = wished.get("json_schema")
        schema = inner.get("schema") if isinstance(inner, dict) else None
        if not isinstance(schema, dict):
            raise ApiError(
                400, "response_format.json_schema.schema must be an object", param="response_format"
            )
        return json.dumps(schema), None
    raise ApiError(400, f"response_format type {kind!r} is not known", param="response_format")


def _messages(asked: Json) -> tuple[Mapping[str, str], ...]:
    given = asked.get("messages")
    if not isinstance(given, list) or not given:
        raise ApiError(400, "messages must be a list of at least one message", param="messages")
    return tuple(_message(message, index) for index, message in enumerate(given))


def _message(message: object, index: int) -> Mapping[str, str]:
    where = f"messages[{index}]"
    if not isinstance(message, dict):
        raise ApiError(400, f"{where} is no object", param="messages")
    role = _ROLES.get(str(message.get("role")))
    if role is None:
        raise ApiError(
            400, f"{where}: role {message.get('role')!r} is not supported here", param="messages"
        )
    for name in ("tool_calls", "function_call", "tool_call_id", "audio"):
        if message.get(name):
            raise ApiError(400, f"{where}: {name} is not supported here", param="messages")
    return {"role": role, "content": _content(message.get("content"), where)}


def _content(content: object, where: str) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise ApiError(400, f"{where}: content must be text", param="messages")
    parts = []
    for part in content:
        if not isinstance(part, dict) or part.get("type") != "text":
            raise ApiError(400, f"{where}: only text parts are supported here", param="messages")
        parts.append(str(part.get("text", "")))
    return "".join(parts)


def _prompt(asked: Json) -> str | tuple[int, ...]:
    prompt = asked.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if isinstance(prompt, str) and prompt:
        return prompt
    if isinstance(prompt, list) and prompt and all(type(token) is int for token in prompt):
        return tuple(prompt)
    raise ApiError(400, "prompt must be one text, or one list of tokens", param="prompt")


# ---------------------------------------------------------------- answers

_FINISH: dict[FinishReason, str] = {
    "stop": "stop",
    "eog": "stop",
    "length": "length",
    "context": "length",
    "cancelled": "cancelled",
    "error": "error",
}


@dataclass(frozen=True, slots=True)
class Shape:
    """How one answer is written: as a chat's, or as a plain completion's; whole or in chunks."""

    kind: Kind
    model: str
    number: str
    created: int
    notes: tuple[str, ...] = ()

    def chunk(self, text: str = "", *, thinking: bool = False, role: bool = False) -> Json:
        """A part of the text."""
        if self.kind == "text":
            return self._chunk({"text": text, "finish_reason": None})
        delta: Json = {"role": "assistant"} if role else {}
        if text or role:
            delta["reasoning_content" if thinking else "content"] = text
        return self._chunk({"delta": delta, "finish_reason": None})

    def last(self, reason: FinishReason) -> Json:
        """The end of a stream."""
        body: Json = {"text": ""} if self.kind == "text" else {"delta": {}}
        return self._chunk({**body, "finish_reason": _FINISH[reason]})

    def usage_chunk(self, said: Json) -> Json:
        """After the end, where it was asked for."""
        return {**self._chunk({}), "choices": [], "usage": said}

    def whole(self, answer: str, thought: str, reason: FinishReason, said: Json) -> Json:
        """An answer that is not streamed."""
        body: Json = {"text": answer}
        if self.kind == "chat":
            body = {"message": {"role": "assistant", "content": answer}}
            if thought:
                body["message"]["reasoning_content"] = thought
        choice = {"index": 0, **body, "logprobs": None, "finish_reason": _FINISH[reason]}
        name = "chat.completion" if self.kind == "chat" else "text_completion"
        return {**self._head(name), "choices": [choice], "usage": said}

    def _chunk(self, choice: Json) -> Json:
        name = "chat.completion.chunk" if self.kind == "chat" else "text_completion"
        return {**self._head(name), "choices": [{"index": 0, **choice, "logprobs": None}]}

    def _head(self, name: str) -> Json:
        head = {"id": self.number, "object": name, "created": self.created, "model": self.model}
        return {**head, "specctl_notes": list(self.notes)} if self.notes else head


def new_shape(kind: Kind, model: str, notes: tuple[str, ...] = ()) -> Shape:
    """With a number of its own."""
    prefix = "chatcmpl" if kind == "chat" else "cmpl"
    return Shape(kind, model, f"{prefix}-{secrets.token_hex(12)}", int(time.time()), notes)


def usage(prompt: int, reused: int, emitted: int, totals: Totals) -> Json:
    """Tokens, and what drafting brought. `rejected` counts every drafted token that did not stand.

    OpenAI's `accepted_prediction_tokens` are of a prediction that the client sends; here they are
    of the drafts. `specctl` has the sums that its own numbers are folded from.
    """
    return {
        "prompt_tokens": prompt,
        "completion_tokens": emitted,
        "total_tokens": prompt + emitted,
        "prompt_tokens_details": {"cached_tokens": reused},
        "completion_tokens_details": {
            "accepted_prediction_tokens": totals.accepted,
            "rejected_prediction_tokens": totals.drafted - totals.accepted,
        },
        "specctl": {
            "drafted": totals.drafted,
            "accepted": totals.accepted,
            "cycles": totals.cycles,
            "drafted_cycles": totals.drafted_cycles,
            "seconds": round(totals.seconds, 6),
        },
    }


def models(name: str, created: int, n_ctx: int) -> Json:
    """`/v1/models`: the one that is served."""
    one = {"id": name, "object": "model", "created": created, "owned_by": "specctl"}
    return {"object": "list", "data": [{**one, "meta": {"n_ctx": n_ctx}}]}
