"""AMD and Intel cards as Linux's sysfs shows them, and the whole snapshot on such machines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fake_machine import (
    GIB,
    MIB,
    FakeCard,
    FakeMachine,
    FakeNvml,
    engine,
    engine_device,
    no_nvml,
    write,
)

from specctl.hardware.budget import memory_budget, primary_device
from specctl.hardware.machine import Machine, take_snapshot

AMD, INTEL, NVIDIA = 0x1002, 0x8086, 0x10DE


def snapshot(fake: FakeMachine, nvml: Any = None, environ: Any = None, **more: Any) -> Machine:
    return take_snapshot(
        fake.roots,
        environ or {},
        system="linux",
        models=fake.roots.sys,
        affinity=[0, 1],
        load=lambda: nvml or no_nvml(),
        run=lambda _command: None,
        **more,
    )


def test_strix_halo_counts_vram_and_gtt(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.meminfo(124 * GIB, 110 * GIB)
    fake.card(
        1,
        "0000:c5:00.0",
        AMD,
        0x1586,
        mem_info_vram_total=512 * MIB,
        mem_info_vram_used=100 * MIB,
        mem_info_gtt_total=120 * GIB,
        mem_info_gtt_used=1 * GIB,
    )
    (device,) = snapshot(fake).devices
    assert device.memory_total == 512 * MIB + 120 * GIB
    # what GTT could map is more than the system has left
    assert device.memory_free == 412 * MIB + 110 * GIB
    assert device.unified
    assert device.integrated
    assert "8060S" in device.name
    assert device.bandwidth == 256e9
    budget, why = memory_budget(snapshot(fake), device)
    # a tenth of the RAM, 8 GiB at most, is the system's
    assert budget == 412 * MIB + 102 * GIB
    assert "unified" in why


def test_bios_split_that_gives_nearly_all_to_the_gpu(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.meminfo(31 * GIB, 25 * GIB)
    fake.card(
        0,
        "0000:c5:00.0",
        AMD,
        0x1586,
        mem_info_vram_total=96 * GIB,
        mem_info_vram_used=0,
        mem_info_gtt_total=16 * GIB,
        mem_info_gtt_used=2 * GIB,
    )
    machine = snapshot(fake)
    assert machine.devices[0].memory_free == 110 * GIB
    assert memory_budget(machine, machine.devices[0])[0] == 110 * GIB


def test_discrete_card_wins_over_the_integrated_one_and_gtt_is_not_vram(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.card(
        0,
        "0000:02:00.0",
        AMD,
        0x9999,
        mem_info_vram_total=512 * MIB,
        mem_info_vram_used=0,
        mem_info_gtt_total=90 * GIB,
        mem_info_gtt_used=0,
    )
    fake.pci("0000:02:00.2", 0x1022, 0x1649, base=0x10)  # the processor's security function
    fake.card(
        1,
        "0000:03:00.0",
        AMD,
        0x744C,
        mem_info_vram_total=24 * GIB,
        mem_info_vram_used=2 * GIB,
        mem_info_gtt_total=16 * GIB,
        mem_info_gtt_used=0,
    )
    fake.pci("0000:03:00.1", AMD, 0xAB30, base=0x04)
    write(
        fake.roots.share / "misc/pci.ids",
        "1001  Other\n1002  Advanced Micro Devices\n\t744b  X\n"
        "\t744c  Navi 31 [Radeon RX 7900 XT/7900 XTX/7900M]\n\t\t1002 0001  Sub\n1003  Next\n",
    )
    machine = snapshot(fake)
    assert [device.integrated for device in machine.devices] == [False, True]
    best = primary_device(machine)
    assert best is not None
    assert best.index == 0
    assert best.memory_total == 24 * GIB
    assert best.memory_free == 22 * GIB
    assert best.bandwidth == 960e9  # 24 GiB: the XTX of the three that share the id
    budget, why = memory_budget(machine, best)
    assert budget == 22 * GIB - 768 * MIB
    assert "22.0 GiB free" in why


def test_amd_without_its_driver_is_unknown_not_zero(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.pci("0000:03:00.0", AMD, 0x744C)
    machine = snapshot(fake)
    (device,) = machine.devices
    assert device.memory_total is None
    assert "--vram" in device.notes[0]
    assert memory_budget(machine, device)[0] is None


def test_little_vram_and_much_gtt_is_guessed_and_said(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.card(
        0,
        "0000:05:00.0",
        AMD,
        0x9998,
        mem_info_vram_total=512 * MIB,
        mem_info_gtt_total=8 * GIB,
    )
    (device,) = snapshot(fake).devices
    assert device.integrated
    assert "guessed" in " ".join(device.notes)


def test_two_arc_cards_of_xe(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    for number in (0, 1):
        fake.card(
            number,
            f"0000:0{number + 3}:00.0",
            INTEL,
            0xE20B,
            tile0__physical_vram_size_bytes=hex(12 * GIB),
        )
    machine = snapshot(fake)
    assert [device.memory_total for device in machine.devices] == [12 * GIB, 12 * GIB]
    assert [device.memory_free for device in machine.devices] == [None, None]
    budget, why = memory_budget(machine, machine.devices[1])
    assert budget == 11 * GIB
    assert "not told" in why


def test_tiles_of_one_card_add_up(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.card(
        0,
        "0000:03:00.0",
        INTEL,
        0x0BD5,
        tile0__physical_vram_size_bytes=64 * GIB,
        tile1__physical_vram_size_bytes=64 * GIB,
    )
    assert snapshot(fake).devices[0].memory_total == 128 * GIB


def test_i915_local_memory(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.card(0, "0000:03:00.0", INTEL, 0x56A0)
    fake.sys("class/drm/card0/lmem_total_bytes", 16 * GIB)
    assert snapshot(fake).devices[0].memory_total == 16 * GIB


def test_arc_of_unknown_size_asks_for_vram(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.card(0, "0000:03:00.0", INTEL, 0x56A0)
    machine = snapshot(fake)
    (device,) = machine.devices
    assert device.memory_total is None
    assert not device.unified
    budget, why = memory_budget(machine, device)
    assert budget is None
    assert "--vram" in why


def test_intel_processor_graphics_share_the_ram(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.card(0, "0000:00:02.0", INTEL, 0x9A49)
    (device,) = snapshot(fake).devices
    assert device.integrated
    assert device.memory_free == 24 * GIB
    assert device.bandwidth is None


def test_nvidia_card_without_its_driver_is_noticed(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.pci("0000:01:00.0", NVIDIA, 0x2684)
    machine = snapshot(fake)
    assert machine.devices == ()
    assert "0000:01:00.0" in machine.notes[0]
    hidden = snapshot(fake, FakeNvml((FakeCard(),)), {"CUDA_VISIBLE_DEVICES": ""})
    assert hidden.notes == ()
    assert [device.name for device in hidden.hidden] == ["NVIDIA GeForce RTX 3090"]


def test_monitor_outputs_are_no_cards(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.sys("class/drm/card0-HDMI-A-1/status", "connected")
    fake.sys("class/drm/renderD128/device/vendor", hex(AMD))
    assert snapshot(fake).devices == ()


def test_wsl_without_gpu_support(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.proc("version", "Linux version 5.15.0-microsoft-standard-WSL2")
    machine = snapshot(fake)
    assert machine.host.wsl
    assert "Windows" in machine.notes[0]
    write(fake.roots.wsl / "libnvidia-ml.so.1", "")
    assert snapshot(fake).notes == ()


def test_one_probe_that_crashes_hides_no_other(tmp_path: Path) -> None:
    class Hostile(FakeNvml):
        def nvmlDeviceGetCount(self) -> Any:  # noqa: N802
            return "many"

    fake = FakeMachine(tmp_path)
    fake.card(0, "0000:03:00.0", INTEL, 0x56A0, tile0__physical_vram_size_bytes=8 * GIB)
    machine = snapshot(fake, Hostile())
    assert [device.kind for device in machine.devices] == ["intel"]
    assert "NVIDIA" in machine.notes[0]
    assert any(probe.fell_back == "left out" for probe in machine.probes)


def test_nothing_at_all(tmp_path: Path) -> None:
    machine = take_snapshot(
        FakeMachine(tmp_path).roots,
        {},
        system="linux",
        models=tmp_path,
        load=lambda: "no module",
        run=lambda _command: None,
    )
    assert machine.devices == ()
    assert machine.engine is None
    assert machine.engine_reason == "not asked"


def test_data_sheet_wins_over_the_drivers_clocks_and_unlisted_cards_keep_them(
    tmp_path: Path,
) -> None:
    fake = FakeMachine(tmp_path)
    listed = snapshot(fake, FakeNvml((FakeCard(),))).devices[0]
    assert (listed.bandwidth, listed.bandwidth_source) == (936e9, "data sheet (RTX 3090)")
    odd = FakeCard(name="NVIDIA Something 9999", width=256, memory_clock=8000)
    unlisted = snapshot(fake, FakeNvml((odd,))).devices[0]
    assert unlisted.bandwidth == 256 / 8 * 8000e6 * 2
    assert unlisted.bandwidth_source.startswith("driver")


def test_mig_slice_does_not_get_the_whole_cards_bandwidth(tmp_path: Path) -> None:
    child = FakeCard(name="NVIDIA H200 MIG 1g.18gb", total=18 * GIB, free=GIB)
    parent = FakeCard(name="NVIDIA H200", total=-4, mig=(1, 1), slices=(child,))
    device = snapshot(FakeMachine(tmp_path), FakeNvml((parent,))).devices[0]
    assert device.bandwidth is None


# ---------------------------------------------------------------- the engine's own list


def test_engine_names_devices_by_pci(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.card(0, "0000:03:00.0", AMD, 0x744C, mem_info_vram_total=24 * GIB, mem_info_vram_used=0)
    facts = engine(
        ("Vulkan", "CPU"),
        (engine_device("Vulkan0", "AMD Radeon RX 7900 XTX (RADV NAVI31)", "0000:03:00.0"),),
    )
    (device,) = snapshot(fake, engine=facts).devices
    assert device.engine == "Vulkan0"
    assert device.name.startswith("AMD Radeon RX 7900 XTX")
    assert device.bandwidth == 960e9
    assert device.memory_total == 24 * GIB  # sysfs keeps the word on memory


def test_engine_knows_cudas_order(tmp_path: Path) -> None:
    cards = (
        FakeCard(name="NVIDIA GeForce RTX 3060", bus="0000:01:00.0", cores=9999, uuid="GPU-1"),
        FakeCard(name="NVIDIA GeForce RTX 3090", bus="0000:02:00.0", cores=1, uuid="GPU-2"),
    )
    fake = FakeMachine(tmp_path)
    guessed = snapshot(fake, FakeNvml(cards)).devices
    assert [device.uuid for device in guessed] == ["GPU-1", "GPU-2"]
    facts = engine(
        ("CUDA", "CPU"),
        (
            engine_device("CUDA0", "RTX 3090", "0000:02:00.0"),
            engine_device("CUDA1", "RTX 3060", "0000:01:00.0"),
        ),
    )
    told = snapshot(fake, FakeNvml(cards), engine=facts).devices
    assert [(device.uuid, device.engine) for device in told] == [
        ("GPU-2", "CUDA0"),
        ("GPU-1", "CUDA1"),
    ]
    assert [device.index for device in told] == [0, 1]


def test_engine_fills_in_an_unknown_size(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.card(0, "0000:03:00.0", INTEL, 0x56A0)
    listed = engine_device(
        "SYCL0", "Intel(R) Arc(TM) A770 Graphics", "0000:03:00.0", total=16 * GIB
    )
    (device,) = snapshot(fake, engine=engine(("SYCL", "CPU"), (listed,))).devices
    assert device.memory_total == 16 * GIB
    assert device.bandwidth == 560e9


def test_gpu_that_only_the_engine_sees_is_listed(tmp_path: Path) -> None:
    facts = engine(
        ("Vulkan", "RPC", "CPU"),
        (
            engine_device("Vulkan0", "AMD Radeon 780M", kind="igpu"),
            engine_device("RPC0", "10.0.0.1:50052"),
            engine_device("CPU", "AMD", kind="cpu"),
        ),
    )
    (device,) = snapshot(FakeMachine(tmp_path), engine=facts).devices
    assert (device.kind, device.engine, device.integrated) == ("amd", "Vulkan0", True)
