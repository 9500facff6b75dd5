"""The table of methods and engines in docs/engines.md, from the data that the commands use."""

from __future__ import annotations

from specctl.external.flags import ENGINES, FLAGS, KEYS, SOURCES
from specctl.external.method import ADAPTIVE, COMBINING, COUNTERPARTS, METHODS, Counterpart
from specctl.external.oldflags import OLD


def methods_table() -> str:
    """Markdown: a row a method, a column an engine; no cell is empty."""
    names = list(ENGINES)
    head = ["method", "what drafts", *(ENGINES[name].title for name in names)]
    rows = [
        [f"`{method}`", what, *(_cell(COUNTERPARTS[name][method]) for name in names)]
        for method, what in METHODS.items()
    ]
    rows.append(["a list of them", "one after the other", *(COMBINING[name] for name in names)])
    rows.append(["`--adaptive`", "lengths by load", *(ADAPTIVE[name] for name in names)])
    return _markdown(head, rows)


def _cell(counterpart: Counterpart) -> str:
    if counterpart.value is None:
        nearest = f"; nearest: `{counterpart.nearest}`" if counterpart.nearest else ""
        return f"– {counterpart.why}{nearest}"
    value = f"`{counterpart.value}`"
    return f"{value}: {counterpart.why}" if counterpart.why else value


def sources_table() -> str:
    """Markdown: what was read, and how many flags and keys are known from it."""
    rows = []
    for key, text in SOURCES.items():
        known = [
            entry
            for table in (*FLAGS.values(), *KEYS.values())
            for entry in table.values()
            if entry.source == key
        ]
        rows.append([text, known[0].grade, str(len(known))])
    return _markdown(["source", "grade", "flags and keys"], rows)


def old_table() -> str:
    """Markdown: what is not meant as typed any more, or never was."""
    rows = []
    for old in OLD:
        name = old.name.replace("=", " ", 1) if old.name.startswith("-") else old.name
        rows.append(
            [ENGINES[old.engine].title, f"`{name}`", old.today.replace("{}", "N") or "–", old.why]
        )
    return _markdown(["engine", "typed", "today", "why"], rows)


def _markdown(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(cells) + " |\n" for cells in lines)
