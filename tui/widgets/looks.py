"""The transcript's looks by name: colours for light and dark, and what stands in for colour."""

from __future__ import annotations

from rich.style import Style
from textual.widget import Widget

from specctl.tui.widgets.flow import Look
from specctl.tui.widgets.turnblock import SLOTS

COMPONENTS = {
    "transcript--label",
    "transcript--question",
    "transcript--own",
    *(f"transcript--drafter-{index}" for index in range(SLOTS)),
    "transcript--ghost",
    "transcript--thinking",
    "transcript--fold",
    "transcript--note",
    "transcript--error",
    "transcript--match",
    "transcript--current",
    "transcript--code",
}

# Theme variables give five colours at most, two of them alike in some themes; drafters need
# eight that can be told apart and read on both grounds. No red: that says "error" and "below".
CSS = """
Transcript {
    background: $surface;
    color: $foreground;
    overflow-x: hidden;
    overflow-y: scroll;
    scrollbar-size-vertical: 1;
    scrollbar-background: $surface;
    scrollbar-background-hover: $surface;
    & > .transcript--label { color: $text-muted; }
    & > .transcript--question { text-style: bold; }
    & > .transcript--ghost { color: $foreground 55%; text-style: strike; }
    & > .transcript--thinking { color: $text-muted; text-style: italic; }
    & > .transcript--fold { color: $text-muted; }
    & > .transcript--note { color: $text-muted; }
    & > .transcript--error { color: $text-error; text-style: bold; }
    & > .transcript--match { background: $warning 45%; }
    & > .transcript--current { background: $warning; color: black; text-style: bold; }
    & > .transcript--code { background: $boost; color: $text-accent; }
    & > .transcript--drafter-0 { color: #7ee787; }
    & > .transcript--drafter-1 { color: #79c0ff; }
    & > .transcript--drafter-2 { color: #ffb86c; }
    & > .transcript--drafter-3 { color: #d2a8ff; }
    & > .transcript--drafter-4 { color: #56d4dd; }
    & > .transcript--drafter-5 { color: #f2cc60; }
    & > .transcript--drafter-6 { color: #ff9bce; }
    & > .transcript--drafter-7 { color: #b5c99a; }
}
Transcript:light {
    & > .transcript--drafter-0 { color: #0f5323; }
    & > .transcript--drafter-1 { color: #0a3f94; }
    & > .transcript--drafter-2 { color: #7a2e00; }
    & > .transcript--drafter-3 { color: #5a2ca0; }
    & > .transcript--drafter-4 { color: #05505c; }
    & > .transcript--drafter-5 { color: #5c4700; }
    & > .transcript--drafter-6 { color: #86164f; }
    & > .transcript--drafter-7 { color: #3c4a14; }
}
"""


class Looks:
    """Styles of a widget with these components, looked up once per look and theme."""

    def __init__(self, widget: Widget) -> None:
        self.underline = False
        self._widget = widget
        self._styles: dict[tuple[Look, Look | None], Style] = {}

    def clear(self) -> None:
        """Another theme or focus."""
        self._styles.clear()

    def __call__(self, look: Look = "", over: Look | None = None) -> Style:
        """The style of a look, with an overlay (`match`, `current`, `selection`) on top."""
        style = self._styles.get((look, over))
        if style is None:
            style = self._widget.rich_style + self._look(look) + self._over(over)
            self._styles[look, over] = style
        return style

    def _look(self, look: Look) -> Style:
        """Accepted tokens are underlined and the rest dimmed where there is no colour."""
        if isinstance(look, Style):
            return look
        if not look:
            return Style.null()
        style = self._widget.get_component_rich_style(f"transcript--{look}")
        no_color = self._widget.app.no_color
        if look.startswith("drafter-") and (self.underline or no_color):
            return style + Style(underline=True)
        if look in ("ghost", "thinking", "label") and no_color:
            return style + Style(dim=True)
        return style

    def _over(self, over: Look | None) -> Style:
        if over is None or isinstance(over, Style):
            return over or Style.null()
        if over == "selection":
            return self._widget.screen.get_component_rich_style("screen--selection")
        style = self._widget.get_component_rich_style(f"transcript--{over}")
        return style + Style(reverse=self._widget.app.no_color or None)
