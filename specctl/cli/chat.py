"""`specctl chat`: parse, open a session, talk."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specctl import recording
from specctl.cli import options as o
from specctl.cli import screen as full_screen
from specctl.cli.opening import as_named, open_named
from specctl.cli.talk import Look, Talk, run_interactive
from specctl.errors import UsageError
from specctl.paths import expanded

if TYPE_CHECKING:
    from specctl.resolve import Resolved

DEFAULT_TYPE = "auto"


def chat(
    model: o.Model = None,
    draft: o.DraftModel = None,
    spec_type: Annotated[
        str | None,
        typer.Option(
            "--spec-type", "-s", help="Drafter, a comma list tried in order, or none; default auto."
        ),
    ] = None,
    k: Annotated[int | None, typer.Option("--k", help="Most tokens drafted per cycle.")] = None,
    system: Annotated[str | None, typer.Option("--system", help="System message.")] = None,
    prompt: Annotated[
        str | None, typer.Option("--prompt", "-p", help="One question, one answer, then exit.")
    ] = None,
    max_tokens: Annotated[
        int, typer.Option("--max-tokens", "-n", help="Longest answer, tokens.")
    ] = 1024,
    think: o.Think = None,
    stop: Annotated[
        list[str] | None, typer.Option("--stop", help="Stop at this text; repeatable.")
    ] = None,
    grammar: o.GrammarFile = None,
    json_schema: o.JsonSchema = None,
    plain: Annotated[
        bool, typer.Option("--plain", help="Line by line, without the full screen.")
    ] = False,
    theme: Annotated[
        str | None, typer.Option("--theme", help="Of the full screen: textual-light, nord, …")
    ] = None,
    no_color: Annotated[bool, typer.Option("--no-color", help="No tints.")] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Records to stdout, one a line, instead of text.")
    ] = False,
    record: Annotated[
        Path | None, typer.Option("--record", help="Also append the records to this file.")
    ] = None,
    load: Annotated[
        Path | None, typer.Option("--load", help="Go on with a conversation that /save kept.")
    ] = None,
    temperature: o.Temperature = 0.7,
    top_k: o.TopK = 40,
    top_p: o.TopP = 0.95,
    min_p: o.MinP = 0.05,
    repeat_penalty: o.RepeatPenalty = 1.0,
    frequency_penalty: o.FrequencyPenalty = 0.0,
    presence_penalty: o.PresencePenalty = 0.0,
    seed: o.Seed = None,
    ctx: o.Ctx = 4096,
    threads: o.Threads = None,
    gpu_layers: o.GpuLayers = -1,
    kv_type: o.KvType = "f16",
    draft_gpu_layers: o.DraftGpuLayers = -1,
    draft_kv_type: o.DraftKvType = "f16",
    n_cpu_moe: o.CpuMoe = 0,
    flash_attn: o.FlashAttn = "auto",
    spec_min_accept: o.MinAccept = 0.0,
    spec_compat: o.Compat = False,
    spec_preset: o.Preset = None,
    spec_ngram_simple_size_n: o.SimpleN = None,
    spec_ngram_simple_size_m: o.SimpleM = None,
    spec_ngram_simple_min_hits: o.SimpleHits = None,
    spec_ngram_mod_n_match: o.ModMatch = 24,
    spec_ngram_mod_n_max: o.ModMax = 64,
    spec_ngram_mod_n_min: o.ModMin = 48,
    spec_draft_n_max: o.DraftMax = 3,
    spec_draft_n_min: o.DraftMin = 0,
    spec_draft_p_min: o.DraftPMin = 0.0,
    spec_draft_sampling: o.DraftSampling = "greedy",
) -> None:
    """Chat with a model through specctl's own draft–verify loop.

    Without --model the best one for this machine is proposed; what is missing is offered to pull.
    On a terminal the dashboard opens: the answer with accepted draft tokens tinted by drafter, and
    every cycle against the break-even. With --plain, line by line. In the chat: F1 or /help lists
    what can be done, @file puts a file into a message, Ctrl-C stops an answer. Text on stdin is
    answered once, without a chat.
    """
    # fmt: off
    spec = o.spec_settings(
        spec_type or DEFAULT_TYPE, k, spec_compat, spec_preset,
        (spec_ngram_simple_size_n, spec_ngram_simple_size_m, spec_ngram_simple_min_hits),
        (spec_ngram_mod_n_match, spec_ngram_mod_n_max, spec_ngram_mod_n_min),
        (spec_draft_n_max, spec_draft_n_min, spec_draft_p_min, spec_draft_sampling),
        spec_min_accept,
    )
    settings = o.engine_settings(
        ctx, threads, gpu_layers, kv_type, draft_gpu_layers, draft_kv_type, n_cpu_moe, flash_attn
    )
    penalties = (repeat_penalty, frequency_penalty, presence_penalty)
    sampling = o.sampling(temperature, top_k, top_p, min_p, penalties, seed)
    # fmt: on
    if max_tokens < 1:
        raise UsageError(f"--max-tokens {max_tokens} is below 1")
    if not all(stop or ()):
        raise UsageError("--stop '' would stop every answer at once", "name a text")
    thinking = o.thinking(think)
    gbnf, grammar_notes = o.grammar(grammar, json_schema)
    look = Look(no_color=no_color, json=json)
    from specctl.cli import aliases
    from specctl.cli.fetching import say_tuned, say_unused_draft
    from specctl.engine.dialogue import Dialogue, Manner
    from specctl.engine.transcript import load as load_file
    from specctl.engine.transcript import restore

    saved = load_file(expanded(str(load))) if load else None
    with contextlib.ExitStack() as stack:
        sink = stack.enter_context(recording.appending(record)) if record else None
        message = _one_shot(prompt)
        aliases.check_types(spec)
        files = _files(model, draft, ctx, message is None)
        flags = [spec] if spec_type is None else []
        if spec_type is None:
            spec = as_named(spec, files)
        (spec,), files = aliases.settle([spec], files, draft)
        say_tuned(files, [spec], (flags, settings))
        say_unused_draft(files, [spec])
        manner = Manner(sampling, max_tokens, tuple(stop or ()), thinking, gbnf)

        def begin(opened: contextlib.ExitStack) -> Dialogue:
            session = opened.enter_context(open_named(files, spec, settings))
            dialogue = Dialogue(session, manner, system)
            dialogue.notes += grammar_notes
            if saved is not None:
                dialogue.notes += restore(dialogue, saved)
            return dialogue

        if message is None and not json and _may_open_screen(plain):
            full_screen.chat(begin, sink, theme, no_color)
            return
        talk = Talk(begin(stack), look, sink=sink)
        if message is None:
            run_interactive(talk)
        elif talk.turn(message).reason == "cancelled":
            raise typer.Exit(130)


def _may_open_screen(plain: bool) -> bool:
    """On a terminal that can show it; where it cannot, one line says why."""
    if plain:
        return False
    reason = full_screen.why_not()
    if reason is not None and reason != full_screen.NO_TERMINAL:
        print(f"line by line: {reason}", file=sys.stderr)
    return reason is None


def _files(model: str | None, draft: str | None, ctx: int, interactive: bool) -> Resolved:
    """What was named; with nothing named a proposal, or the demo model where nobody is asked."""
    from specctl.cli import fetching

    if model is None and draft is None and interactive and fetching.can_ask():
        from specctl.cli.proposal import propose

        return propose(ctx)
    return fetching.resolved(model or fetching.demo_without_asking("chat"), draft)


def _one_shot(prompt: str | None) -> str | None:
    """The message to answer once, or None for a chat. Piped text belongs to the message."""
    piped = "" if sys.stdin is None or sys.stdin.isatty() else sys.stdin.read().strip()
    if prompt is None and sys.stdin is not None and sys.stdin.isatty():
        return None
    message = "\n\n".join(part for part in (prompt, piped) if part)
    if not message:
        raise UsageError("there is nothing to answer", "give --prompt TEXT, or pipe text in")
    return message
