"""What one look at a server says: its sums, from the series or the JSON of each engine.

    engine        D drafts            T drafted           A accepted            generated, seconds
    llama-server  num_drafts          num_draft_tokens    num_accepted_tokens   tokens_predicted,
                                                                                its own seconds
    vLLM          the same suffixes                                             generation_tokens,
                                                                                inter-token seconds
    SGLang        spec_verify_calls   D x nominal length  generated - requests  generation_tokens
                                                          - D
    TensorRT-LLM  requests with drafts, tokens and iteration times of its JSON list, which a read
                  empties; generated from its Prometheus text where that is on

llama-server flushes its counters when a request ends, SGLang and TensorRT-LLM's Prometheus text
too; vLLM counts every step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from specctl.external.errors import JunkError
from specctl.external.exposition import Samples

Engine = Literal["llama-server", "vllm", "sglang", "trtllm", "specctl"]
PREFIX: dict[Engine, str] = {
    "specctl": "specctl:",
    "llama-server": "llamacpp:",
    "vllm": "vllm:",
    "sglang": "sglang:",
    "trtllm": "trtllm_",
}
SPEC_INFO = f"{PREFIX['specctl']}spec_decode_info"  # 1, with the spec types in its label


@dataclass(frozen=True, slots=True)
class Sums:
    """What a server has counted. None: it does not say.

    `accepted_at[i]`: drafts of which at least i + 1 tokens stood; `drafted_at` the same of those
    proposed. `seconds` is the server's own clock of generation, summed over requests.
    """

    drafts: int = 0
    drafted: int = 0
    accepted: int = 0
    accepted_at: tuple[int, ...] = ()
    drafted_at: tuple[int, ...] | None = None
    generated: int | None = None
    seconds: float | None = None
    t_d: float | None = None
    passes: int | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """Sums since the server began, or with `drained` since the last look.

    `nominal`: tokens a draft, where the server counts drafts and not their tokens. `began` is the
    server's start, Unix seconds. `running`: requests being answered. `exact` False: derived.
    `iteration`: the number of the last one that a drained list has shown.
    """

    sums: Sums
    drained: bool = False
    exact: bool = True
    nominal: float | None = None
    began: float | None = None
    running: int | None = None
    speculates: bool | None = None
    notes: tuple[str, ...] = ()
    iteration: int | None = None


def read_series(engine: Engine, samples: Samples) -> Reading:
    """A scrape of Prometheus text.

    Raises:
        JunkError: none of the engine's series, or values that are no counts.
    """
    if not samples.has(PREFIX[engine]):
        raise JunkError(f"no {PREFIX[engine]} series in its metrics")
    if engine == "sglang":
        return _sglang(samples)
    if engine == "trtllm":
        return _trtllm(samples)
    return _by_drafts(PREFIX[engine], samples)


def specctl_method(samples: Samples) -> tuple[bool, str]:
    """Whether a specctl server speculates, and by which spec types: it says so.

    One that does not yet is told as vLLM is: its series are there where it speculates.
    """
    types = samples.label(SPEC_INFO, "spec_type")
    if types is None:
        return samples.has(f"{PREFIX['specctl']}spec_decode_num_"), ""
    return (False, "") if types == "none" else (True, types)


def _by_drafts(prefix: str, samples: Samples) -> Reading:
    """llama-server, vLLM and specctl: the same suffixes."""
    spec = f"{prefix}spec_decode_num_"
    drafts = samples.count(f"{spec}drafts_total")
    generated = samples.count(f"{prefix}generation_tokens_total")
    if generated is None:
        generated = samples.count(f"{prefix}tokens_predicted_total")
    seconds = samples.total(f"{prefix}tokens_predicted_seconds_total")
    if seconds is None:
        seconds = samples.total(f"{prefix}inter_token_latency_seconds_sum")
    running = samples.count(f"{prefix}num_requests_running")
    if running is None:
        running = samples.count(f"{prefix}requests_processing")
    began = samples.most("process_start_time_seconds")
    if began is None:
        began = samples.most(f"{prefix}process_start_time_seconds")
    drafted_at = samples.by_position(f"{spec}draft_tokens_per_pos_total") or None
    return Reading(
        Sums(
            drafts=drafts or 0,
            drafted=samples.count(f"{spec}draft_tokens_total") or 0,
            accepted=samples.count(f"{spec}accepted_tokens_total") or 0,
            accepted_at=samples.by_position(f"{spec}accepted_tokens_per_pos_total"),
            drafted_at=drafted_at,
            generated=generated,
            seconds=seconds,
            passes=samples.count(f"{prefix}cycles_total"),
        ),
        began=began,
        running=running,
        speculates=None if drafts is None else True,
    )


def _sglang(samples: Samples) -> Reading:
    """It counts drafts and generated tokens, not drafted ones: those are nominal, A derived."""
    calls = samples.count("sglang:spec_verify_calls_total")
    generated = samples.count("sglang:generation_tokens_total")
    requests = samples.count("sglang:num_requests_total") or 0
    steps = samples.most("sglang:spec_num_steps") or 0.0
    window = samples.most("sglang:spec_num_draft_tokens") or 0.0
    drafts = calls or 0
    accepted = max(0, (generated or 0) - requests - drafts) if drafts else 0
    return Reading(
        Sums(drafts=drafts, accepted=accepted, generated=generated),
        exact=not drafts,
        nominal=steps or max(0.0, window - 1),
        began=samples.most("process_start_time_seconds"),
        running=samples.count("sglang:num_running_reqs"),
        speculates=None if calls is None else True,
    )


def _trtllm(samples: Samples) -> Reading:
    prefix = "trtllm_spec_decode_"
    drafted_at = samples.by_position(f"{prefix}drafted_tokens_total", "token_position")
    drafted = samples.count(f"{prefix}num_draft_tokens_total")
    return Reading(
        Sums(
            drafts=drafted_at[0] if drafted_at else 0,
            drafted=drafted or 0,
            accepted=samples.count(f"{prefix}num_accepted_tokens_total") or 0,
            accepted_at=samples.by_position(f"{prefix}accepted_tokens_total", "token_position"),
            drafted_at=drafted_at or None,
            generated=samples.count("trtllm_generation_tokens_total"),
        ),
        began=samples.most("process_start_time_seconds"),
        speculates=None if drafted is None else True,
    )


@dataclass(slots=True)
class Iterations:
    """TensorRT-LLM's JSON list, one object an iteration, emptied by whoever reads it.

    Remembers the last iteration's number, so that what was lost is noticed.
    """

    last: int | None = None

    def read(self, value: Any, generated: int | None) -> Reading:
        """One look. `generated` is cumulative, from elsewhere.

        Raises:
            JunkError: no list of iterations.
        """
        if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
            raise JunkError("its /metrics is no list of iterations")
        notes = self._gaps(value)
        drafts = drafted = accepted = 0
        seconds = t_d = 0.0
        seen = False
        for one in value:
            seconds += _figure(one, "iterLatencyMS") / 1000
            spec = one.get("specDecodingStats")
            if not isinstance(spec, dict):
                continue
            seen = True
            drafts += _whole(spec, "numRequestsWithDraftTokens")
            drafted += _whole(spec, "numDraftTokens")
            accepted += _whole(spec, "numAcceptedTokens")
            t_d += _figure(spec, "iterLatencyMS") / 1000
        last = value[-1] if value else {}
        sums = Sums(
            drafts,
            drafted,
            accepted,
            generated=generated,
            seconds=seconds,
            t_d=t_d if seen else None,
        )
        return Reading(
            sums,
            drained=True,
            exact=generated is None,
            running=_whole(last, "numActiveRequests") if "numActiveRequests" in last else None,
            speculates=True if drafted else None,
            notes=notes,
            iteration=self.last,
        )

    def _gaps(self, value: Sequence[dict[str, Any]]) -> tuple[str, ...]:
        numbers = [one["iter"] for one in value if isinstance(one.get("iter"), int)]
        if not numbers:
            return ()
        before, self.last = self.last, numbers[-1]
        if before is None:
            return ()
        if numbers[0] <= before:
            return ("the server restarted: its iterations count anew",)
        lost = numbers[-1] - before - len(numbers)
        if lost <= 0:
            return ()
        are = "iteration is" if lost == 1 else "iterations are"
        return (f"{lost} {are} missing: its buffer ran over, or somebody else reads too",)


def _figure(values: dict[str, Any], name: str) -> float:
    value = values.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise JunkError(f"its {name} is {str(value)[:40]!r}, which is no number")
    if not math.isfinite(value) or not 0 <= value < 1 << 53:
        raise JunkError(f"its {name} is {value:g}, which is no count")
    return float(value)


def _whole(values: dict[str, Any], name: str) -> int:
    return round(_figure(values, name))
