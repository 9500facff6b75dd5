"""`draft-self` in a chain of spec types: what it became, said once, before the engine is asked."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from specctl.cli.render import err
from specctl.errors import UsageError
from specctl.hub import drafts
from specctl.settings import SpecSettings

if TYPE_CHECKING:
    from specctl.engine.session import Session
    from specctl.resolve import Resolved


def check_types(spec: SpecSettings) -> None:
    """As `registry.check_types`, where `draft-self` is a name too. Raises UsageError."""
    from specctl.drafters import registry

    types = [one for one in spec.types if one != drafts.ALIAS]
    if types:
        try:
            registry.check_types(dataclasses.replace(spec, types=tuple(types)))
        except UsageError as error:
            raise UsageError(error.message, f"{error.hint}, {drafts.ALIAS}") from error


def settle(
    specs: Sequence[SpecSettings], files: Resolved, draft: str | None
) -> tuple[list[SpecSettings], Resolved]:
    """The specs and files as the engine takes them; a note on stderr says what `draft-self` is.

    `draft` is what --draft said. A draft that only comes with a profile's name gives way.

    Raises:
        UsageError: --draft names another draft than the one that was made.
    """
    if not any(map(drafts.has_alias, specs)):
        return list(specs), files
    found = drafts.find(files.model)
    beside = files.draft if draft is not None else None
    out: list[SpecSettings] = []
    said = False
    for spec in specs:
        if not drafts.has_alias(spec):
            out.append(spec)
            continue
        became = drafts.become(spec, files.model, beside, found)
        if became.draft is not None:
            files = dataclasses.replace(files, draft=became.draft)
        if not said:
            err().print(f"note: {became.note}", style="dim", markup=False, soft_wrap=True)
        said = True
        out.append(became.spec)
    return out, files


def in_session(spec: SpecSettings, session: Session) -> tuple[SpecSettings, str]:
    """The same in a running chat, where only a draft that is open already can be meant."""
    if not drafts.has_alias(spec):
        return spec, ""
    became = drafts.become(spec, session.model.path)
    opened = session.draft_context
    if became.draft is None or (
        opened is not None and opened.model.path.resolve() == became.draft.resolve()
    ):
        return became.spec, became.note
    plain = drafts.without(spec)
    return plain, (
        f"{drafts.ALIAS} is {drafts.FALLBACK} in this chat: {became.draft.name} is not open "
        f"(start with --spec-type {drafts.ALIAS})"
    )
