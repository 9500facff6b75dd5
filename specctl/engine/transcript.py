"""A conversation as a file: what `/save` writes and `/load` reads.

Kept are the system message and the turns, and beside them which model answered and how. Only the
conversation comes back: the model, the drafters and the sampling stay as they are now. The KV cache
is not kept; it follows the prompt of the next turn.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specctl import __version__, paths
from specctl.engine.dialogue import Dialogue
from specctl.errors import UsageError

SCHEMA = "specctl-chat/1"
_KIND = SCHEMA.partition("/")[0]
_MAX_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Saved:
    """A conversation from a file. `temperature` None: the file does not say."""

    system: str | None
    turns: tuple[tuple[str, str], ...]  # (user, assistant), oldest first
    model: str
    temperature: float | None = None


def save(dialogue: Dialogue, path: Path) -> None:
    """Write the conversation, over an older one if `path` holds one.

    Raises:
        UsageError: nothing was said yet, or `path` holds something else.
        SpecctlError: it cannot be written.
    """
    conversation = dialogue.conversation
    if not conversation.turns and not conversation.system:
        raise UsageError("there is no conversation to save yet")
    _check_may_replace(path)
    paths.write_whole(path, json.dumps(to_dict(dialogue), ensure_ascii=False, indent=1) + "\n")


def _check_may_replace(path: Path) -> None:
    if path.is_dir() or not path.parent.is_dir():
        raise UsageError(
            f"cannot save to {path}: " + ("a folder" if path.is_dir() else "no folder")
        )
    if not path.exists():
        return
    try:
        kind = _kind(_read(path))
    except UsageError:
        kind = None
    if kind is None:
        raise UsageError(f"{path} is there, and is no saved conversation", "choose another name")


def to_dict(dialogue: Dialogue) -> dict[str, Any]:
    """The conversation as JSON-ready values."""
    session, manner = dialogue.session, dialogue.manner
    return {
        "schema": SCHEMA,
        "specctl": __version__,
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "model": session.model.path.name,
        "draft": session.draft_name,
        "settings": {
            "spec_types": list(session.spec.types),
            "k": session.spec.k,
            "n_ctx": session.n_ctx,
            "max_tokens": manner.max_tokens,
            "think": manner.think,
            "sampling": dataclasses.asdict(manner.sampling),
        },
        "system": dialogue.conversation.system,
        "turns": [{"user": u, "assistant": a} for u, a in dialogue.conversation.pairs],
    }


def load(path: Path) -> Saved:
    """A conversation that `save` wrote.

    Raises:
        UsageError: no such file, another kind or schema, or a damaged one; says where.
    """
    data = _read(path)
    kind = _kind(data)
    if kind is None:
        raise UsageError(f"{path} is not a saved conversation", "/save writes one")
    if kind != SCHEMA:
        raise UsageError(f"{path} has the schema {kind!r}; this specctl reads {SCHEMA!r}")
    return from_dict(data, str(path))


def _kind(data: object) -> str | None:
    """The schema of a conversation, or None for anything else."""
    schema = data.get("schema") if isinstance(data, dict) else None
    return schema if isinstance(schema, str) and schema.startswith(f"{_KIND}/") else None


def _read(path: Path) -> Any:
    try:
        if path.is_dir():
            raise UsageError(f"{path} is a folder")
        if path.stat().st_size > _MAX_BYTES:
            raise UsageError(f"{path} is larger than {_MAX_BYTES >> 20} MiB: no conversation")
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not a saved conversation: {error or 'nested'}") from error


def from_dict(data: dict[str, Any], name: str = "conversation") -> Saved:
    """The conversation of `to_dict`, checked.

    Raises:
        UsageError: damaged; names the place.
    """
    turns = data.get("turns")
    if not isinstance(turns, list):
        raise UsageError(f"{name} is damaged: no list of turns")
    settings = data.get("settings")
    sampling = settings.get("sampling") if isinstance(settings, dict) else None
    temperature: object = sampling.get("temperature") if isinstance(sampling, dict) else None
    system = data.get("system")
    return Saved(
        system=None if system is None else _text(system, f"{name}, system"),
        turns=tuple(_turn(turn, f"{name}, turn {n}") for n, turn in enumerate(turns, 1)),
        model=_text(data.get("model"), f"{name}, model"),
        temperature=float(temperature)
        if isinstance(temperature, int | float) and 0 <= temperature <= 100
        else None,
    )


def _turn(turn: object, where: str) -> tuple[str, str]:
    if not isinstance(turn, dict):
        raise UsageError(f"{where} is damaged: {turn!r:.40} is not a turn")
    user, assistant = (_text(turn.get(k), f"{where}, {k}") for k in ("user", "assistant"))
    return user, assistant


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{where} is damaged: {value!r:.40} is not a text")
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise UsageError(f"{where} is damaged: no whole characters") from error
    return value


def restore(dialogue: Dialogue, saved: Saved) -> tuple[str, ...]:
    """Go on with this conversation instead of the present one; what to know about it."""
    replaced = dialogue.conversation.system
    dialogue.restore(saved.system, saved.turns)
    return tuple(_notes(dialogue, saved, replaced))


def _notes(dialogue: Dialogue, saved: Saved, replaced: str | None) -> Iterator[str]:
    count = len(saved.turns)
    with_system = " and the system message" if saved.system else ""
    yield f"{count} turn{'s' * (count != 1)}{with_system} loaded"
    if replaced and replaced != saved.system:
        yield "the system message from before is gone: the conversation has its own, or none"
    model = dialogue.session.model.path.name
    if saved.model != model:
        yield f"the answers are {saved.model}'s; {model} reads them as its own"
    now = dialogue.manner.sampling.temperature
    if saved.temperature not in (None, now):
        yield f"temperature was {saved.temperature:g}, is {now:g} (/temp {saved.temperature:g})"
