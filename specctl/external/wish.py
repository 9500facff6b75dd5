"""From a name to what an engine shall run: weights in the form it reads, methods, sizes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from specctl.demo import DEMOS
from specctl.errors import ModelError, UsageError
from specctl.external.flags import ENGINES
from specctl.external.method import TRAINED, Given, parse_methods, translate
from specctl.hub.lookup import find
from specctl.hub.profiles import wanted_file
from specctl.plan.catalog import Catalog, Selection
from specctl.plan.outlook import default_k
from specctl.plan.profile import Draft, Model, ModelFile

_SAFETENSORS_HINT = "name the original repository: hf:owner/repo"


@dataclass(frozen=True, slots=True)
class HubFile:
    """One file of a hub repository; of a split model its first part."""

    repo: str
    file: str


Weights = Path | HubFile | str  # a file or folder here, a file on the hub, a repository


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line leaves open or sets, whatever the engine. `head`: the first node."""

    draft: str | None = None
    spec_type: str | None = None
    k: int | None = None
    ctx: int | None = None
    tp: int = 1
    nodes: int = 1
    head: str | None = None
    host: str = "127.0.0.1"
    port: int | None = None
    adaptive: bool = False
    nearest: bool = False
    extra: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, value, least, most in (
            ("k", self.k, 1, 1024),
            ("ctx", self.ctx, 32, 1 << 24),
            ("tp", self.tp, 1, 1024),
            ("nodes", self.nodes, 1, 1024),
            ("port", self.port, 1, 65535),
        ):
            if value is not None and not least <= value <= most:
                raise UsageError(f"--{name} {value} is not in {least} … {most}")
        if self.nodes > 1 and self.tp % self.nodes:
            raise UsageError(
                f"--tp {self.tp} cannot be spread over {self.nodes} nodes",
                "--tp counts the GPUs of all nodes together",
            )


@dataclass(frozen=True, slots=True)
class Wish:
    """What to run. `k` is the user's; `advice` the profile's for its drafter, tokens."""

    engine: str
    target: Weights
    given: Given
    options: Options
    draft: Weights | None = None
    advice: int | None = None
    notes: tuple[str, ...] = ()
    plus: bool = True  # its name can say the method: NAME+METHOD

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods in the engine's reach."""
        return self.given.methods

    @property
    def k(self) -> int | None:
        """Most drafted tokens per cycle: the user's wish, else the profile's advice."""
        return self.options.k or self.advice

    @property
    def port(self) -> int:
        """The port asked for, or the engine's usual one."""
        return self.options.port or ENGINES[self.engine].port


def make_wish(engine: str, name: str, options: Options, catalog: Catalog) -> Wish:
    """What `name` and the options mean for this engine.

    Raises:
        UsageError: no such engine, profile or method; no counterpart; weights that it cannot read.
        ModelError: a file that is not there.
    """
    if engine not in ENGINES:
        raise UsageError(f"{engine!r} is not an engine", "one of " + ", ".join(ENGINES))
    form = _Form(engine, catalog)
    place = form.is_place(name)
    target, plus, method = (name, "", "") if place else name.partition("+")
    if plus and options.spec_type and options.spec_type != method:
        raise UsageError(f"{name} and --spec-type {options.spec_type} name two methods")
    asked = parse_methods(options.spec_type or (method if plus else "none"))
    own = None if place or target in DEMOS else form.known(target)
    has_draft = options.draft is not None
    if own is not None and asked == ("auto",) and not has_draft:
        has_draft = any(draft.model for draft in own.drafts)
    given = translate(engine, asked, options.nearest, has_draft)
    _check_draft(options.draft, asked, given)
    if own is None:
        return _placed(form, target, given, options)
    if form.gguf:
        return _profile_gguf(form, target, given, options)
    return _profile_tensors(form, own, target, given, options)


def _check_draft(draft: str | None, asked: tuple[str, ...], given: Given) -> None:
    if draft is None:
        return
    if not given.drafting:
        raise UsageError(
            f"--draft {draft}: {', '.join(given.methods)} drafts without a model",
            "name its method too: --spec-type draft-simple, for instance",
        )
    for lost in TRAINED & set(asked) - set(given.methods):
        raise UsageError(
            f"--draft {draft}: a checkpoint made for {lost} does not load as "
            f"{', '.join(given.drafting)}",
            "leave --draft out, or name a checkpoint of that method with its own --spec-type",
        )


# ---------------------------------------------------------------- names that are places


@dataclass(frozen=True, slots=True)
class _Form:
    """What an engine reads: GGUF files, or repositories and folders of safetensors."""

    engine: str
    catalog: Catalog

    @property
    def gguf(self) -> bool:
        return self.engine == "llama-server"

    @property
    def title(self) -> str:
        return ENGINES[self.engine].title

    def is_place(self, name: str) -> bool:
        """No profile: a path, `hf:…` or the demo. A folder named like a profile is none."""
        if name.startswith("hf:") or name in DEMOS:
            return True
        path = Path(name)
        return path.is_file() or (path.is_dir() and self.catalog.get(name) is None)

    def place(self, name: str) -> Weights:
        """The weights of `hf:…` or a path. Raises UsageError where it is the other form."""
        if name in DEMOS and self.gguf:
            return DEMOS[name]()
        if name in DEMOS:
            raise self.no_gguf(name)
        if name.startswith("hf:"):
            return self._hub(name)
        path = Path(name)
        is_file = path.is_file()
        if self.gguf and not is_file:
            raise UsageError(f"{name} is a folder", "llama-server reads one .gguf file")
        if not self.gguf and is_file:
            raise self.no_gguf(name)
        return path.absolute()  # a link stays one: parts of a split model lie beside it

    def no_gguf(self, name: str) -> UsageError:
        more = ""
        if self.engine == "vllm":
            more = "; GGUF is for its separate vllm-gguf-plugin, which specctl has not checked"
        return UsageError(
            f"{name} is a GGUF file: {self.title} reads safetensors{more}", _SAFETENSORS_HINT
        )

    def _hub(self, name: str) -> Weights:
        owner, _, rest = name.removeprefix("hf:").removeprefix("//").partition("/")
        repo, _, file = rest.partition("/")
        if not owner or not repo:
            raise UsageError(f"{name!r} names no repository", "hf:owner/repo")
        if "@" in repo:
            raise UsageError(f"{name} names a revision, which is not carried over", "leave it out")
        if self.gguf and not file:
            raise UsageError(f"{name} names no file", "llama-server reads hf:owner/repo/file.gguf")
        if not self.gguf and file:
            if file.lower().endswith(".gguf"):
                raise self.no_gguf(name)
            raise UsageError(f"{name} names a file", _SAFETENSORS_HINT)
        if not self.gguf:
            return f"{owner}/{repo}"
        here = find(f"{owner}/{repo}", file)
        return here or HubFile(f"{owner}/{repo}", file)

    def draft(self, name: str) -> Weights:
        """The weights of a draft, named as a target is; of a profile its own model."""
        if self.is_place(name):
            return self.place(name)
        model = self.known(name)
        if self.gguf:
            return _gguf(self.catalog.select(name).file)
        return _base(model, self.title)

    def known(self, name: str) -> Model:
        """The profile of a name. Raises UsageError with the nearest forms."""
        model = self.catalog.get(re.split(r"[:+]", name, maxsplit=1)[0])
        if model is not None:
            return model
        if re.fullmatch(r"[\w.-]+/[\w.-]+", name):
            raise UsageError(f"no profile or file {name!r}", f"on the hub it is hf:{name}")
        if re.search(r"[/\\]|\.gguf$", name):
            raise ModelError(f"no model {name!r}: there is no such file")
        self.catalog.select(name)  # raises, with names like it
        raise AssertionError(name)


def _placed(form: _Form, name: str, given: Given, options: Options) -> Wish:
    draft = form.draft(options.draft) if options.draft else None
    lacking = [one for one in given.drafting if one != "draft-mtp"]
    if lacking and draft is None:
        raise UsageError(
            f"{name} says nothing of a draft for {', '.join(lacking)}", "name one with --draft"
        )
    notes: tuple[str, ...] = ()
    if "draft-mtp" in given.methods and draft is None:
        notes = (f"whether {name} holds MTP heads was not looked at",)
    plus = name in DEMOS
    return Wish(form.engine, form.place(name), given, options, draft, notes=notes, plus=plus)


# ---------------------------------------------------------------- profiles


def _gguf(file: ModelFile) -> Weights:
    """The file where it lies on this machine, else on the hub."""
    if file.folder is not None:
        path = file.folder / file.names[0]
        if not path.is_file():
            raise ModelError(f"there is no file {path}", "the profile names it")
        return path
    assert file.repo is not None  # a profile has one or the other
    wanted = wanted_file(file)
    here = [find(one.repo, one.file, one.size, one.sha256) for one in wanted]
    return here[0] if here[0] and all(here) else HubFile(file.repo, file.names[0])


def _profile_gguf(form: _Form, target: str, given: Given, options: Options) -> Wish:
    selection = form.catalog.select(target)
    alone = len(given.drafting) == 1
    ready = {  # a draft named by the user stands for every method but MTP heads beside it
        method: _ready(form.catalog, target, method)
        for method in given.drafting
        if options.draft is None or (method == "draft-mtp" and not alone)
    }
    files = [one.draft_file for one in ready.values() if one.draft_file]
    if len(files) + (options.draft is not None) > 1:
        raise UsageError(
            f"{' and '.join(given.drafting)} need a draft file each, and llama-server takes one"
        )
    chosen = ready.get("draft-mtp") or next(iter(ready.values()), selection)
    draft = form.draft(options.draft) if options.draft else _gguf(files[0]) if files else None
    known = [k for one in ready.values() if (k := default_k(one)[0])]
    advice = min(known, default=None)  # one --spec-draft-n-max is for all of them
    weights = _gguf(chosen.file)
    notes: tuple[str, ...] = ()
    if any(isinstance(one, HubFile) for one in (weights, draft)):
        pull = chosen.pull_name
        notes = (f"llama-server fetches what is not here; or first: specctl pull {pull}",)
    return Wish(
        form.engine, weights, given, options, draft, advice, notes + _k_note(options, advice)
    )


def _ready(catalog: Catalog, target: str, method: str) -> Selection:
    """The configuration of the catalogue; what it lacks as GGUF may exist as safetensors."""
    if method not in ("draft-simple", "draft-mtp", "draft-eagle3", "draft-dflash", "draft-dspark"):
        raise UsageError(f"{method} needs a checkpoint", "name one with --draft")
    try:
        return catalog.select(f"{target}+{method}")
    except UsageError as error:
        model = catalog.get(target.partition(":")[0])
        others = [d.repo for d in model.drafts if d.method == method and d.repo] if model else []
        if not others:
            raise
        raise UsageError(
            error.message,
            f"{others[0]} is listed, without a GGUF file known to fit: convert or fetch it and "
            "name it with --draft",
        ) from error


def _k_note(options: Options, advice: int | None) -> tuple[str, ...]:
    """Whose K it is where the user named none."""
    if options.k is not None or advice is None:
        return ()
    return (f"K {advice} is the profile's advice, as in specctl recommend; --k gives another",)


def _base(model: Model, title: str) -> str:
    if model.base is None:
        raise UsageError(
            f"{model.id}: no original repository is known, and {title} reads no GGUF",
            _SAFETENSORS_HINT,
        )
    return model.base


def _profile_tensors(
    form: _Form, model: Model, target: str, given: Given, options: Options
) -> Wish:
    base = _base(model, form.title)
    form.catalog.select(target)  # a wrong quant is an error here too
    notes = [_precision(form, model, target)]
    draft: Weights | None = form.draft(options.draft) if options.draft else None
    advice: int | None = None
    for method in given.drafting if draft is None else ():
        if method == "draft-mtp":
            found, said = _heads(form, model)
            notes += [said] if said else []
        else:
            found = _tensors_draft(form, model, method)
            small = form.catalog.get(found.model) if found.model else None
            draft = _base(small, form.title) if small else found.repo
        advice = found.k or advice
    notes += _k_note(options, advice)
    return Wish(form.engine, base, given, options, draft, advice, tuple(notes))


def _precision(form: _Form, model: Model, target: str) -> str:
    """GGUF against safetensors: what the profile's quant becomes."""
    quant = target.partition(":")[2]
    instead = f"{quant} is a GGUF quant: " if quant else "no GGUF quant: "
    return (
        f"{instead}{form.title} loads {model.base} as its makers stored it, "
        f"≈ {model.params * 2:.3g} GB if that is 16 bits a parameter"
    )


def _tensors_draft(form: _Form, model: Model, method: str) -> Draft:
    """The first draft of the method that is no GGUF."""
    known = [draft for draft in model.drafts if draft.method == method]
    for draft in known:
        if draft.model is not None or (draft.repo and not _is_gguf(draft)):
            return draft
    if known:
        raise UsageError(
            f"{model.id}: of drafts for {method} only GGUF files are known ({known[0].repo})",
            "name a safetensors repository with --draft hf:owner/repo",
        )
    raise UsageError(
        f"{model.id}: no draft for {method} is known", "name one with --draft hf:owner/repo"
    )


def _is_gguf(draft: Draft) -> bool:
    in_file = draft.file is not None and draft.file.names[0].lower().endswith(".gguf")
    return in_file or (draft.repo or "").lower().endswith("gguf")


def _heads(form: _Form, model: Model) -> tuple[Draft, str]:
    """The profile's MTP entry, and what is to be said of it. Raises UsageError without heads."""
    entries = [d for d in model.drafts if d.method == "draft-mtp" and d.status != "unknown"]
    if not entries:
        raise UsageError(
            f"{model.id} has no MTP heads, as far as the catalogue knows",
            "ways it knows: " + (", ".join(sorted({d.method for d in model.drafts})) or "none"),
        )
    if model.family == "gemma4":
        raise UsageError(
            f"{model.id}: its MTP head is a checkpoint of its own, the assistant, which the "
            "catalogue knows as GGUF only",
            f"name its safetensors repository for {form.title} with --draft hf:owner/repo",
        )
    inside = any(d.embedded for d in entries) or (model.shape is not None and model.shape.n_nextn)
    said = "" if inside else f"that {model.base} still holds its MTP heads was not checked"
    return entries[0], said
