"""What a benchmark asks of servers, and what is to be said of how they were asked.

The servers themselves are reached through `specctl.external`, which this room does not know: the
command hands a `Fleet` in, as it hands the in-process benchmark its opener.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal, Protocol

from specctl.bench.report import Report
from specctl.bench.run import Run
from specctl.bench.workloads import Message, Prompt
from specctl.errors import UsageError
from specctl.events import Record

MOST_AT_ONCE = 256
WARM_UP_TOKENS = 16
BATCH = "batch "  # begins the workload of a batch size

# How the arms reach their servers: two processes that are both up, one after the other, one server
# whose requests switch speculation off, addresses that were given, or no plain one at all.
Servers = Literal["together", "in turn", "one", "given", "no plain"]


class Reply(Protocol):
    """One answer. Seconds are on our clock, `first` and `last` from `sent` (monotonic)."""

    @property
    def text(self) -> str: ...  # noqa: D102
    @property
    def tokens(self) -> int: ...  # noqa: D102
    @property
    def first_tokens(self) -> int: ...  # noqa: D102
    @property
    def sent(self) -> float: ...  # noqa: D102
    @property
    def first(self) -> float: ...  # noqa: D102
    @property
    def last(self) -> float: ...  # noqa: D102
    @property
    def prompt_tokens(self) -> int: ...  # noqa: D102
    @property
    def finish(self) -> str: ...  # noqa: D102
    @property
    def records(self) -> tuple[Record, ...]: ...  # noqa: D102
    @property
    def notes(self) -> tuple[str, ...]: ...  # noqa: D102


class Served(Protocol):
    """The server of one arm."""

    def ask(
        self, chats: Sequence[Sequence[Message]], max_tokens: int, ignore_eos: bool
    ) -> Sequence[Reply]:
        """All of them at once; one reply each. Raises RemoteError."""


@dataclass(frozen=True, slots=True)
class Setup:
    """How it was asked. `started`: by us, so that threads and sizes are ours. `method` in the
    server's own words. `ignore_eos`: requests ask for it, which not every engine knows
    (`can_ignore_eos`). `slots`: answers it works on at once, where it says so.
    """

    engine: str
    title: str
    servers: Servers
    started: bool
    ignore_eos: bool
    can_ignore_eos: bool = True
    method: str = ""
    slots: int | None = None


class Fleet(Protocol):
    """Where the servers of the arms come from."""

    @property
    def together(self) -> bool:
        """All can be open at once, and then arms are interleaved; else one after the other."""

    def open(self, arm: str) -> AbstractContextManager[Served]:
        """The arm's server, ready."""

    def setup(self) -> Setup:
        """How it is asked, known once a server was open."""


@dataclass(frozen=True, slots=True)
class ServedFacts:
    """What an outcome of servers has beside its runs.

    `batches` has a workload for each batch size and no totals; `failure`: why it ended early, with
    what to do about it in `hint` (a server's log, which is not kept).
    """

    setup: Setup
    batches: Report | None
    batch_runs: tuple[Run, ...]
    failure: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Wave:
    """Prompts that are asked at the same time, as one of a batch size's workload.

    **Throughput** of a wave: the tokens of all its answers over the seconds from the first request
    to the last token of the last answer, prompts included.
    """

    prompt: Prompt
    members: tuple[Prompt, ...]


def check_batches(sizes: Sequence[int]) -> tuple[int, ...]:
    """Batch sizes, ascending, each once.

    Raises:
        UsageError: one that cannot be.
    """
    wrong = next((size for size in sizes if not 1 <= size <= MOST_AT_ONCE), None)
    if wrong is not None:
        raise UsageError(f"--batch {wrong} is not in 1 … {MOST_AT_ONCE} requests at once")
    return tuple(sorted(set(sizes)))


def waves(prompts: Sequence[Prompt], sizes: Sequence[int]) -> tuple[Wave, ...]:
    """For each size as many waves as it takes to ask every prompt once; the last one is filled up
    from the start.
    """
    return tuple(_waves(prompts, sizes))


def _waves(prompts: Sequence[Prompt], sizes: Sequence[int]) -> Iterator[Wave]:
    for size in sizes:
        for number in range(-(-len(prompts) // size)):
            members = [prompts[(number * size + i) % len(prompts)] for i in range(size)]
            yield Wave(Prompt(f"{BATCH}{size}", f"wave-{number + 1}", ""), tuple(members))


# ---------------------------------------------------------------- what could not be made equal

_REMEMBERING = {
    "ngram-mod": "llama-server keeps the pool of ngram-mod over all requests",
    "suffix": "vLLM keeps the suffix tree over all requests",
    "NGRAM": "SGLang keeps its trie over all requests",
}
_SERVERS: dict[Servers, str] = {
    "together": "plain and speculative are servers of their own, all loaded, one asked at a time, "
    "interleaved: the other ones hold memory meanwhile",
    "in turn": "one server after the other, since memory holds only one: a slow minute of the "
    "machine hits one arm alone",
    "one": "one server for both arms: each plain request switches speculation off; its draft model "
    "stays loaded",
    "given": "two given addresses: whether they differ in speculation alone is not known here",
    "no plain": "there is no plain decoding to compare with: speed-up not known; --baseline-url "
    "names a server of the same model without speculation",
}


def conditions(setup: Setup, batches: Sequence[int], prompts: int) -> tuple[str, ...]:
    """What is equal between the arms, what is not, and what is not known: a line for each.
    `prompts`: how many there are.
    """
    return (*_conditions(setup), *_of_batches(setup, batches, prompts))


def _conditions(setup: Setup) -> Iterator[str]:
    yield f"servers: {_SERVERS[setup.servers]}"
    yield (
        "clock: ours, from the first streamed token to the last; HTTP, JSON and the server's own "
        "work between passes are in it"
    )
    yield "sampling: temperature 0 in each request; penalties and samplers are the server's own"
    yield "chat template: the server's own, also where it cuts or adds white space"
    yield f"prompt cache: {_cache(setup.engine)}"
    if setup.started:
        yield (
            "threads and how they wait, context, batches, KV types, layers on the GPU: the same "
            "in all arms"
        )
    else:
        yield "threads, placement and precision: the server's own, not told"
    yield (
        f"warm-up: one answer of {WARM_UP_TOKENS} tokens per arm, thrown away; the server's caches "
        "and clocks are not reset between runs"
    )
    if setup.ignore_eos:
        yield (
            "length: answers go on past their end (ignore_eos), where a model often repeats "
            "itself, which look-up drafts like; --stop-at-eos ends them"
        )
    elif not setup.can_ignore_eos:
        yield "length: the server has no ignore_eos, answers end where the model ends them"
    else:
        yield "length: answers end where the model ends them"
    for name, words in _REMEMBERING.items():
        if name in setup.method.split(","):
            yield f"memory: {words}: later runs may be drafted from earlier answers"


def _of_batches(setup: Setup, batches: Sequence[int], prompts: int) -> Iterator[str]:
    largest = max(batches, default=0)
    if setup.slots is not None and largest > setup.slots:
        yield (
            f"batch: the server works on {setup.slots} at once: of larger batches the rest waits, "
            "in both arms"
        )
    if largest > prompts:
        yield (
            f"batch: above {prompts} a wave asks prompts more than once: pools of look-ups and "
            "caches of prompts that requests share help such copies"
        )


def _cache(engine: str) -> str:
    if engine == "llama-server":
        return "switched off in each request (cache_prompt), in all arms"
    return (
        "the server's own: repeats may find their prompt read already, which shortens the time to "
        "the first token and the waves of a batch, not the rate"
    )
