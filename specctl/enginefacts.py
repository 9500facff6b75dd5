"""What the installed engine is, as a plain value: the knowing wing never loads llama.cpp itself."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EngineDevice:
    """One device as llama.cpp lists it. `kind`: cpu, gpu, igpu, accel. Memory in bytes."""

    name: str
    description: str
    kind: str
    memory_free: int
    memory_total: int
    device_id: str | None  # PCI id, where the backend tells


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """The installed llama-cpp-python build. `backends` are its registries: CPU, CUDA, Vulkan, …"""

    version: str
    backends: tuple[str, ...]
    devices: tuple[EngineDevice, ...]
    architectures: frozenset[str] | None  # None where the build does not tell
    gpu_offload: bool
    system_info: str
