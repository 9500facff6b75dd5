"""What a prompt looks like in a file: our own form, and those of public benchmarks.

An object is recognised by its keys, in this order:

    prompt                     ours, with name, system, family; also vLLM's custom data sets and the
                               records that SpecDecode-Bench writes
    turns                      Spec-Bench, MT-Bench, SPEED-Bench: a list of texts
    conversations, messages    ShareGPT ({from, value}) and chats ({role, content})
    article                    CNN/DailyMail                 |
    instruction (and input)    InstructCoder                 | the six data sets of
    problem                    AIME                          | SpecDecode-Bench
    Question, Correct Answer   GPQA: with its four choices   | (arXiv 2601.11580)
    question                   GSM8K                         |

`category` becomes the workload, `question_id` or `id` the name. What surrounds an article, an edit
or choices is a sentence of ours, not that of the paper. Of several turns the first is the prompt.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from specctl.errors import UsageError
from specctl.units import printable

Message = dict[str, str]
_TEXT_FIELDS = ("prompt", "system", "family", "category")
_NAMES = ("name", "question_id", "id")
_HOLDERS = ("prompts", "data", "questions", "rows")  # keys under which a JSON file holds its list
_EXAMPLE = 'each is an object like {"name": "greeting", "prompt": "Say hello."}'
_KNOWN = (
    'each needs a "prompt", or the keys of Spec-Bench and SPEED-Bench ("turns") or of '
    "SpecDecode-Bench's data sets"
)


@dataclass(frozen=True, slots=True)
class Prompt:
    """One thing to ask; `family/name` is unique within a benchmark. `turns`: those of its source,
    of which `text` is the first.
    """

    family: str
    name: str
    text: str
    system: str | None = None
    turns: int = 1

    @property
    def key(self) -> str:
        """How reports name it."""
        return f"{self.family}/{self.name}"

    def messages(self) -> list[Message]:
        """The chat it stands for."""
        system = [{"role": "system", "content": self.system}] if self.system else []
        return [*system, {"role": "user", "content": self.text}]


def read_value(line: str, where: str) -> object:
    """The JSON value of a line.

    Raises:
        UsageError: none.
    """
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _no_json(error, where) from error


def read_list(text: str, source: str) -> Iterator[tuple[object, int]] | None:
    """Items of a JSON list and the lines they begin on; None where the text is JSON lines.

    An object stands for the list under one of its keys, or for one prompt.

    Raises:
        UsageError: no JSON; raised while reading.
    """
    start = len(text) - len(text.lstrip())
    if text[start : start + 1] == "[":
        return _items(text, start + 1, source)
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        if getattr(error, "msg", "") == "Extra data":
            return None
        line = getattr(error, "lineno", 1)
        raise _no_json(error, f"{source}, line {line}") from error
    line = text.count("\n", 0, start) + 1
    held = (
        next((value[k] for k in _HOLDERS if isinstance(value.get(k), list)), None)
        if (isinstance(value, dict))
        else None
    )
    if held is None:
        return iter([(value, line)])
    return iter([(_row(one), line + n) for n, one in enumerate(held, 1)])


def _row(value: object) -> object:
    """A hub's viewer wraps each row: {"row_idx": 0, "row": {…}}."""
    if isinstance(value, dict) and isinstance(value.get("row"), dict):
        return value["row"]
    return value


def _items(text: str, at: int, source: str) -> Iterator[tuple[object, int]]:
    """One after the other, so that each knows its line."""
    decoder = json.JSONDecoder()
    line, counted = 1, 0
    comma = False
    while True:
        at = _skip(text, at)
        line += text.count("\n", counted, at)
        counted = at
        here = text[at : at + 1]
        if here == "]":
            if text[at + 1 :].strip():
                raise UsageError(f"{source}, line {line}: something follows the list")
            return
        if comma:
            if here != ",":
                raise UsageError(f"{source}, line {line}: not JSON (a comma or ] is missing)")
            at = _skip(text, at + 1)
            line += text.count("\n", counted, at)
            counted = at
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            wrong = getattr(error, "lineno", line)
            raise _no_json(error, f"{source}, line {wrong}") from error
        yield _row(value), line
        comma = True


def _skip(text: str, at: int) -> int:
    while text[at : at + 1] in (" ", "\t", "\n", "\r"):
        at += 1
    return at


def _no_json(error: Exception, where: str) -> UsageError:
    said = getattr(error, "msg", "nested too deeply")
    return UsageError(f"{where}: not JSON ({said})", _EXAMPLE)


# ---------------------------------------------------------------- one object


def prompt_of(value: object, where: str, family: str, name: str) -> Prompt:
    """The prompt of an object; `family` and `name` where it names none.

    Raises:
        UsageError: no object, or none of the known forms; says `where`.
    """
    if not isinstance(value, dict):
        raise UsageError(
            f"{where}: a JSON {type(value).__name__}, not an object with a prompt", _EXAMPLE
        )
    for field in _TEXT_FIELDS:
        if value.get(field) is not None and not isinstance(value[field], str):
            raise UsageError(f"{where}: {field} is not a text")
    text, turns, system = _text(value, where)
    if not text.strip():
        raise UsageError(f"{where}: no prompt", _KNOWN)
    return Prompt(
        family=_word(value.get("family") or value.get("category")) or family,
        name=_name(value, where) or name,
        text=text,
        system=value.get("system") or system,
        turns=turns,
    )


def _word(text: str | None) -> str:
    """A heading: one printable line."""
    return printable(" ".join((text or "").split()))


def _name(value: Mapping[str, Any], where: str) -> str:
    for field in _NAMES:
        found = value.get(field)
        if found is None or found == "":
            continue
        if isinstance(found, bool) or not isinstance(found, str | int):
            raise UsageError(f"{where}: {field} is not a text")
        return _word(str(found))
    return ""


Found = tuple[str, int, str | None]  # text, turns, system


def _text(value: Mapping[str, Any], where: str) -> Found:
    for key, read in _STYLES:
        if value.get(key) is not None:
            return read(value, where)
    return "", 1, None


def _own(value: Mapping[str, Any], _where: str) -> Found:
    return value["prompt"], 1, None


def _turns(value: Mapping[str, Any], where: str) -> Found:
    turns = value["turns"]
    if not isinstance(turns, list) or not turns or not all(isinstance(t, str) for t in turns):
        raise UsageError(f"{where}: turns is not a list of texts")
    return turns[0], len(turns), None


def _chat(key: str) -> Callable[[Mapping[str, Any], str], Found]:
    def read(value: Mapping[str, Any], where: str) -> Found:
        said = value[key]
        if not isinstance(said, list) or not all(isinstance(one, dict) for one in said):
            raise UsageError(f"{where}: {key} is not a list of messages")
        parts = [
            (one.get("role") or one.get("from"), one.get("content") or one.get("value"))
            for one in said
        ]
        if not all(isinstance(who, str) and isinstance(text, str) for who, text in parts):
            raise UsageError(f"{where}: {key} holds a message without who says what")
        asked = [text for who, text in parts if who in ("user", "human")]
        if not asked:
            raise UsageError(f"{where}: nobody asks anything in its {key}")
        system = next((text for who, text in parts if who == "system"), None)
        return asked[0], len(asked), system

    return read


def _required(value: Mapping[str, Any], where: str, *keys: str) -> list[str]:
    out = []
    for key in keys:
        if not isinstance(value.get(key), str):
            raise UsageError(f"{where}: {key} is not a text")
        out.append(value[key])
    return out


def _article(value: Mapping[str, Any], where: str) -> Found:
    (article,) = _required(value, where, "article")
    return f"Summarise this article, in its own words where you can:\n\n{article}", 1, None


def _edit(value: Mapping[str, Any], where: str) -> Found:
    (task,) = _required(value, where, "instruction")
    if value.get("input") is None:
        return task, 1, None
    (given,) = _required(value, where, "input")
    if not given.strip():
        return task, 1, None
    return f"{given}\n\n{task}\nAnswer with the changed text alone.", 1, None


def _plain(key: str) -> Callable[[Mapping[str, Any], str], Found]:
    def read(value: Mapping[str, Any], where: str) -> Found:
        return _required(value, where, key)[0], 1, None

    return read


_CHOICES = ("Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")


def _choices(value: Mapping[str, Any], where: str) -> Found:
    question, *answers = _required(value, where, "Question", *_CHOICES)
    listed = "\n".join(f"({letter}) {a}" for letter, a in zip("ABCD", answers, strict=True))
    return f"{question}\n\nChoose one answer:\n{listed}", 1, None


_STYLES: tuple[tuple[str, Callable[[Mapping[str, Any], str], Found]], ...] = (
    ("prompt", _own),
    ("turns", _turns),
    ("conversations", _chat("conversations")),
    ("messages", _chat("messages")),
    ("article", _article),
    ("instruction", _edit),
    ("problem", _plain("problem")),
    ("Question", _choices),
    ("question", _plain("question")),
)
