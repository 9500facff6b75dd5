"""Readings of memory and load: real figures, scripted drivers, and nothing that raises."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from fake_machine import GIB, MIB, FakeCard, FakeMachine, FakeNvml, NVMLError, no_nvml

from specctl.hardware.gauges import Meter, read_gauges


class LoadedNvml(FakeNvml):
    """Cards are found by UUID and tell a load; `started` counts what NVML has to be closed."""

    started = 0

    def nvmlInit(self) -> None:  # noqa: N802
        super().nvmlInit()
        self.started += 1

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> FakeCard:  # noqa: N802
        return next(card for card in self.cards if card.uuid == uuid)

    def nvmlDeviceGetUtilizationRates(self, card: FakeCard) -> Any:  # noqa: N802
        if not hasattr(card, "load"):
            raise NVMLError(3)
        return SimpleNamespace(gpu=card.load, memory=0)


def loaded(card: FakeCard, load: int) -> FakeCard:
    card.load = load  # type: ignore[attr-defined]
    return card


def meter(tmp_path: Path, nvml: Any, environ: dict[str, str] | None = None, **more: Any) -> Meter:
    return Meter(FakeMachine(tmp_path).roots, environ or {}, lambda: nvml, **more)


def test_this_machine() -> None:
    reading = read_gauges()
    assert reading.ram_total is not None
    assert reading.ram_used is not None
    assert 0 < reading.ram_used <= reading.ram_total <= psutil.virtual_memory().total


def test_an_nvidia_card_with_its_load(tmp_path: Path) -> None:
    nvml = LoadedNvml((loaded(FakeCard(total=16 * GIB, free=2 * GIB), 88),))
    gauges = meter(tmp_path, nvml)
    for _ in range(5):
        reading = gauges.read()
    assert (reading.vram_used, reading.vram_total, reading.gpu_load) == (14 * GIB, 16 * GIB, 0.88)
    assert nvml.started == 2  # the snapshot's and one for all readings


def test_the_fullest_of_the_visible_cards(tmp_path: Path) -> None:
    cards = (
        FakeCard(uuid="GPU-a", total=24 * GIB, free=20 * GIB),
        FakeCard(uuid="GPU-b", bus="00000000:02:00.0", total=8 * GIB, free=1 * GIB),
        FakeCard(uuid="GPU-c", bus="00000000:03:00.0", total=8 * GIB, free=0),
    )
    reading = meter(tmp_path, LoadedNvml(cards), {"CUDA_VISIBLE_DEVICES": "0,1"}).read()
    assert (reading.vram_used, reading.vram_total) == (7 * GIB, 8 * GIB)
    assert reading.gpu_load is None  # these drivers do not tell


def test_memory_that_is_shared_is_not_vram(tmp_path: Path) -> None:
    nvml = LoadedNvml((loaded(FakeCard(total=-3), 40),))
    reading = meter(tmp_path, nvml).read()
    assert (reading.vram_used, reading.vram_total, reading.gpu_load) == (None, None, 0.4)


@pytest.mark.parametrize("nvml", [no_nvml(), "no module", object(), FakeNvml((FakeCard(),))])
def test_what_does_not_answer_is_none(tmp_path: Path, nvml: Any) -> None:
    reading = meter(tmp_path, nvml).read()
    assert (reading.vram_used, reading.vram_total, reading.gpu_load) == (None, None, None)
    assert reading.ram_total


def test_a_card_that_is_lost_meanwhile(tmp_path: Path) -> None:
    card = loaded(FakeCard(), 5)
    gauges = meter(tmp_path, LoadedNvml((card,)))
    assert gauges.read().vram_total == 24 * GIB
    card.total = -15  # NVML_ERROR_GPU_IS_LOST
    assert gauges.read().vram_total is None


def test_amd_card_and_apu(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path)
    machine.card(
        0,
        "0000:03:00.0",
        0x1002,
        0x744C,
        mem_info_vram_total=24 * GIB,
        mem_info_vram_used=6 * GIB,
        mem_info_gtt_total=16 * GIB,
        gpu_busy_percent=73,
    )
    reading = Meter(machine.roots, {}, no_nvml, system="linux").read()
    assert (reading.vram_used, reading.vram_total, reading.gpu_load) == (6 * GIB, 24 * GIB, 0.73)
    assert Meter(machine.roots, {}, no_nvml, system="win32").read().vram_total is None


def test_an_apu_has_no_vram_that_could_spill(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path)
    machine.card(
        0,
        "0000:c5:00.0",
        0x1002,
        0x1586,
        mem_info_vram_total=512 * MIB,
        mem_info_vram_used=512 * MIB,
        mem_info_gtt_total=64 * GIB,
        gpu_busy_percent=20,
    )
    reading = Meter(machine.roots, {}, no_nvml, system="linux").read()
    assert (reading.vram_used, reading.vram_total, reading.gpu_load) == (None, None, 0.2)


def test_ram_is_what_the_container_leaves(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path)
    machine.proc("self/cgroup", "0::/box")
    machine.cgroup("box/memory.max", 100 * MIB)
    machine.cgroup("box/memory.current", 60 * MIB)
    machine.cgroup("box/memory.stat", f"inactive_file {10 * MIB}")
    reading = Meter(machine.roots, {}, no_nvml, system="linux").read()
    assert (reading.ram_used, reading.ram_total) == (50 * MIB, 100 * MIB)
