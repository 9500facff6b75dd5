"""Prompts to measure with: the built-in families, and files of the user's own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path

from specctl.bench import styles
from specctl.bench.styles import Message, Prompt
from specctl.errors import UsageError

__all__ = ["Message", "Prompt"]  # of styles; the rest is defined here

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
MAX_FILE_BYTES = 256 * 1024 * 1024
_JSON_LIST = re.compile(r"\s*\[\s*(\{|\])")


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


def unseen(offered: Sequence[Prompt], measured: Sequence[Prompt]) -> tuple[str, ...]:
    """Families of `offered` of which `measured` has no prompt, in their order."""
    seen = {prompt.family for prompt in measured}
    return tuple(dict.fromkeys(one.family for one in offered if one.family not in seen))


def per_family(prompts: Sequence[Prompt], most: int | None) -> tuple[Prompt, ...]:
    """The first `most` prompts of each family, in their order.

    Raises:
        UsageError: `most` is below 1.
    """
    if most is None:
        return tuple(prompts)
    if most < 1:
        raise UsageError(f"--per-workload {most} is below 1")
    left = dict.fromkeys((prompt.family for prompt in prompts), most)
    kept = []
    for prompt in prompts:
        left[prompt.family] -= 1
        if left[prompt.family] >= 0:
            kept.append(prompt)
    return tuple(kept)


def turns_note(prompts: Iterable[Prompt]) -> str | None:
    """What is not asked of conversations: a word for the report, None where all is."""
    several = sum(prompt.turns > 1 for prompt in prompts)
    if not several:
        return None
    have = "prompt has" if several == 1 else "prompts have"
    return f"{several} {have} more than one turn: the first turn is asked, the others are not"


def read_file(path: Path) -> tuple[Prompt, ...]:
    """Prompts of a file: JSON, JSON lines, or plain text in blocks divided by lines of `---`.

    JSON lines where the name ends in `.jsonl` or the text begins with `{`, JSON where it ends in
    `.json` or begins with a list of objects; which objects are prompts is in `styles`.

    Raises:
        UsageError: not readable, not UTF-8, or a line that is no prompt; names the line.
    """
    try:
        if path.is_file() and path.stat().st_size > MAX_FILE_BYTES:
            raise UsageError(f"{path} is larger than 256 MiB: take a part of it")
        raw = path.read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read prompts from {path}: {error.strerror}") from error
    if raw[:4] == b"PAR1" or path.suffix == ".parquet":
        raise UsageError(f"{path} is Parquet, which specctl does not read", _convert(path))
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise UsageError(f"{path}, line {line}: not UTF-8", "save the file as UTF-8") from error
    if path.suffix == ".json" or (path.suffix != ".jsonl" and _JSON_LIST.match(text)):
        return parse_json(text, str(path), path.stem)
    if path.suffix == ".jsonl" or text.lstrip().startswith("{"):
        return parse_jsonl(text, str(path), path.stem)
    return parse_blocks(text, str(path), path.stem)


def _convert(path: Path) -> str:
    return (
        'make JSON lines of it: python -c "import pandas; '
        f"pandas.read_parquet('{path.name}').to_json('{path.stem}.jsonl', orient='records', "
        'lines=True, force_ascii=False)"'
    )


def parse_jsonl(text: str, source: str, family: str) -> tuple[Prompt, ...]:
    """One prompt a line; empty lines are skipped. `source` is what errors name.

    Raises:
        UsageError: with the line's number.
    """
    lines = enumerate(text.split("\n"), 1)
    found = (
        (styles.read_value(line, f"{source}, line {n}"), n) for n, line in lines if line.strip()
    )
    return _prompts(found, source, family)


def parse_json(text: str, source: str, family: str) -> tuple[Prompt, ...]:
    """A list of prompts, or an object that holds one; JSON lines under the wrong name, too.

    Raises:
        UsageError: with the line on which the item begins.
    """
    found = styles.read_list(text, source)
    if found is None:
        return parse_jsonl(text, source, family)
    return _prompts(found, source, family)


def _prompts(values: Iterable[tuple[object, int]], source: str, family: str) -> tuple[Prompt, ...]:
    prompts: dict[str, Prompt] = {}
    for value, line in values:
        where = f"{source}, line {line}"
        prompt = styles.prompt_of(value, where, family, f"line-{line}")
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
