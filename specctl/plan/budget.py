"""What a plan may use, how fast that memory is, and whether a configuration fits.

Bytes come from `specctl.plan.memory`; here they are held against a budget, all on the GPU, with
routed experts in RAM, or all in RAM where there is no GPU.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from specctl.gguf.shape import Shape
from specctl.hardware.bandwidth import median_bandwidth
from specctl.hardware.budget import memory_budget
from specctl.hardware.device import Device
from specctl.hardware.machine import Machine
from specctl.plan.memory import Memory, estimate
from specctl.plan.speed import Pace, PlaceKind
from specctl.units import format_bytes

Place = Literal["GPU", "GPU, experts in RAM", "CPU"]
SPLIT: Place = "GPU, experts in RAM"
BACKENDS = {"nvidia": "cuda", "amd": "rocm", "intel": "sycl", "apple": "metal", "gpu": "cuda"}

# Two channels of DDR4-3200, 51.2 GB/s by its data sheet: what a desktop has at least. An assumption
# until `specctl doctor --measure` has timed this machine.
ASSUMED_RAM_BANDWIDTH = 51.2e9
ASSUMED_RAM = "two channels of DDR4-3200: an assumption, `specctl doctor --measure` replaces it"
CTX_STEP = 1024
UBATCH = 512  # llama.cpp's
NO_GPU = "no GPU"
SURELY_THERE = 0.75  # of the weights, on the GPU: the token table of a small model may stay in RAM


@dataclass(frozen=True, slots=True)
class Budget:
    """Bytes that may be used on the GPU (None: no GPU) and in RAM, and how fast each is."""

    gpu: int | None
    ram: int
    gpu_pace: Pace | None
    cpu_pace: Pace
    gpu_words: str
    ram_words: str
    name: str
    simulated: bool = False
    backend: str = "cuda"
    unified: bool = False


def plan_budget(machine: Machine, device: Device | None) -> Budget:
    """The budget of one device and the host; memory of several GPUs is never added up."""
    ram, ram_words = memory_budget(machine, None)
    host = machine.host
    cpu_pace = Pace("cpu", host.bandwidth or ASSUMED_RAM_BANDWIDTH, host.bandwidth_source)
    if host.bandwidth is None:
        cpu_pace = replace(cpu_pace, source=ASSUMED_RAM)
    gpu: int | None = None
    words = NO_GPU
    if device is not None:
        gpu, words = memory_budget(machine, device)
    if device is None or gpu is None:
        return Budget(None, ram or 0, None, cpu_pace, words, ram_words, host.cpu, machine.simulated)
    kind: PlaceKind = "apple" if device.kind == "apple" else "gpu"
    bandwidth, source = device.bandwidth, device.bandwidth_source
    if bandwidth is None:
        bandwidth, source = median_bandwidth(device.memory_total or gpu)
    if device.unified:
        ram_words = "the GPU's memory is the RAM"
    return Budget(
        gpu,
        ram or 0,
        Pace(kind, bandwidth, source),
        cpu_pace,
        words,
        ram_words,
        device.name,
        machine.simulated,
        BACKENDS[device.kind],
        device.unified,
    )


@dataclass(frozen=True, slots=True)
class Held:
    """A model to hold in memory. `experts` of its `weights` bytes are routed experts.

    `rows` are the logits rows of a pass (K + 1), `snapshots` the recurrent states kept for taking
    tokens back, `mtp` a second context for its MTP layers, `encoder` an EAGLE-3 or block draft,
    `ubatch` the most tokens of one of its passes.
    """

    shape: Shape
    weights: int
    experts: int = 0
    rows: int = 1
    snapshots: int = 0
    mtp: bool = False
    encoder: bool = False
    ubatch: int = UBATCH


@dataclass(frozen=True, slots=True)
class Fit:
    """Memory of one configuration by part, (name, GPU bytes, RAM bytes), and whether it fits.

    `kv_read` is what a pass reads of the cache at half the context, bytes; `cpu_moe` the layers
    whose experts stay in RAM; `lacking` bytes are missing where it does not fit.
    """

    place: Place
    parts: tuple[tuple[str, int, int], ...]
    kv_read: float
    fits: bool
    cpu_moe: int = 0
    shortage: str = ""
    lacking: int = 0

    @property
    def gpu(self) -> int:
        """Bytes of GPU memory."""
        return sum(gpu for _, gpu, _ in self.parts)

    @property
    def ram(self) -> int:
        """Bytes of RAM."""
        return sum(ram for _, _, ram in self.parts)

    @property
    def used(self) -> int:
        """Bytes of the memory that decides: the GPU's, or the RAM's where there is no GPU."""
        return self.ram if self.place == "CPU" else self.gpu

    def alone(self) -> Fit:
        """The same place for a draft: it is never split."""
        return replace(self, place="CPU" if self.place == "CPU" else "GPU", kv_read=0.0, cpu_moe=0)


def fit(budget: Budget, target: Held, draft: Held | None, ctx: int, kv_type: str) -> Fit:
    """Where it goes; the draft's own KV cache stays f16, below it acceptance collapses."""
    weights = target.weights + (draft.weights if draft else 0)
    room = budget.ram if budget.gpu is None else budget.gpu
    if target.experts and budget.gpu is not None and not budget.unified:
        room += budget.ram
    if weights * SURELY_THERE > room:  # no bill is needed to see it
        words = f"weights of {format_bytes(weights)}, {format_bytes(room)} in all"
        return Fit("CPU", (), 0.0, False, 0, words, weights - room)
    if budget.gpu is None:
        return _weigh(budget, "CPU", target, draft, ctx, kv_type)
    whole = _weigh(budget, "GPU", target, draft, ctx, kv_type)
    if whole.fits or not target.experts or budget.unified:
        return whole
    if weights - target.experts > budget.gpu:
        return whole
    low, high = 1, target.shape.n_layer
    split = _weigh(budget, SPLIT, target, draft, ctx, kv_type, high)
    if not split.fits:
        return replace(whole, shortage=whole.shortage + ", experts in RAM do not help")
    while low < high:
        middle = (low + high) // 2
        fewer = _weigh(budget, SPLIT, target, draft, ctx, kv_type, middle)
        if fewer.fits:
            split, high = fewer, middle
        else:
            low = middle + 1
    return split


def _weigh(
    budget: Budget,
    place: Place,
    target: Held,
    draft: Held | None,
    ctx: int,
    kv_type: str,
    cpu_moe: int = 0,
) -> Fit:
    bill = _bill(budget, place, target, ctx, kv_type, cpu_moe, first=True)
    parts = [(part.name, part.device, part.host) for part in bill.parts]
    if draft is not None:
        extra = _bill(budget, place, draft, ctx, "f16", 0, first=False)
        parts += [("draft " + part.name, part.device, part.host) for part in extra.parts]
    gpu, ram = sum(part[1] for part in parts), sum(part[2] for part in parts)
    if budget.unified:
        short_gpu, short_ram = gpu + ram - (budget.gpu or 0), 0
    else:
        short_gpu, short_ram = gpu - (budget.gpu or 0), ram - budget.ram
    lacking = max(0, short_gpu) + max(0, short_ram)
    words = ""
    if short_ram > 0:
        words = f"needs {format_bytes(ram)} of {format_bytes(budget.ram)} RAM"
    if short_gpu > 0:
        needed = gpu + ram if budget.unified else gpu
        words = f"needs {format_bytes(needed)} of {format_bytes(budget.gpu or 0)}"
    cache = sum(bill.part(name).device + bill.part(name).host for name in ("kv", "swa kv"))
    read = cache / 2 + target.shape.recurrent_bytes
    return Fit(place, tuple(parts), read, not lacking, cpu_moe, words, lacking)


def _bill(
    budget: Budget, place: Place, held: Held, ctx: int, kv_type: str, cpu_moe: int, first: bool
) -> Memory:
    return estimate(
        held.shape,
        held.weights,
        ctx,
        kv_type,
        kv_type,
        ubatch=held.ubatch,
        outputs=held.rows,
        snapshots=held.snapshots,
        gpu_layers=0 if place == "CPU" else -1,
        n_cpu_moe=cpu_moe,
        mtp=held.mtp,
        encoder=held.encoder,
        backend=budget.backend if first else None,
    )


def usable_context(
    budget: Budget, target: Held, draft: Held | None, ctx: int, kv_type: str, found: Fit
) -> int:
    """The longest context that still fits at the same place, in steps of 1024 tokens."""
    low, high = ctx // CTX_STEP, target.shape.context_length // CTX_STEP
    while low < high:
        middle = (low + high + 1) // 2
        longer = _weigh(
            budget, found.place, target, draft, middle * CTX_STEP, kv_type, found.cpu_moe
        )
        low, high = (middle, high) if longer.fits else (low, middle - 1)
    return max(ctx, low * CTX_STEP)
