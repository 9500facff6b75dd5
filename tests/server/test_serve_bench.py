"""`specctl bench --engine` against `specctl serve`: a real peer over loopback."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.native


def counted(server: Any, name: str) -> float:
    with urllib.request.urlopen(f"{server.url}/metrics") as answer:
        text = answer.read().decode()
    return sum(
        float(line.rsplit(" ", 1)[1])
        for line in text.splitlines()
        if line.startswith((f"specctl:{name} ", f"specctl:{name}{{"))
    )


def bench(*flags: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "specctl", "bench", *flags],
        capture_output=True,
        text=True,
        check=False,
    )


def test_speculative_against_plain(
    server: Any,
    serve: Callable[..., Any],
    tiny_models: Mapping[str, Path],
    tmp_path: Path,
) -> None:
    plain = serve("-m", str(tiny_models["clock"]), "-s", "none", "--temperature", "0")
    prompts, file = tmp_path / "mine.txt", tmp_path / "r.json"
    prompts.write_text("amber\n---\namber amber\n")
    names = ("spec_decode_num_draft_tokens_total", "spec_decode_num_accepted_tokens_total")
    before = [counted(server, name) for name in names]
    done = bench(
        *("--engine", server.url, "--baseline-url", plain.url, "--prompts", str(prompts)),
        *("-n", "24", "-r", "2", "--json", str(file), "--batch", "2"),
    )
    assert done.returncode == 0, done.stderr
    data = json.loads(file.read_text())
    runs = [run for run in data["runs"] if run["arm"] != "plain"]
    assert {run["identity"]["status"] for run in runs} == {"same"}
    assert {run["tokens"] for run in data["runs"]} == {24}
    (total,) = [row for row in data["report"]["rows"] if row["workload"] is None]
    assert 0 < total["acceptance_rate"] <= 1
    assert total["break_even"] is not None
    every = [*runs, *(run for run in data["served"]["batch_runs"] if run["arm"] != "plain")]
    told = [sum(run["totals"][key] for run in every) for key in ("drafted", "accepted")]
    moved = [counted(server, name) - was for name, was in zip(names, before, strict=True)]
    warm_up = [a - b for a, b in zip(moved, told, strict=True)]
    assert 0 <= warm_up[1] <= warm_up[0] <= 16 * 3  # sixteen tokens that are thrown away
    said = data["report"]["conditions"]
    assert not any("taken for one" in line for line in said)
    assert any("no ignore_eos" in line for line in said)
    assert any("works on 1 at once" in line for line in said)


def test_a_server_that_does_not_speculate_is_no_subject(
    serve: Callable[..., Any], tiny_models: Mapping[str, Path]
) -> None:
    plain = serve("-m", str(tiny_models["clock"]), "-s", "none", "--temperature", "0")
    done = bench("--engine", plain.url, "--quick")
    assert done.returncode == 2
    assert "runs without speculation" in " ".join(done.stderr.split())
