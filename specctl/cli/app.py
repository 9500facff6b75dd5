"""The `specctl` command: looks up one command, runs it, turns errors into a message and exit code.

Each command is one function in a module of its own, imported only when it is asked for, so that
`specctl --help` loads no engine. stdout is data; everything else goes to stderr.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import sys
import traceback
from collections.abc import Callable
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from specctl import __version__, paths
from specctl.cli.defaults import Defaults
from specctl.cli.defaults import read as read_defaults
from specctl.errors import SpecctlError, UsageError
from specctl.units import printable

# name → (module:function, one line for `specctl --help`)
COMMANDS = {
    "dashboard": (
        "specctl.cli.dashboard:dashboard",
        "This machine, what fits it, what is here; start it from there.",
    ),
    "doctor": ("specctl.cli.doctor:doctor", "What is this machine, and what can it run?"),
    "chat": ("specctl.cli.chat:chat", "Chat with a model; see which tokens were drafted."),
    "bench": ("specctl.cli.bench:bench", "Measure whether speculation pays, against plain."),
    "bench compare": ("specctl.cli.bench_compare:bench_compare", "Two results: what changed?"),
    "bench page": ("specctl.cli.bench_page:bench_page", "A result as a page or a picture."),
    "tune": ("specctl.cli.tune:tune", "What runs best here? Measure it and keep it as a profile."),
    "verify": ("specctl.cli.verify:verify", "Is it lossless here? Same text, tie, or bug."),
    "drafters": ("specctl.cli.drafters:drafters", "The ways to draft, and what each needs."),
    "inspect": ("specctl.cli.inspect:inspect", "What is this model? From its header alone."),
    "plan": ("specctl.cli.plan:plan", "What it needs here, part by part, and where it goes."),
    "recommend": ("specctl.cli.recommend:recommend", "Which model, draft and settings fit here?"),
    "make-draft": (
        "specctl.cli.make_draft:make_draft",
        "A draft from the model itself, kept if it pays.",
    ),
    "check": ("specctl.cli.check:check", "May this draft work for that target?"),
    "pull": ("specctl.cli.pull:pull", "Fetch a whole pair; resumes where it stopped."),
    "replay": ("specctl.cli.replay:replay", "Play a recording on the dashboard."),
    "models": ("specctl.cli.models:models", "List, verify, remove, import model files."),
    "serve": ("specctl.cli.serve:serve", "An OpenAI-compatible server, with speculation."),
    "watch": ("specctl.cli.watch:watch", "Any engine's server on the dashboard."),
    "engine show": (
        "specctl.cli.engine:engine_show",
        "The same pair in llama-server, vLLM and others.",
    ),
    "engine run": ("specctl.cli.engine_run:engine_run", "Start one, see that it speculates."),
    "engine explain": ("specctl.cli.engine:engine_explain", "What old flags are called today."),
}


def main() -> None:
    """Entry point of the console script."""
    _make_output_safe()
    try:
        try:
            _main()
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
        sys.exit(0)
    except OSError as error:  # also from --help and --version
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - the interpreter flushes it at exit
        sys.exit(_report(_unwritable(error), debug=False))


def _unwritable(error: OSError) -> SpecctlError:
    return SpecctlError(f"cannot write the output: {error.strerror or error}")


def _main() -> None:
    argv = sys.argv[1:]
    debug = "--debug" in argv or bool(os.environ.get("SPECCTL_DEBUG"))
    argv = [arg for arg in argv if arg != "--debug"]
    argv = _join_names(argv)
    if _is_family(argv):
        _list_family(argv[0])
        return
    run_line(argv, debug)


def run_line(argv: list[str], debug: bool = False) -> None:
    """Run one command line, without the program's name; ends with SystemExit."""
    argv = _join_names(argv)
    asked = next((arg for arg in argv if not arg.startswith("-")), None)
    app = _build(asked, debug)
    defaults = _defaults(asked, argv, debug)
    try:
        app(args=argv, prog_name="specctl", default_map={asked: dict(defaults.values)})
    except SystemExit as end:
        if end.code == UsageError.exit_code:
            if defaults.flags:
                print(f"  {defaults}", file=sys.stderr)
            _hint_at_flags(argv)
        raise


def _hint_at_flags(argv: list[str]) -> None:
    """A refused command line may hold flags of other engines: say what they are here."""
    if argv[:1] in (["engine show"], ["engine run"], ["engine explain"]):
        return
    from specctl.external.explain import hints

    for hint in hints(argv):
        print(f"  {hint}", file=sys.stderr)


def _defaults(asked: str | None, argv: list[str], debug: bool) -> Defaults:
    """What the user's file says for this command. A broken file never keeps help from showing."""
    if asked not in COMMANDS or not {"-h", "--help"}.isdisjoint(argv):
        return Defaults()
    module, _, attribute = COMMANDS[asked][0].partition(":")
    try:
        function = getattr(importlib.import_module(module), attribute)
        return read_defaults(paths.config_file(), asked, function, COMMANDS)
    except SpecctlError as error:
        sys.exit(_report(error, debug))


def _about_defaults(command: str) -> str:
    with contextlib.suppress(SpecctlError):
        file = str(paths.config_file()).replace("[", "\\[")
        return f"Your own defaults for these flags: a table \\[{command}] in {file}."
    return ""


def _join_names(argv: list[str]) -> list[str]:
    """`bench compare A B` → `"bench compare" A B`, where the two words are one command's name."""
    name = " ".join(argv[:2])
    return [name, *argv[2:]] if len(argv) > 1 and name in COMMANDS else argv


def _is_family(argv: list[str]) -> bool:
    """`specctl engine`, alone or with --help: the first word of several commands, itself none."""
    if not argv or argv[0] in COMMANDS or not {*argv[1:]} <= {"-h", "--help"}:
        return False
    return any(name.startswith(f"{argv[0]} ") for name in COMMANDS)


def _list_family(word: str) -> None:
    for name, (_, help_text) in COMMANDS.items():
        if name.startswith(f"{word} "):
            print(f"specctl {name:16s} {help_text}")


def _make_output_safe() -> None:
    """A console that cannot show a character gets a `?`, never a crash (cp1252, ASCII)."""
    if sys.stdout is None:  # started with it closed
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


class _Command(TyperCommand):
    """Says which value of an option is none, in our words."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """As typer does. Raises BadParameter with the value in it."""
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            found: list[Any] = getattr(error.__cause__, "errors", list)()  # pydantic's
            kind = str(found[0].get("type")) if found else ""
            words = {"int": "a whole number", "float": "a number"}.get(kind.partition("_")[0])
            if words is not None:
                error.message = f"{found[0].get('input')!r:.60} is not {words}"
            raise


def _build(asked: str | None, debug: bool) -> typer.Typer:
    app = typer.Typer(
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        add_completion=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        epilog="Every command explains itself: specctl COMMAND --help. --debug shows tracebacks.",
    )
    app.callback()(_root)
    for name, (target, summary) in COMMANDS.items():
        function = _load(target, debug) if name == asked else _placeholder
        app.command(
            name,
            help=None if name == asked else summary,
            short_help=summary,
            epilog=_about_defaults(name) if name == asked else None,
            context_settings=getattr(function, "context_settings", None),
            cls=_Command,
        )(function)
    return app


def _show_version(asked: bool) -> None:
    if asked:
        print(f"specctl {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and exit.", callback=_show_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Speculative decoding on your own machine: what fits, get it, use it, does it pay."""


def _placeholder() -> None:
    """Stands for a command in the list of `specctl --help`; it is never the one that runs."""


def _load(target: str, debug: bool) -> Callable[..., Any]:
    module, _, attribute = target.partition(":")
    try:
        function = getattr(importlib.import_module(module), attribute)
    except SpecctlError as error:
        sys.exit(_report(error, debug))
    return _guarded(function, debug)


def _guarded(function: Callable[..., Any], debug: bool) -> Callable[..., Any]:
    """Errors that a user can act on become a message and an exit code."""

    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except SpecctlError as error:
            raise typer.Exit(_report(error, debug)) from error
        except KeyboardInterrupt:
            print(file=sys.stderr)
            raise typer.Exit(130) from None
        except BrokenPipeError:  # `specctl … | head`: the reader has seen enough
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - the interpreter flushes it at exit
            raise typer.Exit(0) from None
        except (typer.Exit, typer.Abort):
            raise
        except OSError as error:
            if debug:
                raise
            sys.stdout = open(os.devnull, "w")  # noqa: SIM115
            raise typer.Exit(_report(_unwritable(error), debug)) from error
        except Exception as error:
            # typer's own usage errors (bad parameters) know how to show themselves
            if debug or hasattr(error, "exit_code"):
                raise
            print(f"error: {type(error).__name__}: {error}", file=sys.stderr)
            print("  this is a bug in specctl; --debug shows where", file=sys.stderr)
            raise typer.Exit(1) from error

    return run


def _report(error: SpecctlError, debug: bool) -> int:
    if debug:
        traceback.print_exception(error)
    print(f"error: {printable(error.message)}", file=sys.stderr)
    if error.hint:
        print(f"  {printable(error.hint)}", file=sys.stderr)
    return error.exit_code
