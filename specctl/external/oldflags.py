"""What launch flags of older guides are today, and what they are called in specctl itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from specctl.external.flags import Grade

Verdict = Literal["valid", "catch", "old", "never", "unverified"]


@dataclass(frozen=True, slots=True)
class Old:
    """A flag or value that is not meant as typed any more, or never was.

    `today` may hold `{}` for its value; empty: nothing takes its place.
    """

    engine: str
    name: str
    verdict: Verdict
    today: str
    why: str
    grade: Grade = "H"


def _old(engine: str, verdict: Verdict, today: str, why: str, *names: str) -> tuple[Old, ...]:
    return tuple(Old(engine, name, verdict, today, why) for name in names)


_L, _V, _G, _T = "llama-server", "vllm", "sglang", "trtllm"

# By flag, flag=value, or configuration key.
OLD: tuple[Old, ...] = (
    *_old(_L, "never", "-md {}", "not a flag of llama.cpp", "--draft-model"),
    *_old(
        _L,
        "catch",
        "-md {} --spec-type draft-simple",
        "alone it loads an ordinary draft and drops it without a word: the type must be named",
        "-md",
        "--model-draft",
        "--spec-draft-model",
    ),
    *_old(
        _L,
        "old",
        "--spec-draft-n-max {} (draft models), --spec-ngram-mod-n-max {} (ngram-mod)",
        "removed: llama-server stops with an error",
        "--draft-max",
        "--draft",
        "--draft-n",
    ),
    *_old(
        _L,
        "old",
        "--spec-draft-n-min {} (draft models), --spec-ngram-mod-n-min {} (ngram-mod)",
        "removed: llama-server stops with an error",
        "--draft-min",
        "--draft-n-min",
    ),
    *_old(
        _L,
        "old",
        "--spec-ngram-simple-size-n {} (or -map-k-, -map-k4v-), --spec-ngram-mod-n-match {}",
        "removed: each look-up has its own",
        "--spec-ngram-size-n",
    ),
    *_old(
        _L,
        "old",
        "--spec-ngram-simple-size-m {} (or -map-k-, -map-k4v-)",
        "removed: each look-up has its own",
        "--spec-ngram-size-m",
    ),
    *_old(
        _L,
        "old",
        "--spec-ngram-simple-min-hits {} (or -map-k-, -map-k4v-)",
        "removed: each look-up has its own",
        "--spec-ngram-min-hits",
    ),
    *_old(
        _L,
        "never",
        "--spec-type ngram-simple (or ngram-map-k, ngram-map-k4v, ngram-mod)",
        "the change that proposed it became the ngram types",
        "--spec-type=draft-self",
        "--spec-self",
        "draft-self",
    ),
    *_old(_L, "old", "--spec-type draft-mtp", "renamed in May 2026", "--spec-type=mtp"),
    *_old(
        _L,
        "never",
        "--spec-draft-p-min {}",
        "in a docs page, not in the parser",
        "--spec-draft-conf-min",
    ),
    *_old(
        _L,
        "catch",
        "-np {}, or leave it out",
        "speculation does not need --parallel 1: one drafter serves all slots, 4 by default",
        "-np=1",
        "--parallel=1",
    ),
    *_old(
        _V,
        "old",
        "--spec-model {}, or model in --speculative-config",
        "the JSON replaced it",
        "--speculative-model",
    ),
    *_old(
        _V,
        "old",
        "--spec-tokens {}, or num_speculative_tokens in --speculative-config",
        "the JSON replaced it",
        "--num-speculative-tokens",
    ),
    *_old(
        _V,
        "never",
        "--spec-tokens {}, or num_speculative_tokens in --speculative-config",
        "it is SGLang's",
        "--speculative-num-steps",
    ),
    *_old(
        _V,
        "never",
        "",
        "no such option; nearest is synthetic_acceptance_length, which fakes acceptance for tests",
        "--speculative-accept-length",
    ),
    *_old(
        _V,
        "old",
        "draft_tensor_parallel_size: {} in --speculative-config",
        "the JSON replaced it; 1 or the target's",
        "--speculative-draft-tensor-parallel-size",
        "-spec-draft-tp",
    ),
    *_old(
        _V,
        "never",
        '"parallel_drafting": true in --speculative-config, with draft_model or eagle3',
        "it is a key of the JSON",
        "--speculative-parallel-drafting",
    ),
    *_old(_V, "never", "--spec-method {}", "it is spelled so", "--speculative-method"),
    *_old(
        _V,
        "never",
        "prompt_lookup_min, prompt_lookup_max in --speculative-config",
        "no such option",
        "--ngram-context-size",
    ),
    *_old(
        _V,
        "old",
        "prompt_lookup_max: {} in --speculative-config",
        "the JSON replaced it",
        "--ngram-prompt-lookup-max",
    ),
    *_old(
        _V,
        "old",
        "prompt_lookup_min: {} in --speculative-config",
        "the JSON replaced it",
        "--ngram-prompt-lookup-min",
    ),
    *_old(
        _V,
        "old",
        "max_model_len: {} in --speculative-config",
        "the JSON replaced it",
        "--speculative-max-model-len",
    ),
    *_old(
        _V,
        "old",
        "quantization: {} in --speculative-config",
        "the JSON replaced it",
        "--speculative-model-quantization",
    ),
    *_old(
        _V,
        "old",
        "num_speculative_tokens_per_batch_size in --speculative-config, 0 tokens above {}",
        "replaced by a schedule",
        "--speculative-disable-by-batch-size",
    ),
    *_old(
        _V,
        "old",
        "rejection_sample_method in --speculative-config",
        "other methods now: standard, block; fly is lossy",
        "--spec-decoding-acceptance-method",
    ),
    *_old(_V, "old", "", "gone with the V0 engine", "--speculative-disable-mqa-scorer"),
    *_old(
        _V, "never", "draft_tensor_parallel_size", "refused with a warning", "tensor_parallel_size"
    ),
    *_old(
        _V,
        "old",
        "eagle3, mtp or draft_model, with a checkpoint of that method",
        "the method is gone",
        "method=medusa",
        "method=mlp_speculator",
    ),
    *_old(
        _V,
        "old",
        "eagle3 with parallel_drafting: true",
        "a type of checkpoint, no method",
        "method=peagle",
        "method=p-eagle",
        "method=p_eagle",
    ),
    *_old(
        _G,
        "catch",
        "--speculative-algorithm NGRAM",
        "upper-cased when read: works as typed",
        "--speculative-algorithm=ngram",
    ),
    *_old(
        _G,
        "never",
        "--speculative-ngram-max-trie-depth {}",
        "no such option",
        "--ngram-context-size",
    ),
    *_old(
        _G,
        "never",
        "--speculative-num-draft-tokens {}, --speculative-ngram-max-bfs-breadth",
        "no such option",
        "--ngram-max-candidate-tokens",
    ),
    *_old(
        _G,
        "old",
        "--speculative-ngram-max-trie-depth {}",
        "gone in 0.5.23",
        "--speculative-ngram-max-match-window-size",
        "--speculative-ngram-min-match-window-size",
    ),
    *_old(_G, "old", "--cuda-graph-max-bs-decode {}", "renamed", "--cuda-graph-max-bs"),
    *_old(
        _G,
        "old",
        "",
        "obsolete: V2 always; --disable-overlap-schedule for the synchronous one",
        "SGLANG_ENABLE_SPEC_V2",
    ),
    *_old(
        _G,
        "catch",
        "sglang serve --model-path …",
        "still works, with a warning",
        "sglang.launch_server",
    ),
    *_old(_T, "catch", "--config {}", "still accepted", "--extra_llm_api_options"),
    *_old(
        _T,
        "old",
        "decoding_type: Draft_Target",
        "the schema knows no other spelling",
        "decoding_type=DraftTarget",
    ),
    *_old(
        _T,
        "catch",
        "decoding_type: Eagle3",
        "an alias; no EAGLE-1 or -2 checkpoints",
        "decoding_type=Eagle",
    ),
    *_old(_T, "old", "max_draft_len: {}", "deprecated, still remapped", "num_nextn_predict_layers"),
    *_old(
        _T,
        "old",
        "sa_config: {threshold: 4}",
        "replaced; unknown keys are refused",
        "use_sa_spec",
    ),
    *_old(
        _T,
        "old",
        "sa_config: {threshold: {}}",
        "replaced; unknown keys are refused",
        "sa_spec_threshold",
    ),
    *_old(_T, "old", "", "ignored with a warning: leave it out", "eagle3_one_model"),
    *_old(
        _T,
        "old",
        "",
        "deprecated: finished requests are not kept any more",
        "perf_metrics_max_requests",
    ),
)

# What they are called in specctl itself; `{}` is the value.
OURS = {
    "--draft-max": "--spec-draft-n-max {}",
    "--draft-n": "--spec-draft-n-max {}",
    "--draft-min": "--spec-draft-n-min {}",
    "--draft-n-min": "--spec-draft-n-min {}",
    "--draft-p-min": "--spec-draft-p-min {}",
    "--draft-model": "--draft {}",
    "--model-draft": "--draft {}",
    "--spec-draft-model": "--draft {}",
    "--speculative-model": "--draft {}",
    "--speculative-draft-model-path": "--draft {}",
    "--num-speculative-tokens": "--k {}",
    "--speculative-num-steps": "--k {}",
    "--speculative-num-draft-tokens": "--k {}",
    "--spec-ngram-size-n": "--spec-ngram-simple-size-n {}",
    "--spec-ngram-size-m": "--spec-ngram-simple-size-m {}",
    "--spec-ngram-min-hits": "--spec-ngram-simple-min-hits {}",
    "--speculative-method": "--spec-type",
    "--speculative-algorithm": "--spec-type",
    "--spec-self": "--spec-type ngram-simple",
    "--ctx-size": "--ctx {}",
    "--n-gpu-layers": "--gpu-layers {}",
    "-ngl": "--gpu-layers {}",
}
