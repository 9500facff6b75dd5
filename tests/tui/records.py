"""Hand-made records for the screen's tests."""

from __future__ import annotations

from specctl.events import Cycle, Decision, Finished, PromptDone, Started


def started(message: str = "hello", **other: object) -> Started:
    values: dict[str, object] = {
        "model": "target.gguf",
        "draft_model": None,
        "spec_types": ("auto",),
        "k_max": 48,
        "prompt_tokens": 12,
        "n_ctx": 4096,
        "threads": 2,
        "temperature": 0.0,
        "seed": 0,
        "unix_time": 1000.0,
        "message": message,
    }
    return Started(**{**values, **other})  # type: ignore[arg-type]


def prompt(tokens: int = 12, seconds: float = 0.5) -> PromptDone:
    return PromptDone(tokens, 0, seconds)


def cycle(
    index: int,
    pieces: tuple[str, ...] = ("a",),
    *,
    drafted: int = 0,
    source: str = "ngram-suffix",
    rejected: str = "",
    reason: str = "",
    t_v: float = 0.03,
    t_d: float = 0.001,
    t_1: float | None = 0.025,
    clock: float = 0.0,
    n_past: int = 12,
) -> Cycle:
    """`len(pieces) - 1` of `drafted` tokens were accepted."""
    accepted = len(pieces) - 1
    assert accepted <= drafted
    return Cycle(
        index=index,
        asked=(source,) if drafted else (),
        source=source if drafted else None,
        limit=48,
        drafted=tuple(range(drafted)),
        accepted=accepted,
        emitted=tuple(range(len(pieces))),
        text="".join(pieces),
        t_d=t_d if drafted else 0.0,
        t_v=t_v,
        t_o=0.0005,
        t_native=t_v,
        t_1=t_1,
        n_past=n_past,
        clock=clock,
        decision=Decision("draft" if drafted else "plain", reason),
        pieces=pieces,
        rejected=rejected,
    )


def finished(tokens: int, reason: str = "eog", text: str = "") -> Finished:
    return Finished(reason, 12, tokens, 1.0, text)  # type: ignore[arg-type]
