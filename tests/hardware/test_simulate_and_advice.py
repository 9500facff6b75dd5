"""--vram, --ram, --gpu; budgets on several cards; the line about an idle GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fake_machine import GIB, MIB, FakeCard, FakeMachine, FakeNvml, engine, engine_device

from specctl.errors import UsageError
from specctl.hardware.advice import engine_advice, install_command
from specctl.hardware.budget import memory_budget, primary_device
from specctl.hardware.device import Device
from specctl.hardware.machine import Machine, take_snapshot
from specctl.hardware.simulate import simulate
from specctl.hardware.windows import read_windows, registry_adapters

BIG = FakeCard(free=9 * GIB, compute=((5, 15 * GIB),), uuid="GPU-big", bus="0000:02:00.0")
SMALL = FakeCard(
    name="NVIDIA GeForce RTX 4060",
    total=8 * GIB,
    free=7 * GIB,
    uuid="GPU-small",
    bus="0000:01:00.0",
)


@pytest.fixture
def plain(tmp_path: Path) -> Machine:
    return _machine(tmp_path)


@pytest.fixture
def two(tmp_path: Path) -> Machine:
    return _machine(tmp_path, BIG, SMALL)


def _machine(tmp_path: Path, *cards: FakeCard, **more: Any) -> Machine:
    nvml = FakeNvml(cards, names={5: "/usr/bin/ollama"}, init_error=0 if cards else 12)
    more.setdefault("system", "linux")
    return take_snapshot(
        FakeMachine(tmp_path).roots,
        {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
        models=tmp_path,
        affinity=[0],
        load=lambda: nvml,
        run=lambda _command: None,
        **more,
    )


# ---------------------------------------------------------------- budgets


def test_budget_is_what_is_free_minus_headroom_and_says_by_whom(two: Machine) -> None:
    best = primary_device(two)
    assert best is not None
    assert best.uuid == "GPU-big"
    budget, why = memory_budget(two, best)
    assert budget == 9 * GIB - 768 * MIB
    assert "9.0 GiB free − 768.0 MiB headroom" in why
    assert "15.0 GiB in use by ollama" in why


def test_unlike_cards_are_never_added_up(two: Machine) -> None:
    budgets = [memory_budget(two, device)[0] or 0 for device in two.devices]
    assert budgets == [7 * GIB - 512 * MIB, 9 * GIB - 768 * MIB]


def test_windows_keeps_more_free(tmp_path: Path) -> None:
    linux, windows = (
        _machine(tmp_path, SMALL, system=system, registry=tuple) for system in ("linux", "win32")
    )
    here, there = (memory_budget(machine, machine.devices[0])[0] for machine in (linux, windows))
    assert (here or 0) - (there or 0) == 512 * MIB


def test_full_card_has_no_negative_budget(tmp_path: Path) -> None:
    machine = _machine(tmp_path, FakeCard(free=50 * MIB))
    assert memory_budget(machine, machine.devices[0])[0] == 0


# ---------------------------------------------------------------- simulate


def test_nothing_asked_is_the_machine_itself(two: Machine) -> None:
    assert simulate(two) is two


def test_vram_alone_is_a_card_of_that_size_with_the_median_bandwidth(plain: Machine) -> None:
    machine = simulate(plain, vram=16 * GIB)
    (device,) = machine.devices
    assert machine.simulated
    assert machine.overrides == ("--vram 16.0 GiB",)
    assert device.memory_free == 16 * GIB
    assert "median" in device.bandwidth_source
    assert memory_budget(machine, device)[0] == 16 * GIB - 512 * MIB


def test_vram_within_the_own_card_keeps_it(two: Machine) -> None:
    (device,) = simulate(two, vram=24 * GIB).devices
    assert (device.name, device.memory_free) == ("NVIDIA GeForce RTX 3090", 24 * GIB)
    assert device.bandwidth == 936e9
    assert device.used_by == ()
    (other,) = simulate(two, vram=48 * GIB).devices
    assert other.kind == "gpu"


def test_vram_tells_a_size_the_driver_did_not(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.card(0, "0000:03:00.0", 0x8086, 0x56A0)
    listed = engine_device("SYCL0", "Intel Arc A770", "0000:03:00.0", total=0)
    machine = take_snapshot(
        fake.roots,
        {},
        system="linux",
        models=tmp_path,
        load=lambda: "none",
        run=lambda _command: None,
        engine=engine(("SYCL",), (listed,)),
    )
    assert machine.devices[0].memory_total is None
    (device,) = simulate(machine, vram=16 * GIB).devices
    assert (device.name, device.bandwidth) == ("Intel Arc A770", 560e9)


def test_vram_zero_takes_the_gpus_away(two: Machine) -> None:
    machine = simulate(two, vram=0)
    assert machine.devices == ()
    assert machine.simulated


def test_gpu_by_index_by_own_name_and_by_table(two: Machine) -> None:
    by_index = simulate(two, gpu="1")
    assert [device.uuid for device in by_index.devices] == ["GPU-big"]
    assert by_index.devices[0].index == 0
    assert by_index.devices[0].memory_free == 9 * GIB
    assert by_index.simulated
    assert simulate(two, gpu="4060").devices[0].uuid == "GPU-small"
    (listed,) = simulate(two, gpu="rx 7900 xtx").devices
    assert (listed.kind, listed.memory_total, listed.bandwidth) == ("amd", 24 * GIB, 960e9)


def test_gpu_with_several_sizes_wants_one(plain: Machine) -> None:
    with pytest.raises(UsageError, match="8, 16 GiB") as caught:
        simulate(plain, gpu="5060 ti")
    assert "--vram" in (caught.value.hint or "")
    (device,) = simulate(plain, gpu="5060 ti", vram=16 * GIB).devices
    assert (device.name, device.memory_total) == ("RTX 5060 Ti", 16 * GIB)
    (ten,) = simulate(plain, gpu="3080", vram=10 * GIB).devices
    assert ten.bandwidth == 760e9


def test_named_card_keeps_its_name_whatever_the_size(plain: Machine) -> None:
    (device,) = simulate(plain, gpu="4090", vram=48 * GIB).devices
    assert (device.name, device.memory_total, device.bandwidth) == ("RTX 4090", 48 * GIB, 1008e9)


@pytest.mark.parametrize("gpu", ["7", "99", "rtx4091", "h100", "", "  ", "-1", "[x"])
def test_gpu_that_cannot_be_meant(gpu: str, plain: Machine) -> None:
    with pytest.raises(UsageError) as caught:
        simulate(plain, gpu=gpu)
    assert caught.value.exit_code == 2
    assert caught.value.hint


def test_simulated_mac_has_one_memory(plain: Machine) -> None:
    machine = simulate(plain, gpu="m3 max", vram=64 * GIB)
    (device,) = machine.devices
    assert machine.host.ram_total == 64 * GIB
    assert device.memory_total == 48 * GIB
    assert memory_budget(machine, device)[0] == 48 * GIB
    tight = simulate(plain, gpu="8060s", vram=64 * GIB)
    budget = memory_budget(tight, tight.devices[0])[0]
    assert budget == 64 * GIB - 64 * GIB // 10


def test_ram(plain: Machine) -> None:
    machine = simulate(plain, ram=64 * GIB)
    assert machine.simulated
    assert memory_budget(machine, None)[0] == 64 * GIB - 64 * GIB // 10


@pytest.mark.parametrize("sizes", [{"vram": 1 << 60}, {"ram": 1}, {"ram": 1 << 60}, {"vram": -1}])
def test_sizes_that_make_no_sense(sizes: dict[str, int], plain: Machine) -> None:
    with pytest.raises(UsageError, match="makes no sense"):
        simulate(plain, **sizes)


# ---------------------------------------------------------------- idle GPUs


def test_cpu_build_beside_a_gpu_is_said_in_one_line_with_the_command(tmp_path: Path) -> None:
    lines = engine_advice(_machine(tmp_path, FakeCard(), engine=engine()))
    assert lines == (
        "NVIDIA GeForce RTX 3090 is idle: this llama-cpp-python build has no GPU backend for it",
        'CMAKE_ARGS="-DGGML_CUDA=on" pip install --force-reinstall --no-cache-dir llama-cpp-python',
    )


def test_missing_engine_beside_a_gpu(tmp_path: Path) -> None:
    reason = "llama-cpp-python is not installed"
    lines = engine_advice(_machine(tmp_path, FakeCard(), engine=reason))
    assert reason in lines[0]
    assert "GGML_CUDA" in lines[1]


def test_engine_not_asked_accuses_nobody(tmp_path: Path) -> None:
    assert engine_advice(_machine(tmp_path, FakeCard())) == ()


def test_used_gpu_is_no_news(tmp_path: Path) -> None:
    facts = engine(("CUDA", "CPU"), (engine_device("CUDA0", "RTX 3090", "0000:01:00.0"),))
    assert engine_advice(_machine(tmp_path, FakeCard(), engine=facts)) == ()


def test_backend_without_a_device_is_not_told_to_reinstall(tmp_path: Path) -> None:
    lines = engine_advice(_machine(tmp_path, FakeCard(), engine=engine(("CUDA", "CPU"))))
    assert len(lines) == 1
    assert "CUDA, which finds no usable device" in lines[0]


def test_simulated_gpu_is_not_idle(tmp_path: Path) -> None:
    machine = simulate(_machine(tmp_path, engine=engine()), gpu="4090")
    assert engine_advice(machine) == ()


@pytest.mark.parametrize(
    ("device", "system", "words"),
    [
        (Device("nvidia", 0, "x"), "linux", 'CMAKE_ARGS="-DGGML_CUDA=on" pip'),
        (Device("nvidia", 0, "x"), "win32", "$env:CMAKE_ARGS='-DGGML_CUDA=on'; pip"),
        (Device("amd", 0, "x"), "linux", "-DGGML_HIP=on"),
        (Device("amd", 0, "x", integrated=True), "linux", "-DGGML_VULKAN=on"),
        (Device("amd", 0, "x"), "win32", "-DGGML_VULKAN=on"),
        (Device("intel", 0, "x"), "linux", "-DGGML_SYCL=on"),
        (Device("apple", 0, "x", integrated=True), "darwin", "-DGGML_METAL=on"),
    ],
)
def test_install_command_per_gpu(device: Device, system: str, words: str) -> None:
    command = install_command(device, system)
    assert words in command
    assert command.endswith("--force-reinstall --no-cache-dir llama-cpp-python")


# ---------------------------------------------------------------- Windows' registry


def test_windows_cards(tmp_path: Path) -> None:
    adapters = (
        ("AMD Radeon RX 7900 XTX", 24 * GIB, 0xFFF00000),
        ("AMD Radeon RX 6800", None, 0xFFF00000),
        ("AMD Radeon RX 550", None, 2 * GIB),
        ("Intel(R) Arc(TM) B580 Graphics", 12 * GIB, None),
        ("NVIDIA GeForce RTX 3090", 24 * GIB, None),
        ("Microsoft Basic Render Driver", None, None),
    )
    machine = _machine(tmp_path, system="win32", registry=lambda: adapters)
    sizes = {device.name: device.memory_total for device in machine.devices}
    assert sizes == {
        "AMD Radeon RX 7900 XTX": 24 * GIB,
        "AMD Radeon RX 6800": None,  # the 32-bit value stops at 4 GiB: not a size
        "AMD Radeon RX 550": 2 * GIB,
        "Intel(R) Arc(TM) B580 Graphics": 12 * GIB,
    }
    assert machine.devices[0].bandwidth == 960e9
    assert read_windows.__doc__
    assert isinstance(registry_adapters(), tuple)
