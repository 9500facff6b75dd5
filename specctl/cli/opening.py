"""From what was named to an open session: what `chat` and `serve` do alike."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from specctl.settings import EngineSettings, SpecSettings

if TYPE_CHECKING:
    from specctl.engine.session import Session
    from specctl.resolve import Resolved


def as_named(spec: SpecSettings, files: Resolved) -> SpecSettings:
    """What was tuned, or the look-up or head that a name asks for (`id+ngram-mod`, `id+draft-mtp`);
    a draft model is for `auto` to use.
    """
    if files.tuned is not None:
        return files.tuned.spec(spec)
    if files.spec_types in (None, ("draft-simple",)):
        return spec
    return dataclasses.replace(spec, types=files.spec_types, k=spec.k or files.k)


def open_named(files: Resolved, spec: SpecSettings, settings: EngineSettings) -> Session:
    """Load it, as it was tuned or proposed where the flags say nothing else.

    Raises:
        ModelError, PairError, EngineMissingError: see `open_session`.
    """
    from specctl.engine.session import open_session

    return open_session(files.model, files.draft, (spec,), as_proposed(settings, files))


def as_proposed(settings: EngineSettings, files: Resolved) -> EngineSettings:
    """What was tuned, or the KV type and place with which a proposal fits, where the flags say
    nothing else.
    """
    if files.tuned is not None:
        return files.tuned.engine(settings)
    target = settings.target
    if files.kv_type and target.kv_type_k == "f16":
        target = dataclasses.replace(target, kv_type_k=files.kv_type, kv_type_v=files.kv_type)
    if files.n_cpu_moe and not target.n_cpu_moe:
        target = dataclasses.replace(target, n_cpu_moe=files.n_cpu_moe)
    return dataclasses.replace(settings, target=target)
