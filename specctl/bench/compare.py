"""Two kept results side by side: is the speed-up of B another one than that of A?

**Alike**: the same model, prompts, length, sampling, threads and target settings. Only then is a
change one of the method. What may differ because it is what is compared (the drafters' settings,
the draft model, specctl, the engine, the machine) is said, not refused.

**Across engines** (only where it is asked for): one side, or both, are servers. The model file, the
prompts' text, the length and its end, and what settings both sides know must be the same; that the
clocks, templates and samplers are not is said.

**Change**: speed-up B / speed-up A. **Verdict**: `report.verdict` of it, with both noises together:
(1 + noise A)(1 + noise B) - 1. So "faster" and "slower" are said only where the two bands do not
touch; each run's noise is that of `report.py`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from specctl.bench.report import Verdict, joint_noise, verdict
from specctl.bench.stored import ModelFile, Stored, StoredRow
from specctl.errors import UsageError

SCHEMA = "specctl-compare/1"
_NAMED = 3  # prompts or arms named in one difference
_DRAWING = ("top_k", "top_p", "min_p", "seed")  # change nothing at temperature 0


@dataclass(frozen=True, slots=True)
class Pair:
    """One arm on one workload (None: on all) in both runs. `change` None: a side has no speed."""

    workload: str | None
    arm: str
    a: StoredRow
    b: StoredRow
    change: float | None
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Comparison:
    """Rows by workload in A's order, then the totals. `notes`: what differs and may explain it."""

    a: Stored
    b: Stored
    pairs: tuple[Pair, ...]
    notes: tuple[str, ...]


def compare(a: Stored, b: Stored, across: bool = False) -> Comparison:
    """Put B beside A; `across` engines where that is what is asked.

    Raises:
        UsageError: they did not measure the same thing; the message says all that differs.
    """
    differences = unlike(a, b, across)
    if differences:
        other = not across and a.where != b.where
        raise UsageError(
            "A and B did not measure the same thing:\n"
            + "\n".join(f"  {difference}" for difference in differences),
            "--across-engines compares them all the same, if only the engine differs"
            if other
            else "measure again with the same model, prompts, length, sampling, threads, settings",
        )
    rows = {(row.workload, row.arm): row for row in b.rows}
    pairs = tuple(
        _pair(row, rows[row.workload, row.arm]) for row in a.rows if (row.workload, row.arm) in rows
    )
    return Comparison(a, b, pairs, tuple(_notes(a, b)))


def _pair(a: StoredRow, b: StoredRow) -> Pair:
    before, after = a.speed.speedup, b.speed.speedup
    if before is None or after is None:
        return Pair(a.workload, a.arm, a, b, None, "no difference shown")
    change = after / before
    noise = joint_noise(a.speed.noise, b.speed.noise)
    return Pair(a.workload, a.arm, a, b, change, verdict(change, noise))


# ---------------------------------------------------------------- what differs


def unlike(a: Stored, b: Stored, across: bool = False) -> tuple[str, ...]:
    """Why these cannot be compared, one reason each; empty where they can."""
    return (
        *(() if across else _one("engine", a.where, b.where)),
        *_one("model", _model(a.model), _model(b.model)),
        *(_texts(a, b) if across else _prompts(a.prompts, b.prompts)),
        *_one("max-tokens", a.max_tokens, b.max_tokens),
        *_one("past the end of a text", _yes(a.ignore_eog), _yes(b.ignore_eog)),
        *_sampling(a.sampling, b.sampling),
        *(() if across and not (a.threads and b.threads) else _threads(a, b)),
        *(() if across and not (a.settings and b.settings) else _targets(a, b)),
        *_arms(a, b),
    )


def _threads(a: Stored, b: Stored) -> Iterator[str]:
    yield from _one("threads", a.threads, b.threads)


def _targets(a: Stored, b: Stored) -> Iterator[str]:
    yield from _tables("", _target(a), _target(b))


def _yes(on: bool) -> str:
    return "goes on" if on else "ends"


def _model(model: ModelFile) -> str:
    return model.file if model.size is None else f"{model.file}, {model.size} bytes"


def _one(what: str, a: object, b: object) -> Iterator[str]:
    if a != b:
        yield f"{what}: {_said(a)} in A, {_said(b)} in B"


def _said(value: object) -> str:
    return "not set" if value is None or value in ((), []) else str(value)


def _tables(prefix: str, a: Mapping[str, object], b: Mapping[str, object]) -> Iterator[str]:
    """Differing entries, tables inside tables by dotted names."""
    for name in dict.fromkeys((*a, *b)):
        left, right = a.get(name), b.get(name)
        if isinstance(left, dict) and isinstance(right, dict):
            yield from _tables(f"{prefix}{name}.", left, right)
        else:
            yield from _one(prefix + name, left, right)


Prompts = Mapping[str, tuple[int, str | None]]


def _prompts(a: Prompts, b: Prompts) -> Iterator[str]:
    yield from _alone(a, b)
    other = [key for key in a if key in b and a[key] != b[key]]
    if other:
        yield f"other tokens under the same name: {_names(other)}"


def _alone(a: Mapping[str, object], b: Mapping[str, object]) -> Iterator[str]:
    for here, there, name in ((a, b, "A"), (b, a, "B")):
        alone = [key for key in here if key not in there]
        if alone:
            yield f"prompts only in {name}: {_names(alone)}"


def _texts(a: Stored, b: Stored) -> Iterator[str]:
    """By what was asked: a server does not show its tokens."""
    yield from _alone(a.prompt_texts, b.prompt_texts)
    pairs = {
        k: (a.prompt_texts[k], b.prompt_texts[k]) for k in a.prompt_texts if k in b.prompt_texts
    }
    other = [key for key, (x, y) in pairs.items() if x != y and None not in (x, y)]
    if other:
        yield f"another text under the same name: {_names(other)}"


def _names(names: Iterable[str]) -> str:
    names = tuple(names)
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _sampling(a: Mapping[str, object], b: Mapping[str, object]) -> Iterator[str]:
    if a.get("temperature") == b.get("temperature") == 0:
        a, b = (
            {name: value for name, value in one.items() if name not in _DRAWING} for one in (a, b)
        )
    yield from _tables("", a, b)


def _target(stored: Stored) -> dict[str, object]:
    """The settings without the draft model's, and without the threads that were only asked for."""
    return {name: v for name, v in stored.settings.items() if name not in ("threads", "draft")}


def _arms(a: Stored, b: Stored) -> Iterator[str]:
    if not set(a.compared) & set(b.compared):
        yield f"no arm in common: {', '.join(a.compared)} in A, {', '.join(b.compared)} in B"


# ---------------------------------------------------------------- what is said beside it


def _notes(a: Stored, b: Stored) -> Iterator[str]:
    yield from _one("specctl", a.specctl, b.specctl)
    yield from _one("engine", a.engine, b.engine)
    asked = "asked from another " if a.is_of_theirs and b.is_of_theirs else ""
    for name in ("cpu", "physical_cores", "memory_gib", "system"):
        said = f"{asked}{name.replace('_', ' ')}"
        yield from _one(said, a.machine.get(name), b.machine.get(name))
    if any(_drafts_with_model(a, b)):
        yield from _one("draft model", _maybe(a.draft), _maybe(b.draft))
        yield from _one("draft settings", a.settings.get("draft"), b.settings.get("draft"))
    for arm in a.compared:
        if arm in b.arms:
            yield from _tables(f"{arm}: ", _relevant(a.arms[arm]), _relevant(b.arms[arm]))
    for here, there, name in ((a, b, "A"), (b, a, "B")):
        alone = [arm for arm in here.compared if arm not in there.arms]
        if alone:
            yield f"only in {name}: {', '.join(alone)}"
    if a.where != b.where:
        yield from _across(a, b)
    else:
        texts = [key for key in a.plain_texts if a.plain_texts[key] != b.plain_texts.get(key)]
        if texts:
            yield (
                f"plain decoding's text differs on {len(texts)} of {len(a.prompts)} prompts: "
                "another machine or engine rounds otherwise, or the model is another one of the "
                "same size"
            )
    for one, name in ((a, "A"), (b, "B")):
        if one.busy is not None:
            where = one.busy_where
            yield f"other programs were running during {name}{where} (load average {one.busy:.1f})"
        if one.interrupted:
            yield f"{name} was stopped early: it holds what every arm had done"
        yield from (f"{name}: {failure}" for failure in one.failures)


def _across(a: Stored, b: Stored) -> Iterator[str]:
    """What is another measurement, though it is called the same."""
    yield (
        "in-process the clock is that of the loop; of a server it is ours, from the first streamed "
        "token to the last, so tok/s hold the server's and HTTP's own costs"
    )
    counts = [k for k in a.prompts if k in b.prompts and a.prompts[k][0] != b.prompts[k][0]]
    if counts:
        yield (
            f"prompts have other numbers of tokens on {len(counts)} of {len(a.prompts)}: "
            "the chat templates differ"
        )
    if None in (*a.prompt_texts.values(), *b.prompt_texts.values()):
        yield "whether the prompts are the same texts is not known: an earlier version's result"
    known = {k: (v, b.written.get(k)) for k, v in a.written.items()}
    compared = [pair for pair in known.values() if None not in pair]
    if compared:
        same = sum(x == y for x, y in compared)
        yield (
            f"plain decoding's text is the same on {same} of {len(compared)} prompts"
            + ("" if same == len(compared) else ": the engines round, or template, otherwise")
        )
    if any(one.startswith("ngram-") for one in a.compared if one in b.compared):
        yield "look-up drafters in-process are specctl's own, unless --spec-compat was given"


def _maybe(model: ModelFile | None) -> str | None:
    return None if model is None else _model(model)


def _drafts_with_model(a: Stored, b: Stored) -> Iterator[bool]:
    for arm in a.compared:
        if arm in b.arms:
            yield any(_uses_model(kind) for kind in _types(a.arms[arm]))


def _uses_model(kind: str) -> bool:
    return kind == "auto" or kind.startswith("draft-")


def _types(spec: Mapping[str, object]) -> tuple[str, ...]:
    types = spec.get("types")
    return tuple(map(str, types)) if isinstance(types, list | tuple) else ()


def _relevant(spec: Mapping[str, object]) -> dict[str, object]:
    """An arm's settings without the tables of drafters that it does not use."""
    types = _types(spec)
    used = {kind.replace("-", "_") for kind in types}
    if any(map(_uses_model, types)):
        used.add("draft")
    return {name: v for name, v in spec.items() if not isinstance(v, dict) or name in used}


# ---------------------------------------------------------------- as JSON


def document(comparison: Comparison) -> dict[str, object]:
    """The comparison as JSON-ready values."""
    return {
        "schema": SCHEMA,
        "a": _head(comparison.a),
        "b": _head(comparison.b),
        "notes": list(comparison.notes),
        "rows": [
            {
                "workload": pair.workload,
                "arm": pair.arm,
                "change": pair.change,
                "verdict": pair.verdict,
                "a": _side(pair.a),
                "b": _side(pair.b),
            }
            for pair in comparison.pairs
        ],
    }


def _head(stored: Stored) -> dict[str, object]:
    return {
        "date": stored.date,
        "specctl": stored.specctl,
        "engine": stored.engine,
        "machine": dict(stored.machine),
        "model": stored.model.file,
        "draft": stored.draft.file if stored.draft else None,
        "repeats": stored.repeats,
    }


def _side(row: StoredRow) -> dict[str, object]:
    return {
        **dataclasses.asdict(row.speed),
        "acceptance_rate": row.acceptance_rate,
        "accepted_per_cycle": row.accepted_per_cycle,
        "break_even": row.break_even,
        "coverage": row.coverage,
        "identity": dataclasses.asdict(row.identity),
    }
