"""Which tuned profile a name means, and what it is a profile of: read once for each name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specctl.errors import ProfileError
from specctl.plan.tuned import Tuned, named, path_of, readable


@dataclass(frozen=True, slots=True)
class Meant:
    """A tuned profile, and the names of the files behind it: these mean no tuned profiles."""

    tuned: Tuned
    model: str
    draft: str | None


def meant(name: str) -> Meant | None:
    """The tuned profile of this name, or None.

    Raises:
        ProfileError: its file is wrong, or it names profiles that name each other.
    """
    every = readable(except_for=path_of(name))
    tuned = named(name, every)
    if tuned is None:
        return None
    draft = _behind(tuned.draft, every) if tuned.draft else None
    return Meant(tuned, _behind(tuned.model, every), draft)


def _behind(name: str, every: Sequence[Tuned]) -> str:
    """The name at the end of a row of profiles: a profile of its own name's model ends it."""
    by_id = {one.id.lower(): one for one in every}
    seen: list[Tuned] = []
    while True:
        one = by_id.get(name.lower())
        if one is None or one.model.lower() == name.lower():
            return name
        if one in seen:
            files = " and ".join(each.origin for each in seen[seen.index(one) :])
            raise ProfileError(
                f"{files} name each other as their model: there is no file behind them",
                "name a model in one of them, or delete it",
            )
        seen.append(one)
        name = one.model
