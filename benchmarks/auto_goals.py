"""Does `auto` beat every fixed setting? Prints what each arm gained per prompt, and the goals.

    python benchmarks/auto_goals.py --model demo-f16 [--repeats 5] [--max-tokens 128] [--json FILE]
    python benchmarks/auto_goals.py --model TARGET.gguf --draft DRAFT.gguf \
        --only code-edit template-fill chat --max-tokens 96 --repeats 3

Ten mixed prompts (prompts/mixed.jsonl), plain and every arm interleaved on one loaded target. The
fixed set: plain again (its spread is the noise), llama.cpp's ngram-simple and ngram-mod as they
are there, ngram-simple with the text preset, ngram-map-k, ngram-suffix; with a draft model also
draft-simple at k 2, 4, 8. Speed-ups are ratios of medians over the repeats. Needs an idle machine.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import statistics
from pathlib import Path

from rich.console import Console
from rich.table import Table

from specctl.bench import workloads
from specctl.bench.conduct import conduct
from specctl.bench.report import Report
from specctl.bench.results import Outcome, document, write
from specctl.bench.run import Arm, BenchPlan, Calibration, RunDone
from specctl.engine.session import open_session
from specctl.resolve import resolve_model
from specctl.settings import EngineSettings, NgramSettings, Sampling, SpecSettings

PROMPTS = Path(__file__).parent / "prompts" / "mixed.jsonl"
TEXT_PRESET = NgramSettings(size_n=8, size_m=32, min_hits=2)


def arms(draft: bool) -> tuple[Arm, ...]:
    """Noise, the fixed set, auto."""
    fixed = [
        Arm("plain again", SpecSettings(types=("none",))),
        Arm("ngram-simple compat", SpecSettings(types=("ngram-simple",), compat=True)),
        Arm("ngram-mod compat", SpecSettings(types=("ngram-mod",), compat=True)),
        Arm("ngram-simple text", SpecSettings(types=("ngram-simple",), ngram_simple=TEXT_PRESET)),
        Arm("ngram-map-k", SpecSettings(types=("ngram-map-k",))),
        Arm("ngram-suffix", SpecSettings(types=("ngram-suffix",))),
    ]
    if draft:
        fixed += [
            Arm(f"draft-simple k {k}", SpecSettings(types=("draft-simple",), k=k))
            for k in (2, 4, 8)
        ]
    return (*fixed, Arm("auto", SpecSettings(types=("auto",))))


def speedups(report: Report, arm: str) -> dict[str, float]:
    """Prompt → measured speed-up of this arm."""
    return {p.prompt: p.speed.speedup for p in report.prompts if p.arm == arm and p.speed.speedup}


def geometric_mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def within(outcome: Outcome, arm: str) -> list[float]:
    """≈ speed-up of each prompt by the run's own t_1 (`metrics.Totals.estimated_speedup`), median.

    An estimate, but free of the machine's moods between the runs of plain and those of this arm.
    """
    by_prompt: dict[str, list[float]] = {}
    for run in outcome.runs:
        if run.arm == arm and run.totals.estimated_speedup is not None:
            by_prompt.setdefault(run.prompt.key, []).append(run.totals.estimated_speedup)
    return [statistics.median(values) for values in by_prompt.values()]


def show(outcome: Outcome, console: Console) -> None:
    """The table, then each goal with the figure that was measured."""
    report = outcome.report
    by_arm = {arm: speedups(report, arm) for arm in report.arms}
    prompts = list(by_arm["auto"])
    table = Table(box=None, pad_edge=False)
    table.add_column("arm")
    for prompt in prompts:
        table.add_column(prompt.rpartition("/")[2], justify="right")
    for heading in ("mean", "worst", "total"):
        table.add_column(heading, justify="right")
    for row in report.totals:
        mine = by_arm[row.arm]
        cells = [f"{mine[prompt]:.2f}" for prompt in prompts]
        mean, worst = geometric_mean(list(mine.values())), min(mine.values())
        total = f"{row.speed.speedup:.2f}"
        table.add_row(row.arm, *cells, f"{mean:.3f}", f"{worst:.3f}", total)
    console.print(table)
    for arm in report.arms:
        values = within(outcome, arm)
        console.print(
            f"≈ by each run's own plain steps: {arm:20s} mean {geometric_mean(values):.3f}  "
            f"worst {min(values):.3f}"
        )
    noise = max(abs(math.log(v)) for v in by_arm["plain again"].values())
    half = geometric_mean([math.exp(abs(math.log(v))) for v in by_arm["plain again"].values()]) - 1
    fixed = {arm: v for arm, v in by_arm.items() if arm not in ("auto", "plain again")}
    auto = by_arm["auto"]
    best = {prompt: max(1.0, *(v[prompt] for v in fixed.values())) for prompt in prompts}
    console.print(
        f"noise: plain again is off by {half:.1%} in the mean, {math.expm1(noise):.1%} at most"
    )
    console.print(f"auto, geometric mean: {geometric_mean(list(auto.values())):.3f}")
    console.print(f"auto, worst prompt: {min(auto.values()):.3f}")
    shares = {prompt: auto[prompt] / best[prompt] for prompt in prompts}
    worst = min(shares, key=lambda prompt: shares[prompt])
    console.print(
        f"auto against the best fixed setting of each prompt: worst {shares[worst]:.3f} ({worst})"
    )
    top = max(fixed, key=lambda arm: geometric_mean(list(fixed[arm].values())))
    console.print(f"best fixed setting: {top}, {geometric_mean(list(fixed[top].values())):.3f}")
    compat = [
        row for row in report.totals if row.arm.endswith("compat") or row.arm == "ngram-map-k"
    ]
    suffix = next(row for row in report.totals if row.arm == "ngram-suffix")
    rival = max(row.speed.speedup or 0 for row in compat)
    console.print(
        f"ngram-suffix alone, total time: {(suffix.speed.speedup or 0) / rival:.3f} × "
        "the best of the compat n-grams and ngram-map-k"
    )
    same = sum(row.identity.same for row in report.totals)
    ties = sum(row.identity.ties for row in report.totals)
    console.print(f"texts: {same} the same as plain's, {ties} ties, {len(report.bugs)} bugs")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--model", default="demo-f16")
    parser.add_argument("--draft")
    parser.add_argument("--only", nargs="*", help="names of prompts")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    console = Console(width=150)
    prompts = workloads.read_file(PROMPTS)
    if args.only:
        prompts = tuple(p for p in prompts if p.key.rpartition("/")[2] in args.only)
    plan = BenchPlan(
        model=args.model,
        draft=args.draft,
        prompts=prompts,
        arms=arms(args.draft is not None),
        settings=EngineSettings(n_ctx=2048, threads=args.threads),
        sampling=Sampling(),
        max_tokens=args.max_tokens,
        repeats=args.repeats,
    )
    draft = resolve_model(args.draft) if args.draft else None
    for step in conduct(plan, resolve_model(args.model), draft, open_session):
        if isinstance(step, Calibration):
            console.print(f"about {step.estimated_seconds:.0f} s, load {step.load_average}")
        elif isinstance(step, RunDone) and step.index % len(plan.all_arms) == 0:
            console.print(f"{step.fraction:.0%} done, {step.eta:.0f} s left", style="dim")
        elif isinstance(step, Outcome):
            show(step, console)
            if args.json:
                write(args.json, document(dataclasses.replace(step)))


if __name__ == "__main__":
    main()
