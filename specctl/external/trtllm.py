"""TensorRT-LLM's trtllm-serve: a YAML file whose unknown keys are refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from specctl.external.launch import Launch, finish, repository
from specctl.external.method import COUNTERPARTS
from specctl.external.wish import Wish
from specctl.external.yaml import Tree, emit

FILE = "specctl-trtllm.yaml"
DECODING = {
    "draft-simple": "Draft_Target",
    "draft-pard": "PARD",
    "draft-eagle3": "Eagle3",
    "draft-mtp": "MTP",
    "draft-dflash": "DFlash",
    "draft-dspark": "DSpark",
    "ngram-simple": "NGram",
    "ngram-suffix": "SA",
}
# Tokens per cycle where neither user nor profile says: those of its own examples.
START = {
    "draft-simple": 4,
    "draft-pard": 4,
    "draft-eagle3": 3,
    "draft-mtp": 3,
    "draft-dflash": 7,
    "draft-dspark": 7,
    "ngram-simple": 4,
    "ngram-suffix": 4,
}
_NGRAM = 3  # tokens matched
_SUFFIX = 4  # tokens from which the suffix automaton's draft wins over the head's


def build(wish: Wish) -> Launch:
    """The command and its file; under Slurm on several nodes."""
    options = wish.options
    argv = ["trtllm-serve", repository(wish.target), "--config", FILE]
    if options.tp > 1:
        argv += ["--tp_size", str(options.tp)]
    argv += ["--host", options.host, "--port", str(wish.port)]
    config: dict[str | int, Tree | bool | int | str] = {
        "enable_iter_perf_stats": True,
        "return_perf_metrics": True,
    }
    if options.ctx is not None:
        config["max_seq_len"] = options.ctx
    spec = None if wish.methods == ("none",) else _speculative(wish)
    if spec is not None:
        config["speculative_config"] = spec
    notes = [
        "/metrics there is JSON, drained by each read; Prometheus text is /prometheus/metrics",
        "releases 1.2.x have no series for speculation",
    ]
    if spec is not None and "draft_len_schedule" in spec:
        notes.append("draft_len_schedule: by batch size, none above 32: a start, not measured")
    if "draft-dspark" in wish.methods:
        notes.append("max_draft_len should be the checkpoint's block size")
    launch = finish(
        wish,
        argv,
        value=" + ".join(COUNTERPARTS["trtllm"][name].value or "" for name in wish.methods),
        notes=notes,
        config=spec,
        files=((FILE, emit(config)),),
        keys=tuple(_keys(config)),
    )
    return launch if options.nodes == 1 else _spread(wish, launch)


def _speculative(wish: Wish) -> dict[str | int, Tree | bool | int | str]:
    main = next((name for name in wish.methods if name != "ngram-suffix"), "ngram-suffix")
    k = wish.k or START[main]
    spec: dict[str | int, Tree | bool | int | str] = {
        "decoding_type": DECODING[main],
        "max_draft_len": k,
    }
    if wish.draft is not None:
        spec["speculative_model"] = repository(wish.draft)
    if main == "ngram-simple":
        spec |= {"max_matching_ngram_size": _NGRAM, "is_use_oldest": False}
    if len(wish.methods) > 1:
        spec["sa_config"] = {"threshold": _SUFFIX}
    if wish.options.adaptive:
        spec["draft_len_schedule"] = schedule(k)
    return spec


def schedule(k: int) -> dict[str | int, Tree | bool | int | str]:
    """Largest batch size → tokens, 0 above the last.

    The first must be max_draft_len; older releases ask for an entry of batch size 1 too.
    """
    return {1: k, 4: k, 8: max(1, k // 2), 32: 1} if k > 1 else {1: 1, 32: 1}


def _keys(tree: Mapping[str | int, object]) -> Iterator[str]:
    for key, value in tree.items():
        if isinstance(key, str):
            yield key
        if isinstance(value, Mapping):
            yield from _keys(value)


def _spread(wish: Wish, launch: Launch) -> Launch:
    """One Slurm step over all nodes. Options have seen to it that GPUs spread evenly."""
    nodes, gpus = wish.options.nodes, wish.options.tp
    (base,) = launch.commands
    step = ["srun", "-N", str(nodes), "--ntasks", str(gpus)]
    step += ["--ntasks-per-node", str(gpus // nodes), "--mpi=pmix", "trtllm-llmapi-launch"]
    notes = (
        *launch.notes,
        f"started once, under Slurm, from a folder that all nodes see ({FILE} lies there)",
    )
    return replace(launch, commands=((*step, *base),), notes=notes)
