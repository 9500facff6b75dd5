"""The transcript on a screen: what is drawn, scrolled, copied and found."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from rich.style import Style
from textual.color import Color
from textual.geometry import Offset
from textual.pilot import Pilot
from textual.selection import Selection
from transcripts import END, TranscriptApp, asked, cycle, live_of, started

from specctl.events import Finished
from specctl.tui.messages import Forgotten, Note
from specctl.tui.state import Live
from specctl.tui.widgets.transcript import Transcript
from specctl.tui.widgets.turnblock import SLOTS, slot

Check = Callable[[TranscriptApp, Pilot[None]], Awaitable[None]]


def on_screen(
    check: Check, size: tuple[int, int] = (80, 24), ascii_only: bool = False, theme: str = ""
) -> None:
    async def run() -> None:
        app = TranscriptApp(ascii_only)
        if theme:
            app.theme = theme
        async with app.run_test(size=size) as pilot:
            await pilot.pause()
            await check(app, pilot)

    asyncio.run(run())


async def settle(app: TranscriptApp, pilot: Pilot[None], live: Live) -> list[str]:
    app.transcript.sync(live)
    await pilot.pause()
    while app.transcript.busy:
        await pilot.pause(0.02)
    return app.rows()


def styles(app: TranscriptApp, text: str) -> Style:
    """The style of the first drawn piece that is exactly `text`."""
    for y in range(app.transcript.size.height):
        for segment in app.transcript.render_line(y):
            if segment.text == text:
                assert segment.style is not None
                return segment.style
    raise AssertionError(f"{text!r} is not drawn in a piece of its own")


ANSWER = asked(
    "rename rows",
    cycle(["Here", " is", " it"], 2, rejected=" the\nthing"),
    cycle([", now"], 0),
    cycle([" by", " model"], 1, source="draft-simple"),
)


def test_origin_is_tinted_and_underlined_where_there_is_no_colour() -> None:
    async def check(app: TranscriptApp, pilot: Pilot[None]) -> None:
        rows = await settle(app, pilot, live_of(*ANSWER))
        assert rows[0] == "you    rename rows"
        assert rows[2] == "model  Here is it the⏎thing, now by model"
        assert app.no_color
        assert styles(app, "Here is").underline
        assert styles(app, " by").underline
        assert styles(app, "Here is").color != styles(app, " by").color
        assert not styles(app, " it").underline
        assert styles(app, " it").color == styles(app, " model").color
        assert styles(app, " the⏎thing").strike
        app.no_color = False
        app.transcript.notify_style_update()
        assert not styles(app, "Here is").underline
        app.transcript.underline = True
        assert styles(app, "Here is").underline

    on_screen(check)


def luminance(color: Color) -> float:
    """Relative luminance, WCAG 2."""
    parts = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in color.normalized]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def contrast(front: Color, back: Color) -> float:
    """WCAG 2's ratio, 1 … 21."""
    low, high = sorted((luminance(front), luminance(back)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize(
    ("theme", "least"), [("textual-dark", 4.5), ("textual-light", 4.5), ("nord", 3), ("gruvbox", 3)]
)
def test_every_tint_can_be_read(theme: str, least: float) -> None:
    async def check(app: TranscriptApp, pilot: Pilot[None]) -> None:
        looks = app.transcript._looks
        names = [f"drafter-{n}" for n in range(SLOTS)]
        for name in (*names, "question", "own"):
            style = looks(name)
            assert style.color is not None
            assert style.bgcolor is not None
            front, back = (Color.from_rich_color(c) for c in (style.color, style.bgcolor))
            assert contrast(front, back) >= least, name
        assert len({looks(name).color for name in names}) == SLOTS

    on_screen(check, theme=theme)


def test_drafters_keep_their_colours() -> None:
    assert slot("ngram-suffix") != slot("draft-simple")
    assert slot("something-new") == slot("something-new")
    assert 0 <= slot("something-new") < SLOTS


def test_rejected_drafts_can_be_hidden_and_are_cut() -> None:
    async def check(app: TranscriptApp, pilot: Pilot[None]) -> None:
        live = live_of(*asked("q", cycle(["yes"], 0, rejected="x" * 60)))
        rows = await settle(app, pilot, live)
        assert rows[2] == "model  yes" + "x" * 16 + "…"
        app.transcript.ghosts = False
        await pilot.pause()
        assert app.rows()[2] == "model  yes"

    on_screen(check)


def test_thinking_folds_to_one_line() -> None:
    async def check(app: TranscriptApp, pilot: Pilot[None]) -> None:
        live = live_of(
            started("q", thinking=True),
            cycle(["One two", " three\nfo", "ur.</think>", "\n\nAnswer"], 3),
        )
        rows = await settle(app, pilot, live)
        assert rows[2:7] == [
            "model  ▾ thinking",
            "       One two three",
            "       four.",
            "",
            "       Answer",
        ]
        assert styles(app, "four.").italic
        app.transcript.fold_thinking = True
        await pilot.pause()
        assert app.rows()[2:5] == ["model  ▸ thinking, 4 words", "", "       Answer"]
        await pilot.click(Transcript, offset=(9, 2))
        assert not app.transcript.fold_thinking

    on_screen(check)


def test_a_finished_answer_becomes_markdown_once() -> None:
    async def check(app: TranscriptApp, pilot: Pilot[None]) -> None:
        live = live_of(*asked("q", cycle(["**bold**", " and\n\n- one"], 1, rejected="no")))
        rows = await settle(app, pilot, live)
        assert rows[2] == "model  **bold** and"
        live.apply(END)
        rows = await settle(app, pilot, live)
        assert rows[2:5] == ["model  bold and", "", "        • one"]
        assert styles(app, "bold").bold
        app.transcript.view = "tokens"
        await pilot.pause()
        assert app.rows()[2] == "model  **bold** and"

    on_screen(check)


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (Finished("cancelled", 1, 1, 1.0), "(stopped)"),
        (Finished("context", 1, 1, 1.0), "(cut: the context is full)"),
        (Finished("error", 1, 1, 1.0, detail="decode failed"), "error: decode failed"),
        (Note("out of memory", "error"), "error: out of memory"),
    ],
)
def test_how_a_turn_ended_is_said(event: Finished | Note, words: str) -> None:
    async def check(app: TranscriptApp, pilot: Pilot[None]) -> None:
        rows = await settle(app, pilot, live_of(*asked("q", cycle(["half"]), event)))
        assert rows[2] == "model  half"
        assert rows[4] == "       " + words

    on_screen(check)


def test_nothing_raw_reaches_the_terminal() -> None:
    async def check(app: TranscriptApp, pilot: Pilot[None]) -> None:
        evil = "a\x1b[2J\x07\u202eb\x9b&#8238;c"
        live = live_of(
            started(evil, thinking=True),
            cycle([evil, "</think>", evil], 1, rejected=evil),
            Finished("error", 1, 1, 1.0, detail=evil),
            *asked(evil, cycle([evil]), END),
        )
        for view in ("tokens", "markdown"):
            app.transcript.view = view
            rows = await settle(app, pilot, live)
            joined = "".join(rows)
            assert "␛[2J" in joined
            assert not any(c in joined for c in "\x1b\x07\u202e\x9b")
        assert "\x1b" not in app.transcript.plain_text(thinking=True)
        assert "\x1b" not in app.transcript.last_answer()

    on_screen(check, size=(80, 40))


def test_follows_until_scrolled_up_and_again_from_the_end() -> None:
    async def check(app: TranscriptApp, pilot: Pilot[None]) -> None:
        transcript = app.transcript
        live = live_of(*asked("q", *[cycle([f"line {n}\n"]) for n in range(50)]))
        rows = await settle(app, pilot, live)
        assert rows[-1].endswith("line 49")
        transcript.focus()
        await pilot.press("pageup")
        assert not transcript.following
        top = app.rows()[0]
        live.apply(cycle(["line 50\n"]))
        rows = await settle(app, pilot, live)
        assert rows[0] == top
        await pilot.press("end")
        assert app.rows()[-1].endswith("line 50")
        live.apply(cycle(["line 51\n"]))
        rows = await settle(app, pilot, live)
        assert rows[-1].endswith("line 51")
        await pilot.press("home")
        assert app.rows()[0] == "you    q"
        for event in asked("again", cycle(["new"])):
            live.apply(event)
        rows = await settle(app, pilot, live)
        assert rows[-1].endswith("new")

    on_screen(check)


def test_drawn_as_at_once_however_it_came() -> None:
    """Rows that were kept are those that would be drawn now."""

    async def check(app: TranscriptApp, pilot: Pilot[None]) -> None:
        pieces = [
            "Some",
            " words",
            " that",
            "\nwrap",
            " 日本",
            "語",
            "e",
            "\u0301",
            " 👩",
            "\u200d🚀",
            "\n\n",
        ]
        live = live_of(started("a question that is long enough for two rows of text"))
        for number in range(60):
            live.apply(cycle([pieces[number % 11], pieces[number % 7]], number % 2, rejected="zz"))
            app.transcript.sync(live)
            seen = app.rows()
            app.transcript._strips.clear()
            assert app.rows() == seen
        await pilot.pause()
        assert app.rows() == seen

    on_screen(check, size=(40, 12))


def test_resize_wraps_anew_and_keeps_the_place() -> None:
    async def check(app: TranscriptApp, pilot: Pilot[None]) -> None:
        live = live_of(*asked("q", *[cycle([f"{n:03} " + "word " * 12 + "\n"]) for n in range(40)]))
        await settle(app, pilot, live)
        app.transcript.scroll_to(y=10, animate=False)
        await pilot.pause()
        first = next(row for row in app.rows() if row.strip()[:3].isdigit())
        await pilot.resize_terminal(50, 24)
        await pilot.pause()
        assert app.rows()[0].split()[:3] == first.split()[:3]
        for y in range(24):
            assert app.transcript.render_line(y).cell_length == app.transcript.size.width

    on_screen(check, size=(100, 24))


def test_copying_unwraps_and_leaves_rejected_drafts_out() -> None:
    async def check(app: TranscriptApp, pilot: Pilot[None]) -> None:
        transcript = app.transcript
        live = live_of(*asked("q", cycle(["word " * 20, "end\nnext"], 1, rejected="ghost")))
        await settle(app, pilot, live)
        assert transcript.get_selection(Selection(None, None)) == (
            "q\n\n" + "word " * 20 + "end\nnext",
            "\n",
        )
        part = Selection(Offset(9, 2), Offset(11, 3))
        copied = transcript.get_selection(part)
        assert copied is not None
        assert ("word " * 20)[2:].startswith(copied[0][:-1])
        app.screen.selections = {transcript: part}
        await pilot.pause()
        marked = app.screen.get_component_rich_style("screen--selection").bgcolor
        assert [s.text for s in transcript.render_line(3) if s.style and s.style.bgcolor == marked]

    on_screen(check, size=(60, 24))


def test_selecting_with_the_mouse() -> None:
    async def check(app: TranscriptApp, pilot: Pilot[None]) -> None:
        await settle(app, pilot, live_of(*asked("q", cycle(["alpha beta gamma"]))))
        await pilot.mouse_down(Transcript, offset=(13, 2))
        await pilot.hover(Transcript, offset=(17, 2))
        await pilot.mouse_up(Transcript, offset=(17, 2))
        assert app.screen.get_selected_text() in ("beta", "beta ")

    on_screen(check)


def test_search_finds_across_rejected_drafts_and_scrolls() -> None:
    async def check(app: TranscriptApp, pilot: Pilot[None]) -> None:
        transcript = app.transcript
        filler = [cycle([f"line {n}\n"]) for n in range(60)]
        live = live_of(*asked("Ledger?", cycle(["class Led"], 0, "XX"), cycle(["ger\n"]), *filler))
        await settle(app, pilot, live)
        assert transcript.search("ledger") == 2
        assert transcript.next_match(-1) == (2, 2)
        await pilot.pause()
        assert any("class LedXXger" in row for row in app.rows())
        assert styles(app, "ger").bgcolor == transcript._looks("own", "current").bgcolor
        assert transcript.next_match(1) == (1, 2)
        live.apply(cycle(["LEDGER"]))
        await settle(app, pilot, live)
        assert transcript.next_match(-1) == (3, 3)
        assert transcript.search("nowhere") == 0
        assert transcript.next_match(1) == (0, 0)
        assert transcript.search("") == 0

    on_screen(check)


def test_export() -> None:
    async def check(app: TranscriptApp, pilot: Pilot[None]) -> None:
        live = live_of(*ANSWER, END)
        await settle(app, pilot, live)
        answer = "Here is it, now by model"
        assert app.transcript.last_answer() == answer
        assert app.transcript.plain_text() == f"## You\n\nrename rows\n\n## Model\n\n{answer}\n"

    on_screen(check)


def test_ascii_has_no_ornaments_of_ours() -> None:
    async def check(app: TranscriptApp, pilot: Pilot[None]) -> None:
        assert all(row.isascii() for row in app.rows())
        live = live_of(
            started("q", thinking=True),
            cycle(["hm</think>", "- a\n\n---\n> b"], 1, rejected="y\n" * 50),
        )
        for fold in (False, True):
            app.transcript.fold_thinking = fold
            assert all(row.isascii() for row in await settle(app, pilot, live))
        live.apply(END)
        assert all(row.isascii() for row in await settle(app, pilot, live))

    on_screen(check, ascii_only=True)


def test_what_an_empty_transcript_says() -> None:
    async def check(app: TranscriptApp, pilot: Pilot[None]) -> None:
        assert "opening m.gguf …" in " ".join(app.rows())
        await settle(app, pilot, live_of())
        assert "F1 lists all keys" in " ".join(app.rows())
        live = live_of(*asked("q"))
        assert (await settle(app, pilot, live))[0] == "you    q"
        live.apply(Forgotten())
        assert "F1 lists all keys" in " ".join(await settle(app, pilot, live))
        failed = Live()
        failed.apply(Note("no such file", "error"))
        assert "error: no such file" in " ".join(await settle(app, pilot, failed))

    on_screen(check)


def test_reading_the_prompt_is_said_until_text_comes() -> None:
    async def check(app: TranscriptApp, pilot: Pilot[None]) -> None:
        live = live_of(started("q"))
        assert (await settle(app, pilot, live))[2] == "       reading 10 tokens …"
        live.apply(cycle(["yes"]))
        assert (await settle(app, pilot, live))[2:5] == ["model  yes", "", ""]

    on_screen(check)
