"""NVIDIA: every way in which NVML fails somewhere, and what is made of it."""

from __future__ import annotations

import sys
import types
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from fake_machine import GIB, FakeCard, FakeMachine, FakeNvml, no_nvml, write

from specctl.hardware.cudaorder import Selection
from specctl.hardware.device import SystemMemory, Trail, normal_pci
from specctl.hardware.nvidia import load_nvml, read_nvidia

MEMORY = SystemMemory(total=122 * GIB, available=60 * GIB)


def _nothing(_command: Sequence[str]) -> str | None:
    return None


def _read(
    nvml: Any, tmp_path: Path, environ: Mapping[str, str] | None = None, run: Any = _nothing
) -> tuple[Selection, Trail]:
    trail, machine = Trail(), FakeMachine(tmp_path)
    got = read_nvidia(trail, MEMORY, environ or {}, machine.roots, lambda: nvml, run)
    return got, trail


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (9, "not loaded"),
        (18, "reboot needed"),
        (999, "unknown error"),
        (4, "refuses"),
        (15, "does not start"),
    ],
)
def test_failing_driver_is_one_calm_line(code: int, words: str, tmp_path: Path) -> None:
    got, trail = _read(FakeNvml(init_error=code), tmp_path)
    assert got == Selection(())
    assert len(trail.notes) == 1
    assert words in trail.notes[0]
    assert trail.probes[0].fell_back == "nvidia-smi"


def test_no_driver_library_is_no_news(tmp_path: Path) -> None:
    got, trail = _read(no_nvml(), tmp_path)
    assert got.visible == ()
    assert trail.notes == []
    assert "no NVIDIA driver library" in trail.probes[0].said


def test_missing_module(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    reason = load_nvml()
    assert isinstance(reason, str)
    assert "pip install nvidia-ml-py" in reason
    got, trail = _read(reason, tmp_path)
    assert got.visible == ()
    assert "pip install nvidia-ml-py" in trail.notes[0]


def test_module_that_breaks_or_warns_while_loading(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    write(tmp_path / "pynvml.py", "raise RuntimeError('boom')")
    reason = load_nvml()
    assert isinstance(reason, str)
    assert "boom" in reason
    write(tmp_path / "pynvml.py", "import warnings\nwarnings.warn('old', FutureWarning)\nx = 1")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load_nvml().x == 1
    sys.modules.pop("pynvml", None)


def test_other_package_of_that_name(tmp_path: Path) -> None:
    other = types.ModuleType("pynvml")
    other.__file__ = "/somewhere/pynvml/__init__.py"
    got, trail = _read(other, tmp_path)
    assert got.visible == ()
    assert "/somewhere/pynvml/__init__.py" in trail.notes[0]
    assert "nvidia-ml-py" in trail.notes[0]


def test_plain_card(tmp_path: Path) -> None:
    nvml = FakeNvml(
        (
            FakeCard(
                free=9 * GIB,
                compute=((7, 12 * GIB), (8, None)),
                graphics=((7, GIB), (9, GIB), (9, 2 * GIB)),
            ),
        ),
        names={7: b"/usr/bin/ollama\0junk", 8: "other", 9: "Xorg"},
    )
    got, trail = _read(nvml, tmp_path)
    (device,) = got.visible
    assert (device.name, device.pci) == ("NVIDIA GeForce RTX 3090", "0000:01:00.0")
    assert (device.memory_total, device.memory_free) == (24 * GIB, 9 * GIB)
    assert device.driver == "580.95"
    assert not device.unified
    users = [(user.pid, user.name, user.memory) for user in device.used_by]
    assert users == [(7, "/usr/bin/ollama", 12 * GIB), (9, "Xorg", 2 * GIB), (8, "other", None)]
    # 384 bit / 8 x 9751 MHz x 2: the 936 GB/s of the data sheet
    assert device.bandwidth == pytest.approx(936.1e9, rel=1e-3)
    assert "estimate" in device.bandwidth_source
    assert nvml.shut_down
    assert trail.notes == []


@pytest.mark.parametrize("nothing", [-3, 0, (1 << 64) - 1, -13])
def test_unified_memory_counts_what_is_available(nothing: int, tmp_path: Path) -> None:
    card = FakeCard(name="NVIDIA GB10", total=nothing, free=0)
    got, trail = _read(FakeNvml((card,)), tmp_path)
    (device,) = got.visible
    assert device.name == "NVIDIA GB10"
    assert device.unified
    assert device.memory_free == 60 * GIB
    assert "estimate" in device.notes[0]
    assert any("unified" in (probe.fell_back or "") for probe in trail.probes)


def test_names_in_bytes(tmp_path: Path) -> None:
    card = FakeCard(name=b"Tesla T4", uuid=b"GPU-x", bus=b"0000:3B:00.0", total=15 * GIB, free=GIB)
    got, _ = _read(FakeNvml((card,), driver=b"535.1"), tmp_path)
    (device,) = got.visible
    assert (device.name, device.uuid, device.pci) == ("Tesla T4", "GPU-x", "0000:3b:00.0")
    assert device.driver == "535.1"


def test_mig_children_speak_for_a_parent_that_refuses(tmp_path: Path) -> None:
    child = FakeCard(
        name="NVIDIA A100-SXM4-40GB MIG 2g.10gb", uuid="MIG-1", total=10 * GIB, free=9 * GIB
    )
    parent = FakeCard(name="NVIDIA A100-SXM4-40GB", total=-4, mig=(1, 1), slices=(child,))
    got, _ = _read(FakeNvml((parent,)), tmp_path)
    (device,) = got.visible
    assert (device.uuid, device.memory_total, device.memory_free) == ("MIG-1", 10 * GIB, 9 * GIB)
    assert device.pci == "0000:01:00.0"


def test_mig_mode_refused_too(tmp_path: Path) -> None:
    child = FakeCard(name="slice", uuid="MIG-1", total=5 * GIB, free=GIB)
    parent = FakeCard(name="NVIDIA H100", total=-4, mig=-4, slices=(child,))
    got, _ = _read(FakeNvml((parent,)), tmp_path)
    assert [device.name for device in got.visible] == ["NVIDIA H100 MIG slice 0"]


def test_split_card_that_tells_its_memory_is_still_split(tmp_path: Path) -> None:
    slices = tuple(FakeCard(uuid=f"MIG-{n}", total=5 * GIB, free=5 * GIB) for n in range(2))
    got, _ = _read(FakeNvml((FakeCard(mig=(1, 1), slices=slices),)), tmp_path)
    assert [device.memory_total for device in got.visible] == [5 * GIB, 5 * GIB]
    assert any("one MIG slice" in note for note in got.notes)


def test_refused_memory_without_slices_is_unknown_not_zero(tmp_path: Path) -> None:
    got, _ = _read(FakeNvml((FakeCard(total=-4, mig=-3),)), tmp_path)
    (device,) = got.visible
    assert device.memory_total is None
    assert "memory not told" in device.notes[0]


def test_everything_else_refused(tmp_path: Path) -> None:
    bare = FakeCard(name=-999, uuid=-999, mig=-999, width=-3, cores=-3, memory_clock=-3, clock=-3)
    lost = FakeCard(handle_error=15)
    got, trail = _read(FakeNvml((lost, bare)), tmp_path)
    (device,) = got.visible
    assert "not told" in device.name
    assert device.uuid is None
    assert device.bandwidth is None
    assert any(probe.fell_back == "left out" for probe in trail.probes)


def test_functions_missing_from_an_old_module(tmp_path: Path) -> None:
    class Old:
        def nvmlInit(self) -> None:  # noqa: N802
            return None

        def nvmlDeviceGetCount(self) -> int:  # noqa: N802
            return 1

        def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
            return index

        def nvmlDeviceGetName(self, _handle: int) -> bytes:  # noqa: N802
            return b"Old"

    got, _ = _read(Old(), tmp_path)
    assert [device.name for device in got.visible] == ["Old"]


SMI = "NVIDIA GeForce RTX 4070, GPU-s, 00000000:01:00.0, 12282, 11000, 560.1\n"


def test_nvidia_smi_on_path_when_nvml_fails(tmp_path: Path) -> None:
    tool = tmp_path / "bin" / "nvidia-smi"
    write(tool, "#!/bin/sh\n")
    tool.chmod(0o755)
    asked: list[str] = []

    def run(command: Sequence[str]) -> str | None:
        asked.append(command[0])
        return SMI

    got, trail = _read(no_nvml(), tmp_path, {"PATH": str(tool.parent)}, run)
    (device,) = got.visible
    assert asked == [str(tool)]
    assert (device.memory_total, device.memory_free) == (12282 << 20, 11000 << 20)
    assert (device.uuid, device.pci, device.driver) == ("GPU-s", "0000:01:00.0", "560.1")
    assert trail.notes == []


def test_nvidia_smi_of_wsl_when_none_is_on_path(tmp_path: Path) -> None:
    def run(command: Sequence[str]) -> str | None:
        return SMI if command[0] == str(tmp_path / "wsl" / "nvidia-smi") else None

    got, trail = _read(no_nvml(), tmp_path, {"PATH": ""}, run)
    assert len(got.visible) == 1
    assert [probe.asked for probe in trail.probes][:2] == ["NVML", "nvidia-smi on PATH"]


@pytest.mark.parametrize("said", ["", "garbage\n", "a,b\n", "Failed to initialize NVML\n"])
def test_nvidia_smi_nonsense(said: str, tmp_path: Path) -> None:
    got, _ = _read(no_nvml(), tmp_path, {}, lambda _command: said)
    assert got.visible == ()


def test_nvidia_smi_unified(tmp_path: Path) -> None:
    line = "NVIDIA GB10, GPU-g, 0000000F:01:00.0, [N/A], [N/A], 580.1\n"
    got, _ = _read(no_nvml(), tmp_path, {}, lambda _command: line)
    (device,) = got.visible
    assert device.unified
    assert device.memory_free == 60 * GIB
    assert device.pci == "000f:01:00.0"


def test_nvml_is_asked_first(tmp_path: Path) -> None:
    def run(_command: Sequence[str]) -> str | None:
        raise AssertionError("nvidia-smi asked although NVML answered")

    got, _ = _read(FakeNvml((FakeCard(),)), tmp_path, {"PATH": ""}, run)
    assert len(got.visible) == 1


@pytest.mark.parametrize(
    ("said", "normal"),
    [
        ("00000000:01:00.0", "0000:01:00.0"),
        ("0000:C5:00.0", "0000:c5:00.0"),
        ("01:00.0", "0000:01:00.0"),
        ("", None),
        ("nonsense", None),
        ("a:b", None),
        (None, None),
    ],
)
def test_pci_addresses_have_one_spelling(said: str | None, normal: str | None) -> None:
    assert normal_pci(said) == normal
