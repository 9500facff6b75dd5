"""llama-server: any list of methods, GGUF files, counters only with --metrics."""

from __future__ import annotations

from pathlib import Path

from specctl.errors import UsageError
from specctl.external.launch import Launch, finish
from specctl.external.method import WITH_WEIGHTS
from specctl.external.wish import HubFile, Weights, Wish

_MOD_N_MIN = 48  # llama-server's default; above n-max it would drop every draft


def build(wish: Wish) -> Launch:
    """The command. Raises UsageError for what llama-server cannot do."""
    options = wish.options
    if options.nodes > 1:
        raise UsageError(
            "llama-server is no cluster engine: --nodes is for vllm, sglang and trtllm",
            "it can lend memory of other machines with --rpc HOST:PORT,…, given after --",
        )
    if options.adaptive:
        raise UsageError(
            "llama-server has no draft length by load",
            "what it has: drafts end early below --spec-draft-p-min P, given after --",
        )
    argv = ["llama-server", *_target(wish.target), *_draft(wish.draft)]
    if wish.methods != ("none",):
        argv += ["--spec-type", ",".join(wish.methods)]
    lengths, notes = _lengths(wish)
    argv += lengths
    if options.ctx is not None:
        argv += ["-c", str(options.ctx)]
        notes.append("-c is shared by the slots, 4 unless -np says else; speculation needs no -np")
    if options.tp > 1:
        argv += ["--split-mode", "tensor", "--tensor-split", ",".join(["1"] * options.tp)]
        notes.append("--split-mode tensor is experimental there; layer is its default")
    argv += ["--metrics", "--host", options.host, "--port", str(wish.port)]
    if wish.methods != ("none",):
        notes.append('is it on? GET /slots must say "speculative": true')
    return finish(wish, argv, value=",".join(wish.methods), notes=notes)


def _target(weights: Weights) -> list[str]:
    if isinstance(weights, HubFile):
        return ["-hf", weights.repo, "-hff", weights.file]
    assert isinstance(weights, Path)  # a repository is no form of llama-server's
    return ["-m", str(weights)]


def _draft(weights: Weights | None) -> list[str]:
    """With a repository, -md names the file in it."""
    if weights is None:
        return []
    if isinstance(weights, HubFile):
        return ["-hfd", weights.repo, "-md", weights.file]
    return ["-md", str(weights)]


def _lengths(wish: Wish) -> tuple[list[str], list[str]]:
    """The flags of draft length. A profile's advice is for its drafter; --k caps every member."""
    argv: list[str] = []
    notes: list[str] = []
    if wish.k is not None and WITH_WEIGHTS & set(wish.methods):
        argv += ["--spec-draft-n-max", str(wish.k)]
    k = wish.options.k
    for name in wish.methods if k is not None else ():
        assert k is not None
        if name in ("ngram-simple", "ngram-map-k", "ngram-map-k4v"):
            argv += [f"--spec-{name}-size-m", str(k)]
        elif name == "ngram-mod":
            argv += ["--spec-ngram-mod-n-max", str(k)]
            if k < _MOD_N_MIN:
                argv += ["--spec-ngram-mod-n-min", str(k)]
                notes.append(f"ngram-mod: its n-min of {_MOD_N_MIN} is lowered to {k} too")
        elif name == "ngram-cache":
            notes.append("ngram-cache drafts 8 tokens there, whatever --k")
    return argv, notes
