"""`specctl doctor`: the truth about this machine and about faked ones, exit code 0."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from fake_machine import GIB, FakeCard, FakeMachine, FakeNvml, engine
from typer.testing import CliRunner

from specctl.cli import app, doctor
from specctl.hardware.machine import take_snapshot
from specctl.hardware.report import machine_json

OPTIONAL = (int, float, str, type(None))
HOST = {
    "system": str,
    "cpu": str,
    "architecture": str,
    "logical_cpus": int,
    "allowed_cpus": int,
    "physical_cores": int,
    "performance_cores": (int, type(None)),
    "cpu_quota": (float, type(None)),
    "isa": (list, tuple),
    "ram_total": int,
    "ram_available": int,
    "ram_limit": (int, type(None)),
    "models_dir": str,
    "disk_free": (int, type(None)),
    "wsl": bool,
    "bandwidth": (float, type(None)),
    "bandwidth_source": str,
    "usable_cores": int,
    "budget": int,
    "budget_explained": str,
}
DEVICE = {
    "kind": str,
    "index": int,
    "name": str,
    "uuid": (str, type(None)),
    "pci": (str, type(None)),
    "memory_total": (int, type(None)),
    "memory_free": (int, type(None)),
    "unified": bool,
    "integrated": bool,
    "dedicated": int,
    "used_by": list,
    "driver": (str, type(None)),
    "bandwidth": (float, type(None)),
    "bandwidth_source": str,
    "engine": (str, type(None)),
    "notes": list,
    "budget": (int, type(None)),
    "budget_explained": str,
    "idle": (str, type(None)),
    "install": (str, type(None)),
}
TOP = {
    "schema": int,
    "simulated": bool,
    "overrides": list,
    "host": dict,
    "devices": list,
    "hidden": list,
    "primary": (int, type(None)),
    "engine": (dict, type(None)),
    "engine_reason": (str, type(None)),
    "gpu_offload": bool,
    "advice": list,
    "notes": list,
    "probes": list,
}


def _check(value: dict[str, Any], schema: dict[str, Any]) -> None:
    assert list(value) == list(schema)
    for key, kind in schema.items():
        assert isinstance(value[key], kind), (key, value[key])


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "specctl", "doctor", *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )


def test_this_machine() -> None:
    done = _run("--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    _check(said, TOP)
    _check(said["host"], HOST)
    assert said["schema"] == 1
    assert not said["simulated"]
    host = said["host"]
    assert host["ram_total"] == psutil.virtual_memory().total
    assert host["logical_cpus"] == psutil.cpu_count()
    assert 1 <= host["usable_cores"] <= (psutil.cpu_count(logical=False) or 1)
    assert host["budget"] < host["ram_available"]
    assert said["engine"] is not None or said["engine_reason"]
    assert len(said["probes"]) >= 5


def test_first_screen_fits_80_columns_and_says_the_essential() -> None:
    done = _run()
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert max(len(line) for line in done.stdout.splitlines()) <= 80
    assert len(done.stdout.splitlines()) <= 20
    for word in ("CPU", "RAM", "GPU", "Disk", "Engine", "A model can use"):
        assert word in done.stdout


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Run the command in this process on a faked machine."""

    def run(
        nvml: Any, *arguments: str, facts: Any = None, environ: Any = None, code: int = 0
    ) -> str:
        def snapshot(engine: Any) -> Any:
            return take_snapshot(
                FakeMachine(tmp_path / "machine").roots,
                environ or {},
                system="linux",
                models=tmp_path,
                affinity=[0],
                load=lambda: nvml,
                run=lambda _command: None,
                engine=engine,
            )

        monkeypatch.setattr(doctor, "take_snapshot", snapshot)
        monkeypatch.setattr(doctor, "probe_engine", lambda: facts or engine())
        monkeypatch.setattr("specctl.cli.render.out", lambda: _plain())
        monkeypatch.setattr(doctor, "out", lambda: _plain())
        result = CliRunner().invoke(app._build("doctor", False), ["doctor", *arguments])
        assert result.exit_code == code, (result.output, result.exception)
        return str(result.stderr if code else result.stdout)

    return run


def _plain() -> Any:
    from rich.console import Console

    return Console(width=80, highlight=False, color_system=None)


def test_idle_gpu_with_the_command_on_one_line(fake: Any) -> None:
    text = fake(FakeNvml((FakeCard(),)))
    assert "NVIDIA GeForce RTX 3090 is idle" in text
    command = next(line for line in text.splitlines() if "CMAKE_ARGS" in line)
    assert command.endswith("pip install --force-reinstall --no-cache-dir llama-cpp-python")
    said = json.loads(fake(FakeNvml((FakeCard(),)), "--json"))
    assert said["gpu_offload"] is False
    assert "no GPU backend" in said["devices"][0]["idle"]
    assert "GGML_CUDA" in said["devices"][0]["install"]


def test_gpu_with_its_users_and_its_bandwidth(fake: Any) -> None:
    card = FakeCard(free=9 * GIB, compute=((5, 12 * GIB),))
    text = fake(FakeNvml((card,), names={5: "/usr/bin/ollama"}))
    assert "24.0 GiB, 9.0 GiB free" in text
    assert "936 GB/s, data sheet" in text
    assert "ollama 12.0 GiB" in text
    assert "A model can use 8.2 GiB on NVIDIA GeForce RTX 3090" in text


@pytest.mark.parametrize("code", [9, 12, 18, 999])
def test_broken_drivers_are_one_line(code: int, fake: Any) -> None:
    text = fake(FakeNvml(init_error=code))
    assert "none found" in text
    assert "Traceback" not in text
    assert ("reboot needed" in text) == (code == 18)


def test_hidden_gpus_are_named(fake: Any) -> None:
    text = fake(FakeNvml((FakeCard(),)), environ={"CUDA_VISIBLE_DEVICES": "-1"})
    assert "none visible" in text
    assert "CUDA_VISIBLE_DEVICES" in text


def test_odd_names_are_no_markup(fake: Any) -> None:
    assert "[bold]Odd[/x]" in fake(FakeNvml((FakeCard(name="[bold]Odd[/x]"),)))


def test_verbose_shows_each_probe_and_its_fallback(fake: Any) -> None:
    text = fake(FakeNvml(init_error=18), "--verbose")
    assert "NVML: the NVIDIA driver was updated" in text
    assert "→ nvidia-smi" in " ".join(text.split())


def test_unknown_size_asks_for_vram(fake: Any) -> None:
    text = fake(FakeNvml((FakeCard(total=-4, mig=-3),)))
    assert "memory size not known" in text
    assert "give --vram" in text


def test_simulated_results_are_marked(fake: Any) -> None:
    text = fake(FakeNvml(init_error=12), "--vram", "16")
    assert text.startswith("Simulated")
    assert "median" in text
    said = json.loads(fake(FakeNvml(init_error=12), "--gpu", "4090", "--ram", "64", "--json"))
    assert said["simulated"] is True
    assert said["overrides"] == ["--gpu 4090", "--ram 64.0 GiB"]
    _check(said["devices"][0], DEVICE)


def test_no_engine(fake: Any) -> None:
    text = fake(FakeNvml(init_error=12), facts="llama-cpp-python is not installed")
    assert "llama-cpp-python is not installed" in text


def test_measure_shows_and_keeps_the_figure(fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numpy")
    monkeypatch.setattr("specctl.hardware.machine.array_bytes", lambda *_: 3 << 20)
    assert "GB/s, measured" in fake(FakeNvml(init_error=12), "--measure").replace("\n", " ")
    assert "not measured" not in fake(FakeNvml(init_error=12))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--vram", "lots"), "is not a size"),
        (("--gpu", "voodoo"), "not in the data-sheet table"),
        (("--ram", "1B"), "makes no sense"),
    ],
)
def test_bad_values_are_usage_errors(arguments: tuple[str, str], words: str, fake: Any) -> None:
    said = fake(FakeNvml(init_error=12), *arguments, code=2)
    assert words in said
    assert len(said.splitlines()) == 2


def test_json_of_a_full_machine(tmp_path: Path) -> None:
    nvml = FakeNvml((FakeCard(), FakeCard(uuid="GPU-b", bus="0000:02:00.0")))
    machine = take_snapshot(
        FakeMachine(tmp_path).roots,
        {"CUDA_VISIBLE_DEVICES": "1"},
        system="linux",
        models=tmp_path,
        load=lambda: nvml,
        engine=engine(),
    )
    said = json.loads(json.dumps(machine_json(machine)))
    _check(said, TOP)
    _check(said["host"], HOST)
    _check(said["devices"][0], DEVICE)
    assert [device["uuid"] for device in said["hidden"]] == ["GPU-aaaa1111-0000"]
    assert said["engine"]["architectures"] == ["llama", "qwen2"]
