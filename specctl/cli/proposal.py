"""`specctl chat` with nothing named: the best configuration for this machine, and a choice."""

from __future__ import annotations

from dataclasses import dataclass, replace

import typer

from specctl.cli.fetching import fetch
from specctl.cli.render import err
from specctl.demo import DEMO, demo_model
from specctl.errors import ModelError
from specctl.hardware.budget import primary_device
from specctl.hardware.machine import take_snapshot
from specctl.plan import catalog
from specctl.plan.budget import plan_budget
from specctl.plan.candidates import Configuration, Wish
from specctl.plan.explain import chat_name
from specctl.plan.profile import HEADS
from specctl.plan.recommend import recommend
from specctl.resolve import Missing, Resolved, resolve, resolve_selection
from specctl.units import format_bytes

_TOP = 8  # rows in which one that is already here is looked for


@dataclass(frozen=True, slots=True)
class Way:
    """One answer: the key, what it says, and the configuration (None: the demo model, or none)."""

    key: str
    words: str
    one: Configuration | None = None


def propose(ctx: int) -> Resolved:
    """Say in three lines what would run best, ask, and get it.

    Raises:
        EngineMissingError: there is no engine to run anything; HubError: a pull failed.
        typer.Exit: the answer was to quit.
    """
    ranked = _ranked(ctx)
    ways = _ways(ranked)
    if ranked:
        _say(ranked[0], ctx)
    else:
        err().print("No --model named, and nothing in the catalogue fits this machine.")
    keys = {way.key: way for way in ways}
    default = next(key for key in ("u", "d", "p", "q") if key in keys)
    question = ", ".join(f"[{way.key}] {way.words}" for way in ways)
    while True:
        answer = str(typer.prompt(question, default=default, err=True)).strip().lower()[:1]
        if answer in keys:
            return _take(keys[answer])
        err().print(f"  one of {', '.join(keys)}")


def _ranked(ctx: int) -> tuple[Configuration, ...]:
    """For the device that this build of the engine can use: an idle GPU speeds nothing up."""
    from specctl.llama.api import has_gpu_backend

    machine = take_snapshot()
    device = primary_device(machine) if has_gpu_backend() else None
    wish = Wish(ctx=max(ctx, 256))
    return recommend(catalog.load(), plan_budget(machine, device), wish, _TOP).ranked


def _ways(ranked: tuple[Configuration, ...]) -> list[Way]:
    ways = []
    here = next((one for one in ranked if _is_here(one)), None)
    if here is not None:
        words = "use it, it is here" if here is ranked[0] else f"{_name(here)}, which is here"
        ways.append(Way("u", words, here))
    if ranked and here is not ranked[0]:
        ways.append(Way("p", "pull it", ranked[0]))
    try:
        demo_model()
        ways.append(Way("d", "the demo model, SmolLM2-135M"))
    except ModelError:
        pass
    return [*ways, Way("q", "quit")]


def _is_here(one: Configuration) -> bool:
    try:
        return isinstance(resolve_selection(one.selection), Resolved)
    except ModelError:  # a local profile whose file is gone
        return False


def _name(one: Configuration) -> str:
    return chat_name(one)


def _say(one: Configuration, ctx: int) -> None:
    digits = 0 if one.prediction.spec[1] >= 10 else 1
    speed = " to ".join(f"{rate:.{digits}f}" for rate in one.prediction.spec)
    download = ("" if one.download_exact else "≈ ") + format_bytes(one.download)
    where = "RAM" if one.fit.place == "CPU" else "GPU memory"
    say = err().print
    say(f"No --model named. Best for this machine: {_name(one)}", markup=False, soft_wrap=True)
    say(
        f"  download {download}, {format_bytes(one.fit.used)} of {format_bytes(one.budget)} "
        f"{where} at {ctx} tokens, ≈ {speed} tok/s (estimates), "
        f"licence {one.model.licence}",
        markup=False,
        soft_wrap=True,
    )
    say("  why, and others: specctl recommend", style="dim")


def _take(way: Way) -> Resolved:
    if way.key == "q":
        raise typer.Exit(0)
    if way.one is None:
        found = resolve(DEMO)
        assert isinstance(found, Resolved)
        return found
    one = way.one
    got = resolve_selection(one.selection)
    if isinstance(got, Missing):
        got = resolve_selection(one.selection, fetch(got, ask=False))
    if isinstance(got, Missing):
        raise ModelError(f"{got.name} was fetched, and is not all there", "run it again")
    types, k = _as_priced(one)
    return replace(got, spec_types=types, k=k, kv_type=one.kv_type, n_cpu_moe=one.fit.cpu_moe)


def _as_priced(one: Configuration) -> tuple[tuple[str, ...] | None, int | None]:
    """Spec types and K whose memory was counted; None: chat's `auto`, which costs no more."""
    shape = one.model.shape
    if one.method in HEADS:
        return (one.method,), one.prediction.k
    if shape is None or not shape.is_hybrid or one.selection.draft_file is not None:
        return None, None
    return (("none",), None) if one.method == "none" else (("auto",), one.prediction.k)
