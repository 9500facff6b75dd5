"""`specctl doctor`: what this machine is, what a model may use of it, and what is left idle."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from specctl.cli import options as o
from specctl.cli.render import err, out
from specctl.hardware.advice import engine_advice
from specctl.hardware.bandwidth import GB
from specctl.hardware.budget import memory_budget, primary_device
from specctl.hardware.device import Device
from specctl.hardware.engineprobe import probe_engine
from specctl.hardware.host import Host, usable_cores
from specctl.hardware.machine import Machine, measure_host, take_snapshot
from specctl.hardware.report import machine_json
from specctl.hardware.simulate import simulate
from specctl.units import GIB, format_bytes, parse_size

_ISA_SHOWN = {"avx2": "AVX2", "avx512": "AVX-512", "amx": "AMX", "neon": "NEON", "sve": "SVE"}


def doctor(
    as_json: Annotated[
        bool, typer.Option("--json", help="Everything, as one JSON object.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Also each probe: asked, said, fallen back to.")
    ] = False,
    measure: Annotated[
        bool, typer.Option("--measure", help="Measure memory bandwidth (a few seconds), keep it.")
    ] = False,
    vram: o.Vram = None,
    ram: o.Ram = None,
    gpu: o.Gpu = None,
) -> None:
    """What is this machine, and what can it run?"""
    card_size, ram_size = (None if text is None else parse_size(text) for text in (vram, ram))
    machine = take_snapshot(engine=probe_engine())
    if measure:
        err().print("measuring memory bandwidth …")
        machine = measure_host(machine)
    machine = simulate(machine, card_size, ram_size, gpu)
    if as_json:
        print(json.dumps(machine_json(machine), indent=1))
        return
    show(out(), machine)
    if verbose:
        _show_probes(machine)


def show(console: Console, machine: Machine) -> None:
    """All of it, and what to do about what is idle."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    if machine.simulated:
        grid.add_row(Text("Simulated", "bold yellow"), Text(", ".join(machine.overrides)))
    for label, text in rows(machine):
        grid.add_row(Text(label, "bold"), Text(text))
    console.print(grid)
    console.print()
    for note in machine.notes:
        console.print(Text(note, "yellow"))
    for line in engine_advice(machine):
        command = "pip install" in line and "llama-cpp-python" in line
        console.print(
            Text("  " + line if command else line, "bold" if command else "yellow"),
            soft_wrap=command,
        )
    console.print(Text(conclusion(machine)))


def rows(machine: Machine) -> Iterator[tuple[str, str]]:
    """Label and text of each part of the machine; a text may have several lines."""
    yield "CPU", _cpu(machine.host)
    yield "RAM", _ram(machine.host)
    if not machine.devices:
        yield "GPU", "none found" if not machine.hidden else "none visible to CUDA programs"
    for device in machine.devices:
        yield f"GPU {device.index}", _gpu(device)
    for device in machine.hidden:
        yield "hidden", f"{device.name} (CUDA_VISIBLE_DEVICES)"
    yield "Disk", _disk(machine.host)
    yield "Engine", _engine(machine)


def _cpu(host: Host) -> str:
    cores = usable_cores(host)
    words = f"{host.cpu}\n{cores} {'core' if cores == 1 else 'cores'} to use"
    limits = []
    if host.cpu_quota is not None:
        limits.append(f"quota {host.cpu_quota:g} CPUs")
    if host.allowed_cpus < host.logical_cpus:
        limits.append(f"allowed on {host.allowed_cpus} of {host.logical_cpus} CPUs")
    if host.performance_cores:
        limits.append(f"the fast ones of {host.physical_cores}")
    if limits:
        words += f" ({', '.join(limits)})"
    shown = [name for flag, name in _ISA_SHOWN.items() if flag in host.isa]
    return words + (f", {' '.join(shown)}" if shown else "")


def _ram(host: Host) -> str:
    words = f"{format_bytes(host.ram_total)}, {format_bytes(host.ram_available)} available"
    if host.ram_limit is not None:
        words += f"; this container may use {format_bytes(host.ram_limit)}"
    if host.bandwidth is None:
        return words + "\nbandwidth not measured: specctl doctor --measure"
    words += f"\n{host.bandwidth / GB:.1f} GB/s, {host.bandwidth_source.split(':')[0]}"
    load = re.search(r"load average ([\d.]+)", host.bandwidth_source)
    if load and float(load[1]) > usable_cores(host) / 2:
        words += f"; may be low: other programs were busy (load {load[1]})"
    return words


def _gpu(device: Device) -> str:
    size = "memory size not known"
    if device.memory_total is not None:
        size = f"{format_bytes(device.memory_total)}"
        if device.unified:
            size += " of the machine's RAM"
        if device.memory_free is not None:
            size += f", {format_bytes(device.memory_free)} free"
    lines = [device.name, size]
    if device.bandwidth is not None:
        source = device.bandwidth_source.split(":")[0]
        lines.append(f"{device.bandwidth / GB:.0f} GB/s, {source}")
    users = [user for user in device.used_by if (user.memory or 0) > 0][:3]
    if users:
        lines.append(
            "in use by "
            + ", ".join(f"{_short(user.name)} {format_bytes(user.memory or 0)}" for user in users)
        )
    lines += [note for note in device.notes if note != "simulated"]
    return "\n".join(lines)


def _short(name: str) -> str:
    return name.replace("\\", "/").rsplit("/", 1)[-1]


def _disk(host: Host) -> str:
    home, folder = str(Path.home()), host.models_dir
    shown = "~" + folder[len(home) :] if folder.startswith(home + "/") else folder
    if host.disk_free is None:
        return f"free space not known\n{shown}"
    return f"{format_bytes(host.disk_free)} free for models\n{shown}"


def _engine(machine: Machine) -> str:
    facts = machine.engine
    if facts is None:
        return machine.engine_reason
    kinds = "CPU only" if facts.backends == ("CPU",) else " + ".join(facts.backends)
    known = "" if facts.architectures is None else f", {len(facts.architectures)} architectures"
    return f"llama-cpp-python {facts.version}, {kinds}{known}"


def conclusion(machine: Machine) -> str:
    """One line that a newcomer can act on."""
    device = primary_device(machine)
    budget, why = memory_budget(machine, device)
    if budget is None:
        return why
    what = "of RAM, on the CPU" if device is None else f"on {device.name}"
    if budget < GIB // 4:
        return f"Hardly anything is free {what}: {why}."
    return f"A model can use {format_bytes(budget)} {what}: {why}."


def _show_probes(machine: Machine) -> None:
    out().print()
    for probe in machine.probes:
        line = f"{probe.asked}: {probe.said}"
        if probe.fell_back:
            line += f" → {probe.fell_back}"
        out().print(Text(line))
    for device in machine.devices:
        _, why = memory_budget(machine, device)
        out().print(Text(f"GPU {device.index}: bandwidth {device.bandwidth_source}; budget {why}"))
    out().print(Text(f"host: bandwidth {machine.host.bandwidth_source}"))
