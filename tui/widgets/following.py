"""A scroll view that stays at its end while it is there."""

from __future__ import annotations

from textual.scroll_view import ScrollView


class Following(ScrollView):
    """`following` tells whether it stays at the end: scrolling up stops that, End or scrolling down
    to the end starts it again. Nothing is animated: text that comes in would outrun it.
    """

    following = True

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """At the end it follows, elsewhere not."""
        super().watch_scroll_y(old_value, new_value)
        self.following = round(new_value) >= self.max_scroll_y

    def go(self, row: int) -> None:
        """To this row, at once."""
        self.scroll_to(y=row, animate=False, force=True)

    def action_scroll_home(self) -> None:
        """To the start."""
        self.go(0)

    def action_scroll_end(self) -> None:
        """To the end, and follow."""
        self.go(self.max_scroll_y)
        self.following = True

    def follow(self) -> None:
        """To the end, and stay there."""
        self.action_scroll_end()

    def action_page_up(self) -> None:
        """A screen up, less a line."""
        self.go(self.scroll_offset.y - max(1, self.size.height - 1))

    def action_page_down(self) -> None:
        """A screen down, less a line."""
        self.go(self.scroll_offset.y + max(1, self.size.height - 1))

    def action_scroll_up(self) -> None:
        """A line up."""
        self.go(self.scroll_offset.y - 1)

    def action_scroll_down(self) -> None:
        """A line down."""
        self.go(self.scroll_offset.y + 1)
