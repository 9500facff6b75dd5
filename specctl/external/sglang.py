"""SGLang: one algorithm by flags, gauges only with --enable-metrics."""

from __future__ import annotations

from dataclasses import replace

from specctl.errors import UsageError
from specctl.external.launch import Launch, bracketed, finish, head_of, repository
from specctl.external.method import COUNTERPARTS
from specctl.external.wish import Wish

ALGORITHM = {
    "draft-simple": "STANDALONE",
    "draft-eagle": "EAGLE",
    "draft-eagle3": "EAGLE3",
    "draft-mtp": "NEXTN",
    "draft-dflash": "DFLASH",
    "draft-dspark": "DSPARK",
    "ngram-simple": "NGRAM",
}
_STEPWISE = ("draft-simple", "draft-eagle", "draft-eagle3", "draft-mtp")
_ADAPTIVE = ("draft-eagle", "draft-eagle3", "draft-mtp")
_LOG_EVERY = 5  # decode steps; the gauges are means over this many, 40 by default
_RENDEZVOUS = 25000  # the port of SGLang's own example


def build(wish: Wish) -> Launch:
    """The command, one a node. Raises UsageError for what SGLang cannot do."""
    options = wish.options
    argv = ["sglang", "serve", "--model-path", repository(wish.target)]
    notes: list[str] = []
    method = wish.methods[0]
    if method != "none":
        argv += ["--speculative-algorithm", ALGORITHM[method]]
        if wish.draft is not None:
            argv += ["--speculative-draft-model-path", repository(wish.draft)]
        argv += _lengths(wish, method, notes)
        notes.append("without --max-running-requests it serves at most 48 at once when speculating")
    if options.adaptive:
        argv += _adapt(method, notes)
    if options.ctx is not None:
        argv += ["--context-length", str(options.ctx)]
    if options.tp > 1:
        argv += ["--tp-size", str(options.tp)]
    argv += ["--enable-metrics", "--decode-log-interval", str(_LOG_EVERY)]
    argv += ["--host", options.host, "--port", str(wish.port)]
    notes.append(f"its gauges are means over {_LOG_EVERY} decode steps and stay when idle")
    launch = finish(wish, argv, value=COUNTERPARTS["sglang"][method].value or "", notes=notes)
    return launch if options.nodes == 1 else _spread(wish, launch)


def _lengths(wish: Wish, method: str, notes: list[str]) -> list[str]:
    """Its verify window holds the last token too: one more than the drafted ones."""
    if method in _STEPWISE:
        k = wish.k
        if k is None:
            notes.append("draft lengths are SGLang's own choice for the target's architecture")
            return []
        return [
            *("--speculative-num-steps", str(k)),
            *("--speculative-eagle-topk", "1"),
            *("--speculative-num-draft-tokens", str(k + 1)),
        ]
    own = wish.options.k  # the block is the checkpoint's, whatever a profile advises
    if method == "ngram-simple":
        window = [] if own is None else ["--speculative-num-draft-tokens", str(own + 1)]
        notes.append("NGRAM: no attention data parallelism; its trie outlives requests")
        return [*window, "--speculative-ngram-max-bfs-breadth", "1"]
    if own is None:
        notes.append("the block length is the checkpoint's")
        return []
    if method == "draft-dflash":
        return ["--speculative-dflash-block-size", str(own + 1)]
    return ["--speculative-dspark-block-size", str(own)]


def _adapt(method: str, notes: list[str]) -> list[str]:
    if method not in _ADAPTIVE:
        raise UsageError(
            f"SGLang adapts the draft length of EAGLE, EAGLE3 and MTP only, not of {method}",
            "leave --adaptive out",
        )
    notes.append("steps by batch size: up to 1: 1, 3, 5, 7; up to 8: 0, 1, 3; 32: 0, 1; 64: 0")
    return ["--speculative-adaptive"]


def _spread(wish: Wish, launch: Launch) -> Launch:
    nodes, head = wish.options.nodes, head_of(wish.options)
    (base,) = launch.commands
    meet = f"{bracketed(head)}:{_RENDEZVOUS}"
    commands = tuple(
        (*base, "--nnodes", str(nodes), "--node-rank", str(rank), "--dist-init-addr", meet)
        for rank in range(nodes)
    )
    return replace(launch, commands=commands)
