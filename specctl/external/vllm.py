"""vLLM: one method in a JSON value, counters on by default."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from specctl.external.launch import Launch, finish, head_of, repository
from specctl.external.method import COUNTERPARTS
from specctl.external.wish import Wish

# Tokens per cycle where neither user nor profile says: those of vLLM's own examples.
START = {
    "draft-simple": 5,
    "draft-pard": 12,
    "draft-eagle": 2,
    "draft-eagle3": 3,
    "draft-p-eagle": 5,
    "draft-mtp": 1,
    "draft-dflash": 7,
    "draft-dspark": 7,
    "ngram-simple": 4,
    "ngram-suffix": 32,
}
_METHOD = {
    "draft-simple": "draft_model",
    "draft-pard": "draft_model",
    "draft-eagle": "eagle",
    "draft-eagle3": "eagle3",
    "draft-p-eagle": "eagle3",
    "draft-mtp": "mtp",
    "draft-dflash": "dflash",
    "draft-dspark": "dspark",
    "ngram-simple": "ngram",
    "ngram-suffix": "suffix",
}
_OWN_RUNNER = {"draft-p-eagle": "V1", "ngram-suffix": "V1", "draft-dspark": "V2"}
_MANY = 32  # batch size above which drafting is said not to pay


def build(wish: Wish) -> Launch:
    """The command, one a node. Raises UsageError where nodes lack an address."""
    options = wish.options
    argv = ["vllm", "serve", repository(wish.target)]
    notes: list[str] = []
    config = None if wish.methods == ("none",) else _config(wish, notes)
    if config is not None:
        argv += ["--speculative-config", _json(config)]
        argv += ["--per-request-spec-decode-metrics", "detailed"]
    if options.ctx is not None:
        argv += ["--max-model-len", str(options.ctx)]
    if options.tp > 1:
        argv += ["--tensor-parallel-size", str(options.tp)]
    argv += ["--host", options.host, "--port", str(wish.port)]
    notes.append("counters are on unless --disable-log-stats")
    launch = finish(
        wish,
        argv,
        value=COUNTERPARTS["vllm"][wish.methods[0]].value or "",
        notes=notes,
        config=config,
        keys=tuple(config or ()),
    )
    return launch if options.nodes == 1 else _spread(wish, launch)


def _json(config: dict[str, Any]) -> str:
    return json.dumps(config, separators=(",", ":"), ensure_ascii=False)


def _config(wish: Wish, notes: list[str]) -> dict[str, Any]:
    (method,) = wish.methods
    config: dict[str, Any] = {"method": _METHOD[method]}
    if wish.draft is not None:
        config["model"] = repository(wish.draft)
    k = wish.k or START[method]
    config["num_speculative_tokens"] = k
    if method in ("draft-pard", "draft-p-eagle"):
        config["parallel_drafting"] = True
    elif method == "ngram-simple":
        config |= {"prompt_lookup_min": 2, "prompt_lookup_max": 5}
        notes.append("it matches 2 to 5 tokens; specctl's ngram-simple matches 12")
    elif method == "draft-dspark":
        config["draft_sample_method"] = "probabilistic"
    elif method == "ngram-suffix":
        notes.append("pip install arctic-inference==0.1.1")
    elif method == "draft-dflash":
        notes.append(f"its docs advise the checkpoint's block size less one; {k} is a start")
    if method in _OWN_RUNNER:
        notes.append(f"runs on Model Runner {_OWN_RUNNER[method]} only")
    if method == "draft-simple":
        notes.append("vocabularies must be the same, else use_heterogeneous_vocab")
    if wish.options.adaptive:
        _adapt(method, k, config, notes)
    return config


def _adapt(method: str, k: int, config: dict[str, Any], notes: list[str]) -> None:
    """By confidence where a model drafts, else by concurrency."""
    if method == "ngram-suffix":
        notes.append("suffix sizes every draft by itself: nothing to add for --adaptive")
    elif method in ("ngram-simple", "draft-p-eagle"):
        config["num_speculative_tokens_per_batch_size"] = schedule(k)
        notes.append(
            "drafts get shorter with concurrency: a start, not measured; off under data parallelism"
        )
    else:
        config["enable_adaptive_verification"] = True
        notes.append(
            "adaptive verification: Model Runner V2, full CUDA graphs, no LoRA, no pipeline "
            "parallelism"
        )


def schedule(k: int) -> list[list[int]]:
    """[from, to, tokens] by concurrency, shorter drafts as it grows and none above 32."""
    steps = [[1, 4, k], [5, 8, max(1, k // 2)], [9, _MANY, 1], [_MANY + 1, 512, 0]]
    return steps if k > 1 else [[1, _MANY, 1], [_MANY + 1, 512, 0]]


def _spread(wish: Wish, launch: Launch) -> Launch:
    """One command a node: the first serves, the others follow it."""
    nodes, head = wish.options.nodes, head_of(wish.options)
    (base,) = launch.commands
    commands = []
    for rank in range(nodes):
        argv = [*base, "--nnodes", str(nodes), "--node-rank", str(rank), "--master-addr", head]
        commands.append(tuple(argv + (["--headless"] if rank else [])))
    return replace(launch, commands=tuple(commands))
