"""Tuned profiles: how `specctl tune` found a model to run best on this machine, with the evidence.

A tuned profile lies beside the user's profiles, one file each (`profiles/NAME.tuned.toml`). It does
not describe a model, it refers to one: a file, `demo`, or a configuration of the catalogue; so an
update of the catalogue still reaches it. `--model NAME` finds it; flags of the command line win.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

from specctl.errors import ProfileError, SpecctlError
from specctl.paths import config_dir, write_whole
from specctl.plan.schema import Table, read
from specctl.settings import DraftSettings, EngineSettings, ModelSettings, SpecSettings

SUFFIX = ".tuned.toml"
_FLASH = ("auto", "on", "off")


@dataclass(frozen=True, slots=True)
class Measured:
    """What the last stage that a candidate took part in measured. Figures as `bench/report.py`
    defines them, `plain` and `rate` in tokens per second; None where nothing could be compared.
    """

    name: str
    stage: str
    prompts: int
    repeats: int
    noise: float
    verdict: str
    text: str
    speedup: float | None = None
    low: float | None = None
    high: float | None = None
    plain: float | None = None
    rate: float | None = None
    acceptance: float | None = None
    tokens_per_pass: float | None = None
    coverage: float | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was measured, on what, and what it cost. `seconds` and `runs` of the whole search."""

    date: str
    specctl: str
    engine: str
    machine: str
    target: str
    target_bytes: int
    prompts: str
    prompts_hash: str
    temperature: float
    max_tokens: int
    ctx: int
    seconds: float
    runs: int
    draft: str | None = None
    answer: tuple[str, ...] = ()
    candidates: tuple[Measured, ...] = ()


@dataclass(frozen=True, slots=True)
class Tuned:
    """How to run one model. `model` and `draft` are names that `resolve` knows; `id` is what the
    user says. Of the engine's settings those with which it was measured.
    """

    id: str
    model: str
    types: tuple[str, ...]
    threads: int
    evidence: Evidence
    draft: str | None = None
    k: int | None = None
    draft_n_max: int | None = None
    kv_type: str = "f16"
    draft_kv_type: str = "f16"
    gpu_layers: int = -1
    draft_gpu_layers: int = -1
    n_cpu_moe: int = 0
    flash_attn: str = "auto"
    origin: str = field(default="", compare=False)

    @property
    def words(self) -> str:
        """`draft-simple k=4, 2 threads`."""
        return self.in_force((SpecSettings(),), EngineSettings(), drafted=True)

    def in_force(
        self, specs: Sequence[SpecSettings], flags: EngineSettings, *, drafted: bool
    ) -> str:
        """What of `words` the flags leave; empty: nothing. No `specs`: --spec-type was given.
        `drafted`: a draft model runs, so that its KV type matters.
        """
        parts = []
        if specs:
            method = "plain decoding" if self.types == ("none",) else ",".join(self.types)
            run = [self.spec(one) for one in specs]
            if self.k is not None and all(one.k == self.k for one in run):
                method += f" k={self.k}"
            n_max = self.draft_n_max
            if n_max is not None and all(one.draft.n_max == n_max for one in run):
                method += f" n-max={n_max}"
            parts.append(method)
        if drafted and self.draft_kv_type != "f16" and flags.draft.kv_type_k == "f16":
            parts.append(f"draft KV {self.draft_kv_type}")
        if flags.threads is None:
            parts.append(f"{self.threads} thread" + "s" * (self.threads != 1))
        return ", ".join(parts)

    def spec(self, flags: SpecSettings) -> SpecSettings:
        """The spec settings, with what the `flags` change of their defaults on top."""
        draft = flags.draft
        if self.draft_n_max is not None and draft.n_max == DraftSettings().n_max:
            draft = replace(draft, n_max=max(self.draft_n_max, draft.n_min))
        k = self.k if flags.k is None else flags.k
        return replace(flags, types=self.types, k=k, draft=draft)

    def engine(self, flags: EngineSettings) -> EngineSettings:
        """The engine's settings, with what the `flags` change of their defaults on top."""
        target = _placed(flags.target, self.kv_type, self.gpu_layers, self.n_cpu_moe)
        draft = _placed(flags.draft, self.draft_kv_type, self.draft_gpu_layers, 0)
        flash = flags.flash_attn
        if flash == "auto" and self.flash_attn != "auto":
            flash = "on" if self.flash_attn == "on" else "off"
        threads = self.threads if flags.threads is None else flags.threads
        return replace(flags, threads=threads, target=target, draft=draft, flash_attn=flash)


def _placed(flags: ModelSettings, kv_type: str, gpu_layers: int, n_cpu_moe: int) -> ModelSettings:
    plain = ModelSettings()
    return replace(
        flags,
        kv_type_k=kv_type if flags.kv_type_k == plain.kv_type_k else flags.kv_type_k,
        kv_type_v=kv_type if flags.kv_type_v == plain.kv_type_v else flags.kv_type_v,
        gpu_layers=gpu_layers if flags.gpu_layers == plain.gpu_layers else flags.gpu_layers,
        n_cpu_moe=flags.n_cpu_moe or n_cpu_moe,
    )


# ---------------------------------------------------------------- where they are


def folder() -> Path:
    """The user's profiles."""
    return config_dir() / "profiles"


def path_of(tuned_id: str) -> Path:
    """The file of a tuned profile's id; two ids that differ in odd characters share one."""
    return folder() / (re.sub(r"[^A-Za-z0-9._-]+", "-", tuned_id.lower()) + SUFFIX)


def all_tuned(where: Path | None = None) -> tuple[Tuned, ...]:
    """Every tuned profile of the user's, by file name.

    Raises:
        ProfileError: a wrong file, with file, line and key.
    """
    place = folder() if where is None else where
    return tuple(map(read_tuned, sorted(place.glob(f"*{SUFFIX}")) if place.is_dir() else ()))


def find(name: str) -> Tuned | None:
    """The one that this name means: its id, or the name of the model it was tuned for.

    A damaged file of another name is passed over.

    Raises:
        ProfileError: the file of this name is wrong.
    """
    return named(name, readable(except_for=path_of(name)))


def named(name: str, every: Sequence[Tuned]) -> Tuned | None:
    """The one of `every` that this name means: by its id, else by its model."""
    wanted = name.lower()
    by_id = (one for one in every if one.id.lower() == wanted)
    by_model = (one for one in every if one.model.lower() == wanted)
    return next(by_id, None) or next(by_model, None)


def readable(except_for: Path) -> tuple[Tuned, ...]:
    """Those that can be read.

    Raises:
        ProfileError: the file `except_for` is there and cannot.
    """
    found: list[Tuned] = []
    for path in sorted(folder().glob(f"*{SUFFIX}")) if folder().is_dir() else ():
        try:
            found.append(read_tuned(path))
        except ProfileError:
            if path == except_for:
                raise
    return tuple(found)


def write(tuned: Tuned) -> Path:
    """Keep it, in place of an earlier one of the same id; where.

    Raises:
        SpecctlError: the file cannot be written.
    """
    path = path_of(tuned.id)
    write_whole(path, dumps(tuned))
    return path


# ---------------------------------------------------------------- reading


def read_tuned(path: Path) -> Tuned:
    """One tuned profile. Raises ProfileError, with file, line and key."""
    root = read(path)
    table = root.table("tuned")
    if table is None:
        root.fail("tuned", "is missing: a tuned profile is one [tuned] table")
    evidence = table.table("evidence")
    if evidence is None:
        table.fail("evidence", "is missing")
    flash = table.maybe_text("flash_attn") or "auto"
    if flash not in _FLASH:
        table.fail("flash_attn", f"must be one of {', '.join(_FLASH)}, not {flash!r}")
    types = tuple(part.strip() for part in table.text("spec_type").split(",") if part.strip())
    tuned = Tuned(
        id=table.text("id"),
        model=table.text("model"),
        types=types,
        threads=table.integer("threads", least=1),
        evidence=_evidence(evidence, root),
        draft=table.maybe_text("draft"),
        k=table.maybe_integer("k", least=1),
        draft_n_max=table.maybe_integer("draft_n_max", least=1),
        kv_type=table.maybe_text("kv_type") or "f16",
        draft_kv_type=table.maybe_text("draft_kv_type") or "f16",
        gpu_layers=_layers(table, "gpu_layers"),
        draft_gpu_layers=_layers(table, "draft_gpu_layers"),
        n_cpu_moe=table.integer("n_cpu_moe", 0),
        flash_attn=flash,
        origin=str(path),
    )
    table.done()
    root.done()
    try:
        tuned.engine(EngineSettings())
        tuned.spec(SpecSettings())
    except SpecctlError as error:
        raise ProfileError(f"{path}: {error.message}", "fix it, or tune again") from error
    return tuned


def _layers(table: Table, key: str) -> int:
    count = table.maybe_integer(key, least=-1)
    return -1 if count is None else count


def _evidence(table: Table, root: Table) -> Evidence:
    evidence = Evidence(
        date=table.text("date"),
        specctl=table.text("specctl"),
        engine=table.text("engine"),
        machine=table.text("machine"),
        target=table.text("target"),
        target_bytes=table.integer("target_bytes"),
        prompts=table.text("prompts"),
        prompts_hash=table.text("prompts_hash"),
        temperature=table.maybe_number("temperature") or 0.0,
        max_tokens=table.integer("max_tokens", least=1),
        ctx=table.integer("ctx", least=1),
        seconds=table.maybe_number("seconds") or 0.0,
        runs=table.integer("runs"),
        draft=table.maybe_text("draft"),
        answer=table.texts("answer"),
        candidates=tuple(map(_measured, root.tables("candidate"))),
    )
    table.done()
    return evidence


def _measured(table: Table) -> Measured:
    row = Measured(
        name=table.text("name"),
        stage=table.text("stage"),
        prompts=table.integer("prompts"),
        repeats=table.integer("repeats"),
        noise=table.maybe_number("noise") or 0.0,
        verdict=table.text("verdict"),
        text=table.text("text"),
        speedup=table.maybe_number("speedup"),
        low=table.maybe_number("low"),
        high=table.maybe_number("high"),
        plain=table.maybe_number("plain"),
        rate=table.maybe_number("rate"),
        acceptance=table.maybe_number("acceptance"),
        tokens_per_pass=table.maybe_number("tokens_per_pass"),
        coverage=table.maybe_number("coverage"),
    )
    table.done()
    return row


# ---------------------------------------------------------------- writing


def dumps(tuned: Tuned) -> str:
    """The profile as TOML: what `read_tuned` reads back."""
    standard = Tuned("", "", ("none",), 1, tuned.evidence)
    head: dict[str, object] = {
        "id": tuned.id,
        "model": tuned.model,
        "draft": tuned.draft,
        "spec_type": ",".join(tuned.types),
        "k": tuned.k,
        "draft_n_max": tuned.draft_n_max,
        "threads": tuned.threads,
    }
    for name in (
        "kv_type",
        "draft_kv_type",
        "gpu_layers",
        "draft_gpu_layers",
        "n_cpu_moe",
        "flash_attn",
    ):
        if getattr(tuned, name) != getattr(standard, name):
            head[name] = getattr(tuned, name)
    evidence = {one.name: getattr(tuned.evidence, one.name) for one in fields(Evidence)}
    rows = evidence.pop("candidates")
    lines = [
        f"# Written by `specctl tune`; `specctl tune --show {tuned.id}` prints it.",
        f"# Used by --model {tuned.id}; flags of the command line win. Delete it to forget it.",
        "",
        "[tuned]",
        *_pairs(head),
        "",
        "[tuned.evidence]",
        *_pairs(evidence),
    ]
    for row in rows:
        values = {one.name: getattr(row, one.name) for one in fields(Measured)}
        lines += ["", "[[candidate]]", *_pairs(values)]
    return "\n".join(lines) + "\n"


def _pairs(values: Mapping[str, object]) -> Iterator[str]:
    for name, value in values.items():
        if value is not None:
            yield f"{name} = {_toml(value)}"


def _toml(value: object) -> str:
    if isinstance(value, str):  # JSON's escapes are TOML's, but for DEL
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, tuple):
        return "[" + "".join(f"\n    {_toml(one)}," for one in value) + ("\n]" if value else "]")
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1000 else f"{value:.1f}"
    return str(value)
