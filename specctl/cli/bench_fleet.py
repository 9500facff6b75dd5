"""The servers of a benchmark: llama-server processes that we start, or given addresses."""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from specctl import paths
from specctl.bench.run import PLAIN, Arm
from specctl.bench.served import Served, Servers, Setup
from specctl.cli.render import err
from specctl.errors import RemoteError, SettingsError, UsageError
from specctl.external import llama_server
from specctl.external.peer import Chat, Peer
from specctl.external.process import (
    Server,
    ended_meanwhile,
    find_program,
    log_of,
    wait_ready,
)
from specctl.external.timed import Timed
from specctl.external.wire import Line, address
from specctl.external.wish import Options, make_wish
from specctl.gguf.facts import read_facts
from specctl.hardware.budget import memory_budget, primary_device
from specctl.hardware.machine import take_snapshot
from specctl.plan import catalog
from specctl.plan.memory import estimate
from specctl.settings import EngineSettings, ModelSettings, SpecSettings
from specctl.units import format_bytes

SPECULATIVE = "speculative"  # the arm of a server that does not name its method


# ---------------------------------------------------------------- addresses


class Given:
    """One or two running servers. With one, plain requests switch speculation off where the server
    knows how; else there is no plain arm.
    """

    together = True

    def __init__(
        self,
        url: str,
        plain_url: str | None = None,
        key: str | None = None,
        model: str | None = None,
        ignore_eos: bool = True,
    ) -> None:
        self._ignore_eos = ignore_eos
        self._stack = contextlib.ExitStack()
        with contextlib.ExitStack() as stack:
            self._spec = stack.enter_context(Peer(url, key, model))
            if self._spec.speculates is False:
                raise UsageError(
                    f"{self._spec.url} runs without speculation",
                    "name the one that speculates with --engine, this one with --baseline-url",
                )
            self._plain = _plain_peer(self._spec, plain_url, key, model)
            if self._plain is not None:
                stack.enter_context(self._plain)
            self._stack = stack.pop_all()
        self._servers: Servers = "given" if plain_url else "one" if self._plain else "no plain"

    def __enter__(self) -> Given:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def model(self) -> str:
        """What the server calls its model."""
        return self._spec.shown_model or "unnamed"

    @property
    def has_plain(self) -> bool:
        """Can it be compared with plain decoding?"""
        return self._plain is not None

    @property
    def arm(self) -> Arm:
        """Named by the server's own word for its method, where that is no word for plain."""
        method = self._spec.method
        name = SPECULATIVE if method in ("", PLAIN, "none") else method
        return Arm(name, SpecSettings(types=tuple(dict.fromkeys(name.split(",")))))

    def open(self, arm: str) -> AbstractContextManager[Served]:
        """The peer of an arm; it stays open."""
        peer = self._plain if arm == PLAIN else self._spec
        assert peer is not None
        return contextlib.nullcontext(peer)

    def setup(self) -> Setup:
        """As it was found."""
        spec = self._spec
        can = all(one.can_ignore_eos for one in (spec, self._plain) if one is not None)
        return Setup(
            engine=spec.engine or "openai",
            title=spec.title,
            servers=self._servers,
            started=False,
            ignore_eos=self._ignore_eos and can,
            can_ignore_eos=can,
            method=spec.method,
            slots=spec.slots,
        )


def _plain_peer(spec: Peer, url: str | None, key: str | None, model: str | None) -> Peer | None:
    if url is None:
        return spec.switched_off()
    if address(url).is_same(address(spec.url)):
        raise UsageError("--baseline-url is the address of --engine", "it must not speculate")
    peer = Peer(url, key, model)
    if peer.speculates is True:
        peer.close()
        raise UsageError(
            f"{peer.url} speculates: it is no baseline",
            "start one of the same model without speculation",
        )
    if peer.engine != spec.engine:
        err().print(
            f"! {peer.url} is {peer.title}, {spec.url} is {spec.title}: engines are compared, too",
            style="yellow",
            markup=False,
        )
    return peer


# ---------------------------------------------------------------- llama-server, started here


class Started:
    """One llama-server for each arm, of the same model and settings. `at_once`: slots of each."""

    def __init__(
        self,
        model: Path,
        draft: Path | None,
        arms: Sequence[Arm],
        settings: EngineSettings,
        *,
        at_once: int = 1,
        binary: Path | None = None,
        in_turn: bool = False,
        ignore_eos: bool = True,
    ) -> None:
        self._model, self._draft = model, draft
        self._specs = {arm.name: arm.spec for arm in arms}
        self._settings, self._at_once, self._binary = settings, at_once, binary
        self._ignore_eos = ignore_eos
        self._title = "llama-server"
        self._catalog = catalog.load()
        for spec in self._specs.values():  # what cannot be is said before anything is started
            self._command(spec, 1)
        self.together = not in_turn and self._fit()

    def _fit(self) -> bool:
        """Can all of them be loaded at once? By the estimates of `specctl plan`."""
        try:
            needed = sum(self._needs(spec) for spec in self._specs.values())
        except SettingsError:
            return False
        machine = take_snapshot()
        free, _ = memory_budget(machine, primary_device(machine))
        if free is not None and needed <= free:
            return True
        have = "memory not known" if free is None else f"{format_bytes(free)} to be used"
        err().print(
            f"{len(self._specs)} servers ≈ {format_bytes(needed)}, {have}: one after the other",
            style="dim",
            markup=False,
        )
        return False

    def _needs(self, spec: SpecSettings) -> int:
        settings = self._settings
        models: list[tuple[Path, ModelSettings]] = [(self._model, settings.target)]
        if self._draft is not None and _drafts(spec):
            models.append((self._draft, settings.draft))
        return sum(self._bytes(path, one) for path, one in models)

    def _bytes(self, path: Path, one: ModelSettings) -> int:
        facts = read_facts(str(path))
        return estimate(
            facts.shape,
            facts.weights,
            self._settings.n_ctx * self._at_once,
            one.kv_type_k,
            one.kv_type_v,
            flash_attn=self._settings.flash_attn != "off",
        ).total

    def _command(self, spec: SpecSettings, port: int) -> tuple[str, ...]:
        options = Options(
            draft=str(self._draft) if self._draft is not None and _drafts(spec) else None,
            spec_type=",".join(spec.types),
            k=spec.k,
            ctx=self._settings.n_ctx * self._at_once,
            port=port,
            extra=(*_sizes(spec), *_placement(self._settings, self._at_once)),
        )
        try:
            wish = make_wish("llama-server", str(self._model), options, self._catalog)
        except UsageError as error:  # a flag of `engine run` that this command does not have
            hint = (error.hint or "").replace("; --nearest takes it", ": name it with --spec-type")
            raise UsageError(error.message, hint or None) from error
        return find_program(llama_server.build(wish), self._binary)

    @contextlib.contextmanager
    def open(self, arm: str) -> Iterator[Served]:
        """Start it, wait until it is ready, and end it.

        Raises:
            SpecctlError: it cannot be started; RemoteError: it ended, or does not speculate.
        """
        port = _free_port()  # in the log's name, too: others may be measuring
        command = self._command(self._specs[arm], port)
        name = re.sub(r"[^\w.-]+", "-", arm)
        log = paths.cache_dir() / "engines" / f"bench-{name}-{port}.log"
        url = f"http://127.0.0.1:{port}"
        with Server(command, log) as server:
            with contextlib.closing(Line(address(url))) as line:
                wait_ready(server, line)
            with Peer(url) as peer:
                self._title = peer.title
                _check(arm, self._specs[arm], peer, server)
                yield _Watched(peer, server)
        log.unlink(missing_ok=True)  # kept where something went wrong, and its end was told

    def setup(self) -> Setup:
        """The same of every arm; `method` of all."""
        types = dict.fromkeys(t for spec in self._specs.values() for t in spec.types if t != "none")
        return Setup(
            engine="llama-server",
            title=self._title,
            servers="together" if self.together else "in turn",
            started=True,
            ignore_eos=self._ignore_eos,
            method=",".join(types),
            slots=self._at_once,
        )


class _Watched:
    """A peer whose process is ours: where it fails, its end and its log are told."""

    def __init__(self, peer: Peer, server: Server) -> None:
        self._peer, self._server = peer, server

    def ask(self, chats: Sequence[Chat], max_tokens: int, ignore_eos: bool) -> Sequence[Timed]:
        """As `Peer.ask`."""
        try:
            return self._peer.ask(chats, max_tokens, ignore_eos)
        except RemoteError as error:
            ended = ended_meanwhile(self._server, patience=1.0)
            if ended is None:
                raise
            raise ended from error


def _check(arm: str, spec: SpecSettings, peer: Peer, server: Server) -> None:
    drafts = spec.types != ("none",)
    if drafts and peer.speculates is False:
        raise RemoteError(
            f'{arm}: llama-server does not speculate: /slots says "speculative": false',
            log_of(server),
        )
    if not drafts and peer.speculates:
        raise RemoteError(f"{arm}: llama-server speculates without having been asked to")


def _drafts(spec: SpecSettings) -> bool:
    return any(kind.startswith("draft-") for kind in spec.types)


def _placement(settings: EngineSettings, at_once: int) -> list[str]:
    """Flags that make the server what the in-process engine is; read in llama.cpp's arg.cpp.

    No prompt cache in RAM, no shrinking to fit: both would make arms differ without a word.
    """
    target, draft = settings.target, settings.draft
    argv = ["-np", str(at_once), "-b", str(settings.n_batch), "-ub", str(settings.n_ubatch)]
    argv += ["-fa", settings.flash_attn, "-ctk", target.kv_type_k, "-ctv", target.kv_type_v]
    argv += ["-ngl", _layers(target), "-cram", "0", "-fit", "off"]
    argv += ["-ngld", _layers(draft), "-ctkd", draft.kv_type_k, "-ctvd", draft.kv_type_v]
    if settings.threads is not None:
        argv += ["-t", str(settings.threads), "-td", str(settings.threads)]
    if target.n_cpu_moe:
        argv += ["-ncmoe", str(target.n_cpu_moe)]
    return argv


def _layers(model: ModelSettings) -> str:
    return "all" if model.gpu_layers < 0 else str(model.gpu_layers)


def _sizes(spec: SpecSettings) -> list[str]:
    """The drafters' sizes, where they are not llama-server's own defaults; K is the wish's."""
    own, argv = SpecSettings(), []
    ngrams: Mapping[str, tuple[object, object]] = {
        "ngram-simple": (spec.ngram_simple, own.ngram_simple),
        "ngram-map-k": (spec.ngram_map_k, own.ngram_map_k),
        "ngram-map-k4v": (spec.ngram_map_k4v, own.ngram_map_k4v),
    }
    for name, (said, usual) in ngrams.items():
        if name not in spec.types:
            continue
        for field, flag in (("size_n", "size-n"), ("size_m", "size-m"), ("min_hits", "min-hits")):
            value = getattr(said, field)
            if value != getattr(usual, field) and not (field == "size_m" and spec.k is not None):
                argv += [f"--spec-{name}-{flag}", str(value)]
    mod, usual_mod = spec.ngram_mod, own.ngram_mod
    if "ngram-mod" in spec.types:
        for field in ("n_match", *(("n_max", "n_min") if spec.k is None else ())):
            if getattr(mod, field) != getattr(usual_mod, field):
                argv += [f"--spec-ngram-mod-{field.replace('_', '-')}", str(getattr(mod, field))]
    if _drafts(spec):
        draft = spec.draft
        if spec.k is None:
            argv += ["--spec-draft-n-max", str(draft.n_max)]
        if draft.n_min:
            argv += ["--spec-draft-n-min", str(min(draft.n_min, spec.k or draft.n_max))]
        if draft.p_min:
            argv += ["--spec-draft-p-min", f"{draft.p_min:g}"]
    return argv


def _free_port() -> int:
    with contextlib.closing(socket.socket()) as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port
