"""How near was `make-draft`? Compares what it predicted with a benchmark of the same draft.

    specctl make-draft TARGET -q Q4_0 -w code-edit --out DRAFT.gguf --json PREDICTED.json
    specctl bench -m TARGET -d DRAFT.gguf -s draft-simple --k 1 --k 2 --k 4 -w code-edit \
        --json MEASURED.json
    python benchmarks/draft_prediction.py PREDICTED.json MEASURED.json

Only reads the two files. Give both commands the same prompts and --max-tokens: the acceptance is
then of the same texts. A prompt of one that the other lacks is said.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from rich.console import Console
from rich.table import Table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("predicted", type=Path)
    parser.add_argument("measured", type=Path)
    args = parser.parse_args()
    predicted = json.loads(args.predicted.read_text())
    measured = json.loads(args.measured.read_text())
    size = (measured["draft"] or {}).get("bytes")
    draft = next((one for one in predicted["drafts"] if one["bytes"] == size), None)
    if draft is None:
        raise SystemExit("the benchmark's draft is none of those that were predicted")
    console = Console(highlight=False)
    both = {one["prompt"] for one in measured["prompts"]}, set(predicted["prompts"])
    if both[0] != both[1]:
        console.print(f"prompts of one only: {', '.join(sorted(both[0] ^ both[1]))}")
    ks = {arm["name"]: arm["spec"]["k"] for arm in measured["arms"]}
    table = Table(box=None, pad_edge=False)
    for heading in (
        "K", "accepted ≈", "measured", "needed ≈", "measured", "speed-up ≈", "measured", "off by",
    ):  # fmt: skip
        table.add_column(heading, justify="right", no_wrap=True)
    lengths = {one["k"]: one for one in draft["lengths"]}
    for row in measured["report"]["rows"]:
        expected = lengths.get(ks[row["arm"]])
        if row["workload"] is not None or expected is None:
            continue
        needed = row["break_even"]
        table.add_row(
            str(expected["k"]),
            f"{expected['accepted_per_cycle']:.2f}",
            f"{row['accepted_per_cycle']:.2f}",
            f"{expected['break_even']:.2f}",
            "–" if needed is None else f"{needed:.2f}",
            f"{expected['speedup']:.2f} ± {expected['noise']:.0%}",
            f"{row['speedup']:.2f} ± {row['noise']:.0%}",
            f"{expected['speedup'] / row['speedup'] - 1:+.1%}",
        )
    console.print(table)


if __name__ == "__main__":
    main()
