"""CPU, RAM and container limits from fake /proc, /sys and cgroup folders; Apple through sysctl."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil
import pytest
from fake_machine import GIB, MIB, FakeMachine, no_nvml
from hypothesis import given
from hypothesis import strategies as st

from specctl.hardware.budget import memory_budget
from specctl.hardware.cgroup import read_limits
from specctl.hardware.device import Roots, Trail
from specctl.hardware.host import Host, cache_bytes, read_host, usable_cores
from specctl.hardware.machine import Machine, take_snapshot


def _host(fake: FakeMachine, affinity: Sequence[int] = (0, 1, 2, 3)) -> Host:
    return read_host(fake.roots, Trail(), fake.roots.sys, "linux", affinity=affinity)


@pytest.fixture
def fake(tmp_path: Path) -> FakeMachine:
    machine = FakeMachine(tmp_path)
    machine.cpus(["0", "1", "2", "3"])
    return machine


# ---------------------------------------------------------------- cgroups


def test_v2_smallest_limit_on_the_way_up_holds(fake: FakeMachine) -> None:
    fake.proc("self/cgroup", "0::/user.slice/app")
    fake.cgroup("user.slice/app/cpu.max", "max 100000")
    fake.cgroup("user.slice/cpu.max", "250000 100000")
    fake.cgroup("cpu.max", "800000 100000")
    fake.cgroup("user.slice/app/memory.max", 8 * GIB)
    fake.cgroup("user.slice/app/memory.current", 3 * GIB)
    fake.cgroup("user.slice/app/memory.stat", f"anon 5\ninactive_file {1 * GIB}")
    fake.cgroup("user.slice/memory.max", "max")
    host = _host(fake)
    assert host.cpu_quota == 2.5
    assert usable_cores(host) == 2
    assert host.ram_limit == 8 * GIB
    assert host.ram_available == 6 * GIB  # 8 minus 3 in use, of which 1 can be dropped
    assert host.ram_total == 32 * GIB


def test_v2_in_a_container_whose_path_is_the_hosts(fake: FakeMachine) -> None:
    fake.proc("self/cgroup", "0::/docker/abcdef")
    fake.cgroup("cpu.max", "150000 100000")
    fake.cgroup("memory.max", 2 * GIB)
    host = _host(fake)
    assert host.cpu_quota == 1.5
    assert usable_cores(host) == 1
    assert host.ram_available == 2 * GIB


def test_v1(fake: FakeMachine) -> None:
    fake.proc("self/cgroup", "5:memory:/job\n3:cpu,cpuacct:/job\n1:name=systemd:/x")
    fake.cgroup("cpu/job/cpu.cfs_quota_us", 300000)
    fake.cgroup("cpu/job/cpu.cfs_period_us", 100000)
    fake.cgroup("memory/job/memory.limit_in_bytes", 4 * GIB)
    fake.cgroup("memory/job/memory.usage_in_bytes", 1 * GIB)
    fake.cgroup("memory/job/memory.stat", f"cache 1\ntotal_inactive_file {512 * MIB}")
    host = _host(fake)
    assert host.cpu_quota == 3
    assert usable_cores(host) == 3
    assert host.ram_available == 4 * GIB - 512 * MIB


def test_v1_without_limits(fake: FakeMachine) -> None:
    fake.proc("self/cgroup", "4:memory:/job\n1:cpu:/")
    fake.cgroup("cpu/cpu.cfs_quota_us", -1)
    fake.cgroup("cpu/cpu.cfs_period_us", 100000)
    fake.cgroup("memory/job/memory.limit_in_bytes", 9223372036854771712)
    fake.cgroup("memory/job/memory.usage_in_bytes", 1)
    host = _host(fake)
    assert host.cpu_quota is None
    assert host.ram_limit is None
    assert host.ram_available == 24 * GIB
    assert read_limits(fake.roots, Trail()).memory is None


def test_limit_above_the_ram_is_no_limit(fake: FakeMachine) -> None:
    fake.proc("self/cgroup", "0::/")
    fake.cgroup("memory.max", 500 * GIB)
    fake.cgroup("memory.current", 0)
    assert _host(fake).ram_limit is None
    assert _host(fake).ram_available == 24 * GIB


def test_group_path_cannot_leave_the_mount(fake: FakeMachine, tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text("100000 100000")
    (tmp_path / "cgroup").mkdir(exist_ok=True)
    fake.proc("self/cgroup", "0::/../..")
    assert _host(fake).cpu_quota is None


@given(st.text(max_size=80), st.text(max_size=20), st.text(max_size=20))
def test_any_cgroup_text_is_survived(
    tmp_path_factory: pytest.TempPathFactory, group: str, cpu: str, memory: str
) -> None:
    fake = FakeMachine(tmp_path_factory.mktemp("cgroup"))
    fake.proc("self/cgroup", group.replace("\0", ""))
    fake.cgroup("cpu.max", cpu)
    fake.cgroup("memory.max", memory)
    limits = read_limits(fake.roots, Trail())
    assert limits.cpus is None or limits.cpus >= 0


# ---------------------------------------------------------------- CPU


def test_physical_cores_not_threads(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.cpus(["0,4", "1,5", "2,6", "3,7", "0,4", "1,5", "2,6", "3,7"])
    host = _host(fake, range(8))
    assert (host.logical_cpus, host.physical_cores) == (8, 4)
    assert usable_cores(host) == 4
    pinned = _host(fake, [0, 4, 1])
    assert pinned.allowed_cpus == 3
    assert usable_cores(pinned) == 2


def test_only_the_fast_cores_of_two_kinds(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.cpus(["0-1", "0-1", "2-3", "2-3", "4", "5", "6", "7"], fast="0-3")
    host = _host(fake, range(8))
    assert (host.physical_cores, host.performance_cores) == (6, 2)
    assert usable_cores(host) == 2


def test_pinned_to_slow_cores_still_has_cores(tmp_path: Path) -> None:
    fake = FakeMachine(tmp_path)
    fake.cpus(["0-1", "0-1", "2", "3"], fast="0-1")
    assert usable_cores(_host(fake, [2, 3])) == 2


def test_names_and_instruction_sets(fake: FakeMachine) -> None:
    fake.proc(
        "cpuinfo",
        "processor\t: 0\nmodel name\t: AMD  Ryzen 9\nflags\t\t: fpu avx avx2 fma avx512f\n\n"
        "processor\t: 1\nmodel name\t: other\n",
    )
    host = _host(fake)
    assert host.cpu == "AMD Ryzen 9"
    assert host.isa == ("avx", "avx2", "fma", "avx512")


def test_arm_board_named_by_its_device_tree(fake: FakeMachine) -> None:
    fake.proc("cpuinfo", "processor\t: 0\nFeatures\t: fp asimd asimddp i8mm sve\n")
    fake.proc("device-tree/model", "Raspberry Pi 5\0")
    host = _host(fake)
    assert host.cpu == "Raspberry Pi 5"
    assert host.isa == ("neon", "dotprod", "i8mm", "sve")


def test_no_proc_at_all_falls_back(tmp_path: Path) -> None:
    trail = Trail()
    bare = Roots(tmp_path / "a", tmp_path / "b", tmp_path / "c", tmp_path / "d", tmp_path / "e")
    host = read_host(bare, trail, tmp_path / "not" / "there", "linux")
    assert host.ram_total == psutil.virtual_memory().total
    assert host.physical_cores >= 1
    assert host.disk_free is not None
    assert sum(probe.fell_back is not None for probe in trail.probes) >= 4


def test_cache_sizes(fake: FakeMachine) -> None:
    fake.sys("devices/system/cpu/cpu0/cache/index0/size", "48K")
    fake.sys("devices/system/cpu/cpu0/cache/index3/size", "32M")
    assert cache_bytes(fake.roots) == 32 * MIB
    assert cache_bytes(Roots(sys=Path("/nowhere"))) is None


@pytest.mark.skipif(sys.platform != "linux", reason="reads this machine's /proc")
def test_this_machine_agrees_with_psutil(tmp_path: Path) -> None:
    host = read_host(Roots(), Trail(), tmp_path)
    assert host.ram_total == psutil.virtual_memory().total
    assert host.logical_cpus == psutil.cpu_count()
    assert host.physical_cores <= (psutil.cpu_count(logical=False) or 1)
    assert 1 <= usable_cores(host) <= host.allowed_cpus
    assert host.disk_free == pytest.approx(psutil.disk_usage(str(tmp_path)).free, rel=0.05)


# ---------------------------------------------------------------- budgets of the host


def _machine(fake: FakeMachine) -> Machine:
    return Machine(host=_host(fake))


def test_host_budget_leaves_a_tenth(fake: FakeMachine) -> None:
    budget, why = memory_budget(_machine(fake), None)
    assert budget == 24 * GIB - 32 * GIB // 10
    assert "24.0 GiB available − 3.2 GiB headroom" in why


def test_small_container_keeps_most_of_its_memory(fake: FakeMachine) -> None:
    fake.proc("self/cgroup", "0::/")
    fake.cgroup("memory.max", 2 * GIB)
    budget, why = memory_budget(_machine(fake), None)
    assert budget == 2 * GIB - 512 * MIB
    assert "container limit 2.0 GiB" in why


# ---------------------------------------------------------------- Apple


def _mac(fake: FakeMachine, sysctl: Mapping[str, str]) -> Machine:
    def run(command: Sequence[str]) -> str | None:
        return sysctl.get(command[-1])

    return take_snapshot(
        fake.roots, {}, system="darwin", models=fake.roots.proc, load=no_nvml, run=run
    )


M3 = {
    "hw.optional.arm64": "1\n",
    "machdep.cpu.brand_string": "Apple M3 Max\n",
    "hw.memsize": f"{48 * GIB}\n",
    "hw.physicalcpu": "16\n",
    "hw.perflevel0.physicalcpu": "12\n",
}


@pytest.mark.parametrize("override", [{}, {"iogpu.wired_limit_mb": "0\n"}])
def test_working_set_is_estimated_and_said(
    fake: FakeMachine, override: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _available(monkeypatch, 44 * GIB)
    machine = _mac(fake, {**M3, **override})
    (device,) = machine.devices
    assert device.memory_total == 36 * GIB
    assert device.unified
    assert "estimate" in device.notes[0]
    assert device.bandwidth == 400e9
    budget, _ = memory_budget(machine, device)
    assert budget is not None
    assert budget < 42.7e9  # a 42.7 GB model does not fit a 48 GB Mac
    assert usable_cores(machine.host) == 12


def test_small_mac_two_thirds(fake: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    _available(monkeypatch, 16 * GIB)
    (device,) = _mac(fake, {**M3, "hw.memsize": str(16 * GIB)}).devices
    assert device.memory_total == int(16 * GIB * 2 / 3)


def test_wired_limit_override(fake: FakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    _available(monkeypatch, 20 * GIB)
    (device,) = _mac(fake, {**M3, "iogpu.wired_limit_mb": "26000\n"}).devices
    assert device.memory_total == 26000 * MIB
    assert device.memory_free == 20 * GIB
    assert "iogpu.wired_limit_mb" in device.notes[0]


def test_intel_mac_has_no_such_gpu(fake: FakeMachine) -> None:
    assert _mac(fake, {"hw.memsize": str(16 * GIB)}).devices == ()


def test_mac_that_tells_nothing(fake: FakeMachine) -> None:
    (device,) = _mac(fake, {"hw.optional.arm64": "1"}).devices
    assert device.memory_total is None
    assert "--vram" in device.notes[0]


def _available(monkeypatch: pytest.MonkeyPatch, available: int) -> None:
    real = psutil.virtual_memory()
    monkeypatch.setattr(psutil, "virtual_memory", lambda: real._replace(available=available))
