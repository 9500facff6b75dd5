"""Words around turns: the conversation for a file, and what an empty transcript says."""

from __future__ import annotations

from collections.abc import Sequence

from specctl.tui.state import Live, Turn
from specctl.tui.widgets.flow import clean


def as_markdown(turns: Sequence[Turn], thinking: bool = False, plain: bool = False) -> str:
    """A conversation as Markdown, control characters replaced; thinking as a quotation."""
    parts: list[str] = []
    for turn in turns:
        if turn.question:
            parts.append(f"## You\n\n{turn.question.strip()}")
        parts.append("## Model")
        if thinking and turn.thinking.strip():
            parts.append("> " + turn.thinking.strip().replace("\n", "\n> "))
        if turn.text.strip():
            parts.append(turn.text.strip())
        if turn.error:
            parts.append(f"*error: {turn.error}*")
    return clean("\n\n".join(parts), plain) + "\n" if parts else ""


def hint(live: Live, model: str, plain: bool) -> tuple[str, str]:
    """(look, text) for a transcript without turns."""
    dots = "..." if plain else "…"
    if live.phase == "opening":
        what = f"opening {model}" if model else "opening the model"
        return "note", f"{what} {dots}\nYou can type already; it is sent when the model is open."
    if live.phase == "failed":
        errors = [line.text for line in live.log if line.kind == "error"]
        return "error", "error: " + (errors[-1] if errors else "the model could not be opened")
    return "note", (
        "Ask something. Text that was drafted and accepted is tinted, what the model wrote itself "
        "is not.\nF1 lists all keys, F2 switches speculation off and on."
    )
