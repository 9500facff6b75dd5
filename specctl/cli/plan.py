"""`specctl plan`: what one model, or a pair, needs on this machine, part by part, and where."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from specctl.cli import options as o
from specctl.cli.inspect import facts_at
from specctl.cli.render import out
from specctl.enginefacts import BLOCK_BATCH, EAGLE3_BATCH
from specctl.errors import ModelError, SpecctlError, UsageError
from specctl.gguf.facts import ModelFacts
from specctl.gguf.pair import check_pair
from specctl.hardware.budget import memory_budget, primary_device
from specctl.hardware.device import Device
from specctl.hardware.machine import Machine, take_snapshot
from specctl.hardware.simulate import simulate
from specctl.hub.errors import NetworkError, OfflineError
from specctl.plan import catalog
from specctl.plan.budget import Held
from specctl.plan.held import held_parts
from specctl.plan.memory import Memory, Part
from specctl.plan.placement import Budget, Need, Placement, largest_ctx, place, to_settings
from specctl.resolve import header_places
from specctl.units import GIB, format_bytes, parse_size

_BACKENDS = {"nvidia": "cuda", "amd": "rocm", "intel": "sycl", "apple": "metal"}
_MOST_CTX = 1 << 24
_ENCODERS = ("eagle3", "dflash", "dspark", "dflash2")


def plan(
    model: o.NamedModel,
    draft: o.DraftBeside = None,
    ctx: Annotated[
        int | None, typer.Option("--ctx", help="Tokens; never shrunk when given. Default 8192.")
    ] = None,
    kv_type: Annotated[str, typer.Option("--kv-type", help="f16, q8_0, q4_0, …")] = "f16",
    draft_kv_type: Annotated[str, typer.Option("--draft-kv-type", help="The draft's.")] = "f16",
    mtp: Annotated[bool, typer.Option("--mtp", help="Load the target's own MTP head.")] = False,
    k: Annotated[int, typer.Option("--k", help="Most tokens drafted per cycle.")] = 8,
    vram: o.Vram = None,
    ram: o.Ram = None,
    gpu: o.Gpu = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """What does it need here, part by part, and where should it go?"""
    if ctx is not None and not 32 <= ctx <= _MOST_CTX:
        raise UsageError(f"a context of {ctx} tokens cannot be", f"32 … {_MOST_CTX}")
    if not 1 <= k <= 1024:
        raise UsageError(f"k {k} is not in 1 … 1024")
    target_side, draft_side = _sides(model, draft, kv_type, draft_kv_type, mtp)
    card, memory = (None if text is None else parse_size(text) for text in (vram, ram))
    machine = simulate(take_snapshot(), card, memory, gpu)
    device = primary_device(machine)
    budget, words = machine_budget(machine, device)
    notes = _pair_notes(target_side, draft_side)
    if device is not None and not budget.device:
        notes += (f"nothing of {device.name} may be used ({words[0]}): all of it is for the CPU",)
    found = place(target_side.need, draft_side.need if draft_side else None, budget, ctx, k=k)
    if as_json:
        print(json.dumps(placement_json(found, words, notes)))
    else:
        _show(found, machine, words, notes, target_side, draft_side)
    if not found.fits:
        raise typer.Exit(1)


@dataclass(frozen=True, slots=True)
class Side:
    """A target or a draft to place; `facts` None: its header could not be read, this is a guess."""

    label: str
    need: Need
    notes: tuple[str, ...]
    facts: ModelFacts | None = None


def _sides(
    model: str, draft: str | None, kv_type: str, draft_kv_type: str, mtp: bool
) -> tuple[Side, Side | None]:
    """From the headers; without a network from the catalogue, where it has the dimensions."""
    place_of_target, beside = header_places(model)
    if draft is not None:
        beside = header_places(draft)[0]

    def side(name: str, where: str, own_draft: bool) -> Side:
        types = draft_kv_type if name != model or own_draft else kv_type
        with_mtp = mtp and not own_draft and name == model
        try:
            facts = _runnable(where)
        except (NetworkError, OfflineError) as error:
            known = _catalogued(name, own_draft, types, with_mtp, error)
            if known is None:
                raise
            return known
        if with_mtp and facts.mtp != "embedded":
            raise UsageError(f"{model} has no MTP head in it", "leave --mtp out")
        label = f"{facts.arch}, {facts.quant}"
        return Side(label, _need(facts, types, with_mtp), facts.notes, facts)

    target = side(model, place_of_target, False)
    return target, side(draft or model, beside, draft is None) if beside else None


def _catalogued(
    name: str, own_draft: bool, kv_type: str, mtp: bool, why: SpecctlError
) -> Side | None:
    """Shape and size of a profile, as `recommend` prices it; None where it does not have both."""
    if name.startswith("hf:"):
        return None
    selection = catalog.load().select(name)
    held: Held | None = None
    if selection.model.shape is not None and selection.file.size is not None:
        held = held_parts(selection)[1 if own_draft else 0]
    if held is None:
        return None
    if mtp and not selection.file.mtp:
        raise UsageError(f"{name} has no MTP head in it", "leave --mtp out")
    small = selection.draft_file if own_draft else selection.file
    assert small is not None  # held_parts found it
    what = f"{small.repo}/{small.names[0]}" if own_draft else name
    mtp = held.mtp if own_draft else mtp
    note = f"≈ {what}: dimensions and size are the catalogue's, since {why.message}"
    need = Need(
        held.shape,
        held.weights,
        kv_type,
        kv_type,
        mtp=mtp,
        encoder=held.encoder,
        ubatch=held.ubatch,
    )
    return Side(f"{held.shape.arch}, {small.quant}", need, (note,))


def machine_budget(machine: Machine, device: Device | None) -> tuple[Budget, tuple[str, str]]:
    """What a plan may use, and the sums behind both figures."""
    host, host_words = memory_budget(machine, None)
    if device is None:
        return Budget(0, host or 0, "no GPU", None), ("no GPU", host_words)
    size, words = memory_budget(machine, device)
    engine = (device.engine or "").rstrip("0123456789").lower()
    backend = {"vulkan": "vulkan", "mtl": "metal", "sycl": "sycl"}.get(
        engine, _BACKENDS.get(device.kind, "cuda")
    )
    shared_host = (host or 0) + device.dedicated if device.unified else host or 0
    return Budget(size or 0, shared_host, device.name, backend, device.unified), (words, host_words)


def _runnable(name: str) -> ModelFacts:
    facts, _ = facts_at(name)
    if facts.missing:
        raise ModelError(
            f"{name} is incomplete: {format_bytes(facts.missing)} are missing", "fetch it again"
        )
    if facts.kind in ("projector", "adapter", "encoder"):
        raise ModelError(f"{name} is a {facts.kind}, not a model that generates text")
    return facts


def _need(facts: ModelFacts, kv_type: str, mtp: bool = False) -> Need:
    return Need(
        facts.shape,
        facts.weights,
        kv_type,
        kv_type,
        mtp=mtp or facts.kind == "mtp head",
        encoder=facts.kind in _ENCODERS,
        ubatch=_ubatch(facts),
    )


def _ubatch(facts: ModelFacts) -> int | None:
    """Rows of a pass of a draft that reads a target's layers, as the engine opens it."""
    if facts.kind == "eagle3":
        return EAGLE3_BATCH
    return max(BLOCK_BATCH, facts.block_size or 0) if facts.kind in ("dflash", "dspark") else None


def _pair_notes(target: Side, draft: Side | None) -> tuple[str, ...]:
    if draft is None:
        return target.notes
    notes = tuple(dict.fromkeys(target.notes + draft.notes))
    if target.facts is None or draft.facts is None:
        return (*notes, "whether the two fit together was not checked: that needs both headers")
    found = check_pair(target.facts, draft.facts)
    return notes + tuple(finding.text for finding in found.findings if finding.level != "note")


def placement_json(found: Placement, words: tuple[str, str], notes: tuple[str, ...]) -> Any:
    """The plan as plain values, sizes in bytes."""
    return {
        "kind": found.kind,
        "fits": found.fits,
        "ctx": found.ctx,
        "k": found.k,
        "device": found.device,
        "host": found.host,
        "budget": {**asdict(found.budget), "device_words": words[0], "host_words": words[1]},
        "target": asdict(found.target),
        "draft": asdict(found.draft) if found.draft else None,
        "decisions": found.decisions,
        "notes": notes,
        "settings": asdict(to_settings(found)),
    }


def _show(
    found: Placement,
    machine: Machine,
    words: tuple[str, str],
    notes: tuple[str, ...],
    target: Side,
    draft: Side | None,
) -> None:
    if machine.simulated:
        out().print(Text(f"Simulated: {', '.join(machine.overrides)}", "yellow"))
    out().print(
        Text.assemble(
            (found.kind, "bold"),
            f", {found.ctx} tokens of context, KV {found.target_need.kv_type_k}, K up to {found.k}",
        )
    )
    out().print(_table(found, target, draft))
    budget = found.budget
    if machine.devices:
        others = len(machine.devices) - 1
        more = f"; {others} more GPU(s) here, not planned for" if others else ""
        out().print(Text(f"{budget.device_name}: {words[0]}{more}", "dim"))
    out().print(Text(f"RAM: {words[1]}", "dim"))
    for decision in found.decisions:
        out().print(Text(f"• {decision}", "yellow"))
    for note in notes:
        out().print(Text(f"! {note}", "yellow"))
    if found.fits:
        _show_context(found)
        out().print(Text(_flags(found), "bold"))


def _show_context(found: Placement) -> None:
    gpu_layers = -1 if found.kind in ("full offload", "experts in RAM") else found.target.gpu_layers
    most = largest_ctx(
        found.target_need,
        found.draft_need,
        found.budget,
        gpu_layers,
        found.target.n_cpu_moe,
        k=found.k,
    )
    trained = found.target_need.shape.context_length
    limit = ", all it was trained for" if trained and most >= trained else ""
    out().print(f"Largest context that fits this way: ≈ {most} tokens{limit}")


def _flags(found: Placement) -> str:
    settings = to_settings(found)
    flags = [f"--ctx {settings.n_ctx}", f"--gpu-layers {settings.target.gpu_layers}"]
    if settings.target.n_cpu_moe:
        flags.append(f"--n-cpu-moe {settings.target.n_cpu_moe}")
    if settings.target.kv_type_k != "f16":
        flags.append(f"--kv-type {settings.target.kv_type_k}")
    if found.draft is not None:
        flags.append(f"--draft-gpu-layers {settings.draft.gpu_layers}")
        if settings.draft.kv_type_k != "f16":
            flags.append(f"--draft-kv-type {settings.draft.kv_type_k}")
    if found.target.part("snapshots") != Part("snapshots", 0, 0):
        flags.append(f"--k {found.k}")  # left alone, `auto` keeps more of them
    return "specctl chat … " + " ".join(flags)


def _table(found: Placement, target: Side, draft: Side | None) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2))
    table.add_column("")
    table.add_column("GPU", justify="right")
    table.add_column("RAM", justify="right")
    _add(table, "target", target, found.target)
    if draft is not None and found.draft is not None:
        _add(table, "draft", draft, found.draft)
    table.add_row("[bold]total", _cell(found.device, False), _cell(found.host, False), style="bold")
    table.add_row("may use", _cell(found.budget.device, True), _cell(found.budget.host, True))
    return table


def _add(table: Table, role: str, side: Side, memory: Memory) -> None:
    guessed = " of the catalogue" if side.facts is None else ""
    table.add_row(Text(f"{role}{guessed} ({side.label})", "bold"), "", "")
    for part in memory.parts:
        exact = part.exact and side.facts is not None
        table.add_row(f"  {part.name}", _cell(part.device, exact), _cell(part.host, exact))


def _cell(size: int, exact: bool) -> str:
    if not size:
        return "–"
    text = f"{size / GIB:.2f} GiB" if size >= GIB / 100 else format_bytes(size)
    return text if exact else f"≈ {text}"
