"""How fast will it be? Rooflines with stated factors: every figure from here is an estimate (≈).

    β        probability that one more drafted token is accepted, taken as constant in a draft
    τ(k)     expected tokens per pass, (1 - β^(k+1)) / (1 - β)          Leviathan et al., 2211.17192
    α        acceptance rate at draft length k, (τ(k) - 1) / k
    t_1      bytes read for one token / effective bandwidth + launch cost of the layers
    t_v(k)   the same with the experts that k + 1 tokens touch, + row cost · k
    touched  E · (1 - (1 - e/E)^(k+1)) experts of E, e used by each token
    t_d(k)   k passes of the draft; for a block drafter one of its rows, which are the whole block
             here, whatever k is, and k + 1 in llama-server; 0 for n-grams
    a*       break-even: (t_d + t_v) / t_1 - 1 accepted per cycle
    K*       argmax over k of τ(k) / (t_d(k) + t_v(k)); 0 is plain decoding

Seconds and bytes throughout. The measured numbers of a run are in `specctl.metrics`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from specctl.plan.schema import Span

PlaceKind = Literal["gpu", "apple", "cpu"]

# Share of the data-sheet bandwidth that token generation reaches.
# gpu:     0.85 from Qwen3.6-27B IQ3 (12 GB) at 31 tok/s on an RTX 5060 Ti (448 GB/s); 0.80 from
#          Qwen3.5-27B UD-IQ3_XXS (11.5 GB) at 45.3 tok/s on an RTX 4080 (717 GB/s); 0.60 from
#          Qwen3.8-27B UD-Q4_K_XL (17.6 GB) at 36.1 tok/s on an RTX 4090 (1008 GB/s; 0.63 before
#          launch cost is taken off).
# low_bit: IQ1 and IQ2 cost arithmetic: Qwen3.8-27B UD-IQ2_XXS (7.3 GB) at 45.1 tok/s, RTX 3080.
# apple:   assumption, no row names both quant and speed.
# cpu:     assumption; of a measured stream rate the same factor is used.
EFFICIENCY: dict[PlaceKind, Span] = {"gpu": (0.60, 0.85), "apple": (0.55, 0.85), "cpu": (0.5, 0.9)}
LOW_BIT_EFFICIENCY = 0.42

# Seconds per layer that no bandwidth explains: starting kernels. Fitted to the RTX 4080 rows:
# dense 45.3 tok/s above; MoE between gpt-oss-20b (210 tok/s) and Qwen3.5-35B-A3B (136.4 tok/s).
LAYER_SECONDS: dict[PlaceKind, Span] = {
    "gpu": (20e-6, 30e-6),
    "apple": (20e-6, 40e-6),
    "cpu": (0.0, 5e-6),
}
MOE_LAYER_SECONDS: dict[PlaceKind, Span] = {
    "gpu": (40e-6, 130e-6),
    "apple": (60e-6, 150e-6),
    "cpu": (5e-6, 20e-6),
}

# Time of one more row in a verify pass, as a share of t_1: a roofline says 0 until compute bound.
# gpu:   from MTP rows of Qwen3.8-27B, drafting taken off: 0.03 (RTX 5090, n-max 4) to 0.25 (RTX
#        4090, n-max 2).
# apple: MTP gains nothing on M4 and 6 % on M3 Ultra, 2.5-fold on an M2 Max (one user).
# cpu:   0.05 from Qwen2.5-Coder-32B on an EPYC 9655 (K 16, 5.1-fold); 0.6 measured on two AVX2
#        cores with Q4_K_M (t(4 rows) / t(1) = 2.81).
# hybrid_cpu: recurrent layers do not batch on a CPU: one drafted token, at most two emitted, and
#        still 0.56-fold (Qwen3.5-122B-A10B, EPYC 9655), so t_c is up to 3.6 t_1.
ROW_COST: dict[PlaceKind, Span] = {"gpu": (0.03, 0.25), "apple": (0.1, 0.7), "cpu": (0.05, 0.6)}
HYBRID_CPU_ROW_COST: Span = (0.8, 2.5)


@dataclass(frozen=True, slots=True)
class Pace:
    """How fast one place reads memory: data-sheet or measured bytes per second, and its source."""

    kind: PlaceKind
    bandwidth: float
    source: str


@dataclass(frozen=True, slots=True)
class Load:
    """What one pass of a model reads at one place; `kv` is the cache at the context in question."""

    dense: float
    kv: float = 0.0
    experts: float = 0.0
    n_expert: int = 0
    n_expert_used: int = 0
    n_layer: int = 0
    low_bit: bool = False
    hybrid: bool = False

    def read(self, rows: int) -> float:
        """Bytes that a pass over `rows` tokens reads."""
        return (
            self.dense
            + self.kv
            + self.experts * touched_share(self.n_expert, self.n_expert_used, rows)
        )


Parts = Sequence[tuple[Load, Pace]]  # one entry for each place that holds a part of the model
Rows = Callable[[int], int]  # of a block drafter's pass, by draft length


@dataclass(frozen=True, slots=True)
class Prediction:
    """tok/s plain and speculative, speed-up, tokens per pass and break-even as (low, high); k.

    `tokens_per_pass` is None where the speed-up was taken from measured rows.
    """

    k: int
    plain: Span
    spec: Span
    speedup: Span
    tokens_per_pass: Span | None
    break_even: Span

    @property
    def typical(self) -> float:
        """The middle of the speculative range on a ratio scale, tok/s: what ranking compares."""
        return math.sqrt(self.spec[0] * self.spec[1])


def touched_share(n_expert: int, n_used: int, rows: int) -> float:
    """Expected share of experts that `rows` tokens touch, each choosing `n_used` on its own."""
    if not n_expert:
        return 0.0
    share: float = 1 - (1 - n_used / n_expert) ** rows
    return share


def expected_tokens(beta: float, k: int) -> float:
    """τ(k): tokens per pass with a draft of k tokens, the target's own token included."""
    return float(k + 1) if beta >= 1 else (1 - beta ** (k + 1)) / (1 - beta)


def acceptance_rate(beta: float, k: int) -> float:
    """α at draft length k ≥ 1."""
    return (expected_tokens(beta, k) - 1) / k


def per_token_rate(alpha: float, k: int) -> float:
    """β that gives acceptance rate `alpha` at draft length k: the inverse of `acceptance_rate`."""
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if acceptance_rate(middle, k) < alpha else (low, middle)
    return (low + high) / 2


def best_k(
    accepted: Callable[[int], float], cycle_seconds: Callable[[int], float], k_max: int
) -> int:
    """K*: the draft length with the most tokens per second; 0 when plain decoding is best.

    `accepted(k)` is the expected number of accepted tokens of a draft of k, `cycle_seconds(k)` the
    whole cycle; both are asked for k = 0 too.
    """
    return max(range(k_max + 1), key=lambda k: (1 + accepted(k)) / cycle_seconds(k))


def pass_seconds(parts: Parts, rows: int = 1) -> Span:
    """Fastest and slowest time of a pass over `rows` tokens: the places work one after another."""
    fast = slow = 0.0
    for load, pace in parts:
        low, high = EFFICIENCY[pace.kind]
        if load.low_bit:
            low = min(low, LOW_BIT_EFFICIENCY)
        launch = (MOE_LAYER_SECONDS if load.n_expert else LAYER_SECONDS)[pace.kind]
        read, one = load.read(rows) / pace.bandwidth, load.read(1) / pace.bandwidth
        hybrid = load.hybrid and pace.kind == "cpu"
        row_cost = HYBRID_CPU_ROW_COST if hybrid else ROW_COST[pace.kind]
        row_low, row_high = (cost * (rows - 1) for cost in row_cost)
        fast += (read + one * row_low) / high + load.n_layer * launch[0]
        slow += (read + one * row_high) / low + load.n_layer * launch[1]
    return fast, slow


def draft_seconds(draft: Parts, k: int, block: Rows | None = None) -> Span:
    """t_d(k): k passes one after another; for a block drafter one of `block(k)` rows; nothing for
    n-grams.
    """
    if not draft or not k:
        return 0.0, 0.0
    if block is not None:
        return pass_seconds(draft, block(k))
    fast, slow = pass_seconds(draft)
    return k * fast, k * slow


def predict(
    target: Parts,
    draft: Parts,
    beta: Span,
    k: int | None,
    block: Rows | None = None,
    k_max: int = 8,
) -> Prediction:
    """The whole estimate; `k` None takes K* at the middle of all ranges, `block` is that of a block
    drafter, None of any other.

    Speed-up and break-even compare like with like (fast with fast, slow with slow), so that an
    unknown bandwidth does not widen them.
    """
    middle_beta = (beta[0] + beta[1]) / 2
    if k is None:
        k = best_k(
            lambda n: expected_tokens(middle_beta, n) - 1,
            lambda n: middle(pass_seconds(target, n + 1)) + middle(draft_seconds(draft, n, block)),
            k_max,
        )
    one, verify = pass_seconds(target), pass_seconds(target, k + 1)
    drafting = draft_seconds(draft, k, block)
    tokens = expected_tokens(beta[0], k), expected_tokens(beta[1], k)
    cheap, dear = ((verify[side] + drafting[side]) / one[side] for side in (0, 1))
    return Prediction(
        k=k,
        plain=(1 / one[1], 1 / one[0]),
        spec=(tokens[0] / (verify[1] + drafting[1]), tokens[1] / (verify[0] + drafting[0])),
        speedup=(tokens[0] / dear, tokens[1] / cheap),
        tokens_per_pass=tokens,
        break_even=(min(cheap, dear) - 1, max(cheap, dear) - 1),
    )


def from_speedup(
    target: Parts, speedup: Span, k: int, draft: Parts = (), block: Rows | None = None
) -> Prediction:
    """A prediction from a measured speed-up range instead of acceptance (n-grams, measured pairs).

    Break-even is that of a cycle that drafts `k` tokens.
    """
    one, verify, drafting = (
        pass_seconds(target),
        pass_seconds(target, k + 1),
        draft_seconds(draft, k, block),
    )
    cheap, dear = ((verify[side] + drafting[side]) / one[side] for side in (0, 1))
    plain = 1 / one[1], 1 / one[0]
    return Prediction(
        k=k,
        plain=plain,
        spec=(plain[0] * speedup[0], plain[1] * speedup[1]),
        speedup=speedup,
        tokens_per_pass=None,
        break_even=(min(cheap, dear) - 1, max(cheap, dear) - 1),
    )


def middle(span: Span) -> float:
    """The middle of a range on a ratio scale."""
    return math.sqrt(span[0] * span[1])
