"""A command line as a value: arguments, files beside it, notes, and its shell and docker forms."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from specctl.errors import UsageError
from specctl.external.flags import ENGINES, Mark, flag_of, marks
from specctl.external.wish import Options, Weights, Wish

_END = "SPECCTL_END"


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start one engine. `commands` has one a node; `config` is the speculative part.

    `files` are name and text of what the command reads from the working folder.
    """

    engine: str
    commands: tuple[tuple[str, ...], ...]
    methods: tuple[str, ...]
    value: str
    host: str
    port: int
    config: Mapping[str, Any] | None = None
    files: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    mounts: tuple[Path, ...] = ()

    @property
    def marks(self) -> tuple[Mark, ...]:
        """Every flag and key that is used, and where it is known from."""
        argv = [token for command in self.commands for token in own_part(self.engine, command)]
        return marks(self.engine, argv, self.keys)

    @property
    def unverified(self) -> tuple[str, ...]:
        """What no source was read for."""
        return tuple(mark.name for mark in self.marks if mark.known.grade == "unverified")

    @property
    def metrics_url(self) -> str:
        """Where its Prometheus text is."""
        return self.url + ENGINES[self.engine].metrics

    @property
    def url(self) -> str:
        """Where it answers, from this machine."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        return f"http://{bracketed(host)}:{self.port}"

    def node(self, rank: int) -> tuple[str, ...]:
        """The command of one node. Raises UsageError for a node that is not there."""
        if not 0 <= rank < len(self.commands):
            raise UsageError(f"there is no node {rank}", f"0 … {len(self.commands) - 1}")
        return self.commands[rank]


def own_part(engine: str, command: tuple[str, ...]) -> tuple[str, ...]:
    """The engine's own arguments: without what launches it on many nodes or in a container."""
    image, program = ENGINES[engine].image, ENGINES[engine].program[0]
    if image in command:
        return command[command.index(image) + 1 :]
    return command[command.index(program) :] if program in command else command


def finish(
    wish: Wish, argv: list[str], *, value: str, notes: Iterable[str] = (), **more: Any
) -> Launch:
    """A launch of one node, with what every engine has in common."""
    text = [*wish.given.notes, *wish.notes, *notes]
    if wish.methods == ("none",):
        how = "NAME+METHOD or --spec-type" if wish.plus else "--spec-type METHOD"
        text.append(f"plain decoding: name a method to speculate, {how}")
    if wish.options.host not in ("127.0.0.1", "localhost", "::1"):
        text.append(f"{wish.options.host} can be reached from other machines; no key is set")
    return Launch(
        engine=wish.engine,
        commands=((*argv, *wish.options.extra),),
        methods=wish.methods,
        value=value,
        host=wish.options.host,
        port=wish.port,
        notes=tuple(text),
        mounts=tuple(one for one in (wish.target, wish.draft) if isinstance(one, Path)),
        **more,
    )


def bracketed(host: str) -> str:
    """An address beside a port: IPv6 ones stand in brackets."""
    return f"[{host}]" if ":" in host else host


def head_of(options: Options) -> str:
    """The address of the first node. Raises UsageError where it is needed and not given."""
    if options.head is None:
        raise UsageError(
            f"--nodes {options.nodes} needs the first node's address", "--head ADDRESS"
        )
    return options.head


def repository(weights: Weights) -> str:
    """A hub repository or a folder, as the engines of safetensors take it."""
    return str(weights)


# ---------------------------------------------------------------- forms


def shell(launch: Launch, rank: int = 0) -> str:
    """What a POSIX shell runs: first the files, then the command."""
    lines = []
    for name, text in launch.files:
        lines.append(f"cat > {shlex.quote(name)} <<'{_END}'\n{text.rstrip()}\n{_END}")
    return "\n".join([*lines, shlex.join(launch.node(rank))])


def folded(command: tuple[str, ...]) -> str:
    """The same command for the eye: a line for each flag and its value."""
    lines: list[list[str]] = [[]]
    for token in command:
        line = lines[-1]
        if line and (flag_of(token) or (len(line) == 2 and flag_of(line[0]))):
            lines.append([])
        lines[-1].append(token)
    return " \\\n  ".join(shlex.join(line) for line in lines)


def docker(launch: Launch, rank: int = 0) -> Launch:
    """The same launch inside the engine's image; weights of this machine are mounted.

    Raises:
        UsageError: TensorRT-LLM on several nodes, which a job scheduler starts.
    """
    engine = ENGINES[launch.engine]
    command = launch.node(rank)
    if own_part(launch.engine, command) != command:
        raise UsageError("Slurm starts the containers itself", "srun --container-image")
    if len(launch.commands) > 1:
        network = ["--network", "host"]
        host = launch.host
    else:
        network = ["-p", f"{bracketed(launch.host)}:{launch.port}:{launch.port}"]
        host = "0.0.0.0"
    argv = ["docker", "run", "--rm", "--gpus", "all", "--ipc=host", *network]
    argv += ["-v", "specctl-models:/root/.cache"]
    inside, files = list(command), list(launch.files)
    for number, path in enumerate(launch.mounts):
        there = f"/models{number}/{path.name}"
        argv += ["-v", f"{path.resolve()}:{there}:ro"]
        if "-00001-of-" in path.name:  # the other parts lie beside it
            argv[-1] = f"{path.parent}:/models{number}:ro"
        inside = [_moved(one, path, there) for one in inside]
        files = [(name, _moved(text, path, there)) for name, text in files]
    for name, _ in files:
        argv += ["-v", f"./{name}:/specctl/{name}:ro"]
        inside = [f"/specctl/{name}" if one == name else one for one in inside]
    at = inside.index("--host") + 1
    inside[at] = host
    entry = len(engine.program) if launch.engine in ("llama-server", "vllm") else 0
    argv += [engine.image, *inside[entry:]]
    notes = (
        *launch.notes,
        f"that the tag of {engine.image} exists was not checked",
        "models are kept in the volume specctl-models",
    )
    return replace(launch, commands=(tuple(argv),), files=tuple(files), notes=notes)


def _moved(text: str, path: Path, there: str) -> str:
    """A path as it is inside the container: a whole argument, or a string in JSON or YAML."""
    if text == str(path):
        return there
    return text.replace(json.dumps(str(path), ensure_ascii=False), json.dumps(there))
