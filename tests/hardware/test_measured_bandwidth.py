"""Bandwidth that was measured: remembered, dated, of this hardware, and above the table."""

from __future__ import annotations

import datetime
import json
import sys
from pathlib import Path

import pytest
from fake_machine import GIB, MIB, FakeCard, FakeMachine, FakeNvml

from specctl.errors import SpecctlError
from specctl.hardware.machine import Machine, measure_host, take_snapshot
from specctl.hardware.measured import HOST, key_of, recall, remember
from specctl.hardware.stream import array_bytes, stream_test
from specctl.paths import data_dir


def _snapshot(tmp_path: Path, cpu: str = "CPU A") -> Machine:
    fake = FakeMachine(tmp_path / "machine")
    fake.proc("cpuinfo", f"model name : {cpu}\nflags : avx2\n")
    nvml = FakeNvml((FakeCard(),))
    return take_snapshot(
        fake.roots, {}, system="linux", models=tmp_path, affinity=[0], load=lambda: nvml
    )


def test_a_measured_value_wins_over_the_table(tmp_path: Path) -> None:
    device = _snapshot(tmp_path).devices[0]
    assert device.bandwidth == 936e9
    remember(key_of(device), device.name, 800e9, "decode of 4 GiB")
    again = _snapshot(tmp_path).devices[0]
    assert again.bandwidth == 800e9
    today = datetime.date.today().isoformat()
    assert again.bandwidth_source == f"measured {today}: decode of 4 GiB"


def test_stream_test_is_remembered_for_this_cpu_only(tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    machine = _snapshot(tmp_path)
    assert machine.host.bandwidth is None
    measured = measure_host(machine, size=3 * MIB, passes=2)
    assert measured.host.bandwidth is not None
    assert measured.host.bandwidth > 1e8
    assert "bytes read + bytes written" in measured.host.bandwidth_source
    assert _snapshot(tmp_path).host.bandwidth == measured.host.bandwidth
    assert _snapshot(tmp_path, "CPU B").host.bandwidth is None


def test_rates_are_bytes_over_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numpy")
    times = iter([0.0, 9.0, 10.0, 10.5, 20.0, 20.25, 0.0, 9.0, 10.0, 12.0, 20.0, 21.0])
    monkeypatch.setattr("specctl.hardware.stream.time.perf_counter", lambda: next(times))
    done = stream_test(threads=1, size=3 * 4 * 1000_000, passes=2)
    assert done.size == 12_000_000
    assert done.copy == 2 * 4e6 / 0.25  # the best pass, the warm-up of 9 s is not it
    assert done.triad == 5 * 4e6 / 1.0
    assert done.best == done.copy
    assert "best of 2" in done.how


def test_threads_share_the_arrays() -> None:
    pytest.importorskip("numpy")
    done = stream_test(threads=2, size=6 * MIB, passes=1)
    assert done.threads == 2
    assert done.size == 6 * MIB


def test_without_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    with pytest.raises(SpecctlError, match="numpy") as caught:
        stream_test(1, MIB)
    assert "pip install" in (caught.value.hint or "")


def test_arrays_are_beyond_the_cache_and_within_the_memory() -> None:
    assert array_bytes(64 * GIB, 32 * MIB) == 256 * MIB
    assert array_bytes(64 * GIB, 400 * MIB) == 1600 * MIB
    assert array_bytes(64 * GIB, None) == 256 * MIB
    assert array_bytes(1 * GIB, 400 * MIB) == 256 * MIB
    assert array_bytes(640 * GIB, 4 * GIB) == 2 * GIB


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not json",
        "[]",
        '{"schema": 99, "bandwidth": {"host": {"bytes_per_second": 1}}}',
        '{"schema": 1, "bandwidth": []}',
        '{"schema": 1, "bandwidth": {"host": 7}}',
        '{"schema": 1, "bandwidth": {"host": {"bytes_per_second": "x"}}}',
        '{"schema": 1, "bandwidth": {"host": '
        '{"bytes_per_second": -5, "how": "", "date": "", "of": "CPU"}}}',
        '{"schema": 1, "bandwidth": {"host": '
        '{"bytes_per_second": NaN, "how": "", "date": "", "of": "CPU"}}}',
    ],
)
def test_a_damaged_file_is_forgotten_and_replaced(text: str) -> None:
    path = data_dir() / "machine.json"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert recall(HOST, "CPU") is None
    remember(HOST, "CPU", 5e9, "test")
    found = recall(HOST, "CPU")
    assert found is not None
    assert found.bytes_per_second == 5e9
    assert json.loads(path.read_text())["schema"] == 1
    assert [entry.name for entry in path.parent.iterdir()] == ["machine.json"]


def test_other_entries_stay() -> None:
    remember("GPU-1", "card", 1e12, "a")
    remember(HOST, "CPU", 5e9, "b")
    assert recall("GPU-1", "card") is not None
    assert recall("GPU-1", "another card") is None


def test_folder_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("")
    monkeypatch.setenv("SPECCTL_HOME", str(blocker))
    with pytest.raises(SpecctlError, match=r"machine\.json"):
        remember(HOST, "CPU", 5e9, "b")
