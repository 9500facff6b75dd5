"""A fake engine that answers chats: words of its own, streamed in cycles, counted as it counts."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any

from fake_engine import MODEL, FakeEngine

PROMPT_TOKENS = 9
SWITCH = "speculative.n_max"


class Answering(FakeEngine):
    """`k` drafted, `accepted` of them stand, a pass takes `pace` seconds; plain where it does not
    speculate, or is asked not to by a `switch` it knows.

    `trouble`: status (answers `status`), cut (ends in the middle), endless (minds no max_tokens),
    longer (one token more), error (an error event), mute (no count of its tokens), page (no chat),
    held (everything at the end), deaf (no counters after an answer).
    """

    def __init__(self, kind: str, **changes: Any) -> None:
        mine = ("accepted", "pace", "trouble", "status", "switch", "words", "troubled_after", "end")
        own = {name: changes.pop(name) for name in mine if name in changes}
        super().__init__(kind, **changes)
        self.k, self.accepted, self.pace = 3, 2, 0.004
        self.trouble, self.status, self.switch = "", 429, False
        self.words, self.troubled_after, self.end = "w{} ", 0, None
        for name, value in own.items():
            setattr(self, name, value)
        self.most_at_once = self.now_at_once = 0
        self.lock = threading.Lock()

    def _v1_models(self) -> tuple[int, str, bytes]:
        if self.kind != "openai":
            return super()._v1_models()
        return self._json({"object": "list", "data": [{"id": MODEL, "owned_by": "me"}]})

    def _metrics(self) -> tuple[int, str, bytes]:
        return self._json({}, 404) if self.kind == "openai" else super()._metrics()

    def reply(self, asked: dict[str, Any]) -> Iterable[str] | tuple[int, str, bytes]:
        if self.trouble and len(self.asked) > self.troubled_after:
            if self.trouble == "status":
                return self._json({"error": {"message": "no room"}}, self.status)
            if self.trouble == "page":
                return 200, "text/html", b"<html></html>"
        return self._counted(asked)

    def _counted(self, asked: dict[str, Any]) -> Iterator[str]:
        with self.lock:
            self.now_at_once += 1
            self.most_at_once = max(self.most_at_once, self.now_at_once)
        try:
            held = self.trouble == "held" and asked["max_tokens"] > 16  # no warm-up
            yield from list(self._events(asked)) if held else self._events(asked)
            if self.trouble == "deaf":
                self.fault = "error"
        finally:
            with self.lock:
                self.now_at_once -= 1

    def _events(self, asked: dict[str, Any]) -> Iterator[str]:
        most = asked["max_tokens"]
        trouble = self.trouble if len(self.asked) > self.troubled_after else ""
        if self.end is not None and not asked.get("ignore_eos"):
            most = min(most, self.end)
        drafts = self.speculative and not (self.switch and asked.get(SWITCH) == 0)
        tokens = drafted = accepted = passes = 0
        yield self._event(asked, "", 0, 0, 0)
        while tokens < most or trouble == "endless":
            time.sleep(self.pace)
            passes += 1
            k = self.k if drafts and tokens else 0
            stood = min(self.accepted, most - tokens - 1) if k else 0
            if trouble == "endless":
                stood = self.accepted if k else 0
            drafted, accepted = drafted + k, accepted + stood
            with self.lock:
                self.cycle(k, stood, self.pace)
            for _ in range(stood + 1):
                tokens += 1
                yield self._event(asked, self.words.format(tokens), tokens, drafted, accepted)
            if trouble == "cut" and tokens > most // 2:
                return
            if trouble == "error" and tokens > most // 2:
                yield json.dumps({"error": {"message": "out of memory"}})
                return
        if trouble == "longer":
            tokens += 1
        yield self._event(asked, "", tokens, drafted, accepted, "length")
        if trouble != "mute":
            own = {"cycles": passes, "drafted_cycles": passes - 1 if drafts else 0}
            own |= {"drafted": drafted, "accepted": accepted, "seconds": passes * self.pace}
            extra = {"specctl": own} if self.kind == "specctl" else {}
            usage = {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": tokens, **extra}
            yield json.dumps({"choices": [], "usage": usage})
        yield "[DONE]"

    def _event(
        self,
        asked: dict[str, Any],
        text: str,
        tokens: int,
        drafted: int,
        accepted: int,
        end: str = "",
    ) -> str:
        choice: dict[str, Any] = {"delta": {"content": text or None}, "finish_reason": end or None}
        value: dict[str, Any] = {"choices": [choice]}
        if asked.get("timings_per_token") and tokens:
            value["timings"] = {
                "prompt_n": PROMPT_TOKENS,
                "cache_n": 0,
                "prompt_ms": 5.0,
                "predicted_n": tokens,
                "predicted_ms": tokens * self.pace * 1000,
            }
            if drafted:
                value["timings"] |= {"draft_n": drafted, "draft_n_accepted": accepted}
        if asked["stream_options"].get("continuous_usage_stats") and tokens:
            value["usage"] = {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": tokens}
        return json.dumps(value)
