"""What the home screen asks of whoever knows the machine, the store and the results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from rich.text import Text

from specctl.tui.home_state import Action, Event


class HomeDesk(Protocol):
    """Gives jobs as iterators of events; `look` and `pull` are each called from a thread of its
    own, everything else from the screen's, at any time.
    """

    def look(self) -> Iterator[Event]:
        """All four sections, each as soon as it is known. One that fails is a `Failed`; nothing
        is raised, and nothing asked of the network.
        """

    def pull(self, action: Action) -> Iterator[Event]:
        """Fetch what the action names: `Pulling` until a last `Pulled`, which says how it ended."""

    def stop_pull(self) -> None:
        """End the running pull at its next step; what was fetched is kept."""

    def page(self, action: Action) -> Callable[[int], Text]:
        """The text that an action of the verb `page` opens, to be made for a width in cells.

        Raises:
            SpecctlError: there is nothing that can be shown.
        """
