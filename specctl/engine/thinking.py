"""Tell a model's thinking from its answer in a stream of text."""

from __future__ import annotations

OPEN, CLOSE = "<think>", "</think>"


class ThinkSplitter:
    """Feeds on text, gives (text, is_thinking) parts; tags themselves are dropped.

    `inside` starts True where the prompt already opened the tag, as some templates do.
    """

    def __init__(self, inside: bool = False) -> None:
        self._inside = inside
        self._held = ""

    def push(self, text: str) -> list[tuple[str, bool]]:
        """The parts that are certain now; the start of a tag is held back."""
        self._held += text
        parts: list[tuple[str, bool]] = []
        while True:
            tag = CLOSE if self._inside else OPEN
            at = self._held.find(tag)
            if at < 0:
                break
            parts.append((self._held[:at], self._inside))
            self._held = self._held[at + len(tag) :]
            self._inside = not self._inside
        keep = next((n for n in range(len(tag) - 1, 0, -1) if self._held.endswith(tag[:n])), 0)
        cut = len(self._held) - keep
        parts.append((self._held[:cut], self._inside))
        self._held = self._held[cut:]
        return [part for part in parts if part[0]]

    def finish(self) -> list[tuple[str, bool]]:
        """What was held back and is no tag after all."""
        rest, self._held = self._held, ""
        return [(rest, self._inside)] if rest else []
