"""What an owner of this machine should know in one line: an idle GPU, and how to wake it."""

from __future__ import annotations

from specctl.hardware.device import Device, Kind
from specctl.hardware.enginematch import gpus
from specctl.hardware.machine import Machine

# registry names of llama.cpp that serve each make of GPU
_SERVES: dict[Kind, tuple[str, ...]] = {
    "nvidia": ("CUDA", "Vulkan"),
    "amd": ("ROCm", "HIP", "Vulkan"),
    "intel": ("SYCL", "Vulkan"),
    "apple": ("MTL", "Metal"),
    "gpu": ("CUDA", "ROCm", "HIP", "SYCL", "Vulkan", "MTL", "Metal"),
}
_SWITCH: dict[Kind, str] = {
    "nvidia": "-DGGML_CUDA=on",
    "amd": "-DGGML_HIP=on",
    "intel": "-DGGML_SYCL=on -DCMAKE_C_COMPILER=icx -DCMAKE_CXX_COMPILER=icpx",
    "apple": "-DGGML_METAL=on",
    "gpu": "-DGGML_VULKAN=on",
}


def install_command(device: Device, system: str) -> str:
    """The command that builds the engine for this GPU. An AMD APU is served best by Vulkan."""
    vulkan = device.kind == "amd" and (device.integrated or system == "win32")
    vulkan = vulkan or (device.kind == "intel" and (device.integrated or system == "win32"))
    switch = "-DGGML_VULKAN=on" if vulkan else _SWITCH[device.kind]
    pip = "pip install --force-reinstall --no-cache-dir llama-cpp-python"
    if system == "win32":  # PowerShell
        return f"$env:CMAKE_ARGS='{switch}'; {pip}"
    return f'CMAKE_ARGS="{switch}" {pip}'


def idle_reason(machine: Machine, device: Device) -> str | None:
    """Why the installed engine leaves this GPU idle; None when it uses it or was not asked."""
    if device.engine is not None:
        return None
    facts = machine.engine
    if facts is None:
        if machine.engine_reason == "not asked":
            return None
        return f"{device.name} is idle: {machine.engine_reason}"
    backends = [name for name in facts.backends if name in _SERVES[device.kind]]
    if not backends:
        return f"{device.name} is idle: this llama-cpp-python build has no GPU backend for it"
    if gpus(facts):
        return f"{device.name} is idle: the build's {backends[0]} backend does not list it"
    return (
        f"{device.name} is idle: the build has {backends[0]}, which finds no usable device here "
        "(driver?)"
    )


def engine_advice(machine: Machine) -> tuple[str, ...]:
    """Lines to print: each idle GPU, and below it the command that builds the engine for it.

    Nothing for a simulated machine: its GPU is not here. An integrated GPU beside a used discrete
    one is left in peace.
    """
    if machine.simulated:
        return ()
    used = any(device.engine for device in machine.devices)
    lines: list[str] = []
    for device in machine.devices:
        reason = idle_reason(machine, device)
        if reason is None or (used and device.integrated):
            continue
        lines.append(reason)
        if "(driver?)" not in reason and "does not list" not in reason:
            lines.append(install_command(device, machine.host.system))
    return tuple(lines)
