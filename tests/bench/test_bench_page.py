"""The page and the picture: every figure of the document, nothing from outside, nothing broken."""

from __future__ import annotations

import base64
import copy
import html.parser
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from fake_bench import GOOD, SILENT, Cost, FakeSession, arm, finished, plan

from specctl.bench import page, svg
from specctl.bench.results import document
from specctl.bench.stored import parse
from specctl.errors import UsageError

SLOW = Cost(k=3, accepted=0, t_d=0.001, t_v=0.0135, t_o=0.0005)  # a token in 15 ms: 0.67×
NASTY = "<b>&amp;\"'</script><svg onload=x>]]>\ud800\x00\x1b -->"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def data(tmp_path: Path) -> dict[str, Any]:
    """Three arms, twice each: one is faster, one slower, one never drafts."""
    session = FakeSession(
        {("ngram-simple",): GOOD, ("ngram-cache",): SLOW, ("ngram-mod",): SILENT},
        pace=lambda n: 1 + 0.01 * (n % 3),
    )
    what = plan(arm("ngram-simple"), arm("ngram-cache"), arm("ngram-mod"), repeats=2)
    return document(finished(tmp_path, session, what))


class Reader(html.parser.HTMLParser):
    """Text, tags that stay open, and every attribute."""

    VOID = ("meta", "line", "rect", "circle")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.said: list[str] = []
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.said.append(data)


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    reader.close()
    assert not reader.open
    return reader


def test_the_page_holds_every_row_as_the_table_says_it(data: dict[str, Any]) -> None:
    said = " ".join(read(page.page(data)).said)
    rows = data["report"]["rows"]
    assert len(rows) == 9
    for row in rows:
        assert f"{row['speedup']:.2f}×" in said
        assert f"{row['low']:.2f}–{row['high']:.2f}" in said
        assert f"{row['rate']:.1f}" in said
    for figure in ("67 %", "2.00", "0.50", "0 of 24 cycles drafted, because: no match of 12"):
        assert figure in said
    for word in ("faster", "slower", "never drafted", "fake.gguf", "ngram-mod never drafted"):
        assert word in said
    for prompt in ("code-edit/p0", "chat/p1"):
        assert prompt in said


def test_the_document_comes_back_out_of_the_page(data: dict[str, Any]) -> None:
    attributes = read(page.page(data, "my run")).attributes
    (link,) = [value for name, value in attributes if name == "href"]
    kind, _, coded = link.partition(",")
    assert kind == "data:application/json;base64"
    assert json.loads(base64.b64decode(coded)) == json.loads(json.dumps(data))
    assert ("download", "my run.json") in attributes


def test_nothing_is_fetched_or_run(data: dict[str, Any]) -> None:
    text = page.page(data)
    reader = read(text)
    assert not reader.tags & {"script", "link", "img", "iframe", "object", "image", "use"}
    names = {name for name, _ in reader.attributes}
    assert not [name for name in names if name.startswith("on") or name in ("src", "srcset")]
    urls = set(re.findall(r"https?://[^\"'\s<]+", text + page.picture(data)))
    assert urls == {"http://www.w3.org/2000/svg"}  # a name, not a place
    assert "@import" not in text
    assert "url(" not in text
    assert "prefers-color-scheme:dark" in text


def test_nasty_names_break_nothing(data: dict[str, Any]) -> None:
    text = json.dumps(data)
    for name in ("fake.gguf", "chat/p1", "ngram-simple", "code-edit", "no match of 12 tokens"):
        text = text.replace(f'"{name}"', json.dumps(NASTY + name))
    nasty = json.loads(text)
    plain, broken = read(page.page(data)), read(page.page(nasty, NASTY))
    assert broken.tags == plain.tags
    assert {name for name, _ in broken.attributes} == {name for name, _ in plain.attributes}
    assert NASTY.replace("\ud800\x00\x1b", "\ufffd" * 3) + "chat/p1" in broken.said
    for figure in (page.picture(nasty), svg.break_even(parse(nasty)), svg.positions(parse(nasty))):
        ElementTree.fromstring(figure)
        figure.encode("utf-8")
    page.page(nasty).encode("utf-8")


def _shapes(text: str, tag: str, kind: str) -> list[ElementTree.Element]:
    root = ElementTree.fromstring(text)
    return [one for one in root.iter(f"{SVG}{tag}") if one.get("class") == kind]


def test_bars_are_as_long_as_the_speed_up(data: dict[str, Any]) -> None:
    text = svg.speedups(parse(json.loads(json.dumps(data))))
    (one,) = _shapes(text, "line", "one")
    (faster, *_), (slower, *_) = (_shapes(text, "rect", kind) for kind in ("faster", "slower"))
    zero = float(faster.get("x", ""))
    unit = float(one.get("x1", "")) - zero
    rows = {row["arm"]: row for row in data["report"]["rows"] if row["workload"] == "code-edit"}
    for bar, name in ((faster, "ngram-simple"), (slower, "ngram-cache")):
        assert float(bar.get("width", "")) / unit == pytest.approx(rows[name]["speedup"], abs=0.005)
    assert len(_shapes(text, "rect", "none")) == 3  # never drafted, on two workloads and in total
    whiskers = [
        line for line in _shapes(text, "line", "whisker") if line.get("y1") == line.get("y2")
    ]
    low = (float(whiskers[0].get("x1", "")) - zero) / unit
    assert low == pytest.approx(rows["ngram-simple"]["low"], abs=0.005)


def test_whiskers_of_single_runs_are_dashed_and_say_so(tmp_path: Path) -> None:
    session = FakeSession({("ngram-simple",): GOOD})
    data = document(finished(tmp_path, session, plan(repeats=1)))
    assert len(_shapes(page.picture(data), "line", "whisker assumed")) == 3
    assert "± is assumed" in page.picture(data)


def test_dot_is_right_of_the_tick_only_above_break_even(data: dict[str, Any]) -> None:
    text = svg.break_even(parse(data))
    (good, *_), (bad, *_) = (_shapes(text, "circle", kind) for kind in ("good", "bad"))
    ticks = [float(line.get("x1", "")) for line in _shapes(text, "line", "one")]
    assert float(good.get("cx", "")) > ticks[0]
    assert float(bad.get("cx", "")) < ticks[1]
    assert len(ticks) == 6  # the arm that never drafted has none


def test_positions_tell_shares_and_counts(data: dict[str, Any]) -> None:
    text = svg.positions(parse(data))
    titles = [one.text for one in ElementTree.fromstring(text).iter(f"{SVG}title")]
    assert "position 2: 100 % of 16 cycles" in titles  # 2 prompts × 2 repeats × 4 cycles of 3
    assert "position 3: 0 % of 16 cycles" in titles
    assert len(_shapes(text, "rect", "bar few")) == 3
    assert len(_shapes(text, "rect", "bar")) == 3  # 4 × 12 cycles without a token that stood


def test_an_arm_without_a_figure_is_drawn_as_none(data: dict[str, Any]) -> None:
    empty = copy.deepcopy(data)
    for row in (*empty["report"]["rows"], *empty["report"]["prompts"]):
        row.update(plain_rate=None, rate=None, speedup=None, low=None, high=None)
    for row in empty["report"]["rows"]:
        row.update(accepted_per_cycle=None, break_even=None, acceptance_by_position=[])
    reader = read(page.page(empty))
    assert "Acceptance by position" not in reader.said
    ElementTree.fromstring(page.picture(empty))


def test_colours_have_a_light_and_a_dark_value() -> None:
    light, dark = svg.STYLE.split("@media(prefers-color-scheme:dark)")
    for name, (what, at_day, at_night) in svg._COLOURS.items():
        assert f".{name}{{{what}:{at_day}}}" in light
        assert f".{name}{{{what}:{at_night}}}" in dark


# ---------------------------------------------------------------- the command


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    from specctl.cli import app

    def command(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["specctl", "bench", "page", *arguments])
        capfd.readouterr()
        with pytest.raises(SystemExit) as done:
            app.main()
        captured = capfd.readouterr()
        return int(done.value.code or 0), captured.out, captured.err

    return command


def test_a_kept_result_becomes_the_same_page(
    run: Callable[..., tuple[int, str, str]], data: dict[str, Any], tmp_path: Path
) -> None:
    kept, html_file, svg_file = (tmp_path / name for name in ("r.json", "r.html", "r.svg"))
    kept.write_text(json.dumps(data), encoding="utf-8")
    assert run(str(kept), "--html", str(html_file), "--svg", str(svg_file)) == (0, "", "")
    assert html_file.read_text(encoding="utf-8") == page.page(data, "r")
    assert svg_file.read_text(encoding="utf-8") == page.picture(data)


def test_what_cannot_be_drawn_is_told(
    run: Callable[..., tuple[int, str, str]], tmp_path: Path
) -> None:
    other = tmp_path / "other.json"
    other.write_text('{"schema": "specctl-bench/1"}')
    target = str(tmp_path / "x.html")
    for arguments, said in (
        ((str(other),), "is damaged"),
        ((str(other), "--html", target), "is damaged"),
        (("nowhere.json", "--html", target), "no result nowhere.json"),
        ((str(other), "--html", str(tmp_path / "no" / "x.html")), "no folder"),
    ):
        code, out, err = run(*arguments)
        assert (code, out) == (2, "")
        assert said in err
    assert not Path(target).exists()
    with pytest.raises(UsageError, match="not a result of specctl bench"):
        page.page({})
