"""What a user may set, as frozen values, checked once when they are made."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Literal

from specctl.errors import SettingsError

KV_TYPES = ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")
FlashAttention = Literal["auto", "on", "off"]


def _require(ok: bool, what: str, hint: str | None = None) -> None:
    if not ok:
        raise SettingsError(what, hint)


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """Where one model's weights and KV cache live. `gpu_layers` -1 means all of them."""

    gpu_layers: int = -1
    devices: tuple[str, ...] = ()
    kv_type_k: str = "f16"
    kv_type_v: str = "f16"
    tensor_overrides: tuple[tuple[str, str], ...] = ()  # (tensor name pattern, buffer type)
    n_cpu_moe: int = 0  # experts of the first N layers stay in RAM

    def __post_init__(self) -> None:
        _require(self.gpu_layers >= -1, f"gpu layers {self.gpu_layers} is below -1 (all)")
        _require(0 <= self.n_cpu_moe <= 1024, f"n-cpu-moe {self.n_cpu_moe} is not in 0 … 1024")
        for kv_type in (self.kv_type_k, self.kv_type_v):
            _require(
                kv_type in KV_TYPES, f"unknown KV type {kv_type!r}", "one of " + ", ".join(KV_TYPES)
            )


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """How target and draft are opened. `threads` None means physical cores within the CPU quota."""

    n_ctx: int = 4096
    n_batch: int = 512
    n_ubatch: int = 512
    threads: int | None = None
    flash_attn: FlashAttention = "auto"
    target: ModelSettings = field(default_factory=ModelSettings)
    draft: ModelSettings = field(default_factory=ModelSettings)

    def __post_init__(self) -> None:
        _require(self.n_ctx >= 32, f"context of {self.n_ctx} tokens is too small", "at least 32")
        _require(self.n_ctx <= 1 << 24, f"context of {self.n_ctx} tokens is beyond any model")
        _require(1 <= self.n_ubatch <= self.n_batch, "n_ubatch must be between 1 and n_batch")
        _require(
            self.threads is None or 1 <= self.threads <= 1024,
            f"{self.threads} threads make no sense",
            "a number from 1 to your cores",
        )
        if self.flash_attn not in ("auto", "on", "off"):
            raise SettingsError(f"flash attention {self.flash_attn!r}", "one of auto, on, off")
        for model in (self.target, self.draft):
            quantised = model.kv_type_v not in ("f32", "f16", "bf16")
            _require(
                not (quantised and self.flash_attn == "off"),
                f"KV type {model.kv_type_v} for values needs flash attention",
                "drop --flash-attn off, or use f16",
            )


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next token is chosen. Temperature 0 is greedy. Order: penalties, k, p, min-p, heat.

    0 switches top-k off, 1.0 top-p, 0.0 min-p; penalties look at the last `penalty_last_n` tokens.
    """

    temperature: float = 0.0
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    repeat_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    penalty_last_n: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        _require(0 <= self.temperature <= 100, f"temperature {self.temperature} is not in 0 … 100")
        _require(self.top_k >= 0, f"top-k {self.top_k} is negative", "0 switches it off")
        _require(0 < self.top_p <= 1, f"top-p {self.top_p} is not in (0, 1]")
        _require(0 <= self.min_p < 1, f"min-p {self.min_p} is not in [0, 1)")
        _require(
            0.01 <= self.repeat_penalty <= 100,
            f"repeat penalty {self.repeat_penalty} is not in 0.01 … 100",
        )
        _require(self.penalty_last_n >= 0, f"penalty-last-n {self.penalty_last_n} is negative")
        _require(0 <= self.seed < 1 << 64, f"seed {self.seed} does not fit 64 bits")
        for penalty in (self.frequency_penalty, self.presence_penalty):
            _require(abs(penalty) <= 100, f"penalty {penalty} is not in -100 … 100")

    @property
    def greedy(self) -> bool:
        """No draw at all: the largest logit after penalties."""
        return self.temperature == 0

    @property
    def penalised(self) -> bool:
        """Logits depend on the tokens before them."""
        return self.penalty_last_n > 0 and (
            self.repeat_penalty != 1 or self.frequency_penalty != 0 or self.presence_penalty != 0
        )


@dataclass(frozen=True, slots=True)
class NgramSettings:
    """Look up the last `size_n` tokens, draft up to `size_m`, after `min_hits` sightings."""

    size_n: int = 12
    size_m: int = 48
    min_hits: int = 1

    def __post_init__(self) -> None:
        _require(1 <= self.size_n <= 1024, f"n-gram size-n {self.size_n} is not in 1 … 1024")
        _require(1 <= self.size_m <= 1024, f"n-gram size-m {self.size_m} is not in 1 … 1024")
        _require(self.min_hits >= 1, f"n-gram min-hits {self.min_hits} is below 1")


@dataclass(frozen=True, slots=True)
class NgramModSettings:
    """Rolling hash of `n_match` tokens to the next one; drafts shorter than `n_min` are dropped."""

    n_match: int = 24
    n_max: int = 64
    n_min: int = 48

    def __post_init__(self) -> None:
        _require(1 <= self.n_match <= 1024, f"ngram-mod n-match {self.n_match} is not in 1 … 1024")
        _require(1 <= self.n_max <= 1024, f"ngram-mod n-max {self.n_max} is not in 1 … 1024")
        _require(0 <= self.n_min <= self.n_max, f"ngram-mod n-min {self.n_min} is above n-max")


@dataclass(frozen=True, slots=True)
class DraftSettings:
    """A draft model: at most `n_max` tokens, none if fewer than `n_min`, stop below `p_min`.

    `sampling` says how it draws: `greedy` drafts are point masses, `sampled` ones come with their
    own law q. At temperature 0 both are greedy.
    """

    n_max: int = 3
    n_min: int = 0
    p_min: float = 0.0
    sampling: Literal["greedy", "sampled"] = "greedy"

    def __post_init__(self) -> None:
        _require(1 <= self.n_max <= 1024, f"draft n-max {self.n_max} is not in 1 … 1024")
        _require(0 <= self.n_min <= self.n_max, f"draft n-min {self.n_min} is above n-max")
        _require(0 <= self.p_min <= 1, f"draft p-min {self.p_min} is not in 0 … 1")
        if self.sampling not in ("greedy", "sampled"):
            raise SettingsError(f"draft sampling {self.sampling!r}", "one of greedy, sampled")


@dataclass(frozen=True, slots=True)
class SpecSettings:
    """Which drafters a run opens, in order, and how each behaves.

    `k` caps every drafter's tokens per cycle. `compat` keeps llama.cpp's own behaviour where ours
    is better by default. `min_accept` switches a fixed drafter off while its acceptance rate is
    lower (0: never); `auto` decides by costs and does not use it.
    """

    types: tuple[str, ...] = ("none",)
    k: int | None = None
    compat: bool = False
    min_accept: float = 0.0
    ngram_simple: NgramSettings = field(default_factory=NgramSettings)
    ngram_map_k: NgramSettings = field(default_factory=NgramSettings)
    ngram_map_k4v: NgramSettings = field(default_factory=NgramSettings)
    ngram_mod: NgramModSettings = field(default_factory=NgramModSettings)
    draft: DraftSettings = field(default_factory=DraftSettings)

    def __post_init__(self) -> None:
        _require(bool(self.types), "no spec type given")
        _require(0 <= self.min_accept <= 1, f"min-accept {self.min_accept} is not in 0 … 1")
        _require(
            self.k is None or 1 <= self.k <= 1024, f"k {self.k} is not in 1 … 1024", "leave --k out"
        )
        _require(
            len(set(self.types)) == len(self.types),
            f"a spec type is named twice: {','.join(self.types)}",
        )
        _require(
            len(self.types) == 1 or "none" not in self.types, "`none` cannot be part of a chain"
        )


def limit_drafts(spec: SpecSettings) -> tuple[SpecSettings, tuple[str, ...]]:
    """Apply `k` to every drafter's own maximum; a minimum above it is lowered, and said so.

    With `k` given, a draft model drafts exactly up to `k`: it raises n-max as well as lowering it.
    """
    if spec.k is None:
        return spec, ()
    k = spec.k
    notes: list[str] = []

    def lowered(name: str, minimum: int) -> int:
        if minimum > k and name in spec.types:
            notes.append(f"{name}: n-min {minimum} lowered to k {k}")
        return min(minimum, k)

    return (
        dataclasses.replace(
            spec,
            ngram_simple=_cap(spec.ngram_simple, k),
            ngram_map_k=_cap(spec.ngram_map_k, k),
            ngram_map_k4v=_cap(spec.ngram_map_k4v, k),
            ngram_mod=dataclasses.replace(
                spec.ngram_mod,
                n_max=min(spec.ngram_mod.n_max, k),
                n_min=lowered("ngram-mod", spec.ngram_mod.n_min),
            ),
            draft=dataclasses.replace(
                spec.draft, n_max=k, n_min=lowered("draft-simple", spec.draft.n_min)
            ),
        ),
        tuple(notes),
    )


def _cap(ngram: NgramSettings, k: int) -> NgramSettings:
    return dataclasses.replace(ngram, size_m=min(ngram.size_m, k))


@dataclass(frozen=True, slots=True)
class Grammar:
    """What an answer must match: GBNF text with a rule `root`.

    With `after`, everything may be said until that text has been: the end of a model's thinking.
    """

    gbnf: str
    after: str = ""

    def __post_init__(self) -> None:
        _require(bool(self.gbnf.strip()), "the grammar is empty")


@dataclass(frozen=True, slots=True)
class Request:
    """One generation: prompt tokens in, at most `max_tokens` out (None: until the context is full).

    `ignore_eog` keeps going past end-of-generation tokens (benchmarks of equal length). `grammar`
    binds the text; it ends by itself where the grammar does, or in the middle at `max_tokens`.
    """

    tokens: tuple[int, ...]
    max_tokens: int | None = None
    sampling: Sampling = field(default_factory=Sampling)
    stop: tuple[str, ...] = ()
    ignore_eog: bool = False
    grammar: Grammar | None = None

    def __post_init__(self) -> None:
        _require(bool(self.tokens), "the prompt is empty", "give at least one token of text")
        _require(
            self.max_tokens is None or self.max_tokens >= 1, f"max-tokens {self.max_tokens} below 1"
        )
        _require(all(self.stop), "an empty stop string would stop everything")
