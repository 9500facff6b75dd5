"""Drafters with a model behind them: `draft-simple`, `draft-mtp`, `draft-eagle3`, token by token.

What they share with those that guess a block at once (block_draft.py) is in `ModelDrafter`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from specctl.drafters.base import Draft, Needs, Outcome, TargetPass, nothing
from specctl.sampling import Law, Stream, best, law, uniform
from specctl.settings import DraftSettings, Sampling

if TYPE_CHECKING:
    from specctl.sampling import Logits

NAME = "draft-simple"
MTP = "draft-mtp"
EAGLE3 = "draft-eagle3"


class DraftMemory(Protocol):
    """What any of them asks of its model."""

    @property
    def tokens(self) -> list[int]:
        """What the memory holds; not to be changed."""

    @property
    def n_ctx(self) -> int:
        """Most tokens it holds."""

    @property
    def n_vocab(self) -> int:
        """Size of its vocabulary."""

    def follow(self, tokens: Sequence[int]) -> int:
        """Hold exactly `tokens`."""

    def cut(self, length: int) -> None:
        """Keep at most the first `length` tokens; `tokens` tells how many."""


class DraftContext(DraftMemory, Protocol):
    """One that goes token by token; given by context.py, heads.py, eagle3.py in `llama/`."""

    def extend(self, tokens: Sequence[int]) -> Logits:
        """Decode `tokens`; the logits of the last one."""


class ModelDrafter:
    """Greedy drafts are point masses. Sampled drafts use the request's own chain on the draft's
    logits, and carry the laws they were drawn from.

    `p_min` stops before a token whose largest probability (greedy: softmax of the logits; sampled:
    of the law) is below it. That is known before the token is drawn, as losslessness asks. `n_min`
    drops short greedy drafts; a sampled draft is never dropped, for its tokens were drawn.
    `n_vocab` is the target's: a draft may know padding tokens beyond it.
    """

    no_room = "the draft's context is full"

    def __init__(
        self, context: DraftMemory, settings: DraftSettings, n_vocab: int, name: str
    ) -> None:
        self._name = name
        self._memory = context
        self._settings = settings
        self._width = min(n_vocab, context.n_vocab)
        self._sampling = Sampling()
        self._draws = 0  # in this generation

    @property
    def name(self) -> str:
        """The spec type."""
        return self._name

    @property
    def needs(self) -> Needs:
        """A model of its own, or heads of the target."""
        return Needs(
            k_max=self._settings.n_max,
            draft_model=self._name == NAME,
            heads=self._name != NAME,
            gives_laws=self._settings.sampling == "sampled",
        )

    def begin(self, tokens: Sequence[int], sampling: Sampling) -> None:
        """Read the prompt but for its last token; the common prefix of the last one is kept."""
        self._sampling = sampling
        self._draws = 0
        self._memory.follow(tokens[: min(len(tokens) - 1, self._memory.n_ctx)])

    def propose(self, tokens: Sequence[int], limit: int) -> Draft:
        """The first pass also reads what it has not seen yet."""
        limit = min(limit, self._settings.n_max, self.room(tokens))
        if limit < 1:
            return nothing(self._name, self.no_room)
        drafted: list[int] = []
        laws: list[Law] = []
        for token, drawn_from, _ in islice(self.steps(tokens), limit):
            drafted.append(token)
            if drawn_from is not None:
                laws.append(drawn_from)
        if len(drafted) < self._settings.n_min and not laws:
            return nothing(self._name, f"fewer than {self._settings.n_min} tokens above p-min")
        if not drafted:
            return nothing(self._name, f"nothing above p-min {self._settings.p_min:g}")
        return Draft(tuple(drafted), self._name, laws=tuple(laws) if laws else None)

    def room(self, tokens: Sequence[int]) -> int:
        """The longest draft that it can make after `tokens`."""
        return self._memory.n_ctx - len(tokens)

    def unread(self, tokens: Sequence[int]) -> int:
        """Tokens its memory would have to catch up with."""
        return len(tokens) - len(self._memory.tokens)

    def steps(
        self, tokens: Sequence[int], *, confident: bool = False
    ) -> Iterator[tuple[int, Law | None, float]]:
        """(token, law it was drawn from, largest probability), as many as are asked for.

        The caller stops asking when it has enough. The probability is 0 unless `confident` asks for
        it or p-min needs it: it costs a softmax. A token with a law was drawn and must be verified.
        """
        raise NotImplementedError

    def _next(
        self,
        row: Logits,
        tokens: Sequence[int],
        drafted: list[int],
        confident: bool,
        sure: float | None = None,
    ) -> tuple[int | None, Law | None, float]:
        """Next token, the law it was drawn from (None: a point mass), chance; no token: stop.

        `sure` is what the draft itself says of its chance, where it has a head for that.
        """
        sampling, p_min = self._sampling, self._settings.p_min
        recent = [*tokens[-sampling.penalty_last_n :], *drafted] if sampling.penalised else []
        if sampling.greedy or self._settings.sampling == "greedy":
            token = best(row, recent, sampling)
            if sure is None:
                sure = _probability(row, token) if confident or p_min > 0 else 0.0
            chance = sure
            return (None if chance < p_min else token), None, chance
        drawn_from = law(row, recent, sampling)
        chance = float(drawn_from.probs.max()) if sure is None else sure
        if chance < p_min:
            return None, None, chance
        self._draws += 1
        position = len(tokens) + len(drafted)
        number = uniform(sampling.seed, position, Stream.DRAFT, self._draws)
        return drawn_from.draw(number), drawn_from, chance

    def observe(self, target_pass: TargetPass) -> None:
        """Nothing of the target's pass is needed."""

    def settle(self, outcome: Outcome) -> None:
        """Give up what does not stand; what the target added is read at the next `propose`.

        Its memory may hold a draft of its own, one that was dropped, or another drafter's that it
        went on from: what stands is compared, whoever drafted it.
        """
        before = outcome.length - len(outcome.emitted)
        held = self._memory.tokens[before:]
        if held:  # the last emitted token is read next time in any case, for its logits
            pairs = enumerate(zip(held, outcome.emitted[:-1], strict=False))
            same = min(len(held), len(outcome.emitted) - 1)
            self._memory.cut(before + next((at for at, (a, b) in pairs if a != b), same))

    def close(self) -> None:
        """The session owns the context and closes it."""


class SmallModel(ModelDrafter):
    """One pass of the draft per token."""

    def __init__(
        self, context: DraftContext, settings: DraftSettings, n_vocab: int, name: str = NAME
    ) -> None:
        super().__init__(context, settings, n_vocab, name)
        self._context = context

    def steps(
        self, tokens: Sequence[int], *, confident: bool = False
    ) -> Iterator[tuple[int, Law | None, float]]:
        """As any model's."""
        drafted: list[int] = []
        unread = list(tokens[len(self._context.tokens) :])
        while len(self._context.tokens) + len(unread) <= self._context.n_ctx:
            row = self._context.extend(unread)[: self._width]
            token, drawn_from, chance = self._next(row, tokens, drafted, confident)
            if token is None:
                return
            yield token, drawn_from, chance
            drafted.append(token)
            unread = [token]


class LayerDraftModel(SmallModel):
    """`draft-eagle3`: it drafts from what the target read before, so a text needs two tokens."""

    no_room = "nothing of the target to draft from, or a full context"

    def room(self, tokens: Sequence[int]) -> int:
        """As a small model's."""
        return super().room(tokens) if len(tokens) > 1 else 0

    def steps(
        self, tokens: Sequence[int], *, confident: bool = False
    ) -> Iterator[tuple[int, Law | None, float]]:
        """As a small model's."""
        return super().steps(tokens, confident=confident) if len(tokens) > 1 else iter(())


def _probability(row: Logits, token: int) -> float:
    """Softmax probability of one token."""
    import numpy as np

    return float(1.0 / np.exp(row - row[token]).sum())
