"""What acceptance or gain to expect, from the evidence rows of the profiles: ranges with sources.

A measured speed-up of the same method beats a formula; rows of trust L count only where there is
nothing better. Nothing here was measured on the user's machine, and every text says where it is
from.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from specctl.plan.catalog import Catalog
from specctl.plan.profile import Evidence, Model
from specctl.plan.schema import Span
from specctl.plan.speed import per_token_rate

DEFAULT_K = 3  # llama.cpp's --spec-draft-n-max, assumed where a row does not tell its own
ONE_ROW_BAND = 0.1  # a range of at least ± this (in β, or as a ratio) around a single row

# Acceptance rates that a guide states without its setup (trust L); used where no row fits.
GUIDE = "glukhov.org, Speculative Decoding, 2026-07-01: stated without setup"
GUIDE_RATES: dict[str, Span] = {
    "draft-simple": (0.40, 0.60),
    "draft-mtp": (0.50, 0.70),
    "draft-eagle3": (0.60, 0.80),
}

# Gains of n-gram drafting depend on the text, not on the model.
NGRAM_GAIN: dict[str, tuple[Span, str]] = {
    "edit": (
        (1.37, 1.59),
        "two edits of 5k characters, MoE targets, llama.cpp PR 22168 (trust high)",
    ),
    "code": (
        (0.96, 1.50),
        "0.96 in an own orientation run on a CPU (trust low), 1.50 in ik_llama.cpp PR 1701, 95.1 to"
        " 142.8 tok/s (trust medium)",
    ),
    "chat": (
        (0.95, 1.10),
        "0.95 in an own orientation run on a CPU, 1.10 in a chat with Qwen3.6-27B on an RTX 5060 Ti"
        " (trust low, both)",
    ),
    "reasoning": (
        (0.95, 1.50),
        "0.95 in an own run (trust low), 1.50 on GPQA and AIME in vLLM, arXiv 2601.11580 (trust"
        " high, but another engine)",
    ),
    "creative": (
        (0.95, 1.00),
        "nothing repeats, nothing is drafted: own orientation run, chat (trust low)",
    ),
}

# EAGLE-3 in llama.cpp: 0.71-fold (PR 24593), 0.74-fold (gpt-oss-120b, Metal), and on a V100 40
# tok/s where MTP gave 45 and MTP's own gain was 1.35 to 1.44: about 1.2.
EAGLE3_GAIN: tuple[Span, str] = (
    (0.71, 1.20),
    "llama.cpp PR 24593 and gpt-oss-120b on Metal (trust low), V100 against MTP, issue 24541"
    " (trust medium)",
)

# MTP of recurrent hybrids on a CPU: 0.43 (Qwen3-Next-80B) and 0.56 (Qwen3.5-122B-A10B), EPYC 9655.
HYBRID_CPU_MTP: tuple[Span, str] = (
    (0.43, 0.56),
    "Qwen3-Next-80B and Qwen3.5-122B-A10B on an EPYC 9655 (trust low)",
)

TRUST = {"H": "high", "M": "medium", "L": "low"}
FOREIGN_ENGINES = ("vllm", "sglang", "mlx", "lm studio", "luce", "tensorrt")


@dataclass(frozen=True, slots=True)
class Expectation:
    """A range and where it is from: β per drafted token, or a speed-up."""

    span: Span
    source: str
    rows: tuple[Evidence, ...] = ()


def expected_acceptance(
    catalog: Catalog, model: Model, method: str, use: str
) -> Expectation | None:
    """β for a method that drafts with a model. Rows of the asked use come first at each step.

    The model's own rows, its family's, other models' of the same use (trust L not counted), then a
    guide's range; None where there is nothing.
    """
    family = [m for m in catalog if m.family == model.family]
    for what, models in ((model.name, [model]), (f"family {model.family}", family)):
        rows = [
            row for m in models for row in m.evidence if row.method == method and row.acceptance
        ]
        fitting = [row for row in rows if row.use == use] or [
            row for row in rows if row.use is None
        ]
        if fitting:
            return _from_rates(_trusted(fitting), what)
    rows = [row for m in catalog for row in m.evidence if row.method == method and row.acceptance]
    same_use = [row for row in rows if row.use == use and row.trust != "L"]
    if same_use:
        return _from_rates(_trusted(same_use), f"other models, {use}")
    if method in GUIDE_RATES:
        low, high = GUIDE_RATES[method]
        return Expectation(
            (per_token_rate(low, DEFAULT_K), per_token_rate(high, DEFAULT_K)),
            f"acceptance rate {low:.0%} to {high:.0%}: {GUIDE} (trust low)",
        )
    return None


def expected_gain(
    catalog: Catalog, model: Model, method: str, device: str, use: str
) -> Expectation | None:
    """A speed-up range where rows measured one in an engine like ours; None: use the formula."""
    if method.startswith("ngram"):
        return Expectation(*NGRAM_GAIN[use])
    if method == "draft-eagle3":
        return Expectation(*EAGLE3_GAIN)
    if (
        model.shape is not None
        and model.shape.is_hybrid
        and device == "cpu"
        and method == "draft-mtp"
    ):
        return Expectation(*HYBRID_CPU_MTP)
    if method == "draft-simple" or device == "cpu":
        return None
    own = _gains([model], method, device)
    if not own and model.is_moe:  # the formula flatters MoE targets: any device's rows come first
        own = _gains([model], method, None)
    if own:
        return _from_speedups(own, model.name)
    alike = [m for m in catalog if m.is_moe == model.is_moe]
    rows = _gains(alike, method, None if model.is_moe else device)
    rows = [row for row in rows if row.trust != "L"]
    what = "other MoE models" if model.is_moe else "other dense models"
    return _from_speedups(rows, what) if rows else None


def evidence_rows(model: Model, method: str, device: str) -> tuple[Evidence, ...]:
    """The rows to show beside a prediction: this model and method, the same device class first."""
    rows = [row for row in model.evidence if row.method == method]
    return tuple(sorted(rows, key=lambda row: (row.device != device, "HML".index(row.trust))))


def _gains(models: Iterable[Model], method: str, device: str | None) -> list[Evidence]:
    """Rows with a speed-up, of engines like ours; `device` None: of all but CPUs."""
    rows = [
        row
        for m in models
        for row in m.evidence
        if row.method == method
        and row.speedup
        and (row.device == device if device else row.device != "cpu")
    ]
    return [row for row in rows if not any(name in row.engine.lower() for name in FOREIGN_ENGINES)]


def _trusted(rows: Sequence[Evidence]) -> list[Evidence]:
    better = [row for row in rows if row.trust != "L"]
    return better or list(rows)


def _from_rates(rows: Sequence[Evidence], whose: str) -> Expectation:
    betas = [
        per_token_rate(rate, row.k or DEFAULT_K) for row in rows for rate in row.acceptance or ()
    ]
    low, high = min(betas), max(betas)
    if high - low < 2 * ONE_ROW_BAND:
        middle = (low + high) / 2
        low, high = max(0.0, middle - ONE_ROW_BAND), min(0.98, middle + ONE_ROW_BAND)
    rates = [rate for row in rows for rate in row.acceptance or ()]
    return Expectation(
        (low, high),
        f"acceptance rate {min(rates):.0%} to {max(rates):.0%} in {_count(rows)} of {whose}"
        f" ({_trusts(rows)})",
        tuple(rows),
    )


def _from_speedups(rows: Sequence[Evidence], whose: str) -> Expectation:
    rows = _trusted(rows)
    low = min(row.speedup[0] for row in rows if row.speedup)
    high = max(row.speedup[1] for row in rows if row.speedup)
    if high / low < (1 + ONE_ROW_BAND) ** 2:
        centre = (low * high) ** 0.5
        low, high = centre / (1 + ONE_ROW_BAND), centre * (1 + ONE_ROW_BAND)
    return Expectation(
        (low, high), f"speed-up in {_count(rows)} of {whose} ({_trusts(rows)})", tuple(rows)
    )


def _count(rows: Sequence[Evidence]) -> str:
    return f"{len(rows)} measured row" + ("s" if len(rows) > 1 else "")


def _trusts(rows: Sequence[Evidence]) -> str:
    """`trust high`, `trust medium or low`: of the rows counted, in words."""
    found = sorted({row.trust for row in rows}, key="HML".index)
    return "trust " + " or ".join(TRUST[one] for one in found)
