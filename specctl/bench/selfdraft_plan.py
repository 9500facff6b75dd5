"""Which drafts to make of a model, and whether they can be: sizes, places, room."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from specctl.bench.costs import ROUNDS
from specctl.bench.selfdraft_layers import dropping_words, layer_of, layers_to_drop
from specctl.bench.workloads import Prompt
from specctl.errors import ModelError, SpecctlError, UsageError
from specctl.gguf.facts import ModelFacts, read_facts
from specctl.gguf.header import TENSOR_TYPES
from specctl.hub import drafts
from specctl.hub.errors import DiskFullError
from specctl.hub.split import part_paths
from specctl.llama.quantise import QUANTS
from specctl.settings import EngineSettings
from specctl.units import GIB, MIB, a_or_an, format_bytes

DEFAULT_QUANTS = ("Q2_K", "Q3_K_S")
KS = (1, 2, 3, 4, 6, 8)  # draft lengths whose cycles are measured; all up to the last are judged
K_MOST = 32
_WORTH = 0.9  # a draft's bytes over the target's, at most
_MIX = 1.15  # llama.cpp gives some layers more bits than the type has
# Bits a weight where a block of 256 does not fit (llama.cpp's own rule).
_FALLBACK = {"q4_K": 5.5, "q5_K": 6.0, "q6_K": 8.5, "q4_0": 4.5, "iq4_nl": 4.5, "q8_0": 8.5}
_FALLBACK.update(dict.fromkeys(("q2_K", "q3_K", "iq3_s", "iq4_xs"), 4.5))


@dataclass(frozen=True, slots=True)
class DraftPlan:
    """What to make. `out` keeps the best one there, paying or not; else the models folder does."""

    name: str  # as the user named the target
    target: Path
    prompts: tuple[Prompt, ...]
    workload: str
    quants: tuple[str, ...] = ()  # none: DEFAULT_QUANTS that are smaller
    drop: int = 0  # layers to leave out; without quants the others are copied as they are
    settings: EngineSettings = field(default_factory=EngineSettings)
    ks: tuple[int, ...] = KS
    max_tokens: int = 96
    rounds: int = ROUNDS
    out: Path | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """One draft to make, `quant` its name in all that is said. `size` is an estimate: fallbacks for
    odd shapes may make it more. `kind` None: tensors are copied, `dropped` layers left out.
    """

    quant: str
    size: int
    file: Path  # where it would be kept
    kind: str | None = None
    dropped: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Prepared:
    """What was found before anything is made; sizes in bytes, `bits` per weight of the target."""

    facts: ModelFacts
    bits: float
    wanted: tuple[Wanted, ...]
    free: int
    notes: tuple[str, ...]

    @property
    def size(self) -> int:
        """The target's weights."""
        return self.facts.weights.total


def prepare(plan: DraftPlan) -> Prepared:
    """Everything that can be said without loading or writing anything.

    Raises:
        GgufError: the target cannot be read. ModelError: it is not all there. UsageError: nothing
            smaller can be made of it, a quant that is none, layers that cannot be dropped, or a
            file that is in the way. DiskFullError: no room.
    """
    facts = read_facts(str(plan.target))
    if facts.kind != "model":
        raise UsageError(f"{plan.target.name} is no language model but {a_or_an(facts.kind)}")
    if facts.missing:
        raise ModelError(
            f"{plan.target} is incomplete: by its header {format_bytes(facts.missing)} are missing",
            "fetch it again",
        )
    bits = 8 * facts.weights.total / max(1, facts.n_params)
    wanted, notes = _pruned(plan, facts) if plan.drop else _smaller(plan, facts)
    folder = plan.out.parent if plan.out else drafts.folder()
    _check_places(plan, wanted)
    free = _free(folder, max(one.size for one in wanted))
    return Prepared(facts, bits, wanted, free, notes)


def _pruned(plan: DraftPlan, facts: ModelFacts) -> tuple[tuple[Wanted, ...], tuple[str, ...]]:
    """The target without layers, copied or as the quants that were asked for."""
    _check_quants(plan)
    dropped = layers_to_drop(facts, plan.drop)
    wanted = []
    for kind in dict.fromkeys(plan.quants or (None,)):
        size = estimated_size(facts, kind, dropped)
        name = f"{kind or facts.quant}-drop{plan.drop}"
        wanted.append(Wanted(name, size, _place(plan, name), kind, dropped))
    return tuple(wanted), (dropping_words(dropped),)


def _check_quants(plan: DraftPlan) -> None:
    for quant in plan.quants:
        if quant not in QUANTS:
            raise UsageError(
                f"{quant!r} is not a quant that can be made here", "one of " + ", ".join(QUANTS)
            )


def _smaller(plan: DraftPlan, facts: ModelFacts) -> tuple[tuple[Wanted, ...], tuple[str, ...]]:
    """What makes a smaller model of this target; UsageError where asked for another."""
    _check_quants(plan)
    asked = tuple(dict.fromkeys(plan.quants or DEFAULT_QUANTS))
    sizes = [(quant, estimated_size(facts, quant)) for quant in asked]
    kept = tuple(one for one in sizes if one[1] <= _WORTH * facts.weights.total)
    held = f"{plan.name} has {format_bytes(facts.weights.total)} of weights"
    large = [
        f"≈ {format_bytes(size)} as {quant}" for quant, size in sizes if (quant, size) not in kept
    ]
    if large and (plan.quants or not kept):
        raise UsageError(
            f"{held}; re-quantised it would have {', '.join(large)}: its steps would cost about "
            "what the target's do",
            "a lower --quant, or a target of more bits a weight",
        )
    wanted = tuple(Wanted(quant, size, _place(plan, quant), quant) for quant, size in kept)
    return wanted, tuple(f"left out, for it is hardly smaller: {one}" for one in large)


def estimated_size(
    facts: ModelFacts, quant: str | None, dropped: Collection[int] = frozenset()
) -> int:
    """≈ bytes of all weights as `quant` (None: as they are) without the `dropped` layers, rather
    too much than too little.

    Matrices whose rows are no multiple of the type's block become another type; the ends become
    6 or 8 bits; of the rest some get a type more.
    """
    assert facts.header is not None
    label = QUANTS[quant][1] if quant else ""
    known = [(b, w) for name, b, w in TENSOR_TYPES.values() if name == label]
    block, width = known[0] if known else (1, 0)
    bits, total, elements = 8 * width / block, 0.0, 0
    for tensor in facts.header.tensors:
        elements += tensor.elements
        if layer_of(tensor.name) in dropped:
            continue
        if quant is None:
            total += tensor.n_bytes
            continue
        fits = bool(tensor.shape) and tensor.shape[0] % block == 0
        if len(tensor.shape) < 2:
            of_this = 32.0
        elif tensor.name in ("token_embd.weight", "output.weight"):
            of_this = max(bits, 6.5625 if fits else 8.5)
        else:
            of_this = bits * _MIX if fits else _FALLBACK[label]
        total += tensor.elements * of_this / 8
    return int(total * facts.n_params / max(1, elements))  # the header is that of the first part


def _place(plan: DraftPlan, quant: str) -> Path:
    if plan.out is not None:
        return plan.out
    stem = part_paths(plan.target)[0].name.removesuffix(".gguf")
    return drafts.folder() / f"{stem}-{quant}.gguf"


def _check_places(plan: DraftPlan, wanted: Sequence[Wanted]) -> None:
    for one in wanted:
        if one.file.exists():
            hint = (
                "name another --out"
                if plan.out
                else f"specctl models remove {one.file.name} makes room for a new one"
            )
            raise UsageError(f"there is a file {one.file} already; nothing is overwritten", hint)
    if plan.out is not None and not plan.out.parent.is_dir():
        raise UsageError(f"there is no folder {plan.out.parent}", "make it first")
    if plan.out is not None and plan.out.suffix != ".gguf":
        raise UsageError(f"--out {plan.out} does not end in .gguf")


def _free(folder: Path, size: int) -> int:
    """Free bytes where the part file goes, before the first one is written."""
    while not folder.exists():
        folder = folder.parent
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        raise SpecctlError(f"cannot look at {folder}: {error.strerror}") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(f"cannot write in {folder}", "--out FILE, or SPECCTL_MODELS, elsewhere")
    margin = min(GIB, max(16 * MIB, size // 50))
    if free < size + margin:
        raise DiskFullError(
            f"not enough room in {folder}: the draft needs ≈ {format_bytes(size)}, "
            f"{format_bytes(free)} are free",
            "make room, or put it on another disk with --out or SPECCTL_MODELS",
        )
    return free
