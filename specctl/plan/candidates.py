"""Whole configurations of one model: target quant × drafter × K × KV type × place, with numbers.

For each drafting method the best quant that fits is searched, full-precision KV cache first. The
context is what was asked for: it is never shrunk. What had to be given up is said.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from specctl.enginefacts import AUTO_K_MAX, BLOCK_USUAL
from specctl.plan.budget import SPLIT, Budget, Fit, fit, usable_context
from specctl.plan.catalog import Catalog, Selection
from specctl.plan.held import held_parts
from specctl.plan.outlook import (
    BLOCK_DRAFTERS,
    outlook,
    snapshot_limit,
)
from specctl.plan.profile import DEFAULT_QUANTS, Draft, Model, ModelFile
from specctl.plan.quality import quality
from specctl.plan.speed import Prediction
from specctl.units import format_bytes

SLOW = 8.0  # tok/s; what stays under it is ranked last
ROOMY_CTX = 16384  # below it agents and long chats run out: a judgement
SHORT_NGRAM_K = (4, 2)
UNTESTED = "same family"  # by name; tokens were not compared
TWICE = (
    "no snapshots are kept of its recurrent state: a rejected draft costs a second pass, "
    "which no measured figure counts"
)
UNREADY = ("needs", "conflicting", "no public", "unknown")


@dataclass(frozen=True, slots=True)
class Wish:
    """What the user asked for; sizes in bytes."""

    ctx: int = 8192
    use: str = "chat"
    max_download: int | None = None
    licence: str | None = None
    method: str | None = None


@dataclass(frozen=True, slots=True)
class Configuration:
    """One complete answer: what to run, whether it fits, how fast it should be, and from what."""

    selection: Selection
    quality: float
    kv_type: str
    fit: Fit
    budget: int
    download: int
    download_exact: bool
    prediction: Prediction
    acceptance_source: str
    notes: tuple[str, ...] = ()
    best_k: int | None = None  # K* by the same estimate, where a formula gives one
    usable_ctx: int = 0  # filled by `with_context`: it costs a search

    @property
    def model(self) -> Model:
        """The target."""
        return self.selection.model

    @property
    def method(self) -> str:
        """The spec type."""
        return self.selection.method

    @property
    def in_process(self) -> bool:
        """`specctl chat` runs it; otherwise it needs llama-server."""
        return self.selection.in_process

    @property
    def slow(self) -> bool:
        """Under 8 tok/s in the middle of the range."""
        return self.prediction.typical < SLOW

    @property
    def sort_key(self) -> tuple[bool, float, float, int]:
        """Class, inside it speed, then the smaller download; what is slow last, by speed alone."""
        if self.slow:
            return True, -self.prediction.typical, -self.quality, self.download
        return False, -self.quality, -self.prediction.typical, self.download


@dataclass(frozen=True, slots=True)
class Refusal:
    """A candidate that was left out, and why: the class it would have had, and bytes it lacks."""

    name: str
    reason: str
    quality: float
    model: str
    lacking: int = 0


def configurations(
    catalog: Catalog, model: Model, budget: Budget, wish: Wish
) -> Iterator[Configuration | Refusal]:
    """For one model: each drafting method with the best quant that fits, and refusals."""
    refusal = _unsuitable(model, wish)
    if refusal is not None:
        yield refusal
        return
    sized = [file for file in model.files if file.size]
    files = _by_quality([f for f in sized if not f.mtp] or sized, model, wish)
    plain = list(_search(catalog, [Selection(model, file) for file in files], budget, wish))
    yield from plain
    for best in plain:
        if isinstance(best, Configuration):
            yield _ngram(catalog, model, best.selection.file, budget, wish)
    tried: set[str] = set()
    for draft in model.drafts:
        if draft.method == "ngram-mod" or draft.method in tried:
            continue
        heads = _by_quality([f for f in sized if f.mtp], model, wish) if draft.embedded else files
        ready = [one for file in heads if (one := _ready(catalog, model, file, draft))]
        if ready:
            tried.add(draft.method)
            yield from _with_draft(catalog, ready, draft, plain[0], budget, wish)


def _ngram(
    catalog: Catalog, model: Model, file: ModelFile, budget: Budget, wish: Wish
) -> Configuration | Refusal:
    """n-grams cost no weights, but each row of a hybrid keeps a state: then shorter drafts too."""
    answer = _try(catalog, Selection(model, file, "ngram-mod"), budget, wish)
    if isinstance(answer, Refusal) and model.shape is not None and model.shape.is_hybrid:
        for k in SHORT_NGRAM_K:
            shorter = _try(catalog, Selection(model, file, "ngram-mod", k=k), budget, wish)
            if isinstance(shorter, Configuration):
                return shorter
    return answer


def _with_draft(
    catalog: Catalog,
    ready: list[Selection],
    draft: Draft,
    best: Configuration | Refusal,
    budget: Budget,
    wish: Wish,
) -> Iterator[Configuration | Refusal]:
    """A draft with the best quant beside which it fits; a file of its own in-process only where no
    quant is lost for it.
    """
    for answer in _search(catalog, ready, budget, wish):
        if isinstance(answer, Refusal) or isinstance(best, Refusal):
            yield answer
            continue
        lost = answer.quality < best.quality
        if not (lost and answer.in_process and not draft.embedded):
            yield answer
        if lost and not draft.embedded:
            yield from _given_up(catalog, best, draft, budget, wish)


def _given_up(
    catalog: Catalog, best: Configuration, draft: Draft, budget: Budget, wish: Wish
) -> Iterator[Refusal]:
    """The draft beside the best quant, with the sum that shows why it was dropped first."""
    selection = _ready(catalog, best.model, best.selection.file, draft)
    answer = None if selection is None else _try(catalog, selection, budget, wish)
    if isinstance(answer, Refusal):
        yield replace(answer, reason=answer.reason + ": the draft goes before context and quant")


def _unsuitable(model: Model, wish: Wish) -> Refusal | None:
    reason = None
    if model.shape is None:
        reason = "its dimensions are not in the catalogue, so its memory cannot be computed"
    elif wish.ctx > model.shape.context_length:
        reason = f"made for {model.shape.context_length} tokens of context, not {wish.ctx}"
    elif wish.licence is not None and wish.licence.lower() != model.licence.lower():
        reason = f"licence {model.licence}"
    elif not any(file.size for file in model.files):
        reason = "no complete file of known size"
    return Refusal(model.name, reason, model.quality, model.id) if reason else None


def _by_quality(files: list[ModelFile], model: Model, wish: Wish) -> list[ModelFile]:
    """Best class first; inside it the quants people start with, then the smaller file."""

    def order(file: ModelFile) -> tuple[float, int, int]:
        known = DEFAULT_QUANTS.index(file.quant) if file.quant in DEFAULT_QUANTS else 99
        return -quality(model, file.quant, wish.use), known, file.size or 0

    return sorted(files, key=order)


def _search(
    catalog: Catalog, selections: list[Selection], budget: Budget, wish: Wish
) -> Iterator[Configuration | Refusal]:
    """The best class that fits; if only with experts in RAM, also the best that fits the GPU.

    Best selections first. What is too slow counts only where nothing is fast enough; what leaves
    little context in another engine is yielded on the way.
    """
    split: Configuration | None = None
    slow: Configuration | None = None
    refused: Refusal | None = None
    for selection in selections:
        answer = _try(catalog, selection, budget, wish)
        if isinstance(answer, Refusal):
            refused = answer if refused is None or answer.lacking < refused.lacking else refused
        elif answer.slow:
            slow = slow or answer
        elif answer.fit.place == SPLIT:
            split = split or answer
        elif not answer.in_process and not _roomy(answer, budget, wish):
            yield answer  # it is refused for that, and a smaller quant may have the room
        else:
            if split is not None and split.quality > answer.quality:
                yield split
            yield answer
            return
    last = split or slow or refused
    if last is not None:
        yield last


def _ready(catalog: Catalog, model: Model, file: ModelFile, draft: Draft) -> Selection | None:
    """The draft as something that can be fetched and priced, or None."""
    if draft.status.startswith(UNREADY) or "conversion" in draft.status:
        return None
    selection = catalog.drafted(model, file, draft)
    if selection is None or draft.embedded:
        return selection
    if selection.draft_file is None or selection.draft_file.size is None:
        return None
    small = selection.draft_model
    return selection if small is None or small.shape is not None else None


def _try(
    catalog: Catalog, selection: Selection, budget: Budget, wish: Wish
) -> Configuration | Refusal:
    """One configuration, or the reason why not."""
    model, method = selection.model, selection.method
    value = quality(model, selection.file.quant, wish.use)
    download = sum(file.size or 0 for file in selection.files)

    def refuse(reason: str, lacking: int = 0) -> Refusal:
        with_draft = "" if method == "none" else f" + {method}"
        name = f"{model.name} {selection.file.quant}{with_draft}"
        return Refusal(name, reason, value, model.id, lacking)

    if selection.draft is not None and selection.draft.status.startswith(UNTESTED):
        return refuse("nobody tested this pair: `specctl check` says whether it can work")
    if wish.max_download is not None and download > wish.max_download:
        return refuse(f"a download of {format_bytes(download)}", download - wish.max_download)
    if method != "none" and selection.in_process and _reads_twice(selection):
        return refuse(TWICE)
    target, draft = held_parts(selection)
    kv_type = "f16"
    found = fit(budget, target, draft, wish.ctx, kv_type)
    if not found.fits:
        kv_type = "q8_0"
        found = fit(budget, target, draft, wish.ctx, kv_type)
    if not found.fits:
        return refuse(found.shortage, found.lacking)
    expected = outlook(catalog, selection, budget, wish.use, found)
    if expected is None:
        return refuse("nothing was measured that predicts it")
    if method == "draft-simple" and expected.best_k == 0:
        why = (
            ": checking drafted tokens reads more experts" if model.is_moe else " at its price here"
        )
        return refuse(f"drafting does not pay{why}; best K is 0")
    return Configuration(
        selection=selection,
        quality=value,
        kv_type=kv_type,
        fit=found,
        budget=budget.ram if found.place == "CPU" else budget.gpu or 0,
        download=download,
        download_exact=all(file.exact for file in selection.files),
        prediction=expected.prediction,
        acceptance_source=expected.source,
        best_k=expected.best_k,
        notes=tuple(_notes(selection, kv_type, found)),
    )


def least_context(model: Model) -> int:
    """Tokens from which llama-server is proposed: 16 K, or all that the model was made for."""
    trained = model.shape.context_length if model.shape else ROOMY_CTX
    return min(ROOMY_CTX, trained)


def _roomy(one: Configuration, budget: Budget, wish: Wish) -> bool:
    return with_context(one, budget, wish).usable_ctx >= least_context(one.model)


def with_context(one: Configuration, budget: Budget, wish: Wish) -> Configuration:
    """The same with the longest context that would still fit."""
    if one.usable_ctx:
        return one
    target, draft = held_parts(one.selection)
    longest = usable_context(budget, target, draft, wish.ctx, one.kv_type, one.fit)
    return replace(one, usable_ctx=longest)


def _reads_twice(selection: Selection) -> bool:
    shape = selection.model.shape
    return shape is not None and shape.is_hybrid and not snapshot_limit(selection)


def _and_keeps(selection: Selection) -> str:
    """What `auto`, left alone, adds to the memory of a recurrent state."""
    shape, most = selection.model.shape, snapshot_limit(replace(selection, method="auto"))
    if not most or shape is None:
        return ""
    kept = min(AUTO_K_MAX, most)
    size = format_bytes(kept * shape.recurrent_bytes)
    return f", and keeps {kept} snapshots of its recurrent state, ≈ {size} more (fewer with --k)"


def _notes(selection: Selection, kv_type: str, found: Fit) -> Iterator[str]:
    model = selection.model
    if kv_type != "f16":
        yield f"KV cache in {kv_type} to fit this context; it can cost acceptance"
    if selection.method == "none":
        yield (
            "without --spec-type none, specctl chat runs `auto`, which drafts by look-up only "
            "where that pays on this machine" + _and_keeps(selection)
        )
    if selection.method == "ngram-mod" and selection.in_process:
        yield (
            "specctl chat looks drafts up by `auto`, as long as it pays here: for auto itself no "
            "evidence exists but specctl bench; the figures are those of n-gram drafters in the "
            "evidence"
        )
    if selection.draft is not None and "unmeasured" in selection.draft.status:
        yield "the pair has one vocabulary, but nobody measured it"
    if found.place == SPLIT:
        yield "experts stay in RAM: speed depends on the RAM's bandwidth"
    if selection.method in BLOCK_DRAFTERS and selection.in_process:
        yield "specctl ran block drafts of tiny models only: the figures are other engines'"
    if selection.method in BLOCK_DRAFTERS:
        yield (
            "its pass is priced with the target's output tensor, though its file may hold its own"
            + (f", and as a block of {BLOCK_USUAL} tokens at least" if selection.in_process else "")
        )
    if selection.method in BLOCK_DRAFTERS and model.is_moe:
        yield "block drafts on MoE targets were slower than plain where it was measured"
    yield from model.issues
    if model.approximate:
        yield "approximate dimensions: " + ", ".join(model.approximate)
