"""One profile file: what it says of a model, its files, drafts and measured evidence.

The format is described in docs/catalogue.md; every table is read once, into frozen values.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from specctl.gguf.shape import Shape
from specctl.plan.schema import Span, Table, read
from specctl.units import GIB

USES = ("code", "chat", "edit", "reasoning", "creative")
METHODS = (
    "none",
    "ngram-mod",
    "draft-simple",
    "draft-mtp",
    "draft-eagle3",
    "draft-dflash",
    "draft-dspark",
)
# Drafting by look-up: no file, no evidence rows of its own but ngram-mod's.
LOOKUPS = (
    "ngram-simple",
    "ngram-map-k",
    "ngram-map-k4v",
    "ngram-mod",
    "ngram-cache",
    "ngram-suffix",
)
# Drafting by a head or block made for the target: run by its own name with the K that was priced.
HEADS = frozenset({"draft-mtp", "draft-eagle3", "draft-dflash", "draft-dspark"})
LAYER_DRAFTS = HEADS - {"draft-mtp"}  # files that read what the target's layers read
# What `specctl chat` runs in its own process, heads where the target's architecture allows it;
# `auto` chooses between look-up and a draft model or head. The rest needs llama-server.
IN_PROCESS = frozenset({"none", *LOOKUPS, "draft-simple", *HEADS, "auto"})
DEVICES = ("gpu", "apple", "igpu", "offload", "cpu")
Trust = Literal["H", "M", "L"]


@dataclass(frozen=True, slots=True)
class ModelFile:
    """One model file, whole or split. `repo` on the hub, or `folder` on this machine.

    `size` is bytes of all parts together, None where nobody has told it; `exact` says whether it
    is the listed byte count. `sha256` has one entry a part, or none.
    """

    quant: str
    names: tuple[str, ...]
    repo: str | None = None
    folder: Path | None = None
    size: int | None = None
    exact: bool = False
    sha256: tuple[str, ...] = ()
    revision: str | None = None
    mtp: bool = False
    sizes: str = ""
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Draft:
    """One way to draft for a target: a smaller model by id, a head of its own file, or n-grams."""

    method: str
    status: str
    source: str
    embedded: bool = False
    model: str | None = None
    quant: str | None = None
    file: ModelFile | None = None
    repo: str | None = None
    k: int | None = None
    p_min: float = 0.0
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """One measured row, numbers as given. tok/s for `plain` and `spec`; `acceptance` is α.

    `length` is the mean acceptance length (bonus included); `k` only where the row tells it.
    """

    method: str
    hardware: str
    device: str
    engine: str
    source: str
    trust: Trust
    draft: str | None = None
    settings: str | None = None
    k: int | None = None
    workload: str | None = None
    use: str | None = None
    plain: Span | None = None
    spec: Span | None = None
    speedup: Span | None = None
    acceptance: Span | None = None
    length: Span | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Model:
    """A model as its profile describes it. `shape` is None where its dimensions are unknown.

    `params` in billions. `approximate` names the fields of `shape` that are not exact;
    `expert_share` is the part of the weights that sits in routed experts, None if not known.
    """

    id: str
    name: str
    family: str
    licence: str
    params: float
    params_active: float
    role: str
    released: str
    quality: int
    quality_source: str
    origin: str
    base: str | None = None
    licence_note: str | None = None
    uses: tuple[str, ...] = ()
    successor: str | None = None
    notes: tuple[str, ...] = ()
    issues: tuple[str, ...] = ()
    shape: Shape | None = None
    shape_source: str = ""
    approximate: tuple[str, ...] = ()
    expert_share: float | None = None
    files: tuple[ModelFile, ...] = ()
    drafts: tuple[Draft, ...] = ()
    evidence: tuple[Evidence, ...] = ()

    @property
    def is_moe(self) -> bool:
        """Has routed experts; where the shape is unknown, if fewer parameters are active."""
        if self.shape is None:
            return self.params_active < self.params
        return self.shape.is_moe

    def shape_of(self, file: ModelFile) -> Shape | None:
        """The shape with the MTP layers that this very file holds."""
        if self.shape is None or file.mtp:
            return self.shape
        return replace(self.shape, n_nextn=0)

    def file(self, quant: str | None = None, mtp: bool = False) -> ModelFile | None:
        """The file of a quant; of the quant people start with when none is named."""
        files = [file for file in self.files if file.mtp == mtp]
        if quant is not None:
            return next((f for f in files if f.quant.lower() == quant.lower()), None)
        for wanted in DEFAULT_QUANTS:
            for file in files:
                if file.quant == wanted and file.size is not None:
                    return file
        return files[0] if files else None


DEFAULT_QUANTS = ("Q4_K_M", "UD-Q4_K_M", "UD-Q4_K_XL", "MXFP4", "MXFP4_MOE", "Q4_0", "Q8_0")


def read_profile(path: Path) -> tuple[Model, ...]:
    """The models of one profile file. Raises ProfileError."""
    root = read(path)
    family = root.text("family")
    root.maybe_text("title")
    models = tuple(_model(table, family, path) for table in root.tables("model"))
    if not models:
        root.fail("model", "is missing: a profile has at least one [[model]]")
    root.done()
    return models


def _model(table: Table, family: str, path: Path) -> Model:
    shape_table = table.table("shape")
    model = Model(
        id=table.text("id").lower(),
        name=table.text("name"),
        family=family,
        licence=table.text("licence"),
        params=table.number("params"),
        params_active=table.number("params_active"),
        role=table.one_of("role", ("target", "draft", "both")),
        released=table.text("released"),
        quality=table.integer("quality", least=1),
        quality_source=table.text("quality_source"),
        origin=str(path),
        base=table.maybe_text("base"),
        licence_note=table.maybe_text("licence_note"),
        uses=table.texts("uses"),
        successor=table.maybe_text("successor"),
        notes=table.texts("notes"),
        issues=table.texts("issues"),
        files=tuple(f for group in table.tables("files") for f in _files(group, path)),
        drafts=tuple(_draft(draft) for draft in table.tables("draft")),
        evidence=tuple(_evidence(row) for row in table.tables("evidence")),
    )
    if model.quality > 5:
        table.fail("quality", f"must be 1 … 5, not {model.quality}")
    table.done()
    return model if shape_table is None else _with_shape(model, shape_table)


def _with_shape(model: Model, table: Table) -> Model:
    shape = Shape(
        arch=table.text("arch"),
        n_layer=table.integer("n_layer", least=1),
        n_embd=table.integer("n_embd", least=1),
        n_head=table.integer("n_head", least=1),
        n_vocab=table.integer("n_vocab", least=1),
        context_length=table.integer("context_length", least=1),
        kv_width_k=table.integer("kv_width_k"),
        kv_width_v=table.integer("kv_width_v"),
        n_attention=table.integer("n_attention"),
        n_swa=table.integer("n_swa", 0),
        window=table.integer("window", 0),
        swa_width_k=table.integer("swa_width_k", 0),
        swa_width_v=table.integer("swa_width_v", 0),
        n_recurrent=table.integer("n_recurrent", 0),
        recurrent_bytes=table.integer("recurrent_bytes", 0),
        n_ff=table.integer("n_ff", 0),
        n_expert=table.integer("n_expert", 0),
        n_expert_used=table.integer("n_expert_used", 0),
        n_nextn=table.integer("n_nextn", 0),
        n_ff_exp=table.integer("n_ff_exp", 0),
        n_ff_shared=table.integer("n_ff_shared", 0),
        head_dim=table.integer("head_dim", 0),
        kv_lora=table.integer("kv_lora", 0),
        ssm_inner=table.integer("ssm_inner", 0),
        ssm_conv=table.integer("ssm_conv", 0),
    )
    share = table.maybe_number("expert_share")
    if share is not None and share > 1:
        table.fail("expert_share", f"is a part of 1, not {share}")
    approximate, source = table.texts("approximate"), table.text("source")
    table.done()
    return replace(
        model, shape=shape, shape_source=source, approximate=approximate, expert_share=share
    )


def _files(table: Table, path: Path) -> Iterator[ModelFile]:
    repo, folder, mtp = table.maybe_text("repo"), table.maybe_text("folder"), table.flag("mtp")
    if (repo is None) == (folder is None):
        table.fail("repo", "or `folder`: give exactly one")
    place = None if folder is None else path.parent / Path(folder).expanduser()
    sizes = table.maybe_text("sizes") or ("this machine" if folder else "not given")
    rows = table.tables("list")
    for row in rows:
        file = _file(row, repo, place, sizes, mtp)
        row.done()
        yield file
    table.done()


def _file(row: Table, repo: str | None, folder: Path | None, sizes: str, mtp: bool) -> ModelFile:
    name, parts = row.maybe_text("file"), row.texts("parts")
    if (name is None) == (not parts):
        row.fail("file", "or `parts`: give exactly one")
    size, exact = _size(row)
    names = parts if name is None else (name,)
    if folder is not None and size is None:
        found = [folder / part for part in names]
        if all(part.is_file() for part in found):
            size, exact = sum(part.stat().st_size for part in found), True
    sha256 = row.texts("sha256")
    if sha256 and (len(sha256) != len(names) or any(len(digest) != 64 for digest in sha256)):
        row.fail("sha256", "must be one 64-digit hash for each part")
    return ModelFile(
        quant=row.text("quant"),
        names=names,
        repo=repo,
        folder=folder,
        size=size,
        exact=exact,
        sha256=sha256,
        revision=row.maybe_text("revision"),
        mtp=mtp,
        sizes=sizes,
        note=row.maybe_text("note"),
    )


def _size(row: Table) -> tuple[int | None, bool]:
    """`bytes` is exact, `gib` is approximate; either may be absent, not both given."""
    exact, gib = row.maybe_integer("bytes", least=1), row.maybe_number("gib")
    if exact is not None and gib is not None:
        row.fail("gib", "and `bytes`: give one; bytes is exact")
    if exact is not None:
        return exact, True
    return (round(gib * GIB) if gib else None), False


def _draft(table: Table) -> Draft:
    method = table.one_of("method", METHODS)
    repo, name = table.maybe_text("repo"), table.maybe_text("file")
    size, exact = _size(table)
    sha256, quant = table.texts("sha256"), table.maybe_text("quant")
    source = table.text("source")
    file = None
    if repo is not None and name is not None:
        file = ModelFile(quant or "", (name,), repo, None, size, exact, sha256, sizes=source)
    draft = Draft(
        method=method,
        status=table.text("status"),
        source=source,
        embedded=table.flag("embedded"),
        model=table.maybe_text("model"),
        quant=quant,
        file=file,
        repo=repo,
        k=table.maybe_integer("k", least=1),
        p_min=table.maybe_number("p_min") or 0.0,
        note=table.maybe_text("note"),
    )
    if draft.model is not None and draft.repo is not None:
        table.fail("model", "and `repo`: a draft is a model with a profile, or a file of its own")
    table.done()
    return draft


def _evidence(table: Table) -> Evidence:
    use = table.maybe_text("use")
    if use is not None and use not in USES:
        table.fail("use", f"must be one of {', '.join(USES)}, not {use!r}")
    trust = table.one_of("trust", ("H", "M", "L"))
    row = Evidence(
        method=table.text("method"),
        hardware=table.text("hardware"),
        device=table.one_of("device", DEVICES),
        engine=table.text("engine"),
        source=table.text("source"),
        trust="H" if trust == "H" else "M" if trust == "M" else "L",
        draft=table.maybe_text("draft"),
        settings=table.maybe_text("settings"),
        k=table.maybe_integer("k", least=1),
        workload=table.maybe_text("workload"),
        use=use,
        plain=table.span("plain"),
        spec=table.span("spec"),
        speedup=table.span("speedup"),
        acceptance=table.span("acceptance"),
        length=table.span("length"),
        note=table.maybe_text("note"),
    )
    if row.acceptance is not None and row.acceptance[1] > 1:
        table.fail("acceptance", "is a rate of at most 1")
    table.done()
    return row
