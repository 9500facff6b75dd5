"""How far the compute fits hold on shapes nobody chose: random dimensions of every family.

    python benchmarks/memory_random.py [SEED [SHAPES]]

Prints, per family, the smallest, largest and mean absolute error of the compute buffer against
llama.cpp's own figure, and whether weights and KV were equal. Many of these shapes are odder than
any published model (n_head x head_dim sixteen times n_embd, n_ff below n_embd).
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import memory_table as table

families = table.families


def random_size(rng: random.Random) -> families.Size:
    n_embd = rng.choice([512, 1024, 1536, 2048, 3072, 4096, 5120])
    n_kv = rng.choice([1, 2, 4, 8])
    return families.Size(
        n_layer=12,
        n_embd=n_embd,
        n_head=n_kv * rng.choice([1, 2, 4, 8]),
        n_kv=n_kv,
        head_dim=rng.choice([64, 128, 256]),
        n_ff=int(rng.choice([1, 2, 3, 3.5, 4, 5]) * n_embd),
        n_vocab=2048,
        n_expert=rng.choice([16, 64, 128]),
        n_used=rng.choice([2, 4, 6, 8]),
        n_ff_exp=rng.choice([256, 512, 768, 1408, 2048]),
        window=512,
    )


def make(family: str, path: Path, rng: random.Random) -> Path:
    size = random_size(rng)
    if family.startswith("qwen35"):
        delta = families.Delta(rng.choice([8, 16]), rng.choice([16, 32, 48]), 128)
        return families.qwen35(path, size, delta, moe=family.endswith("moe"))
    if family == "deepseek2":
        return families.deepseek2(path, replace(size, head_dim=128, kind="f32"))
    builder = {"gpt-oss": families.gpt_oss}.get(family) or getattr(families, family)
    return builder(path, size)


def main() -> None:
    seed, shapes = (int(text) for text in [*sys.argv[1:], *("1", "12")[len(sys.argv) - 1 :]])
    table.CONTEXTS[:] = [("2048", {"n_ctx": 2048}), ("8192", {"n_ctx": 8192})]
    print("| family | contexts | smallest | largest | mean, absolute | weights and KV |")
    print("|---|--:|--:|--:|--:|---|")
    for family in families.TINY:
        rng = random.Random(f"{family} {seed}")
        with tempfile.TemporaryDirectory() as folder:
            models = {str(i): make(family, Path(folder) / f"{i}.gguf", rng) for i in range(shapes)}
            rows = table.compare(models, tiny=False)
        errors = [row.ours[2] / row.truth[2] - 1 for row in rows]
        equal = all(row.ours[:2] == row.truth[:2] for row in rows)
        print(
            f"| {family} | {len(rows)} | {min(errors):+.1%} | {max(errors):+.1%} "
            f"| {statistics.mean(map(abs, errors)):.1%} | {'equal' if equal else 'DIFFERENT'} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
