"""Which drafts to make of a model, and whether they can be: sizes, places, room."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from specctl.bench.costs import ROUNDS
from specctl.bench.workloads import Prompt
from specctl.errors import SpecctlError, UsageError
from specctl.gguf.facts import ModelFacts, read_facts
from specctl.gguf.header import TENSOR_TYPES
from specctl.hub import drafts
from specctl.hub.errors import DiskFullError
from specctl.hub.split import part_paths
from specctl.llama.quantise import QUANTS
from specctl.settings import EngineSettings
from specctl.units import GIB, MIB, format_bytes

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
    settings: EngineSettings = field(default_factory=EngineSettings)
    ks: tuple[int, ...] = KS
    max_tokens: int = 96
    rounds: int = ROUNDS
    out: Path | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """One draft to make. `size` is an estimate: fallbacks for odd shapes may make it more."""

    quant: str
    size: int
    file: Path  # where it would be kept


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
        GgufError: the target cannot be read. UsageError: nothing smaller can be made of it, a quant
            that is none, or a file that is in the way. DiskFullError: no room.
    """
    facts = read_facts(str(plan.target))
    if facts.kind != "model":
        raise UsageError(f"{plan.target.name} is no language model but a {facts.kind}")
    bits = 8 * facts.weights.total / max(1, facts.n_params)
    sizes, notes = _smaller(plan, facts)
    folder = plan.out.parent if plan.out else drafts.folder()
    wanted = tuple(Wanted(quant, size, _place(plan, quant)) for quant, size in sizes)
    _check_places(plan, wanted)
    free = _free(folder, max(one.size for one in wanted))
    return Prepared(facts, bits, wanted, free, notes)


def _smaller(
    plan: DraftPlan, facts: ModelFacts
) -> tuple[tuple[tuple[str, int], ...], tuple[str, ...]]:
    """(quant, ≈ bytes) that make a smaller model of this target; UsageError where asked for
    another.
    """
    for quant in plan.quants:
        if quant not in QUANTS:
            raise UsageError(
                f"{quant!r} is not a quant that can be made here", "one of " + ", ".join(QUANTS)
            )
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
    return kept, tuple(f"left out, for it is hardly smaller: {one}" for one in large)


def estimated_size(facts: ModelFacts, quant: str) -> int:
    """≈ bytes of all weights as `quant`, rather too much than too little.

    Matrices whose rows are no multiple of the type's block become another type; the ends become
    6 or 8 bits; of the rest some get a type more.
    """
    assert facts.header is not None
    label = QUANTS[quant][1]
    block, width = next((b, w) for name, b, w in TENSOR_TYPES.values() if name == label)
    bits, total, elements = 8 * width / block, 0.0, 0
    for tensor in facts.header.tensors:
        fits = bool(tensor.shape) and tensor.shape[0] % block == 0
        if len(tensor.shape) < 2:
            of_this = 32.0
        elif tensor.name in ("token_embd.weight", "output.weight"):
            of_this = max(bits, 6.5625 if fits else 8.5)
        else:
            of_this = bits * _MIX if fits else _FALLBACK[label]
        total += tensor.elements * of_this / 8
        elements += tensor.elements
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
