"""May this draft work for that target? The whole check, from two headers, before any download."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from specctl.enginefacts import ASSISTANT, ASSISTANT_TARGET, EngineFacts
from specctl.gguf import arches, layerpair
from specctl.gguf.facts import ModelFacts
from specctl.units import a_or_an
from specctl.vocabulary import FIRST_CHECKED_ID, Vocabulary, first_difference

Level = Literal["no", "warning", "note"]
Verdict = Literal["ok", "ok with warnings", "no"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One sentence and its weight: `no` ends the pair, `warning` costs, `note` informs."""

    level: Level
    text: str


@dataclass(frozen=True, slots=True)
class PairCheck:
    """The verdict, the spec type that would use the draft, and what it rests on."""

    verdict: Verdict
    method: str
    findings: tuple[Finding, ...]


_METHODS = {
    "model": "draft-simple",
    "mtp head": "draft-mtp",
    "eagle3": "draft-eagle3",
    "dflash": "draft-dflash",
    "dspark": "draft-dspark",
    "dflash2": "draft-dflash",
}


def check_pair(
    target: ModelFacts, draft: ModelFacts, engine: EngineFacts | None = None
) -> PairCheck:
    """Everything two headers can say. Without `engine` our own list of architectures is used.

    What a header cannot say, and the engine or llama.cpp looks at besides: the token ids of a
    draft's own vocabulary (a note says so), and that all tensors are there and have their shapes.
    """
    findings = [
        *_usable(target, "target", engine),
        *_usable(draft, "draft", engine),
        *_role(target),
    ]
    method = _METHODS.get(draft.kind, "none")
    if method == "none":
        findings.append(Finding("no", f"the draft is {a_or_an(draft.kind)}: it drafts no tokens"))
    elif draft.kind == "model":
        findings += [*_vocabularies(target, draft), *_cost(target, draft), *_context(target, draft)]
        findings += _memory_of_draft(draft)
    elif draft.kind == "mtp head":
        findings += _mtp_head(target, draft)
    else:
        findings += [Finding("no", why) for why in layerpair.unfit(target, draft)]
        findings += [Finding("note", what) for what in layerpair.unseen(draft)]
    findings += _memory_of_target(target)
    levels = {finding.level for finding in findings}
    verdict: Verdict = "no" if "no" in levels else "ok"
    if verdict == "ok" and "warning" in levels:
        verdict = "ok with warnings"
    order = ("no", "warning", "note")
    return PairCheck(
        verdict, method, tuple(sorted(findings, key=lambda finding: order.index(finding.level)))
    )


def _usable(model: ModelFacts, who: str, engine: EngineFacts | None) -> list[Finding]:
    """Can it be loaded at all?"""
    findings = []
    if model.missing:
        findings.append(Finding("no", f"the {who}'s file is incomplete: fetch it again"))
    if model.mtp == "stripped":
        findings.append(
            Finding("no", f"the {who} announces MTP layers that are not in it: it will not load")
        )
    known = engine.architectures if engine is not None else None
    if known is not None and model.arch not in known:
        version = engine.version if engine is not None else ""
        findings.append(
            Finding(
                "no",
                f"the installed llama-cpp-python {version} cannot load the {who}'s architecture "
                f"{model.arch!r}: upgrade it, or choose another model",
            )
        )
    elif known is None and not model.known_arch:
        findings.append(
            Finding(
                "warning",
                f"architecture {model.arch!r} of the {who} is not in our list, and no engine is "
                "installed to ask",
            )
        )
    return findings


def _role(target: ModelFacts) -> list[Finding]:
    if target.kind == "model":
        return []
    return [Finding("no", f"the target is {a_or_an(target.kind)}, not a model that generates text")]


def _vocabularies(target: ModelFacts, draft: ModelFacts) -> list[Finding]:
    if target.tokenizer is None or draft.tokenizer is None:
        who = "target" if target.tokenizer is None else "draft"
        return [Finding("no", f"the {who}'s file has no tokenizer to compare")]
    ours, theirs = target.tokenizer.vocabulary, draft.tokenizer.vocabulary
    findings = []
    same = target.tokenizer.sha256 == draft.tokenizer.sha256
    difference = first_difference(ours, theirs)
    if difference is not None:
        findings.append(Finding("no", difference.reason))
        if difference.token is None:
            findings += _first_other_text(ours, theirs)
    elif same:
        findings.append(Finding("note", f"the same {ours.size} token texts"))
    else:
        gap = abs(ours.size - theirs.size)
        what = f"{gap} tokens of padding" if gap else "a few special tokens"
        findings.append(Finding("note", f"vocabularies differ only by {what}: harmless"))
    if target.tokenizer.pre != draft.tokenizer.pre:
        findings.append(
            Finding(
                "warning",
                f"texts are cut into tokens differently: target {target.tokenizer.pre or 'none'}, "
                f"draft {draft.tokenizer.pre or 'none'}",
            )
        )
    return findings


def _first_other_text(ours: Vocabulary, theirs: Vocabulary) -> list[Finding]:
    """Where the texts part, for pairs that were refused before any text was compared."""
    pairs = zip(ours.texts, theirs.texts, strict=False)
    for token, (text, other) in enumerate(pairs):
        if token >= FIRST_CHECKED_ID and text != other:
            return [
                Finding(
                    "note", f"first other text: token {token}: target {text!r}, draft {other!r}"
                )
            ]
    return []


def active_bytes(model: ModelFacts) -> int:
    """Bytes read per token: all weights but the embedding, of the experts only those used."""
    weights, shape = model.weights, model.shape
    experts = sum(weights.experts)
    used = experts * shape.n_expert_used // shape.n_expert if shape.n_expert else experts
    output = weights.output + (weights.embedding if weights.tied else 0)
    return sum(weights.layers) - experts + used + output


def _cost(target: ModelFacts, draft: ModelFacts) -> list[Finding]:
    """A draft must be much cheaper per token than its target."""
    ours, theirs = active_bytes(target), active_bytes(draft)
    share = theirs / ours if ours else 1.0
    text = f"the draft reads {share:.0%} of the target's bytes per token"
    if set(target.sources) == set(draft.sources):
        return [Finding("no", "target and draft are the same file")]
    if share >= 1:
        return [Finding("no", f"{text}: it cannot be faster than the target")]
    findings = [Finding("warning", f"{text}: too much to gain from")] if share > 0.5 else []
    if not findings:
        findings.append(Finding("note", text))
    if target.shape.is_moe:
        findings.append(
            Finding(
                "warning",
                f"the target uses {target.shape.n_expert_used} of {target.shape.n_expert} experts "
                "per token: verifying several tokens reads more of them, and often eats the gain",
            )
        )
    return findings


def _context(target: ModelFacts, draft: ModelFacts) -> list[Finding]:
    ours, theirs = target.shape.context_length, draft.shape.context_length
    if not ours or not theirs or theirs >= ours:
        return []
    return [
        Finding(
            "warning",
            f"the draft was trained for {theirs} tokens of context, the target for {ours}: "
            f"expect its drafts to be rejected beyond {theirs}",
        )
    ]


def _memory_of_target(target: ModelFacts) -> list[Finding]:
    if target.shape.is_hybrid and target.arch not in arches.ROLLBACK:
        return [
            Finding(
                "warning",
                "the target keeps a recurrent state that llama.cpp cannot roll back for "
                f"{target.arch}: a rejected token costs a checkpoint and decoding again",
            )
        ]
    if target.shape.is_hybrid:
        return [
            Finding("note", "the target is a hybrid; llama.cpp keeps snapshots to roll it back")
        ]
    if target.shape.n_swa:
        return [
            Finding(
                "note",
                f"sliding-window target: its {target.shape.n_swa} window layers get a full-size "
                "cache, so that rejected tokens can be taken back",
            )
        ]
    return []


def _memory_of_draft(draft: ModelFacts) -> list[Finding]:
    if not draft.shape.is_hybrid:
        return []
    return [
        Finding(
            "warning",
            "the draft keeps a recurrent state: it must be restored and decoded again every cycle",
        )
    ]


def _mtp_head(target: ModelFacts, draft: ModelFacts) -> list[Finding]:
    findings = []
    if draft.arch == ASSISTANT:
        findings += _assistant(target, draft)
    elif draft.arch != target.arch:
        findings.append(
            Finding("no", f"an MTP head of {draft.arch} cannot serve a target of {target.arch}")
        )
    if draft.arch == target.arch and draft.shape.n_embd != target.shape.n_embd:
        findings.append(
            Finding(
                "no",
                f"the head reads {draft.shape.n_embd} values per token, the target gives "
                f"{target.shape.n_embd}",
            )
        )
    if target.mtp == "embedded":
        findings.append(Finding("note", "the target has an MTP head of its own already"))
    return findings


def _assistant(target: ModelFacts, draft: ModelFacts) -> list[Finding]:
    """It reads the target's hidden states, and the KV cache of its last two layers, of which only
    the engine compares the widths.
    """
    if target.arch != ASSISTANT_TARGET:
        text = f"the assistant reads the KV cache of a {ASSISTANT_TARGET} model, not of a "
        return [Finding("no", text + target.arch)]
    if draft.n_embd_out != target.n_embd_out:
        text = f"the assistant was made for a target of width {draft.n_embd_out}, this one has "
        return [Finding("no", f"{text}{target.n_embd_out}")]
    return [Finding("note", "the assistant reads the target's KV cache and keeps none of its own")]
