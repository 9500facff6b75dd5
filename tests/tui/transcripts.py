"""Scripts of conversations for the transcript's tests."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import App, ComposeResult

from specctl.events import Cycle, Decision, Finished, PromptDone, Started
from specctl.tui.messages import Event, Ready
from specctl.tui.state import Live
from specctl.tui.widgets.transcript import Transcript

READY = Ready(
    model="m.gguf",
    draft_model=None,
    spec_types=("auto",),
    k=None,
    k_max=8,
    n_ctx=4096,
    threads=1,
    temperature=0.0,
)
END = Finished("eog", 10, 10, 1.0)


def started(message: str = "", thinking: bool = False) -> Started:
    return Started(
        model="m.gguf",
        draft_model=None,
        spec_types=("auto",),
        k_max=8,
        prompt_tokens=10,
        n_ctx=4096,
        threads=1,
        temperature=0.0,
        seed=0,
        unix_time=0.0,
        message=message,
        thinking=thinking,
    )


def cycle(
    pieces: Sequence[str], accepted: int = 0, rejected: str = "", source: str = "ngram-suffix"
) -> Cycle:
    """The first `accepted` pieces were drafted, the last is the target's own."""
    return Cycle(
        index=0,
        asked=(source,),
        source=source,
        limit=8,
        drafted=tuple(range(accepted + bool(rejected))),
        accepted=accepted,
        emitted=tuple(range(len(pieces))),
        text="".join(pieces),
        t_d=0.001,
        t_v=0.02,
        t_o=0.0,
        t_native=0.02,
        t_1=0.02,
        n_past=10,
        clock=1.0,
        decision=Decision("draft", "test"),
        pieces=tuple(pieces),
        rejected=rejected,
    )


def live_of(*events: Event) -> Live:
    live = Live()
    for event in (READY, *events):
        live.apply(event)
    return live


def asked(message: str, *events: Event) -> list[Event]:
    return [started(message), PromptDone(10, 0, 0.1), *events]


class TranscriptApp(App[None]):
    """Nothing but a transcript."""

    CSS = "Transcript { height: 1fr; }"

    def __init__(self, ascii_only: bool = False) -> None:
        super().__init__()
        self._ascii = ascii_only

    def compose(self) -> ComposeResult:
        yield Transcript("m.gguf", ascii=self._ascii)

    @property
    def transcript(self) -> Transcript:
        return self.query_one(Transcript)

    def rows(self) -> list[str]:
        """What is drawn."""
        transcript = self.transcript
        return [transcript.render_line(y).text.rstrip() for y in range(transcript.size.height)]
