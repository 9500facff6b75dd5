"""NVIDIA devices through NVML (the module `pynvml` of nvidia-ml-py), else through nvidia-smi.

Every call may fail on its own, on real machines most of them do somewhere: no library, no driver, a
driver that was updated under a running kernel, boards without memory of their own, split cards.
"""

from __future__ import annotations

import importlib
import shutil
import subprocess
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from specctl.hardware.cudaorder import Card, Selection, select
from specctl.hardware.device import Device, Roots, SystemMemory, Trail, User, normal_pci, unified
from specctl.units import MIB

Run = Callable[[Sequence[str]], str | None]

# nvmlReturn_t
_NOT_SUPPORTED, _NO_PERMISSION = 3, 4
_DRIVER_NOT_LOADED, _LIBRARY_NOT_FOUND, _FUNCTION_NOT_FOUND = 9, 12, 13
_VERSION_MISMATCH, _UNKNOWN = 18, 999
_CLOCK_SM, _CLOCK_MEMORY = 1, 2  # nvmlClockType_t
_NO_VALUE = (1 << 64) - 1  # NVML_VALUE_NOT_AVAILABLE

_REASONS = {
    _NO_PERMISSION: "the NVIDIA driver refuses this user or container",
    _DRIVER_NOT_LOADED: "the NVIDIA driver is installed but not loaded: modprobe or reboot",
    _LIBRARY_NOT_FOUND: "no NVIDIA driver library on this machine",
    _VERSION_MISMATCH: "the NVIDIA driver was updated under the running kernel: reboot needed",
    _UNKNOWN: "the NVIDIA driver fails with an unknown error; a reboot usually helps",
}
_SMI_FIELDS = "name,uuid,pci.bus_id,memory.total,memory.free,driver_version"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A call that failed: NVML's code (None when it was no NVML error) and its words."""

    code: int | None
    text: str


def load_nvml() -> Any | str:
    """The `pynvml` module, or why there is none. Several packages ship a module of that name."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # old providers announce their own end
            module = importlib.import_module("pynvml")
    except ImportError as error:
        return f"module pynvml cannot be imported ({error}): pip install nvidia-ml-py"
    except Exception as error:
        return f"module pynvml fails while loading ({type(error).__name__}: {error})"
    return module


def read_nvidia(
    trail: Trail,
    memory: SystemMemory,
    environ: Mapping[str, str],
    roots: Roots,
    load: Callable[[], Any | str] = load_nvml,
    run: Run | None = None,
) -> Selection:
    """The devices a CUDA program sees here. `run` executes a command and returns its output."""
    nvml = load()
    found = nvml if isinstance(nvml, str) else _through_nvml(nvml, memory, trail)
    if isinstance(found, str):
        trail.say("NVML", found, "nvidia-smi")
        through_smi = _through_smi(trail, memory, environ, roots, run or run_command)
        if through_smi is None:
            if found != _REASONS[_LIBRARY_NOT_FOUND]:
                trail.notes.append(f"NVIDIA: {found}")
            return Selection(())
        found = through_smi
    selection = select(found, environ)
    for note in selection.notes:
        trail.say("CUDA order", note)
    return selection


# ---------------------------------------------------------------- NVML


def _call(function: Callable[..., Any] | None, *arguments: Any) -> Any | Refusal:
    """One call into the driver. What is not there or fails becomes a value."""
    if function is None:
        return Refusal(_FUNCTION_NOT_FOUND, "not in this pynvml")
    try:
        return function(*arguments)
    except Exception as error:
        code = getattr(error, "value", None)
        return Refusal(code if isinstance(code, int) else None, str(error) or type(error).__name__)


def _text(value: Any) -> str:
    """NVML bindings return bytes or str, depending on their age."""
    if isinstance(value, bytes):
        value = value.split(b"\0")[0].decode("utf-8", "replace")
    return str(value)


def _through_nvml(nvml: Any, memory: SystemMemory, trail: Trail) -> list[Card] | str:
    missing = [name for name in ("nvmlInit", "nvmlDeviceGetCount") if not hasattr(nvml, name)]
    if missing:
        where = getattr(nvml, "__file__", "unknown file")
        return (
            f"the installed pynvml ({where}) has no {missing[0]}: another package shadows it; "
            "pip install --force-reinstall nvidia-ml-py"
        )
    started = _call(nvml.nvmlInit)
    if isinstance(started, Refusal):
        return _REASONS.get(started.code or 0, f"NVML does not start: {started.text}")
    try:
        return _cards(_Nvml(nvml), memory, trail)
    finally:
        _call(getattr(nvml, "nvmlShutdown", None))


class _Nvml:
    """Calls by the short name, each returning a value or a Refusal."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def __call__(self, name: str, *arguments: Any) -> Any | Refusal:
        return _call(getattr(self._module, "nvml" + name, None), *arguments)


def _cards(nvml: _Nvml, memory: SystemMemory, trail: Trail) -> list[Card] | str:
    count = nvml("DeviceGetCount")
    if isinstance(count, Refusal):
        return f"NVML does not count devices: {count.text}"
    driver = nvml("SystemGetDriverVersion")
    version = None if isinstance(driver, Refusal) else _text(driver)
    trail.say("NVML", f"{count} devices, driver {version or 'version not told'}")
    cards = []
    for index in range(int(count)):
        handle = nvml("DeviceGetHandleByIndex", index)
        if isinstance(handle, Refusal):
            trail.say(f"NVML device {index}", handle.text, "left out")
            continue
        cards.append(_card(nvml, handle, index, memory, version, trail))
    return cards


def _card(
    nvml: _Nvml, handle: Any, index: int, memory: SystemMemory, driver: str | None, trail: Trail
) -> Card:
    pci = nvml("DeviceGetPciInfo", handle)
    device = replace(
        _device(nvml, handle, memory, trail, f"NVML device {index}"),
        pci=None if isinstance(pci, Refusal) else normal_pci(_text(getattr(pci, "busId", ""))),
        driver=driver,
        index=index,
    )
    slices = tuple(
        replace(child, pci=device.pci, driver=driver, index=index)
        for child in _slices(nvml, handle, memory, trail, device)
    )
    if not slices and not device.unified:
        device = _with_driver_bandwidth(nvml, handle, device)
    return Card(device, _speed(nvml, handle), slices)


def _speed(nvml: _Nvml, handle: Any) -> float | None:
    cores = nvml("DeviceGetNumGpuCores", handle)
    clock = nvml("DeviceGetMaxClockInfo", handle, _CLOCK_SM)
    if isinstance(cores, Refusal) or isinstance(clock, Refusal):
        return None
    return float(cores) * float(clock)


def _device(nvml: _Nvml, handle: Any, memory: SystemMemory, trail: Trail, asked: str) -> Device:
    """Name, UUID, memory and users of one handle, whole card or slice."""
    name, uuid = nvml("DeviceGetName", handle), nvml("DeviceGetUUID", handle)
    device = Device(
        kind="nvidia",
        index=0,
        name="NVIDIA GPU (name not told)" if isinstance(name, Refusal) else _text(name),
        uuid=None if isinstance(uuid, Refusal) else _text(uuid),
        used_by=_users(nvml, handle),
    )
    said = nvml("DeviceGetMemoryInfo", handle)
    if isinstance(said, Refusal) and said.code not in (_NOT_SUPPORTED, _FUNCTION_NOT_FOUND):
        trail.say(f"{asked} memory", said.text, "not known")
        return replace(device, notes=(f"memory not told: {said.text}",))
    if isinstance(said, Refusal) or int(said.total) in (0, _NO_VALUE):
        words = said.text if isinstance(said, Refusal) else f"total {said.total}"
        trail.say(f"{asked} memory", words, "unified memory: MemAvailable of the system")
        return unified(device, memory, "NVML tells no memory of its own")
    total = int(said.total)
    trail.say(f"{asked} memory", f"{device.name}: total {total} B, free {int(said.free)} B")
    return replace(device, memory_total=total, memory_free=min(int(said.free), total))


def _slices(
    nvml: _Nvml, handle: Any, memory: SystemMemory, trail: Trail, parent: Device
) -> list[Device]:
    """MIG devices. The parent often refuses its own memory, and then also its mode."""
    mode = nvml("DeviceGetMigMode", handle)
    on = bool(mode[0]) if isinstance(mode, tuple | list) and mode else None
    if on is False or (on is None and parent.memory_total is not None):
        return []
    most = nvml("DeviceGetMaxMigDeviceCount", handle)
    found = []
    for index in range(0 if isinstance(most, Refusal) else int(most)):
        child = nvml("DeviceGetMigDeviceHandleByIndex", handle, index)
        if not isinstance(child, Refusal):
            device = _device(nvml, child, memory, trail, f"MIG slice {index}")
            named = device.name if "MIG" in device.name else f"{parent.name} MIG slice {index}"
            found.append(replace(device, name=named))
    trail.say(f"MIG of {parent.name}", f"on, {len(found)} slices")
    return found


def _users(nvml: _Nvml, handle: Any) -> tuple[User, ...]:
    """Processes with memory there; graphics and compute lists overlap."""
    users: dict[int, User] = {}
    for kind in ("Compute", "Graphics"):
        running = nvml(f"DeviceGet{kind}RunningProcesses", handle)
        for process in [] if isinstance(running, Refusal) else running:
            pid, used = int(process.pid), getattr(process, "usedGpuMemory", None)
            used = None if used in (None, _NO_VALUE) else int(used)
            name = nvml("SystemGetProcessName", pid)
            known = users.get(pid)
            if known is None or (used or 0) > (known.memory or 0):
                words = "unknown" if isinstance(name, Refusal) else _text(name)
                users[pid] = User(pid, words, used)
    return tuple(sorted(users.values(), key=lambda user: -(user.memory or 0)))


def _with_driver_bandwidth(nvml: _Nvml, handle: Any, device: Device) -> Device:
    """Bus width × memory clock × 2 (double data rate, as NVML counts clocks of GDDR and HBM).

    Used for cards that the data-sheet table does not list.
    """
    width = nvml("DeviceGetMemoryBusWidth", handle)
    clock = nvml("DeviceGetMaxClockInfo", handle, _CLOCK_MEMORY)
    if isinstance(width, Refusal) or isinstance(clock, Refusal) or not width or not clock:
        return device
    return replace(
        device,
        bandwidth=int(width) / 8 * int(clock) * 1e6 * 2,
        bandwidth_source=f"driver: {width} bit x {clock} MHz x 2 (estimate)",
    )


# ---------------------------------------------------------------- nvidia-smi


def run_command(command: Sequence[str]) -> str | None:
    """Output of a command that ends well within five seconds, else None."""
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=5,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _through_smi(
    trail: Trail, memory: SystemMemory, environ: Mapping[str, str], roots: Roots, run: Run
) -> list[Card] | None:
    for path in (
        shutil.which("nvidia-smi", path=environ.get("PATH", "")),
        str(roots.wsl / "nvidia-smi"),
    ):
        if path is None:
            trail.say("nvidia-smi on PATH", "not there")
            continue
        said = run([path, f"--query-gpu={_SMI_FIELDS}", "--format=csv,noheader,nounits"])
        rows = [[cell.strip() for cell in line.split(",")] for line in (said or "").splitlines()]
        rows = [row for row in rows if len(row) == 6]
        trail.say(path, f"{len(rows)} devices" if rows else "no answer")
        if rows:
            return [Card(_smi_device(row, index, memory)) for index, row in enumerate(rows)]
    return None


def _smi_device(row: Sequence[str], index: int, memory: SystemMemory) -> Device:
    name, uuid, pci, total, free, driver = row
    device = Device("nvidia", index, name, uuid, normal_pci(pci), driver=driver)
    if not total.isdecimal() or int(total) == 0:
        return unified(device, memory, "nvidia-smi tells no memory of its own")
    size = int(total) * MIB
    left = int(free) * MIB if free.isdecimal() else None
    return replace(device, memory_total=size, memory_free=left)
