"""`ngram-suffix`: the longest match of any length, by frequency and recency of what followed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from specctl.drafters.base import Draft, Outcome, nothing
from specctl.drafters.hits import AGREED, ALONE, DISPUTED, MAJORITY, SPLIT, Hits, cell
from specctl.drafters.lookup import Lookup, common_prefix, kept
from specctl.drafters.suffix_automaton import SuffixAutomaton
from specctl.settings import Sampling

SHORTEST = 2  # a match of one token says little
THRESHOLD = 0.4
MOST_TOKENS = 1 << 16
_LONG = 17  # from this length on a copy is followed without a look at shorter contexts
_BRANCHES = 64  # continuations looked at per step: keeps the cost of a step constant
_OVERLAP = 64  # tokens repeated after a barrier, so that matches may reach back over it
_HEADER = 8  # a chat template's opening of the answer may differ from how it is kept


class NgramSuffix(Lookup):
    """Drafts along a suffix automaton of everything said so far in this conversation.

    The match is the longest suffix of the text that occurred before, of at least `shortest` tokens
    (2; 1 is for a caller that weighs the confidences). Per step the continuation with the most
    occurrences is taken, the latest one counting twice; where an occurrence ends with the text, the
    next shorter context goes on. Each token's confidence is the share of right guesses at its match
    length and agreement so far (see `Hits`); a single occurrence is worth more where the next
    shorter context was mostly followed by the same token, less where by others.

    The draft ends where the running product of confidences would fall below `threshold`; 0 gives
    the whole path up to `limit` to a caller that chooses the length itself. The default, 0.4, is
    for a target that pays for one more row about a third of a plain pass: memory-bound ones pay
    less, a CPU with a quantised target more.

    The text is what `begin` was given plus what was emitted. A later turn of the same conversation
    (it goes on from all of the last prompt) keeps the earlier answer even where the new prompt
    has dropped or changed it; anything else, such as the same prompt again, forgets it. At most
    `most_tokens` tokens are held (65 536: some 8 MB of ordinary text, see `SuffixAutomaton`);
    above, the automaton is built again from the recent half, as long as a `begin` of it takes.
    """

    def __init__(
        self,
        k_max: int,
        threshold: float = THRESHOLD,
        most_tokens: int = MOST_TOKENS,
        shortest: int = SHORTEST,
    ) -> None:
        super().__init__("ngram-suffix", k_max)
        self._threshold = threshold
        self._most_tokens = most_tokens
        self._shortest = shortest
        self._known: list[int] = []  # the sequence as it is now
        self._prompt = 0  # its length at begin
        self._automaton = SuffixAutomaton()
        self._hits = Hits()
        self._path: list[tuple[int, int]] = []  # (token, cell) of the last propose
        self._path_at = -1  # length of the text then

    def begin(self, tokens: Sequence[int], sampling: Sampling) -> None:
        """Goes on from the last generation if this is a later turn, else starts anew."""
        keep = common_prefix(self._known, tokens)
        later = keep >= max(1, self._prompt - _HEADER) and len(tokens) > self._prompt
        if keep < len(self._known):
            if later:
                self._automaton.barrier()
                keep = max(0, keep - _OVERLAP)
            else:
                self._forget()
                keep = 0
        self._extend(tokens, keep)
        self._known = list(tokens)
        self._prompt = len(tokens)
        self._path_at = -1

    def propose(self, tokens: Sequence[int], limit: int) -> Draft:
        """Amortised O(1) per new token, O(1) per drafted one."""
        keep = kept(self._known, tokens, begin=False)
        if keep < len(self._known):
            self._forget()
            keep = 0
        self._extend(tokens, keep)
        self._known[keep:] = tokens[keep:]
        self._path_at = len(tokens)
        self._path = []
        match = self._automaton.length(max(0, self._automaton.link(self._automaton.state)))
        if match < self._shortest or limit < 1:
            return nothing(self.name)
        confidences = self._walk(min(limit, self.needs.k_max))
        if not confidences:
            return nothing(self.name, f"match {match}")
        drafted = tuple(token for token, _ in self._path[: len(confidences)])
        return Draft(drafted, self.name, confidences=tuple(confidences), detail=f"match {match}")

    def settle(self, outcome: Outcome) -> None:
        """Compare the path with what was emitted, whoever drafted it.

        Up to the first difference each token is a trial; what would have come after it, or after
        the last emitted token of a draft accepted in full, stays unknown (censored).
        """
        if outcome.length - len(outcome.emitted) != self._path_at:
            return
        self._path_at = -1
        for (token, at), said in zip(self._path, outcome.emitted, strict=False):
            self._hits.learn(at, token == said)
            if token != said:
                return

    def close(self) -> None:
        """Forget everything."""
        self._forget()

    def _walk(self, most: int) -> list[float]:
        """Fill the path; the confidences of the part worth drafting."""
        confidences: list[float] = []
        product = 1.0
        for token, at in islice(self._follow(), most):
            self._path.append((token, at))  # also the first one not drafted: it may teach
            chance = self._hits.chance(at)
            product *= chance
            if product < self._threshold:
                break
            confidences.append(chance)
        return confidences

    def _follow(self) -> Iterator[tuple[int, int]]:
        """(token, cell) along the automaton, as long as a long enough context has a sequel."""
        automaton = self._automaton
        state = automaton.link(automaton.state)
        context = automaton.length(state)
        while context >= self._shortest:
            found = self._next(state)
            if found is None:
                state = automaton.link(state)
                context = automaton.length(state) if state >= 0 else 0
                continue
            token, state, agreement = found
            yield token, cell(context, agreement)
            context += 1
            if context >= _LONG and automaton.count(state) == 1:  # a plain copy, to its end
                for token in automaton.after(state):
                    yield token, cell(context, ALONE)
                    context += 1
                    state = automaton.step(state, token)

    def _next(self, state: int) -> tuple[int, int, int] | None:
        """(token, state, agreement) of the best continuation; None where nothing followed."""
        automaton = self._automaton
        options = [
            (automaton.count(target), automaton.last(target), token, target)
            for token, target in islice(automaton.steps(state), _BRANCHES)
            if token >= 0
        ]
        if not options:
            return None
        if len(options) == 1:
            count, _, token, target = options[0]
            return token, target, self._agreement(state, token, count)
        latest = max(last for _, last, _, _ in options)
        total = sum(count for count, _, _, _ in options) + 1
        weight, _, token, target = max(
            (count + (last == latest), last, token, target)
            for count, last, token, target in options
        )
        return token, target, MAJORITY if 3 * weight >= 2 * total else SPLIT

    def _agreement(self, state: int, token: int, count: int) -> int:
        """Of the only sequel of `state`, seen `count` times, with what else its next shorter
        context was followed by.
        """
        automaton = self._automaton
        lone = ALONE if count == 1 else AGREED
        shorter = automaton.link(state)
        if automaton.length(state) >= _LONG or automaton.length(shorter) == 0:
            return lone
        same = others = 0
        for other, target in islice(automaton.steps(shorter), _BRANCHES):
            if other == token:
                same = automaton.count(target) - count
            else:
                others += automaton.count(target)
        if 2 * same < others:
            return DISPUTED if count == 1 else ALONE
        return AGREED if same and same >= 2 * others else lone

    def _extend(self, tokens: Sequence[int], start: int) -> None:
        for token in tokens[start:]:
            self._automaton.append(token)
            if len(self._automaton.text) > self._most_tokens:
                self._rebuild()

    def _rebuild(self) -> None:
        recent = self._automaton.text[-(self._most_tokens // 2) :]
        self._automaton = SuffixAutomaton()
        for token in recent:
            if token < 0:
                self._automaton.barrier()
            else:
                self._automaton.append(token)

    def _forget(self) -> None:
        self._automaton = SuffixAutomaton()
        self._hits = Hits()
        self._known = []
        self._path = []
        self._path_at = -1
        self._prompt = 0
