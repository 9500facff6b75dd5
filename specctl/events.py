"""The records of one generation, and their JSON form. The engine yields them, all others read.

Order: one `Started`, one `PromptDone`, then `Cycle`s (or, from engines that show no cycles,
`Interval`s), then one `Finished`. Times are seconds, sizes are tokens. Rates and means are never
in here: `metrics.py` folds them.
"""

from __future__ import annotations

import dataclasses
import typing
from dataclasses import dataclass
from typing import Any, Literal

from specctl.errors import SpecctlError

SCHEMA = 1
_MOST = 1 << 64  # of any figure; seeds are the largest that mean something

FinishReason = Literal["stop", "eog", "length", "context", "cancelled", "error"]


@dataclass(frozen=True, slots=True)
class Decision:
    """Why this cycle drafted as it did, decided before any of its tokens were drawn.

    `expected` and `needed` are accepted tokens per cycle, where whoever decided knew them.
    """

    action: Literal["draft", "plain"]
    reason: str
    expected: float | None = None
    needed: float | None = None


@dataclass(frozen=True, slots=True)
class Started:
    """What is about to run, and how.

    `message` is the user's own, where a chat asks; `thinking`: the prompt left a think tag open.
    """

    model: str
    draft_model: str | None
    spec_types: tuple[str, ...]
    k_max: int
    prompt_tokens: int
    n_ctx: int
    threads: int
    temperature: float
    seed: int
    unix_time: float
    notes: tuple[str, ...] = ()
    message: str = ""
    thinking: bool = False
    schema: int = SCHEMA


@dataclass(frozen=True, slots=True)
class PromptDone:
    """The prompt is in the KV cache but for its last token: that one is the first cycle's."""

    prompt_tokens: int
    reused_tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Cycle:
    """One pass of the target: K drafted tokens checked, `accepted` of them kept, one token added.

    `drafted` is empty for plain decoding. `emitted` is what reached the answer: the accepted
    tokens and the target's own, fewer where the generation stops inside the cycle. `text` is what
    can be shown now (UTF-8 and stop strings may hold some back), `rejected` the text of the drafted
    tokens that did not stand; -1 stands for a token that the source does not show.

    Times: `t_d` everything the drafter did, `t_v` the target's pass, `t_o` the rest, `t_native` the
    share of them spent inside llama.cpp; `t_1` is the plain-step estimate in force (None until
    measured). `n_past` is the context length before the cycle; `clock` is seconds since `Started`,
    at the cycle's end. `split` False: the source times whole cycles only, and `t_v` holds them.
    """

    index: int
    asked: tuple[str, ...]
    source: str | None
    limit: int
    drafted: tuple[int, ...]
    accepted: int
    emitted: tuple[int, ...]
    text: str
    t_d: float
    t_v: float
    t_o: float
    t_native: float
    t_1: float | None
    n_past: int
    clock: float
    decision: Decision
    pieces: tuple[
        str, ...
    ] = ()  # `text`, cut at token borders: pieces[i] became showable at token i
    rejected: str = ""
    split: bool = True

    @property
    def t_c(self) -> float:
        """The whole cycle, seconds."""
        return self.t_d + self.t_v + self.t_o

    @property
    def t_p(self) -> float:
        """Our own cost: the cycle without the time inside llama.cpp, seconds."""
        return self.t_c - self.t_native


@dataclass(frozen=True, slots=True)
class Interval:
    """Sums over a stretch of time, from sources that show no single cycles.

    `passes` counts target passes, `drafted_passes` those with a draft; those, `emitted` and `t_d`
    (seconds spent drafting) are None where the source does not say. `accepted_at[i]` counts passes
    that accepted at least i + 1 tokens. `seconds` are of generation: the source's own clock where
    it has one. `t_1` is the plain step to compare with, where one is known. `exact` is False where
    the sums were sampled, derived or mixed with other requests.
    """

    seconds: float
    passes: int | None
    drafted_passes: int | None
    drafted: int
    accepted: int
    emitted: int | None
    accepted_at: tuple[int, ...]
    drafted_at: tuple[int, ...] | None
    exact: bool
    source: str
    clock: float
    t_1: float | None = None
    t_d: float | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """The end of one generation; `seconds` counts from `Started`, prompt included."""

    reason: FinishReason
    prompt_tokens: int
    emitted_tokens: int
    seconds: float
    text: str = ""  # held back until now: an incomplete character or stop-string prefix
    detail: str = ""


Record = Started | PromptDone | Cycle | Interval | Finished
_TYPES: dict[str, type[Any]] = {
    "started": Started,
    "prompt": PromptDone,
    "cycle": Cycle,
    "interval": Interval,
    "finished": Finished,
}
_NAMES = {cls: name for name, cls in _TYPES.items()}


def to_dict(record: Record) -> dict[str, Any]:
    """The record as JSON-ready values, with a `type` tag."""
    return {"type": _NAMES[type(record)], **dataclasses.asdict(record)}


def from_dict(data: dict[str, Any]) -> Record:
    """A record from `to_dict`'s form; unknown keys are ignored, so newer files can be read.

    Raises:
        SpecctlError: no such record type, a missing or wrong field, or a newer schema.
    """
    name = data.get("type")
    cls = _TYPES.get(name) if isinstance(name, str) else None
    if cls is None:
        raise SpecctlError(f"{name!r} is not a record type of this version")
    schema = data.get("schema", SCHEMA)
    if isinstance(schema, int) and schema > SCHEMA:
        raise SpecctlError(f"record schema {schema} is newer than {SCHEMA}", "update specctl")
    record: Record = _build(cls, data, f"damaged {name} record")
    return record


def _build(cls: type[Any], data: dict[str, Any], what: str) -> Any:
    hints = _HINTS[cls]
    values: dict[str, Any] = {}
    for key, value in data.items():
        hint = hints.get(key)
        if hint is None:
            continue
        if hint is Decision and isinstance(value, dict):
            value = _build(Decision, value, what)
        elif isinstance(value, list):
            value = tuple(value)
        if not _fits(value, hint):
            raise SpecctlError(f"{what}: {key} cannot be {value!r}")
        values[key] = value
    try:
        return cls(**values)
    except TypeError as error:
        raise SpecctlError(f"{what}: {error}") from error


_HINTS = {cls: typing.get_type_hints(cls) for cls in (*_TYPES.values(), Decision)}


def _fits(value: object, hint: Any) -> bool:
    """Is `value` of the field's type? Covers the types that records use."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple:
        return isinstance(value, tuple) and all(_fits(item, inner[0]) for item in value)
    if origin is Literal:
        return value in inner
    if inner:  # X | None
        return any(_fits(value, option) for option in inner)
    if hint in (int, float):
        return _is_number(value, hint)
    return isinstance(value, hint)


def _is_number(value: object, hint: Any) -> bool:
    """Of this kind, finite, and small enough for sums of many to stay numbers."""
    kinds = (int, float) if hint is float else int
    return isinstance(value, kinds) and not isinstance(value, bool) and abs(value) < _MOST
