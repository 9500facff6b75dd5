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
from specctl.engine.loop import Run, generate
from specctl.engine.steptime import StepTime
from specctl.engine.text import Assembler
from specctl.errors import ModelError, PairError, UsageError
from specctl.events import Record, Started
from specctl.llama.api import amx_is_risky, has_gpu_backend
from specctl.llama.cancel import Cancel
from specctl.llama.chat import ChatTemplate, Message
from specctl.llama.context import Context, NativeClock
from specctl.llama.model import Model
from specctl.settings import EngineSettings, Request, Sampling, SpecSettings, limit_drafts
from specctl.units import format_bytes
from specctl.vocabulary import first_difference

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
        self._draft_path = draft
        self._clock = NativeClock()
        self._step_time = StepTime()
        self._costs, self._draft_costs = CostCurve(), CostCurve()
        self._drafters: dict[SpecSettings, Drafter | None] = {}
        self._run: Run | None = None
        self._draft_model: Model | None = None
        self._draft_context: Context | None = None
        self._context: Context | None = None
        self.model = Model(model, settings.target)
        try:
            self._open(specs)
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
        self._note_context(settings.n_ctx)
        self.spec = specs[0]

    def _note_context(self, asked: int) -> None:
        if self.n_ctx != asked:
            self._note(f"context of {asked} tokens rounded up to {self.n_ctx}")
        trained = self.model.n_ctx_train
        if self.n_ctx > max(trained, asked if asked <= trained else 0):
            self._note(f"the model was trained for {trained} tokens of context, not {self.n_ctx}")

    def _open(self, specs: Sequence[SpecSettings]) -> None:
        for spec in specs:
            self._check(spec)
        limited = [self._limited(spec)[0] for spec in specs]
        self.k_max = max(registry.k_max(spec) for spec in limited)
        if any(self._uses_draft_model(spec) for spec in limited):
            self._open_draft()
        self._context = self._new_context(self.k_max + 1)
        self._template: ChatTemplate | None = None
        for spec in specs:
            self._add(spec)

    def _check(self, spec: SpecSettings) -> None:
        registry.check_types(spec)
        if registry.needs_draft_model(spec) and self._draft_path is None:
            raise UsageError(
                "draft-simple needs a draft model", "name one of the same family: --draft FILE"
            )

    def _limited(self, spec: SpecSettings) -> tuple[SpecSettings, tuple[str, ...]]:
        """`spec` as it can run on this target, and what a user should know of it.

        Where tokens are taken back by snapshots of a recurrent state, their memory bounds K.
        """
        limited, notes = limit_drafts(spec)
        wanted = registry.k_max(limited)
        most = self.model.most_snapshots if wanted else None
        if most is None:
            return limited, notes
        arch, size = self.model.arch, format_bytes(self.model.snapshot_bytes)
        if not most:
            return limited, (
                *notes,
                f"{arch}: a rejected draft costs a second pass, for its recurrent state can only "
                "be put back to before the draft",
            )
        if wanted <= most:
            return limited, notes
        bounded, more = limit_drafts(dataclasses.replace(limited, k=most))
        n_max = min(limited.draft.n_max, most)
        n_min = min(limited.draft.n_min, n_max)
        draft = dataclasses.replace(limited.draft, n_max=n_max, n_min=n_min)
        return dataclasses.replace(bounded, draft=draft), (
            *notes,
            *more,
            f"drafts of at most {most} tokens: for each, {arch} keeps a snapshot of its recurrent "
            f"state, {size}",
        )

    def _uses_draft_model(self, spec: SpecSettings) -> bool:
        """`auto` takes a draft model where one is named, and does without where none is."""
        optional = "auto" in spec.types and self._draft_path is not None
        return optional or registry.needs_draft_model(spec)

    def _open_draft(self) -> None:
        assert self._draft_path is not None
        self._draft_model = model = Model(self._draft_path, self.settings.draft)
        difference = first_difference(self.model.vocabulary(), model.vocabulary())
        if difference is not None:
            raise PairError(
                f"{model.path.name} cannot draft for {self.model.path.name}: {difference.reason}",
                "a draft must share the target's vocabulary: take one of the same family",
            )
        self._draft_context = Context(
            model,
            self.settings,
            self.settings.draft,
            threads=self.threads,
            rows=1,
            lazy=True,
            cancel=self.cancel,
            clock=self._clock,
        )

    def _new_context(self, rows: int) -> Context:
        return Context(
            self.model,
            self.settings,
            self.settings.target,
            threads=self.threads,
            rows=rows,
            cancel=self.cancel,
            clock=self._clock,
        )

    def _add(self, spec: SpecSettings) -> None:
        limited, notes = self._limited(spec)
        resources = registry.Resources(
            self.model.n_vocab, self._draft_context, self._costs, self._draft_costs
        )
        self._drafters[spec] = registry.build(limited, resources)
        for note in notes:
            self._note(note)

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    @property
    def context(self) -> Context:
        """The target's memory."""
        if self._context is None:
            raise ModelError("this session is closed")
        return self._context

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
        if self._run is not None:
            self._run.drafter = drafter = self._drafters[spec]
            if drafter is not None:
                drafter.begin(self._run.tokens, self._run.request.sampling)
        return tuple(notes)

    def sample(self, sampling: Sampling) -> None:
        """Choose tokens like this from the next cycle of a running generation on."""
        run = self._run
        if run is not None:
            run.request = dataclasses.replace(run.request, sampling=sampling)
            if run.drafter is not None:
                run.drafter.begin(run.tokens, sampling)

    def _widen(self, spec: SpecSettings) -> list[str]:
        self._check(spec)
        limited, notes = self._limited(spec)
        out = list(notes)
        if self._uses_draft_model(limited) and self._draft_context is None:
            self._open_draft()
            out.append(f"opened the draft model {self._draft_path and self._draft_path.name}")
        wanted = registry.k_max(limited)
        if wanted > self.k_max:
            old = self.context
            held = list(old.tokens)
            self._context = self._new_context(wanted + 1)
            old.close()
            self.k_max = wanted
            out.append(f"reopened the context for drafts of {wanted} tokens")
            if self._run is not None:
                self._context.follow(held)
                self._run.target = self._context
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
            EngineError: llama.cpp failed.
        """
        self.cancel.clear()
        self._run = run = Run(
            target=self.context,
            drafter=self._drafters[self.spec],
            request=request,
            assembler=Assembler(self.model.piece, request.stop),
            is_eog=self.model.is_eog,
            step_time=self._step_time,
            started=time.perf_counter(),
            is_cancelled=lambda: self.cancel.is_set,
        )
        try:
            yield self._started(request)
            yield from generate(run)
        finally:
            self._run = None

    @property
    def k_in_force(self) -> int:
        """The most tokens that a cycle may draft as things stand."""
        return registry.k_max(self._limited(self.spec)[0])

    @property
    def has_draft(self) -> bool:
        """A draft model was named."""
        return self._draft_path is not None

    @property
    def draft_name(self) -> str | None:
        """The file of the draft model that is open."""
        return self._draft_model.path.name if self._draft_model is not None else None

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
        self.context.clear()
        if self._draft_context is not None:
            self._draft_context.clear()
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
        context = self._new_context(max(batch + len(extra), *(rows for _, rows in passes), 1))
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
        for context in (self._context, self._draft_context):
            if context is not None:
                context.close()
        self._context = self._draft_context = None
        for model in (self._draft_model, self.model):
            if model is not None:
                model.close()

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
