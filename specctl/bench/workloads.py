"""Prompts to measure with: the built-in families, and files of the user's own."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from specctl.errors import UsageError

# In the order of the report: from text that repeats its prompt to text that never repeats.
FAMILIES = (
    "code-edit",
    "template-fill",
    "summarise",
    "translate",
    "code-gen",
    "reasoning",
    "chat",
    "creative",
)
QUICK = ("code-edit", "template-fill", "chat")  # one likely winner, one likely, one likely loser
SEPARATOR = "---"
MAX_FILE_BYTES = 16 * 1024 * 1024
_TEXT_FIELDS = ("name", "prompt", "system", "family")

Message = dict[str, str]


@dataclass(frozen=True, slots=True)
class Prompt:
    """One thing to ask; `family/name` is unique within a benchmark."""

    family: str
    name: str
    text: str
    system: str | None = None

    @property
    def key(self) -> str:
        """How reports name it."""
        return f"{self.family}/{self.name}"

    def messages(self) -> list[Message]:
        """The chat it stands for."""
        system = [{"role": "system", "content": self.system}] if self.system else []
        return [*system, {"role": "user", "content": self.text}]


def load(families: Iterable[str] = FAMILIES) -> tuple[Prompt, ...]:
    """All prompts of these built-in families, each family once, in the given order.

    Raises:
        UsageError: there is no such family.
    """
    prompts: list[Prompt] = []
    for family in dict.fromkeys(families):
        if family not in FAMILIES:
            raise UsageError(
                f"{family!r} is not a built-in workload", "there are: " + ", ".join(FAMILIES)
            )
        source = resources.files("specctl.bench.prompts").joinpath(f"{family}.jsonl")
        prompts += parse_jsonl(source.read_text(encoding="utf-8"), f"{family}.jsonl", family)
    return tuple(prompts)


def in_turns(prompts: Iterable[Prompt]) -> tuple[Prompt, ...]:
    """Round after round one of each family, so that the first few are as unlike as can be."""
    prompts = tuple(prompts)
    rank = {family: place for place, family in enumerate(QUICK)}
    families = sorted(
        dict.fromkeys(prompt.family for prompt in prompts),
        key=lambda family: rank.get(family, len(rank)),
    )
    by_family = [[p for p in prompts if p.family == family] for family in families]
    deepest = max((len(group) for group in by_family), default=0)
    return tuple(group[i] for i in range(deepest) for group in by_family if i < len(group))


def quick(prompts: Iterable[Prompt]) -> tuple[Prompt, ...]:
    """Three prompts, of as many families as there are."""
    return in_turns(prompts)[:3]


def read_file(path: Path) -> tuple[Prompt, ...]:
    """Prompts of a file: JSON lines, or plain text in blocks divided by lines of `---`.

    JSON lines where the name ends in `.jsonl` or the text begins with `{`; each line is an object
    with `prompt` and optionally `name`, `system`, `family`.

    Raises:
        UsageError: not readable, not UTF-8, or a line that is no prompt; names the line.
    """
    try:
        if path.is_file() and path.stat().st_size > MAX_FILE_BYTES:
            raise UsageError(f"{path} is larger than 16 MiB: that is no file of prompts")
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"cannot read prompts from {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise UsageError(f"{path}, line {line}: not UTF-8", "save the file as UTF-8") from error
    if path.suffix == ".jsonl" or text.lstrip().startswith("{"):
        return parse_jsonl(text, str(path), path.stem)
    return parse_blocks(text, str(path), path.stem)


def parse_jsonl(text: str, source: str, family: str) -> tuple[Prompt, ...]:
    """One prompt a line; empty lines are skipped. `source` is what errors name.

    Raises:
        UsageError: with the line's number.
    """
    prompts: dict[str, Prompt] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        where = f"{source}, line {number}"
        prompt = _prompt(_object(line, where), where, family, f"line-{number}")
        if prompt.key in prompts:
            raise UsageError(f"{where}: a second prompt is named {prompt.key}")
        prompts[prompt.key] = prompt
    return _some(prompts.values(), source)


def parse_blocks(text: str, source: str, family: str) -> tuple[Prompt, ...]:
    """Plain text: lines of `---` divide prompts; a prompt is named by the line it starts on.

    Raises:
        UsageError: an empty block, or no text at all.
    """
    prompts: list[Prompt] = []
    block: list[str] = []
    first = 1
    lines = [*text.replace("\r\n", "\n").split("\n"), SEPARATOR]
    for number, line in enumerate(lines, 1):
        if line.rstrip() != SEPARATOR:
            block.append(line)
            continue
        body = "\n".join(block).strip()
        if body:
            prompts.append(Prompt(family, f"line-{first}", body))
        elif number < len(lines):  # a `---` at the very end closes nothing
            raise UsageError(f"{source}, line {number}: no prompt before this {SEPARATOR}")
        block, first = [], number + 1
    return _some(prompts, source)


def _some(prompts: Iterable[Prompt], source: str) -> tuple[Prompt, ...]:
    found = tuple(prompts)
    if not found:
        raise UsageError(f"{source} holds no prompts")
    return found


def _object(line: str, where: str) -> dict[str, Any]:
    try:
        data = json.loads(line)
    except (json.JSONDecodeError, RecursionError) as error:
        raise UsageError(
            f"{where}: not JSON ({getattr(error, 'msg', 'nested too deeply')})",
            'each line is an object like {"name": "greeting", "prompt": "Say hello."}',
        ) from error
    if not isinstance(data, dict):
        raise UsageError(f"{where}: a JSON {type(data).__name__}, not an object with a prompt")
    return data


def _prompt(data: dict[str, Any], where: str, family: str, name: str) -> Prompt:
    for field in _TEXT_FIELDS:
        if data.get(field) is not None and not isinstance(data[field], str):
            raise UsageError(f"{where}: {field} is not a text")
    if not (data.get("prompt") or "").strip():
        raise UsageError(f"{where}: no prompt", 'each object needs a "prompt" that is not empty')
    return Prompt(
        family=data.get("family") or family,
        name=data.get("name") or name,
        text=data["prompt"],
        system=data.get("system") or None,
    )
