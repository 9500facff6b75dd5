"""Greedy or sampled drafts of a draft model, at the temperatures people use?

    python benchmarks/sampled_drafts.py --model TARGET.gguf --draft DRAFT.gguf [--k 4]
        [--temperatures 0.3 0.7 1.0] [--repeats 2] [--json FOLDER] [--laws]

Plain and both ways of drafting interleaved on one loaded target, three prompts of
prompts/mixed.jsonl. A greedy draft is a point mass: it stands with the target's chance p of that
token, and the text is plain's for the same seed. A sampled draft stands with min(1, p/q), and the
text follows the same law without being the same. Needs an idle machine for the speed-ups; α does
not depend on it.

`--laws` draws no drafts: along texts that the target samples it computes, at every place, the
chance that the first drafted token stands: p(argmax q) for a greedy draft, Σ min(p, q) for a
sampled one (Leviathan et al. 2023). That leaves no noise of draws.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

from specctl.bench import workloads
from specctl.bench.conduct import conduct
from specctl.bench.results import Outcome, document, write
from specctl.bench.run import Arm, BenchPlan
from specctl.engine.session import Session, open_session
from specctl.resolve import resolve_model
from specctl.sampling import Stream, best, law, uniform
from specctl.settings import DraftSettings, EngineSettings, Sampling, SpecSettings
from specctl.units import number, percent

PROMPTS = Path(__file__).parent / "prompts" / "mixed.jsonl"
ONLY = ("code-edit", "template-fill", "chat")


def arms(k: int) -> tuple[Arm, ...]:
    """The same draft model, drawing in both ways."""
    greedy, sampled = (
        SpecSettings(types=("draft-simple",), k=k, draft=DraftSettings(sampling=how))
        for how in ("greedy", "sampled")
    )
    return Arm("greedy drafts", greedy), Arm("sampled drafts", sampled)


def rows(table: Table, temperature: float, outcome: Outcome) -> None:
    """One line per arm, over all prompts."""
    for row in outcome.report.totals:
        totals = row.totals
        table.add_row(
            f"{temperature:g}",
            row.arm,
            percent(totals.acceptance_rate),
            number(totals.accepted_per_cycle),
            number(totals.tokens_per_pass),
            number(row.speed.speedup),
            number(totals.estimated_speedup),
        )


def chances(
    target: Session, draft: Session, prompt: tuple[int, ...], sampling: Sampling, length: int
) -> Iterator[tuple[float, float]]:
    """(greedy, sampled) at each place of one sampled answer."""
    tokens = list(prompt)
    for session in (target, draft):
        session.reset()
        session.context.follow(tokens[:-1])
    for _ in range(length):
        p_row, q_row = (each.context.verify(tokens[-1:])[0] for each in (target, draft))
        p, q = law(p_row, tokens, sampling), law(q_row, tokens, sampling)
        shared = sum(
            min(p.prob(int(token)), chance) for token, chance in zip(q.ids, q.probs, strict=True)
        )
        yield p.prob(best(q_row, tokens, sampling)), shared
        token = p.draw(uniform(sampling.seed, len(tokens), Stream.TARGET))
        if target.model.is_eog(token):
            return
        tokens.append(token)


def show_laws(args: argparse.Namespace) -> None:
    """The chances over all ten prompts."""
    prompts = workloads.read_file(PROMPTS)
    table = Table(box=None, pad_edge=False)
    for heading in ("temperature", "places", "greedy", "sampled", "difference, ± 2 s.e."):
        table.add_column(heading, justify="right")
    settings = EngineSettings(n_ctx=2048)
    with (
        open_session(resolve_model(args.model), settings=settings) as target,
        open_session(resolve_model(args.draft), settings=settings) as draft,
    ):
        for temperature in args.temperatures:
            sampling = Sampling(temperature=temperature)
            pairs = [
                pair
                for prompt in prompts
                for pair in chances(
                    target, draft, target.chat(prompt.messages()), sampling, args.max_tokens
                )
            ]
            greedy, sampled = (statistics.mean(pair[n] for pair in pairs) for n in (0, 1))
            gaps = [pair[1] - pair[0] for pair in pairs]
            error = 2 * statistics.stdev(gaps) / len(gaps) ** 0.5
            table.add_row(
                f"{temperature:g}",
                str(len(pairs)),
                percent(greedy),
                percent(sampled),
                f"{(sampled - greedy) * 100:+.1f} ± {error * 100:.1f} points",
            )
    Console(width=120).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--model", required=True)
    parser.add_argument("--draft", required=True)
    parser.add_argument("--k", type=int, default=4)
    parser.add_argument("--temperatures", type=float, nargs="*", default=[0.3, 0.7, 1.0])
    parser.add_argument("--max-tokens", type=int, default=96)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--json", type=Path, help="a folder: one file per temperature")
    parser.add_argument("--laws", action="store_true", help="chances at each place, no drafts")
    args = parser.parse_args()
    if args.laws:
        show_laws(args)
        return
    prompts = [p for p in workloads.read_file(PROMPTS) if p.key.rpartition("/")[2] in ONLY]
    table = Table(box=None, pad_edge=False)
    for heading in ("temperature", "arm", "α", "α×K", "τ", "speed-up", "≈ by its own plain steps"):
        table.add_column(heading, justify="left" if heading == "arm" else "right")
    for temperature in args.temperatures:
        plan = BenchPlan(
            model=args.model,
            draft=args.draft,
            prompts=tuple(prompts),
            arms=arms(args.k),
            settings=EngineSettings(n_ctx=2048),
            sampling=Sampling(temperature=temperature),
            max_tokens=args.max_tokens,
            repeats=args.repeats,
        )
        steps = conduct(plan, resolve_model(args.model), resolve_model(args.draft), open_session)
        for step in steps:
            if isinstance(step, Outcome):
                rows(table, temperature, step)
                if args.json:
                    args.json.mkdir(parents=True, exist_ok=True)
                    name = f"sampled-drafts-{temperature:g}.json"
                    write(args.json / name, document(step))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
