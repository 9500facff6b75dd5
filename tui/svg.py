"""Screens as SVG that need nothing from the network."""

from __future__ import annotations

import re

from textual.app import App

_FONT_FACE = re.compile(r"@font-face\s*\{[^}]*\}\s*")


def screen_svg(app: App[None], title: str = "specctl") -> str:
    """The screen now. Textual's own export fetches a web font; any monospaced one will do."""
    return self_contained(app.export_screenshot(title=title))


def self_contained(svg: str) -> str:
    """Without fonts from elsewhere, and with every space kept."""
    svg = _FONT_FACE.sub("", svg)
    svg = svg.replace("font-family: Fira Code, monospace", "font-family: monospace")
    return svg.replace("<svg ", '<svg xml:space="preserve" ', 1)
