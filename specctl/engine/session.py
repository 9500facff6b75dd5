"""Opens a target and its drafters, owns them, and generates. The way in for every face."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from specctl.cores import usable_cores
from specctl.drafters import registry
from specctl.drafters.base import Drafter
from specctl.drafters.costs import CostCurve
from specctl.engine.constraint import Constraint
from specctl.engine.loop import Run, generate
from specctl.engine.opening import Opened
from specctl.engine.steptime import StepTime
from specctl.engine.text import Assembler
from specctl.events import Record, Started
from specctl.llama.api import amx_is_risky, has_gpu_backend
from specctl.llama.cancel import Cancel
from specctl.llama.chat import ChatTemplate, Message
from specctl.llama.context import Context
from specctl.llama.devices import described
from specctl.llama.grammar import Grammar as NativeGrammar
from specctl.settings import EngineSettings, Grammar, Request, Sampling, SpecSettings

if TYPE_CHECKING:
    from specctl.sampling import Logits

PLAIN = SpecSettings()


class Session:
    """One loaded target with a declared set of ways to draft. Make it with `open_session`.

    `notes` are things a user should read once. `cancel.set()` stops a running generation, also
    from another thread; the next `generate` clears it.
    """

    def __init__(
        self,
        model: Path,
        draft: Path | None,
        specs: Sequence[SpecSettings],
        settings: EngineSettings,
    ) -> None:
        self.settings = settings
        self.threads = settings.threads or usable_cores()
        self.cancel = Cancel()
        self.notes: list[str] = []
        self._step_time = StepTime()
        self._costs, self._draft_costs = CostCurve(), CostCurve()
        self._drafters: dict[SpecSettings, Drafter | None] = {}
        self._run: Run | None = None
        self._template: ChatTemplate | None = None
        self._opened = Opened(model, draft, specs, settings, self.threads, self.cancel)
        self.model = self._opened.model
        try:
            for spec in specs:
                self._add(spec)
        except BaseException:
            self.close()
            raise
        if not has_gpu_backend():
            self.notes.append("this llama-cpp-python build has no GPU backend: running on the CPU")
        if amx_is_risky():
            self.notes.append(
                "this build has AMX kernels, which crash on many machines: its extra CPU kernels "
                "are off (SPECCTL_AMX=1 trusts them)"
            )
        self.notes.extend(self._opened.notes)
        self._note_context(settings.n_ctx)
        self.spec = specs[0]

    def _note_context(self, asked: int) -> None:
        if self.n_ctx != asked:
            self._note(f"context of {asked} tokens rounded up to {self.n_ctx}")
        trained = self.model.n_ctx_train
        if trained > 0 and self.n_ctx > max(trained, asked if asked <= trained else 0):
            self._note(f"the model was trained for {trained} tokens of context, not {self.n_ctx}")

    def _add(self, spec: SpecSettings) -> None:
        opened = self._opened
        limited, notes = opened.limited(spec)
        resources = opened.resources(spec, self._costs, self._draft_costs)
        self._drafters[spec] = registry.build(limited, resources)
        for note in notes:
            self._note(note)

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    @property
    def context(self) -> Context:
        """The target's memory."""
        return self._opened.context

    @property
    def k_max(self) -> int:
        """The most tokens that any declared spec may draft: rows are reserved for them."""
        return self._opened.k_max

    @property
    def n_ctx(self) -> int:
        """Tokens the context really holds (llama.cpp rounds up)."""
        return self.context.n_ctx

    def use(self, spec: SpecSettings) -> tuple[str, ...]:
        """Draft by `spec` from the next cycle on, also inside a running generation.

        A spec outside the declared set is added; what it needs more is opened, and the returned
        notes say so.

        Raises:
            UsageError, PairError: it cannot be used here; what was in use stays.
        """
        notes: list[str] = []
        if spec not in self._drafters:
            notes = self._widen(spec)
        self.spec = spec
        run = self._run
        if run is not None:
            run.target = self._feed()
            run.target.follow(run.tokens[:-1])
            run.drafter = drafter = self._drafters[spec]
            if drafter is not None:
                drafter.begin(run.tokens, run.request.sampling)
        return tuple(notes)

    def _feed(self) -> Context:
        """The target's memory, with the MTP heads beside it where the spec in use drafts with them.

        They must have read what it holds: it starts over when they come back.
        """
        opened = self._opened
        opened.context.feed(opened.heads if opened.uses_heads(self.spec) else None)
        return opened.context

    def sample(self, sampling: Sampling) -> None:
        """Choose tokens like this from the next cycle of a running generation on."""
        run = self._run
        if run is not None:
            run.request = dataclasses.replace(run.request, sampling=sampling)
            if run.drafter is not None:
                run.drafter.begin(run.tokens, sampling)

    def _widen(self, spec: SpecSettings) -> list[str]:
        self._opened.check(spec)
        limited, notes = self._opened.limited(spec)
        out = [*notes, *self._opened.use_for(limited)]
        out += self._opened.widen(registry.k_max(limited))
        self._add(spec)
        return out

    def tokenize(self, text: str) -> list[int]:
        """Plain text to tokens, BOS as the model wants it."""
        return self.model.tokenize(text)

    def chat(self, messages: Sequence[Message], think: bool | None = None) -> tuple[int, ...]:
        """Messages to prompt tokens, by the model's own template."""
        return tuple(self.template.tokens(messages, think=think))

    @property
    def template(self) -> ChatTemplate:
        """The model's chat template; its `warning` says where it fell back."""
        if self._template is None:
            self._template = ChatTemplate(self.model)
        return self._template

    def generate(self, request: Request) -> Iterator[Record]:
        """The records of one generation, `Started` to `Finished`.

        The KV cache of a common prefix with the last generation is kept.

        Raises:
            ContextFullError: the prompt does not fit.
            GrammarError: the request's grammar cannot be used with this model, or ends in a place
                where no token of it may come (DeadEndError).
            EngineError: llama.cpp failed.
        """
        self.cancel.clear()
        constraint = self._constraint(request.grammar)
        self._run = run = Run(
            target=self._feed(),
            drafter=self._drafters[self.spec],
            request=request,
            assembler=Assembler(self.model.piece, request.stop),
            is_eog=self.model.is_eog,
            step_time=self._step_time,
            started=time.perf_counter(),
            is_cancelled=lambda: self.cancel.is_set,
            constraint=constraint,
        )
        try:
            yield self._started(request)
            yield from generate(run)
        finally:
            self._run = None
            if constraint is not None:
                constraint.close()

    def _constraint(self, grammar: Grammar | None) -> Constraint | None:
        if grammar is None:
            return None
        rules = NativeGrammar(self.model, grammar.gbnf)
        constraint = Constraint(rules, self.model.piece, grammar.after)
        try:
            constraint.check(self.model.n_vocab)
        except BaseException:
            constraint.close()
            raise
        return constraint

    @property
    def device(self) -> str:
        """Where the target computes: `CPU`, `CUDA0`, both."""
        return described(self.settings.target)

    @property
    def k_in_force(self) -> int:
        """The most tokens that a cycle may draft as things stand."""
        return registry.k_max(self._opened.limited(self.spec)[0])

    @property
    def has_draft(self) -> bool:
        """A draft model was named."""
        return self._opened.has_draft

    @property
    def has_heads(self) -> bool:
        """The MTP heads are loaded: `draft-mtp` can be used."""
        return self._opened.has_heads

    @property
    def layers_type(self) -> str:
        """The spec type of a draft that reads the target's layers; empty where none is open."""
        draft = self._opened.layer_draft
        return draft.spec_type if draft is not None else ""

    @property
    def draft_name(self) -> str | None:
        """The file of the draft model that is open."""
        model = self._opened.draft_model
        return model.path.name if model is not None else None

    @property
    def draft_context(self) -> Context | None:
        """The draft model's memory, where one is open: for measuring what its passes cost."""
        return self._opened.draft_context

    def _started(self, request: Request) -> Started:
        return Started(
            model=self.model.path.name,
            draft_model=self.draft_name,
            spec_types=self.spec.types,
            k_max=self.k_in_force,
            prompt_tokens=len(request.tokens),
            n_ctx=self.n_ctx,
            threads=self.threads,
            temperature=request.sampling.temperature,
            seed=request.sampling.seed,
            unix_time=time.time(),
            notes=tuple(self.notes),
        )

    def reset(self) -> None:
        """Forget the KV caches and what the drafters have seen; t_1 stays."""
        self._opened.clear()
        for spec, drafter in list(self._drafters.items()):
            if drafter is not None:
                drafter.close()
            self._add(spec)

    def replay(
        self,
        tokens: Sequence[int],
        prompt: int,
        batch: int = 1,
        extra: Sequence[int] = (),
        passes: Sequence[tuple[int, int]] = (),
    ) -> Logits:
        """The logits after `tokens`, computed in a fresh context: for telling ties from bugs.

        The first `prompt` tokens are read as a prompt is, the rest in single steps, or in `passes`
        of (kept tokens, rows): where more rows were decoded than kept, other tokens than the
        rejected ones fill up, so that the shape is the same and a stale cell is not. The last
        `batch` tokens go in one pass with `extra` (the rest of a draft). float32 [n_vocab].
        """
        context = self._opened.new_context(
            max(batch + len(extra), *(rows for _, rows in passes), 1)
        )
        try:
            head = len(tokens) - batch
            start = min(prompt, head)
            context.follow(tokens[:start])
            for kept, count in passes or ((1, 1),) * (head - start):
                taken = tokens[start : start + kept]
                context.verify([*taken, *([tokens[start]] * (count - len(taken)))])
                start += len(taken)
                context.cut(start)
            rows = context.verify([*tokens[head:], *extra])
            row: Logits = rows[batch - 1].copy()
            return row
        finally:
            context.close()

    def close(self) -> None:
        """Free everything; may be called twice."""
        for drafter in self._drafters.values():
            if drafter is not None:
                drafter.close()
        self._drafters.clear()
        self._opened.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def open_session(
    model: Path,
    draft: Path | None = None,
    specs: Sequence[SpecSettings] = (PLAIN,),
    settings: EngineSettings | None = None,
) -> Session:
    """Load the models and reserve what the declared `specs` need; the first one is in use.

    Raises:
        EngineMissingError: llama-cpp-python is not installed.
        ModelError: a model does not load; PairError: the draft does not fit the target.
        UsageError: a spec type that is none, or one that needs a draft model that is not named.
    """
    return Session(model, draft, tuple(specs), settings or EngineSettings())
