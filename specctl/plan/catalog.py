"""All profiles as one catalogue, and the names of whole configurations.

Load order: the profiles that come with specctl, then `profiles/*.toml` in the user's config folder;
a model of the same id replaces the earlier one.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from specctl.enginefacts import ASSISTANT_TARGET, LAYER_TAPS, MTP_ARCHES, MTP_CHAINS
from specctl.errors import ProfileError, UsageError
from specctl.gguf.shape import Shape
from specctl.paths import config_dir
from specctl.plan.profile import (
    IN_PROCESS,
    LAYER_DRAFTS,
    LOOKUPS,
    METHODS,
    Draft,
    Model,
    ModelFile,
    read_profile,
)
from specctl.plan.tuned import SUFFIX as TUNED


@dataclass(frozen=True, slots=True)
class Selection:
    """A whole configuration by name: what to fetch and open. `draft_file` None: nothing extra."""

    model: Model
    file: ModelFile
    method: str = "none"
    draft: Draft | None = None
    draft_model: Model | None = None
    draft_file: ModelFile | None = None
    k: int | None = None  # a draft length other than usual

    @property
    def files(self) -> tuple[ModelFile, ...]:
        """What to fetch: the target's file, then the draft's own."""
        return (self.file,) if self.draft_file is None else (self.file, self.draft_file)

    @property
    def name(self) -> str:
        """`id:QUANT` or `id:QUANT+method`: what `Catalog.select` reads back."""
        return selection_name(self.model.id, self.file.quant, self.method)

    @property
    def target_name(self) -> str:
        """`id:QUANT`: the target alone."""
        return selection_name(self.model.id, self.file.quant, "none")

    @property
    def pull_name(self) -> str:
        """What makes `specctl pull` fetch these files and no draft beside them."""
        if self.method != "none" and self.method not in LOOKUPS:
            return self.name
        brings_more = any(draft.method not in LOOKUPS for draft in self.model.drafts)
        return self.target_name + ("+none" if brings_more else "")

    @property
    def in_process(self) -> bool:
        """`specctl chat` runs it; otherwise it needs llama-server.

        MTP heads it runs in the target's own file or in a file of their own, of the architectures
        it knows (several only of some), and Gemma 4's assistants; an EAGLE-3 head or a block draft
        where the target gives out what its layers read, DFlash2 (told by a file's name, for nothing
        else tells it) nowhere.
        """
        shape = self.model.shape
        if self.method == "draft-mtp" and self.draft_file is None:
            return self.own_heads
        if self.method == "draft-mtp":
            return shape is not None and (shape.arch == ASSISTANT_TARGET or _runs_heads(shape))
        if self.method in LAYER_DRAFTS:
            named = "" if self.draft_file is None else " ".join(self.draft_file.names).lower()
            return shape is not None and shape.arch in LAYER_TAPS and "dflash2" not in named
        return self.method in IN_PROCESS

    @property
    def own_heads(self) -> bool:
        """The target's file holds MTP heads that specctl can run; `auto` takes them too."""
        shape = self.model.shape_of(self.file)
        return shape is not None and shape.n_nextn > 0 and _runs_heads(shape)


def _runs_heads(shape: Shape) -> bool:
    """Are as many MTP heads of this architecture run?"""
    return shape.arch in (MTP_CHAINS if shape.n_nextn > 1 else MTP_ARCHES)


def selection_name(model: str, quant: str, method: str) -> str:
    """The name of a configuration on the command line."""
    return f"{model}:{quant}" + ("" if method == "none" else f"+{method}")


@dataclass(frozen=True, slots=True)
class Catalog:
    """All known models, in file order; ids are unique."""

    models: tuple[Model, ...]

    def __iter__(self) -> Iterator[Model]:
        return iter(self.models)

    def get(self, model_id: str) -> Model | None:
        """A model by id, any case."""
        return next((m for m in self.models if m.id == model_id.lower()), None)

    def select(self, name: str) -> Selection:
        """`id`, `id:QUANT`, `id:QUANT+method` → files to fetch and open.

        Raises:
            UsageError: no such model, quant or draft; the message lists what there is.
        """
        target, _, method = name.partition("+")
        model_id, _, quant = target.partition(":")
        model = self.get(model_id)
        if model is None:
            raise UsageError(f"no profile {model_id!r}", self._near(model_id))
        method = method or "none"
        if method not in METHODS and method not in IN_PROCESS:
            known = dict.fromkeys((*METHODS, *LOOKUPS, "auto"))
            raise UsageError(f"{method!r} is not a drafting method", "one of " + ", ".join(known))
        mtp = method == "draft-mtp" and any(draft.embedded for draft in model.drafts)
        file = model.file(quant or None, mtp) or (None if mtp else model.file(quant or None, True))
        if file is None:
            quants = sorted({f.quant for f in model.files if f.mtp == mtp})
            what = f"quant {quant!r}" if quant else "complete file"
            raise UsageError(f"{model.id} has no {what}", "known: " + (", ".join(quants) or "none"))
        if method in ("none", "auto", *LOOKUPS):
            return Selection(model, file, method)
        for draft in model.drafts:
            if draft.method == method:
                selection = self.drafted(model, file, draft)
                if selection is not None:
                    return selection
        ways = sorted({d.method for d in model.drafts if self.drafted(model, file, d)})
        raise UsageError(
            f"{model.id} has no ready file for {method}",
            "ready: " + ", ".join(["ngram-mod", *ways]),
        )

    def drafted(self, model: Model, file: ModelFile, draft: Draft) -> Selection | None:
        """The target's file with one of its drafts, or None where no file of it is known."""
        if draft.embedded:
            return Selection(model, file, draft.method, draft) if file.mtp else None
        if draft.model is not None:
            small = self.get(draft.model)
            found = small.file(draft.quant) if small else None
            return Selection(model, file, draft.method, draft, small, found) if found else None
        return Selection(model, file, draft.method, draft, None, draft.file) if draft.file else None

    def _near(self, model_id: str) -> str:
        words = model_id.lower().replace("_", "-")
        near = [
            m.id for m in self.models if words and (words in m.id or m.id.startswith(words[:5]))
        ]
        return ("like it: " + ", ".join(near[:6])) if near else "`specctl recommend` lists names"


def load(user: Path | None = None) -> Catalog:
    """The built-in profiles with the user's on top (`user`: the folder, default in the config).

    Raises:
        ProfileError: a wrong file, with file, line and key.
    """
    models = {model.id: model for model in _built_in()}
    folder = config_dir() / "profiles" if user is None else user
    for path in sorted(folder.glob("*.toml")) if folder.is_dir() else ():
        if path.name.endswith(TUNED):  # they refer to models and describe none
            continue
        try:
            models.update((model.id, model) for model in read_profile(path))
        except ProfileError as error:
            hint = error.hint or "fix this profile of yours, or move it out of the folder"
            raise ProfileError(error.message, hint) from error
    for model in models.values():
        for draft in model.drafts:
            if draft.model is not None and draft.model not in models:
                raise ProfileError(
                    f"{model.origin}: {model.id} drafts with {draft.model!r}, which no profile has"
                )
        if model.successor is not None and model.successor not in models:
            raise ProfileError(
                f"{model.origin}: successor {model.successor!r} of {model.id} has no profile"
            )
    return Catalog(tuple(models.values()))


@functools.cache
def _built_in() -> tuple[Model, ...]:
    folder = resources.files("specctl.profiles")
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".toml"))
    models: list[Model] = []
    for name in names:
        with resources.as_file(folder / name) as path:
            models += read_profile(path)
    return tuple(models)
