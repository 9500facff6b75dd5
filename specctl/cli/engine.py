"""`specctl engine`: the same target and method in another engine, and what old flags mean."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from specctl.cli.render import err, out
from specctl.errors import UsageError
from specctl.external import llama_server, sglang, trtllm, vllm
from specctl.external.explain import Reading, explain
from specctl.external.flags import ENGINES
from specctl.external.launch import Launch, docker, folded, shell
from specctl.external.wish import Options, make_wish
from specctl.plan import catalog

BUILD = {
    "llama-server": llama_server.build,
    "vllm": vllm.build,
    "sglang": sglang.build,
    "trtllm": trtllm.build,
}
_STYLES = {"valid": "green", "catch": "yellow", "old": "red", "never": "red", "unverified": "dim"}
_WORDS = {
    "valid": "today's",
    "catch": "works, but",
    "old": "old",
    "never": "never was",
    "unverified": "unverified",
}


EngineName = Annotated[str, typer.Argument(metavar="ENGINE", help=", ".join(ENGINES))]
Model = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A profile (id, id:QUANT, id:QUANT+METHOD), hf:owner/repo, hf:owner/repo/file, "
        "a file or folder.",
    ),
]
Extra = Annotated[
    list[str] | None,
    typer.Argument(metavar="-- FLAGS", help="Flags of the engine's own to add, unchanged."),
]
Draft = Annotated[
    str | None, typer.Option("--draft", "-d", help="The draft or head, named like MODEL.")
]
SpecType = Annotated[
    str | None, typer.Option("--spec-type", "-s", help="A method, or a comma list of them.")
]
K = Annotated[
    int | None,
    typer.Option("--k", help="Most drafted tokens per cycle; the profile's advice else."),
]
Ctx = Annotated[int | None, typer.Option("--ctx", help="Context, tokens.")]
Tp = Annotated[int, typer.Option("--tp", help="GPUs of a tensor-parallel group, in all.")]
Host = Annotated[str, typer.Option("--host", help="Address to listen on.")]
Port = Annotated[int | None, typer.Option("--port", help="The engine's own by default.")]
Adaptive = Annotated[
    bool, typer.Option("--adaptive", help="The engine's own way to adapt draft lengths.")
]
Nearest = Annotated[
    bool, typer.Option("--nearest", help="Take the nearest method where one is missing.")
]


def engine_show(
    engine: EngineName,
    model: Model,
    extra: Extra = None,
    draft: Draft = None,
    spec_type: SpecType = None,
    k: K = None,
    ctx: Ctx = None,
    tp: Tp = 1,
    nodes: Annotated[int, typer.Option("--nodes", help="Machines.")] = 1,
    head: Annotated[
        str | None, typer.Option("--head", metavar="ADDRESS", help="The first node's address.")
    ] = None,
    node: Annotated[
        int, typer.Option("--node", help="Which node's command --shell and --docker print.")
    ] = 0,
    host: Host = "127.0.0.1",
    port: Port = None,
    adaptive: Adaptive = False,
    nearest: Nearest = False,
    as_shell: Annotated[bool, typer.Option("--shell", help="Only what a shell runs.")] = False,
    as_docker: Annotated[bool, typer.Option("--docker", help="In the engine's image.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """The command that starts another engine with this target and method. Starts nothing."""
    if as_shell and as_json:
        raise UsageError("--shell and --json are two outputs", "give one of them")
    options = Options(
        draft, spec_type, k, ctx, tp, nodes, head, host, port, adaptive, nearest, tuple(extra or ())
    )
    wish = make_wish(engine, model, options, catalog.load())
    launch = BUILD[engine](wish)
    launch.node(node)
    if as_docker:
        launch = docker(launch, node)
        node = 0
    if as_json:
        print(json.dumps(launch_json(launch), ensure_ascii=False))
    elif as_shell:
        print(shell(launch, node))
        for note in launch.notes:
            err().print(Text(f"! {note}", "yellow"), soft_wrap=True)
    else:
        _show(launch)


def launch_json(launch: Launch) -> dict[str, Any]:
    """The launch as plain values."""
    engine = ENGINES[launch.engine]
    return {
        "engine": launch.engine,
        "checked": engine.checked,
        "methods": launch.methods,
        "value": launch.value,
        "commands": launch.commands,
        "config": launch.config,
        "files": dict(launch.files),
        "url": launch.url,
        "metrics": launch.metrics_url,
        "notes": launch.notes,
        "flags": [
            {"name": mark.name, "grade": mark.known.grade, "source": mark.known.source}
            for mark in launch.marks
        ],
    }


def _show(launch: Launch) -> None:
    engine = ENGINES[launch.engine]
    method = ",".join(launch.methods)
    title = Text.assemble((engine.title, "bold"), f"  {method}")
    if launch.value not in ("none", method):
        title.append(f", there: {launch.value}")
    out().print(title)
    for name, text in launch.files:
        out().print(Text(f"\n# {name}", "dim"))
        out().print(Text(text.rstrip()), soft_wrap=True)
    for rank, command in enumerate(launch.commands):
        label = f"\n# node {rank}" if len(launch.commands) > 1 else ""
        out().print(Text(label, "dim"))
        out().print(Text(folded(command)), soft_wrap=True)
    out().print()
    for note in launch.notes:
        out().print(Text(f"! {note}", "yellow"))
    if launch.unverified:
        out().print(Text(f"! unverified, read nowhere: {', '.join(launch.unverified)}", "red"))
    out().print(Text(f"checked for {engine.checked}", "dim"))
    pages = [mark.name for mark in launch.marks if mark.known.grade == "M"]
    if pages:
        out().print(Text(f"from a docs page only: {', '.join(pages)}", "dim"))
    out().print(Text(f"metrics at {launch.metrics_url}", "dim"))


def engine_explain(
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="FLAGS…", help="Flags, or a whole command, as typed."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON array.")] = False,
) -> None:
    """What flags of a launch command are called today: --draft-max 16, or a whole line in quotes.

    Knows llama-server, vLLM, SGLang and TensorRT-LLM; a command that names one is read as its own.
    """
    if not words:
        raise UsageError("nothing to explain", "specctl engine explain --draft-max 16")
    readings = explain(words)
    if as_json:
        print(json.dumps([asdict(one) for one in readings], ensure_ascii=False))
        return
    if not readings:
        out().print("no flag in that")
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for heading in ("typed", "engine", "", "today"):
        table.add_column(heading, overflow="fold")
    for one in readings:
        table.add_row(
            Text(one.typed),
            Text(ENGINES[one.engine].title if one.engine else "–"),
            Text(_WORDS[one.verdict], _STYLES[one.verdict]),
            Text(_today(one)),
        )
    out().print(table)


def _today(one: Reading) -> str:
    if one.verdict == "valid":
        return f"as it is ({one.source})"
    if not one.today:
        return one.why
    return f"{one.today}  ({one.why})" if one.why else one.today


# Flags of other programs are its arguments, -h (as in -hf) among them.
engine_explain.context_settings = {  # type: ignore[attr-defined]
    "ignore_unknown_options": True,
    "help_option_names": ["--help"],
}
