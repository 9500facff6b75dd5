"""Where target and draft go on one machine, and what was given up for it, in sentences.

The order when memory is short: the draft goes first, then the context (only one that nobody asked
for), then layers or experts move to RAM. The quant is the caller's to change: try a smaller file
when `fits` is False or the placement is not the wanted one.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from specctl.gguf.shape import Shape
from specctl.gguf.weights import Weights
from specctl.plan.memory import Memory, estimate, most_kept, pad
from specctl.settings import EngineSettings, ModelSettings
from specctl.units import format_bytes

DEFAULT_CTX = 8192
SMALLEST_CTX = 2048  # a default context is not shrunk below this


@dataclass(frozen=True, slots=True)
class Need:
    """One model to place. `weights` by layer, or a total in bytes. `ubatch`: most tokens of a pass
    of its own, where that is fewer than the target's.
    """

    shape: Shape
    weights: Weights | int
    kv_type_k: str = "f16"
    kv_type_v: str = "f16"
    mtp: bool = False
    encoder: bool = False
    ubatch: int | None = None


@dataclass(frozen=True, slots=True)
class Budget:
    """Bytes that may be used on one device and in RAM; `backend` as in memory.OVERHEAD.

    `shared`: the device's memory is RAM (Apple, integrated GPUs): both together must fit `host`.
    """

    device: int
    host: int
    device_name: str = "GPU"
    backend: str | None = "cuda"
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Placement:
    """A way to open the models. `draft` None: opened without one. `decisions` in order."""

    kind: str  # "full offload", "experts in RAM", "partial offload", "CPU only", "does not fit"
    fits: bool
    ctx: int
    target: Memory
    draft: Memory | None
    budget: Budget
    decisions: tuple[str, ...]
    target_need: Need
    draft_need: Need | None
    k: int  # tokens a draft may have here: what was asked, or what snapshots of a state allow

    @property
    def device(self) -> int:
        """Bytes of GPU memory, both models."""
        return self.target.device + (self.draft.device if self.draft else 0)

    @property
    def host(self) -> int:
        """Bytes of RAM, both models."""
        return self.target.host + (self.draft.host if self.draft else 0)


def place(
    target: Need,
    draft: Need | None,
    budget: Budget,
    ctx: int | None = None,
    *,
    k: int = 8,
    ubatch: int = 512,
    flash_attn: bool = True,
    swa_full: bool = True,
) -> Placement:
    """The best placement that fits, and why it is not better.

    Args:
        target: what must run.
        draft: what may be left out; an MTP head in the target is `target.mtp`.
        budget: what this machine can give.
        ctx: tokens of context; None is the default 8192, which may be shrunk, visibly.
        k: most tokens drafted per cycle: K + 1 rows are verified. Of a recurrent state K
            snapshots are kept, no more than the engine would keep, which bounds K.
        ubatch: micro-batch, tokens.
        flash_attn: as opened.
        swa_full: as opened.
    """
    search = _Search(target, draft, budget, ctx, k, ubatch, flash_attn, swa_full)
    return search.run()


def largest_ctx(
    target: Need, draft: Need | None, budget: Budget, gpu_layers: int = -1, n_cpu_moe: int = 0,
    *, k: int = 8,
) -> int:  # fmt: skip
    """Most tokens of context that fit with that placement, at most what the target was trained for.

    0 where not even the smallest one does.
    """
    search = _Search(target, draft, budget, None, k, 512, True, True)
    return search.largest(draft, gpu_layers, n_cpu_moe)


def to_settings(placement: Placement, base: EngineSettings | None = None) -> EngineSettings:
    """The engine settings of a placement, on top of `base`."""
    base = base or EngineSettings()
    target, draft = placement.target_need, placement.draft_need
    return dataclasses.replace(
        base,
        n_ctx=placement.ctx,
        target=dataclasses.replace(
            base.target,
            gpu_layers=_layers(placement.target, placement.kind),
            n_cpu_moe=placement.target.n_cpu_moe,
            kv_type_k=target.kv_type_k,
            kv_type_v=target.kv_type_v,
        ),
        draft=ModelSettings()
        if draft is None or placement.draft is None
        else dataclasses.replace(
            base.draft,
            gpu_layers=-1 if placement.draft.device else 0,
            kv_type_k=draft.kv_type_k,
            kv_type_v=draft.kv_type_v,
        ),
    )


def _layers(memory: Memory, kind: str) -> int:
    return -1 if kind in ("full offload", "experts in RAM") else memory.gpu_layers


class _Search:
    """Tries placements from the best to the last; keeps the sentences of what was given up."""

    def __init__(
        self, target: Need, draft: Need | None, budget: Budget, ctx: int | None, k: int,
        ubatch: int, flash_attn: bool, swa_full: bool,
    ) -> None:  # fmt: skip
        self.target, self.draft, self.budget = target, draft, budget
        most = most_kept(target.shape, target.weights, target.mtp)
        self.k = min(k, most) if most else k
        self.snapshots = self.k if most else 0
        self.asked = ctx is not None
        trained = target.shape.context_length or DEFAULT_CTX
        self.ctx = ctx if ctx is not None else min(DEFAULT_CTX, trained)
        self.options = (ubatch, flash_attn, swa_full)
        self.decisions: list[str] = []
        if self.asked and target.shape.context_length and self.ctx > target.shape.context_length:
            self.decisions.append(
                f"{self.ctx} tokens are more than the {target.shape.context_length} "
                "the model was trained for"
            )
        if most is not None:
            self._say_snapshots(most, k)

    def _say_snapshots(self, most: int, k: int) -> None:
        """As the engine says it when it opens such a target."""
        if not most:
            self.decisions.append(
                "llama.cpp keeps no snapshots of its recurrent state: a rejected draft costs a "
                "second pass"
            )
        elif k > most:
            size = format_bytes(self.target.shape.recurrent_bytes)
            self.decisions.append(
                f"drafts of at most {most} tokens, not {k}: for each, a snapshot of the recurrent "
                f"state is kept, {size}"
            )

    def bill(self, need: Need, ctx: int, gpu_layers: int, n_cpu_moe: int, drafts: bool) -> Memory:
        ubatch, flash_attn, swa_full = self.options
        return estimate(
            need.shape,
            need.weights,
            ctx,
            need.kv_type_k,
            need.kv_type_v,
            ubatch=min(ubatch, need.ubatch or ubatch),
            outputs=1 if drafts and not need.mtp else self.k + 1,
            flash_attn=flash_attn,
            swa_full=swa_full,
            # a draft's context is opened for one row: a state of its own is put back from a copy
            snapshots=0 if drafts else self.snapshots,
            gpu_layers=gpu_layers,
            n_cpu_moe=n_cpu_moe,
            mtp=need.mtp,
            encoder=need.encoder,
            backend=None if drafts else self.budget.backend,
        )

    def bills(
        self, draft: Need | None, ctx: int, gpu_layers: int, n_cpu_moe: int = 0
    ) -> tuple[Memory, Memory | None]:
        ours = self.bill(self.target, ctx, gpu_layers, n_cpu_moe, False)
        if draft is None:
            return ours, None
        return ours, self.bill(draft, ctx, -1 if gpu_layers else 0, 0, True)

    def fits(self, bills: tuple[Memory, Memory | None]) -> bool:
        device = sum(bill.device for bill in bills if bill)
        host = sum(bill.host for bill in bills if bill)
        if self.budget.shared:
            return device <= self.budget.device and device + host <= self.budget.host
        return device <= self.budget.device and host <= self.budget.host

    def largest(self, draft: Need | None, gpu_layers: int, n_cpu_moe: int = 0) -> int:
        low, high = 0, pad(self.target.shape.context_length or 131072) // 256
        while low < high:  # the bill grows with the context, so halving finds the edge
            middle = (low + high + 1) // 2
            if self.fits(self.bills(draft, middle * 256, gpu_layers, n_cpu_moe)):
                low = middle
            else:
                high = middle - 1
        return low * 256

    def run(self) -> Placement:
        if not self.budget.device:
            return self.on_one_side(0) or self.refuse(0)
        found = self.on_one_side(-1)
        if found is not None:
            return found
        for attempt in (self.experts_in_ram, self.part_of_the_layers):
            found = attempt()
            if found is not None:
                return found
        found = self.on_one_side(0)
        if found is None:
            return self.refuse(-1)
        note = "no layer fits on the GPU: everything runs on the CPU"
        return dataclasses.replace(found, decisions=(*self.decisions, note))

    def on_one_side(self, gpu_layers: int) -> Placement | None:
        """All on the GPU (-1) or all in RAM (0): with the draft, without, with less context."""
        kind = "full offload" if gpu_layers else "CPU only"
        if self.draft is not None:
            bills = self.bills(self.draft, self.ctx, gpu_layers)
            if self.fits(bills):
                return self.found(kind, self.ctx, bills)
        alone = self.bills(None, self.ctx, gpu_layers)
        if self.fits(alone):
            self.give_up_draft(gpu_layers)
            return self.found(kind, self.ctx, alone)
        if self.asked:
            return None
        ctx = self.largest(None, gpu_layers)
        if ctx < min(SMALLEST_CTX, self.ctx):
            return None
        self.give_up_draft(gpu_layers)
        self.decisions.append(
            f"context {ctx} instead of the default {self.ctx}, for which "
            f"{_size(alone, gpu_layers)} were needed; --ctx {self.ctx} would keep it and move "
            "layers to RAM"
        )
        return self.found(kind, ctx, self.bills(None, ctx, gpu_layers))

    def experts_in_ram(self) -> Placement | None:
        """The fewest layers' experts moved to RAM so that all the rest fits on the GPU."""
        if not self.target.shape.is_moe:
            return None
        n_blocks = self.target.shape.n_layer + self.target.shape.n_nextn
        for n_cpu_moe in range(1, n_blocks + 1):
            bills = self.bills(None, self.ctx, -1, n_cpu_moe)
            if self.fits(bills):
                self.give_up_draft(-1)
                self.decisions.append(
                    f"experts of {n_cpu_moe} of {n_blocks} layers stay in RAM "
                    f"({format_bytes(bills[0].part('weights').host)} of weights there): "
                    "slower than all on the GPU"
                )
                return self.found("experts in RAM", self.ctx, bills)
        return None

    def part_of_the_layers(self) -> Placement | None:
        """As many layers on the GPU as fit, from the output layer backwards."""
        n_blocks = self.target.shape.n_layer + self.target.shape.n_nextn
        for gpu_layers in range(n_blocks, 0, -1):
            bills = self.bills(None, self.ctx, gpu_layers)
            if self.fits(bills):
                self.give_up_draft(-1)
                self.decisions.append(
                    f"{gpu_layers} of {n_blocks + 1} layers on the GPU, the rest on the CPU: "
                    "much slower than all on the GPU"
                )
                return self.found("partial offload", self.ctx, bills)
        return None

    def give_up_draft(self, gpu_layers: int) -> None:
        if self.draft is None or any("draft left out" in text for text in self.decisions):
            return
        with_draft = self.bills(self.draft, self.ctx, gpu_layers)
        have = self.budget.device if gpu_layers else self.budget.host
        self.decisions.append(
            f"draft left out: with it {_size(with_draft, gpu_layers)} are needed at {self.ctx} "
            f"tokens, {format_bytes(have, 2)} are there; n-gram drafting needs no memory"
        )

    def found(self, kind: str, ctx: int, bills: tuple[Memory, Memory | None]) -> Placement:
        target, draft = bills
        return Placement(
            kind, True, ctx, target, draft, self.budget, tuple(self.decisions), self.target,
            self.draft if draft else None, self.k,
        )  # fmt: skip

    def refuse(self, gpu_layers: int) -> Placement:
        """Nothing fits: the bill as it would be all on the GPU, or all in RAM without one."""
        self.give_up_draft(gpu_layers)
        bills = self.bills(None, self.ctx, gpu_layers)
        have = f"{format_bytes(self.budget.host, 2)} of RAM"
        if self.budget.device and not self.budget.shared:
            have = f"{format_bytes(self.budget.device, 2)} on the GPU and {have}"
        self.decisions.append(
            f"does not fit, not even in parts: ≈ {format_bytes(bills[0].total, 2)} are needed at "
            f"{self.ctx} tokens, {have} may be used; try a smaller quant"
        )
        return Placement(
            "does not fit",
            False,
            self.ctx,
            bills[0],
            None,
            self.budget,
            tuple(self.decisions),
            self.target,
            None,
            self.k,
        )


def _size(bills: tuple[Memory, Memory | None], gpu_layers: int) -> str:
    return "≈ " + format_bytes(
        sum(bill.device if gpu_layers else bill.host for bill in bills if bill), 2
    )
