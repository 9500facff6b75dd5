"""`specctl check`: may this draft work for that target? From two headers, before any download."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Annotated

import typer
from rich.text import Text

from specctl.cli.inspect import load_facts
from specctl.cli.render import err, out
from specctl.drafters.registry import SPEC_TYPES
from specctl.enginefacts import ASSISTANT, BLOCK_MOST, MTP_ARCHES, MTP_CHAINS, EngineFacts
from specctl.gguf.facts import ModelFacts
from specctl.gguf.pair import Finding, PairCheck, check_pair
from specctl.hardware.engineprobe import probe_engine
from specctl.units import format_bytes

_STYLES = {"no": "red", "warning": "yellow", "note": ""}
_SIGNS = {"no": "✗", "warning": "!", "note": "·"}


def check(
    target: Annotated[
        str,
        typer.Argument(metavar="TARGET", help="A .gguf file, a profile, hf:owner/repo/file.gguf."),
    ],
    draft: Annotated[str, typer.Argument(metavar="DRAFT", help="The same, of the draft.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Do this target and this draft fit? Exit code 0 when they do, 1 when not."""
    ours, our_traffic = load_facts(target)
    theirs, their_traffic = load_facts(draft)
    probed = probe_engine()
    engine = probed if isinstance(probed, EngineFacts) else None
    found = _with_drafter(check_pair(ours, theirs, engine), theirs)
    if as_json:
        print(json.dumps(asdict(found)))
    else:
        _show(found, engine)
        for traffic in (our_traffic, their_traffic):
            if traffic is not None:
                err().print(
                    f"read by {traffic.requests} requests, {format_bytes(traffic.bytes)}",
                    style="dim",
                )
    if found.verdict == "no":
        raise typer.Exit(1)


def _with_drafter(found: PairCheck, draft: ModelFacts) -> PairCheck:
    """A pair may fit and still find no drafter in this version of specctl."""
    why = f"specctl has no drafter {found.method} yet: other engines do"
    if found.method in SPEC_TYPES:
        why = _unrun(draft)
    if found.verdict == "no" or not why:
        return found
    lacking = Finding("warning", why)
    return replace(found, verdict="ok with warnings", findings=(lacking, *found.findings))


def _unrun(draft: ModelFacts) -> str:
    """Why specctl does not run a draft that fits; empty where it does."""
    if draft.kind == "mtp head":
        return _unrun_head(draft)
    if draft.kind == "dflash2":
        return "specctl runs no DFlash2 drafts: llama-server does"
    if draft.hyper_connections:
        return "specctl runs no drafts of DeepSeek-V4's layers: llama-server does"
    if (draft.block_size or 0) > BLOCK_MOST:
        return f"specctl runs blocks of at most {BLOCK_MOST} tokens, not {draft.block_size}"
    return ""


def _unrun_head(head: ModelFacts) -> str:
    """The same of MTP heads."""
    if head.arch == ASSISTANT:
        return ""
    if head.arch not in MTP_ARCHES:
        return f"specctl runs no MTP heads of {head.arch}: llama-server does"
    if head.shape.n_nextn > 1 and head.arch not in MTP_CHAINS:
        return f"{head.shape.n_nextn} MTP heads in a chain: of {head.arch} llama.cpp runs one"
    return ""


def _show(found: PairCheck, engine: EngineFacts | None) -> None:
    style = {"ok": "green", "ok with warnings": "yellow", "no": "red"}[found.verdict]
    out().print(Text.assemble((found.verdict, f"bold {style}"), f"  as {found.method}"))
    for finding in found.findings:
        out().print(Text(f"  {_SIGNS[finding.level]} {finding.text}", _STYLES[finding.level]))
    if engine is None:
        err().print("no engine is installed: architectures were compared with our own list")
