"""Methods across engines: what each is called there, or that there is none, and what is nearest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from specctl.errors import UsageError
from specctl.external.flags import ENGINES

# name → what it is, in the order of the table in docs/engines.md
METHODS = {
    "none": "plain decoding",
    "draft-simple": "a smaller model of the same vocabulary",
    "draft-pard": "a draft model trained to draft all tokens in one pass",
    "draft-eagle": "an EAGLE-1 or EAGLE-2 head",
    "draft-eagle3": "an EAGLE-3 head",
    "draft-p-eagle": "an EAGLE head that drafts all tokens in one pass",
    "draft-mtp": "multi-token prediction layers of the target's own checkpoint",
    "draft-dflash": "a block drafter",
    "draft-dspark": "a block drafter with a confidence head",
    "ngram-simple": "what followed the same n tokens before",
    "ngram-map-k": "the same for n-grams that recur",
    "ngram-map-k4v": "the same with up to four continuations",
    "ngram-mod": "a hash of n tokens to the next one, kept across requests",
    "ngram-cache": "counts of what followed one to four tokens",
    "ngram-suffix": "the longest match of any length, by frequency",
    "auto": "specctl's choice per cycle, by measured costs",
}
# These draft with weights of their own: a checkpoint made for the target, or a model beside it.
WITH_WEIGHTS = frozenset(name for name in METHODS if name.startswith("draft-"))
# Checkpoints of these are made for one method: another one cannot load them.
TRAINED = WITH_WEIGHTS - {"draft-simple", "draft-mtp"}


@dataclass(frozen=True, slots=True)
class Counterpart:
    """What a method is in an engine. `value` None: it is not there, `why` says so.

    `nearest` is the method of ours to take instead, None where nothing is near.
    """

    value: str | None
    why: str = ""
    nearest: str | None = None


def _there(value: str, why: str = "") -> Counterpart:
    return Counterpart(value, why)


def _absent(why: str, nearest: str | None) -> Counterpart:
    return Counterpart(None, why, nearest)


_LLAMA_PARALLEL = "llama.cpp's parallel drafters are DFlash and DSpark"
_VLLM_LOOKUP = "vLLM's look-ups are ngram (fixed lengths) and suffix"
_SGLANG_LOOKUP = "SGLang's one look-up is a trie of n-grams"
_TRT_LOOKUP = "TensorRT-LLM's look-ups are NGram and SA"
_OURS = "the choice by measured costs is specctl's own"

COUNTERPARTS: Mapping[str, Mapping[str, Counterpart]] = {
    "llama-server": {
        "none": _there("none", "the default"),
        "draft-simple": _there("draft-simple", "must be named: -md alone drafts nothing"),
        "draft-pard": _absent(_LLAMA_PARALLEL, "draft-dflash"),
        "draft-eagle": _absent("llama.cpp has EAGLE-3 only", "draft-eagle3"),
        "draft-eagle3": _there("draft-eagle3", "must be named for a local file"),
        "draft-p-eagle": _absent(_LLAMA_PARALLEL, "draft-dflash"),
        "draft-mtp": _there("draft-mtp", "heads in the GGUF, or a file of their own"),
        "draft-dflash": _there("draft-dflash"),
        "draft-dspark": _there("draft-dspark"),
        "ngram-simple": _there("ngram-simple"),
        "ngram-map-k": _there("ngram-map-k"),
        "ngram-map-k4v": _there("ngram-map-k4v", "experimental there"),
        "ngram-mod": _there("ngram-mod", "one pool for all slots; --spec-default is this"),
        "ngram-cache": _there("ngram-cache", "always 8 tokens"),
        "ngram-suffix": _absent("llama.cpp has no suffix automaton", "ngram-map-k4v"),
        "auto": _absent(_OURS, "ngram-mod"),
    },
    "vllm": {
        "none": _there("none", "no speculative configuration"),
        "draft-simple": _there("draft_model"),
        "draft-pard": _there("draft_model + parallel_drafting"),
        "draft-eagle": _there("eagle"),
        "draft-eagle3": _there("eagle3"),
        "draft-p-eagle": _there("eagle3 + parallel_drafting", "Model Runner V1 only"),
        "draft-mtp": _there("mtp", "Gemma 4: with the assistant as model"),
        "draft-dflash": _there("dflash"),
        "draft-dspark": _there("dspark", "Model Runner V2 only"),
        "ngram-simple": _there("ngram"),
        "ngram-map-k": _absent(_VLLM_LOOKUP, "ngram-suffix"),
        "ngram-map-k4v": _absent(_VLLM_LOOKUP, "ngram-suffix"),
        "ngram-mod": _absent(_VLLM_LOOKUP, "ngram-suffix"),
        "ngram-cache": _absent(_VLLM_LOOKUP, "ngram-suffix"),
        "ngram-suffix": _there("suffix", "needs arctic-inference 0.1.1; Model Runner V1 only"),
        "auto": _absent(_OURS, "ngram-suffix"),
    },
    "sglang": {
        "none": _there("none", "no --speculative-algorithm"),
        "draft-simple": _there("STANDALONE"),
        "draft-pard": _absent("SGLang has no parallel draft model", "draft-simple"),
        "draft-eagle": _there("EAGLE"),
        "draft-eagle3": _there("EAGLE3"),
        "draft-p-eagle": _absent(
            "SGLang's parallel drafters are DFLASH and DSPARK", "draft-dflash"
        ),
        "draft-mtp": _there("NEXTN", "an alias of EAGLE; Gemma 4 becomes FROZEN_KV_MTP"),
        "draft-dflash": _there("DFLASH", "no pipeline parallelism"),
        "draft-dspark": _there("DSPARK"),
        "ngram-simple": _there("NGRAM, breadth 1", "a trie of n-grams, here without branches"),
        "ngram-map-k": _absent(_SGLANG_LOOKUP, "ngram-simple"),
        "ngram-map-k4v": _absent(_SGLANG_LOOKUP, "ngram-simple"),
        "ngram-mod": _absent(_SGLANG_LOOKUP, "ngram-simple"),
        "ngram-cache": _absent(_SGLANG_LOOKUP, "ngram-simple"),
        "ngram-suffix": _absent(_SGLANG_LOOKUP, "ngram-simple"),
        "auto": _absent(_OURS, "ngram-simple"),
    },
    "trtllm": {
        "none": _there("none", "no speculative_config"),
        "draft-simple": _there("Draft_Target"),
        "draft-pard": _there("PARD"),
        "draft-eagle": _absent("its PyTorch backend loads no EAGLE-1 or -2", "draft-eagle3"),
        "draft-eagle3": _there("Eagle3"),
        "draft-p-eagle": _absent("its schema has no parallel EAGLE", "draft-eagle3"),
        "draft-mtp": _there("MTP"),
        "draft-dflash": _there("DFlash"),
        "draft-dspark": _there("DSpark"),
        "ngram-simple": _there("NGram"),
        "ngram-map-k": _absent(_TRT_LOOKUP, "ngram-simple"),
        "ngram-map-k4v": _absent(_TRT_LOOKUP, "ngram-simple"),
        "ngram-mod": _absent(_TRT_LOOKUP, "ngram-simple"),
        "ngram-cache": _absent(_TRT_LOOKUP, "ngram-simple"),
        "ngram-suffix": _there("SA"),
        "auto": _absent(_OURS + "; its AUTO picks a look-up by batch size", "ngram-suffix"),
    },
}

COMBINING = {
    "llama-server": "any list; its priority is fixed, not the order of the list",
    "vllm": "– one method only",
    "sglang": "– one algorithm only",
    "trtllm": "ngram-suffix with Eagle3, MTP or PARD: sa_config",
}
ADAPTIVE = {
    "llama-server": "– none by load; drafts end at --spec-draft-p-min",
    "vllm": "enable_adaptive_verification (drafts of models), "
    "num_speculative_tokens_per_batch_size (ngram, P-EAGLE); suffix by nature",
    "sglang": "--speculative-adaptive (EAGLE, EAGLE3, MTP)",
    "trtllm": "draft_len_schedule by batch size",
}
# The order in which llama-server asks the members of a list.
LLAMA_PRIORITY = (
    "ngram-simple",
    "ngram-map-k",
    "ngram-map-k4v",
    "ngram-mod",
    "ngram-cache",
    "draft-simple",
    "draft-eagle3",
    "draft-mtp",
    "draft-dflash",
    "draft-dspark",
)
_WITH_SUFFIX = {"draft-eagle3", "draft-mtp", "draft-pard"}  # TensorRT-LLM's sa_config


@dataclass(frozen=True, slots=True)
class Given:
    """The methods that a command uses, and a note for each one that replaces what was asked."""

    methods: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def drafting(self) -> tuple[str, ...]:
        """The methods that need weights."""
        return tuple(name for name in self.methods if name in WITH_WEIGHTS)


def parse_methods(text: str) -> tuple[str, ...]:
    """A comma list of methods. Raises UsageError for what is none, or a list that cannot be."""
    names = tuple(part.strip() for part in text.split(",") if part.strip())
    for name in names:
        if name not in METHODS:
            raise UsageError(f"{name!r} is not a drafting method", "one of " + ", ".join(METHODS))
    if not names:
        raise UsageError("no method given", "one of " + ", ".join(METHODS))
    if len(set(names)) != len(names):
        raise UsageError(f"a method is named twice: {text}")
    if len(names) > 1 and {"none", "auto"} & set(names):
        raise UsageError(f"none and auto cannot be part of a list: {text}")
    return names


def translate(engine: str, methods: Sequence[str], nearest: bool, has_draft: bool = False) -> Given:
    """The methods as this engine can have them. `has_draft`: a draft model is named too.

    Raises:
        UsageError: one has no counterpart, or the list cannot be combined; with `nearest` what is
            nearest is taken where there is something, and a note says so.
    """
    table, title = COUNTERPARTS[engine], ENGINES[engine].title
    taken: list[str] = []
    notes: list[str] = []
    for name in methods:
        counterpart = table[name]
        chosen: tuple[str, ...] = (name,)
        if counterpart.value is None:
            chosen = _nearest(engine, name, counterpart, has_draft)
            listed = ",".join(chosen)
            if not nearest or not chosen:
                raise UsageError(
                    f"no {name} in {title}: {counterpart.why}",
                    f"nearest: {listed}; --nearest takes it" if chosen else None,
                )
            notes.append(f"no {name} in {title} ({counterpart.why}): this is {listed} instead")
        taken += [one for one in chosen if one not in taken]
    return _combined(engine, tuple(taken), tuple(notes), nearest)


def _nearest(engine: str, name: str, counterpart: Counterpart, has_draft: bool) -> tuple[str, ...]:
    """What is nearest, all of it there. `auto` with a draft model is nearest to using that too."""
    chosen: tuple[str, ...] = (counterpart.nearest,) if counterpart.nearest else ()
    if name == "auto" and has_draft:
        chosen = (*chosen, "draft-simple") if engine == "llama-server" else ("draft-simple",)
    return chosen


def _combined(
    engine: str, methods: tuple[str, ...], notes: tuple[str, ...], nearest: bool
) -> Given:
    if len(methods) == 1:
        return Given(methods, notes)
    weighty = [name for name in methods if name in WITH_WEIGHTS]
    if engine == "llama-server":
        return _llama_list(methods, notes, weighty)
    others = set(methods) - {"ngram-suffix"}
    if engine == "trtllm" and len(methods) == 2 and len(others) == 1 and others <= _WITH_SUFFIX:
        return Given(methods, notes)
    one = weighty[0] if weighty else methods[0]
    title = ENGINES[engine].title
    listed = ", ".join(methods)
    why = f"{title} cannot combine {listed}: {COMBINING[engine].removeprefix('– ')}"
    if not nearest:
        raise UsageError(why, f"nearest: {one} alone; --nearest takes it")
    return Given((one,), (*notes, f"{why}; this is {one} alone"))


def _llama_list(methods: tuple[str, ...], notes: tuple[str, ...], weighty: Sequence[str]) -> Given:
    beside = [name for name in weighty if name != "draft-mtp"]
    if len(beside) > 1:
        raise UsageError(
            f"{' and '.join(beside)} need a draft file each, and llama-server takes one"
        )
    order = tuple(name for name in LLAMA_PRIORITY if name in methods)
    text = f"llama-server asks in a fixed order, whatever the list says: {' > '.join(order)}"
    if order != methods:
        text += "; specctl would ask in list order"
    return Given(methods, (*notes, text))
