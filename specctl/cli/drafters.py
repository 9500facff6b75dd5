"""`specctl drafters`: every method, what it needs, and whether it runs here."""

from __future__ import annotations

import importlib.util
import json as jsonlib
from dataclasses import asdict, dataclass
from typing import Annotated

import typer
from rich.table import Table

from specctl.cli.render import out
from specctl.drafters.registry import LAYER_FILES, SPEC_TYPES, SpecType
from specctl.errors import EngineMissingError
from specctl.hub.drafts import ALIAS, FALLBACK


@dataclass(frozen=True, slots=True)
class Method:
    """One row. `why` says what keeps it from running here, empty when nothing does."""

    name: str
    does: str
    needs: str
    available: bool
    why: str


def drafters(
    json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """List the ways to draft: what each does, what it needs, and whether it runs here.

    The names are those of --spec-type in chat and bench; a comma list chains them.
    """
    methods = _methods()
    if json:
        print(jsonlib.dumps([asdict(method) for method in methods], ensure_ascii=False, indent=2))
        return
    table = Table(box=None, pad_edge=False)
    for heading in ("spec type", "drafts", "needs", "here"):
        table.add_column(heading)
    for method in methods:
        table.add_row(method.name, method.does, method.needs, method.why or "yes")
    out().print(table)


def _methods() -> list[Method]:
    missing = [name for name in ("llama_cpp", "numpy") if importlib.util.find_spec(name) is None]
    install = 'pip install -e ".[engine]" in a clone of specctl'
    why = f"the engine is not installed: {install}" if missing else ""
    own = []
    for kind in SPEC_TYPES.values():
        reason = why or (_no_heads(bool(kind.layers)) if kind.heads else "")
        own.append(Method(kind.name, kind.summary, _needs(kind), not reason, reason))
    made = "a draft of `specctl make-draft`, or nothing"
    own.append(Method(ALIAS, f"a draft made from the target, else {FALLBACK}", made, not why, why))
    return own


def _needs(kind: SpecType) -> str:
    if kind.layers:
        return f"{LAYER_FILES[kind.name]} made for the target: --draft"
    if kind.heads:
        return "MTP heads in the target's file, or in one of their own: --draft"
    return "a small model of the same vocabulary: --draft" if kind.draft_model else "nothing"


def _no_heads(layers: bool) -> str:
    """Why this build runs no MTP heads, or no drafts that read layers; empty where it does."""
    from specctl.llama.extras import layer_inputs, nextn

    try:
        found = nextn() is not None and (not layers or layer_inputs() is not None)
    except EngineMissingError as error:
        return error.message
    return "" if found else "this llama-cpp-python build gives no hidden states"
