"""Which flag or key of which engine is known, and from where: what is not in here is unverified.

Grades: H read in a released source tree or a machine-readable schema; M read in one stored page
whose release is not known. Nobody ran vLLM, SGLang or TensorRT-LLM for these tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

Grade = Literal["H", "M", "unverified"]

SOURCES = {
    "L": "llama.cpp 0c1e570 (2026-10-01), common/arg.cpp",
    "V": "vLLM 0.33.0, source distribution",
    "G": "SGLang 0.5.23, wheel",
    "T1": "TensorRT-LLM 20e2031, schemas/trtllm-serve-config.schema.json",
    "T4": "TensorRT-LLM 0434755, docs/source/commands/trtllm-serve",
}


@dataclass(frozen=True, slots=True)
class Known:
    """Where a flag or key was read. `source` is a key of SOURCES, empty where unverified."""

    grade: Grade
    source: str = ""


UNVERIFIED = Known("unverified")


@dataclass(frozen=True, slots=True)
class Engine:
    """One engine: how it is started and scraped. `metrics` is the path of its Prometheus text."""

    name: str
    title: str
    program: tuple[str, ...]
    port: int
    metrics: str
    checked: str
    image: str


ENGINES = {
    engine.name: engine
    for engine in (
        Engine(
            "llama-server",
            "llama-server",
            ("llama-server",),
            8080,
            "/metrics",
            "llama.cpp 0c1e570 of 2026-10-01, the one inside llama-cpp-python 0.3.36: source",
            "ghcr.io/ggml-org/llama.cpp:server-cuda",
        ),
        Engine(
            "vllm",
            "vLLM",
            ("vllm", "serve"),
            8000,
            "/metrics",
            "vLLM 0.33.0: source, not run",
            "vllm/vllm-openai:v0.33.0",
        ),
        Engine(
            "sglang",
            "SGLang",
            ("sglang", "serve"),
            30000,
            "/metrics",
            "SGLang 0.5.23: source, not run",
            "lmsysorg/sglang:v0.5.23",
        ),
        Engine(
            "trtllm",
            "TensorRT-LLM",
            ("trtllm-serve",),
            8000,
            "/prometheus/metrics",
            "TensorRT-LLM 20e2031, after 1.4.0rc1: its configuration schema and docs, not run",
            "nvcr.io/nvidia/tensorrt-llm/release:1.4.0rc1",
        ),
    )
}


def _table(grade: Grade, source: str, names: str) -> dict[str, Known]:
    return dict.fromkeys(names.split(), Known(grade, source))


# Spellings that mean the same are all here: `explain` meets them too.
FLAGS: Mapping[str, Mapping[str, Known]] = {
    "llama-server": _table(
        "H",
        "L",
        "-m --model -hf -hfr --hf-repo -hff --hf-file -a --alias -c --ctx-size -np --parallel "
        "-ngl --gpu-layers --n-gpu-layers -sm --split-mode -ts --tensor-split -cmoe --cpu-moe "
        "-ncmoe --n-cpu-moe -ctk --cache-type-k -ctv --cache-type-v --host --port --api-key "
        "--api-key-file --metrics --jinja --no-jinja --rpc -lcs --lookup-cache-static "
        "-lcd --lookup-cache-dynamic --spec-type --spec-default "
        "-md --spec-draft-model --model-draft -hfd -hfrd --spec-draft-hf --hf-repo-draft "
        "--spec-draft-n-max --spec-draft-n-min --spec-draft-p-min --draft-p-min "
        "--spec-draft-p-split --draft-p-split -ngld --spec-draft-ngl --gpu-layers-draft "
        "--n-gpu-layers-draft -devd --spec-draft-device --device-draft -td --spec-draft-threads "
        "--threads-draft -ctkd --spec-draft-type-k --cache-type-k-draft -ctvd "
        "--spec-draft-type-v --cache-type-v-draft -cmoed --spec-draft-cpu-moe --cpu-moe-draft "
        "-ncmoed --spec-draft-n-cpu-moe --spec-draft-ncmoe --n-cpu-moe-draft "
        "--spec-draft-backend-sampling --no-spec-draft-backend-sampling --spec-synth-len "
        "--spec-synth-rates --spec-ngram-simple-size-n --spec-ngram-simple-size-m "
        "--spec-ngram-simple-min-hits --spec-ngram-map-k-size-n --spec-ngram-map-k-size-m "
        "--spec-ngram-map-k-min-hits --spec-ngram-map-k4v-size-n --spec-ngram-map-k4v-size-m "
        "--spec-ngram-map-k4v-min-hits --spec-ngram-mod-n-max --spec-ngram-mod-n-min "
        "--spec-ngram-mod-n-match",
    ),
    "vllm": _table(
        "H",
        "V",
        "--host --port --max-model-len --tensor-parallel-size -tp --pipeline-parallel-size -pp "
        "--nnodes -n --node-rank -r --master-addr --master-port --headless --tokenizer "
        "--served-model-name --quantization -q --load-format --trust-remote-code "
        "--gpu-memory-utilization --disable-log-stats --per-request-spec-decode-metrics "
        "--speculative-config -sc --spec-method --spec-model --spec-tokens "
        "--data-parallel-size -dp",
    ),
    "sglang": _table(
        "H",
        "G",
        "--model-path --model --host --port --context-length --tp-size --tensor-parallel-size "
        "--pp-size --pipeline-parallel-size --nnodes --node-rank --dist-init-addr --enable-metrics "
        "--decode-log-interval --trust-remote-code --quantization --load-format "
        "--speculative-algorithm --speculative-draft-model-path --speculative-draft-model "
        "--speculative-draft-model-revision --speculative-draft-load-format "
        "--speculative-draft-model-quantization --speculative-num-steps "
        "--speculative-eagle-topk --speculative-num-draft-tokens --speculative-dflash-block-size "
        "--speculative-dspark-block-size --speculative-adaptive --speculative-adaptive-config "
        "--speculative-accept-threshold-single --speculative-accept-threshold-acc "
        "--speculative-use-rejection-sampling --speculative-use-block-verification "
        "--speculative-token-map --speculative-attention-mode "
        "--speculative-draft-kv-cache-dtype --speculative-ngram-min-bfs-breadth "
        "--speculative-ngram-max-bfs-breadth --speculative-ngram-match-type "
        "--speculative-ngram-max-trie-depth --speculative-ngram-capacity "
        "--speculative-ngram-external-corpus-path --speculative-ngram-external-sam-budget "
        "--speculative-ngram-external-corpus-max-tokens --uno-lora-path",
    ),
    "trtllm": _table(
        "M", "T4", "--config --set --host --port --tp_size --pp_size --ep_size --max_batch_size"
    )
    | _table("M", "T4", "--max_num_tokens --kv_cache_free_gpu_memory_fraction"),
}

# Keys of the speculative configuration, and for TensorRT-LLM of the whole file.
KEYS: Mapping[str, Mapping[str, Known]] = {
    "vllm": _table(
        "H",
        "V",
        "method model num_speculative_tokens draft_tensor_parallel_size max_model_len quantization "
        "revision code_revision enforce_eager moe_backend attention_backend kv_cache_dtype "
        "draft_load_config parallel_drafting use_heterogeneous_vocab prompt_lookup_min "
        "prompt_lookup_max suffix_decoding_max_tree_depth suffix_decoding_max_cached_requests "
        "suffix_decoding_max_spec_factor suffix_decoding_min_token_prob "
        "num_speculative_tokens_per_batch_size enable_adaptive_verification draft_sample_method "
        "rejection_sample_method synthetic_acceptance_rates synthetic_acceptance_length "
        "fly_window_size fly_entropy_threshold fly_entropy_top_k dspark_draft_topk xpress_topc "
        "draft_lm_head_quantization use_local_argmax_reduction disable_padded_drafter_batch "
        "disable_eagle_block_drop disable_lookahead_block_hashes index_share_for_mtp_iteration",
    ),
    "trtllm": _table(
        "H",
        "T1",
        "enable_iter_perf_stats return_perf_metrics max_seq_len max_batch_size "
        "tensor_parallel_size pipeline_parallel_size iter_perf_stats_interval "
        "speculative_config decoding_type max_draft_len max_total_draft_tokens speculative_model "
        "speculative_model_dir max_concurrency draft_len_schedule acceptance_rate_window_size "
        "acceptance_rate_threshold use_rejection_sampling max_matching_ngram_size is_keep_all "
        "is_use_oldest is_public_pool sa_config threshold",
    ),
}


@dataclass(frozen=True, slots=True)
class Mark:
    """One flag or key of a command, and where it is known from."""

    name: str
    known: Known


def flag_of(token: str) -> str | None:
    """The flag that a token of a command line is, without `=value`; None for a value."""
    if not re.match(r"-{1,2}[A-Za-z]", token):
        return None
    return token.partition("=")[0]


def look_up(engine: str, flag: str) -> Known:
    """A flag's entry. `_` and `-` are the same in long flags of llama-server and vLLM."""
    table = FLAGS[engine]
    name = flag.partition(".")[0]  # --speculative-config.method
    if engine in ("llama-server", "vllm") and name.startswith("--"):
        name = "--" + name[2:].replace("_", "-")
    return table.get(name, UNVERIFIED)


def marks(engine: str, argv: Sequence[str], keys: Iterable[str] = ()) -> tuple[Mark, ...]:
    """Every flag of a command and key of its configuration once, in order."""
    found = [Mark(flag, look_up(engine, flag)) for token in argv if (flag := flag_of(token))]
    table = KEYS.get(engine, {})
    found += [Mark(key, table.get(key, UNVERIFIED)) for key in keys]
    return tuple(dict.fromkeys(found))
