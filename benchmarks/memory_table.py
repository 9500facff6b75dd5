"""The table of docs/memory.md: our estimate beside llama.cpp's own figures.

    python benchmarks/memory_table.py [MODEL.gguf ...]

Given models come first, then a tiny and a full-size made-up model of each architecture family
(headers of tests/gguf/gguf_families.py; their weights are holes in the file). llama.cpp plans every
context without allocating it (memory_truth.py). Prints Markdown; exit code 1 when a row is outside
the promised limits.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "tests" / "gguf")]

import gguf_families as families  # noqa: E402

from specctl.gguf.facts import ModelFacts, read_facts  # noqa: E402
from specctl.plan.memory import estimate  # noqa: E402

MIB = 1024**2
K = 8

Options = dict[str, int]
CONTEXTS: list[tuple[str, Options]] = [
    ("8192", {"n_ctx": 8192}),
    ("32768", {"n_ctx": 32768}),
    ("8192, KV q8_0", {"n_ctx": 8192, "type_k": 8, "type_v": 8}),
    ("8192, KV q4_0", {"n_ctx": 8192, "type_k": 2, "type_v": 2}),
    ("8192, no flash attention", {"n_ctx": 8192, "flash_attn_type": 0}),
    ("8192, u 128", {"n_ctx": 8192, "n_ubatch": 128}),
]
WINDOW = ("8192, window cache", {"n_ctx": 8192, "swa_full": 0})
SNAPSHOTS = ("8192, 8 snapshots", {"n_ctx": 8192, "n_rs_seq": K})
MTP = ("8192, MTP context", {"n_ctx": 8192, "ctx_type": 1})
STATE = ("kv", "swa kv", "recurrent", "snapshots")
KV_NAMES = {1: "f16", 8: "q8_0", 2: "q4_0"}


@dataclass(frozen=True)
class Row:
    """Bytes: what llama.cpp says and what we say. Weights, KV and state, compute buffer."""

    model: str
    case: str
    truth: tuple[int, int, int]
    ours: tuple[int, int, int]
    tiny: bool

    @property
    def allowed(self) -> float:
        """Bytes by which the compute buffer may differ."""
        return max(0.1 * self.truth[2], 256 * 1024 if self.tiny else 4 * MIB)

    @property
    def good(self) -> bool:
        """Weights and KV within 3 %, the compute buffer within 10 % or the floor."""
        near = all(
            abs(ours - truth) <= 0.03 * truth
            for ours, truth in zip(self.ours[:2], self.truth[:2], strict=True)
        )
        return near and abs(self.ours[2] - self.truth[2]) <= self.allowed


def cases_of(facts: ModelFacts) -> list[tuple[str, Options]]:
    cases = list(CONTEXTS)
    if facts.shape.n_swa:
        cases.append(WINDOW)
    if facts.shape.is_hybrid and facts.can_roll_back:
        cases.append(SNAPSHOTS)
    if facts.mtp == "embedded":
        cases.append(MTP)
    return cases


def our_figures(facts: ModelFacts, options: Options) -> tuple[int, int, int]:
    kv_type = KV_NAMES[options.get("type_k", 1)]
    mtp = "ctx_type" in options
    memory = estimate(
        facts.shape,
        facts.weights,
        options["n_ctx"],
        kv_type,
        kv_type,
        ubatch=options.get("n_ubatch", 512),
        outputs=K + 1,
        flash_attn=options.get("flash_attn_type", 1) != 0,
        swa_full=options.get("swa_full", 1) == 1,
        snapshots=options.get("n_rs_seq", 0),
        gpu_layers=0,
        mtp=facts.mtp == "embedded",  # llama_model_size counts the MTP layers
    )
    if mtp:
        return memory.part("weights").host, 0, memory.part("mtp").host
    kept = sum(memory.part(name).host for name in STATE)
    return memory.part("weights").host, kept, memory.part("compute").host


def truth_of(models: dict[Path, list[Options]]) -> Iterator[dict[str, float]]:
    arguments: list[str] = []
    for path, cases in models.items():
        whole = [{"n_outputs_max": K + 1, **options} for options in cases]
        arguments += [str(path), json.dumps(whole)]
    command = [sys.executable, str(HERE / "memory_truth.py"), *arguments]
    child = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if child.returncode:
        raise RuntimeError(f"memory_truth.py: {child.returncode}: {child.stderr[-500:]}")
    for line in child.stdout.splitlines():
        yield json.loads(line)


def compare(models: dict[str, Path], tiny: bool, first: int | None = None) -> list[Row]:
    """Rows of some models; `first` limits the cases of each."""
    facts = {name: read_facts(str(path)) for name, path in models.items()}
    cases = {name: cases_of(facts[name])[:first] for name in models}
    told = truth_of({models[name]: [options for _, options in cases[name]] for name in models})
    rows = []
    for name in models:
        for case, options in cases[name]:
            row = next(told)
            truth = int(row["weights"]), int(row["memory"]), int(row["compute"])
            if "ctx_type" in options:  # KV and compute of the second context are one part of ours
                truth = truth[0], 0, truth[1] + truth[2]
            rows.append(Row(name, case, truth, our_figures(facts[name], options), tiny))
    return rows


def build(kind: dict[str, families.Callable[[Path], Path]], folder: Path) -> dict[str, Path]:
    return {name: make(folder / f"{name}.gguf") for name, make in kind.items()}


def markdown(rows: list[Row]) -> Iterator[str]:
    yield "| model | context | weights | KV and state | compute buffer | llama.cpp | error |"
    yield "|---|---|--:|--:|--:|--:|--:|"
    before = ""
    for row in rows:
        exact = row.ours[:2] == row.truth[:2]
        yield (
            " | ".join(
                (
                    f"| {row.model if row.model != before else ''}",
                    row.case,
                    f"{row.ours[0] / MIB:.2f}",
                    f"{row.ours[1] / MIB:.2f}" + ("" if exact else f" ({row.truth[1] / MIB:.2f})"),
                    f"{row.ours[2] / MIB:.2f}",
                    f"{row.truth[2] / MIB:.2f}",
                    f"{row.ours[2] / row.truth[2] - 1:+.1%}".replace("-0.0%", "0.0%").replace(
                        "+0.0%", "0.0%"
                    )
                    + ("" if row.good else " **outside**"),
                )
            )
            + " |"
        )
        before = row.model


def main() -> None:
    given = {Path(name).stem: Path(name) for name in sys.argv[1:]}
    with tempfile.TemporaryDirectory() as folder:
        rows = compare(given, tiny=False) if given else []
        rows += compare(build(families.FULL_SIZE, Path(folder)), tiny=False)
        rows += [
            Row(f"tiny {row.model}", row.case, row.truth, row.ours, True)
            for row in compare(build(families.TINY, Path(folder)), tiny=True)
        ]
    for line in markdown(rows):
        print(line)
    bad = [row for row in rows if not row.good]
    exact = sum(row.ours[:2] == row.truth[:2] for row in rows)
    print(f"\n{len(rows)} rows, weights and KV exact in {exact}, {len(bad)} outside the limits.")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
