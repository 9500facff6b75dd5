"""One frozen snapshot of this machine. Every probe may fail on its own and says what happened.

Nothing is asked on import. The engine's facts come from the caller (`engineprobe.probe_engine`):
they cost a child process, and most questions about a machine do not need them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from specctl.enginefacts import EngineFacts
from specctl.hardware.amd import read_amd
from specctl.hardware.apple import read_apple
from specctl.hardware.bandwidth import lookup
from specctl.hardware.cudaorder import Selection
from specctl.hardware.device import Device, Probe, Roots, SystemMemory, Trail
from specctl.hardware.enginematch import match_engine
from specctl.hardware.host import Host, Sysctl, cache_bytes, read_host, usable_cores
from specctl.hardware.intel import read_intel
from specctl.hardware.measured import HOST, key_of, recall, remember
from specctl.hardware.nvidia import Run, load_nvml, read_nvidia, run_command
from specctl.hardware.stream import array_bytes, stream_test
from specctl.hardware.sysfs import NVIDIA, display_devices, pci_name
from specctl.hardware.windows import Registry, read_windows, registry_adapters
from specctl.paths import models_dir

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Machine:
    """What this machine is. `devices` are the GPUs a program can use, discrete ones first.

    `hidden` are those that CUDA_VISIBLE_DEVICES takes away. `engine` is None when it was not asked
    or is not installed; `engine_reason` says which. `simulated`: something in here was set by the
    user rather than found, `overrides` says what.
    """

    host: Host
    devices: tuple[Device, ...] = ()
    hidden: tuple[Device, ...] = ()
    engine: EngineFacts | None = None
    engine_reason: str = "not asked"
    probes: tuple[Probe, ...] = ()
    notes: tuple[str, ...] = ()
    simulated: bool = False
    overrides: tuple[str, ...] = ()


def take_snapshot(
    roots: Roots | None = None,
    environ: Mapping[str, str] = os.environ,
    *,
    engine: EngineFacts | str | None = None,
    system: str = sys.platform,
    models: Path | None = None,
    affinity: Iterable[int] | None = None,
    load: Callable[[], Any | str] = load_nvml,
    run: Run = run_command,
    registry: Registry = registry_adapters,
) -> Machine:
    """Ask everything once. Never raises for what a machine lacks; takes some 10 ms without a GPU.

    The keyword arguments stand in for the outside world in tests; `engine` is what
    `probe_engine()` returned.
    """
    roots, trail = roots or Roots(), Trail()
    sysctl = _sysctl(run) if system == "darwin" else _no_sysctl
    host = read_host(roots, trail, models or models_dir(), system, sysctl, affinity)
    memory = SystemMemory(host.ram_total, host.ram_available)

    none = Selection(())
    cuda = _guard(
        trail, "NVIDIA", lambda: read_nvidia(trail, memory, environ, roots, load, run), none
    )
    found = list(cuda.visible)
    if system == "linux":
        found += _guard(trail, "AMD", lambda: read_amd(trail, roots, memory.available), ())
        found += _guard(trail, "Intel", lambda: read_intel(trail, roots, memory), ())
        if not cuda.visible and not cuda.hidden:
            _guard(trail, "PCI", lambda: _note_idle_nvidia(trail, roots, host.wsl), None)
    elif system == "darwin":
        found += _guard(trail, "Apple", lambda: read_apple(trail, sysctl, memory.available), ())
    elif system == "win32":
        found += _guard(trail, "registry", lambda: read_windows(trail, registry), ())

    facts = engine if isinstance(engine, EngineFacts) else None
    reason = "" if facts else (engine if isinstance(engine, str) else "not asked")
    trail.say("engine", _engine_line(facts) if facts else reason)
    if facts is not None:
        found = match_engine(found, facts, trail)
    found.sort(key=lambda device: device.integrated)
    host = _with_host_bandwidth(host)
    devices = tuple(
        _with_bandwidth(replace(device, index=index), host) for index, device in enumerate(found)
    )
    return Machine(
        host=host,
        devices=devices,
        hidden=cuda.hidden,
        engine=facts,
        engine_reason=reason,
        probes=tuple(trail.probes),
        notes=tuple(trail.notes),
    )


def measure_host(machine: Machine, size: int | None = None, passes: int = 5) -> Machine:
    """Run the stream test on the usable cores, remember it, and return the machine with it.

    `size` in bytes of all arrays together; None: beyond the caches, see `stream.array_bytes`.

    Raises:
        SpecctlError: numpy is missing, or the data folder cannot be written.
    """
    host = machine.host
    size = size or array_bytes(host.ram_available, cache_bytes(Roots()))
    done = stream_test(usable_cores(host), size, passes)
    remember(HOST, host.cpu, done.best, done.how)
    return replace(machine, host=_with_host_bandwidth(host))


def _guard(trail: Trail, asked: str, probe: Callable[[], T], instead: T) -> T:
    """Drivers answer in ways nobody foresaw; one odd answer must not hide the rest."""
    try:
        return probe()
    except Exception as error:
        trail.say(asked, f"{type(error).__name__}: {error}", "left out")
        trail.notes.append(f"{asked}: the probe failed ({type(error).__name__}), left out")
        return instead


def _no_sysctl(_name: str) -> str | None:
    return None


def _sysctl(run: Run) -> Sysctl:
    def ask(name: str) -> str | None:
        said = run(["/usr/sbin/sysctl", "-n", name])
        return said.strip() if said is not None else None

    return ask


def _note_idle_nvidia(trail: Trail, roots: Roots, wsl: bool) -> None:
    cards = [card for card in display_devices(roots) if card.vendor == NVIDIA]
    for card in cards:
        name = pci_name(roots, NVIDIA, card.device) or f"device {card.device:04x}"
        trail.say(f"PCI {card.address}", f"NVIDIA {name}", "not usable without its driver")
        trail.notes.append(
            f"an NVIDIA card is there (PCI {card.address}, {name}), but its driver is not usable"
        )
    if wsl:
        trail.say(str(roots.wsl), "there" if roots.wsl.is_dir() else "not there")
        if not roots.wsl.is_dir():
            trail.notes.append("WSL without GPU support: install the GPU driver on Windows")


def _engine_line(facts: EngineFacts) -> str:
    listed = ", ".join(device.name for device in facts.devices)
    return f"llama-cpp-python {facts.version}: {'+'.join(facts.backends)}; devices {listed}"


def _with_host_bandwidth(host: Host) -> Host:
    known = recall(HOST, host.cpu)
    if known is None:
        return host
    return replace(
        host,
        bandwidth=known.bytes_per_second,
        bandwidth_source=f"measured {known.date}: {known.how}",
    )


def _with_bandwidth(device: Device, host: Host) -> Device:
    """Measured before data sheet before what the driver's clocks say before nothing."""
    known = recall(key_of(device), device.name)
    if known is not None:
        source = f"measured {known.date}: {known.how}"
        return replace(device, bandwidth=known.bytes_per_second, bandwidth_source=source)
    if "MIG" in device.name:
        return replace(device, bandwidth=None, bandwidth_source="not known for a MIG slice")
    size = device.memory_total
    if device.unified:  # what the GPU may use is not what the label says
        size = host.ram_total if device.kind == "apple" else None
    card = lookup(device.kind, device.name, size)
    if card is not None:
        return replace(
            device, bandwidth=card.bandwidth, bandwidth_source=f"data sheet ({card.name})"
        )
    if device.bandwidth is None and device.unified and host.bandwidth is not None:
        source = f"the host's RAM, which it shares; {host.bandwidth_source}"
        return replace(device, bandwidth=host.bandwidth, bandwidth_source=source)
    return device
