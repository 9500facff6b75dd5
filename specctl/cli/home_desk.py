"""What is behind the home screen: looks at the machine, the catalogue, the store and the results,
pulls, and makes the texts of pages.

Everything is imported where it is first needed, in the thread that looks: the screen is there
before that.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from specctl.errors import SpecctlError
from specctl.tui.home_state import Action, Event, Failed, Looking, Pulled, Pulling, Section, Seen
from specctl.tui.messages import Note

if TYPE_CHECKING:
    from rich.text import Text

    from specctl.hardware.machine import Machine


@dataclass(frozen=True, slots=True)
class Simulation:
    """Another machine than this one: see `hardware/simulate.py`. Sizes in bytes."""

    vram: int | None = None
    ram: int | None = None
    gpu: str | None = None


class LocalDesk:
    """See `tui/home_desk.HomeDesk`. Nothing is fetched but by `pull`."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._machine: Machine | None = None
        self._stop = threading.Event()

    def machine(self, engine: bool = False) -> Machine:
        """A snapshot, or what was asked for in its place; `engine`: ask the installed one.

        Raises:
            UsageError: the simulation cannot be meant.
        """
        from specctl.hardware.engineprobe import probe_engine
        from specctl.hardware.machine import take_snapshot
        from specctl.hardware.simulate import simulate

        found = take_snapshot(engine=probe_engine()) if engine else take_snapshot()
        wish = self._simulation
        self._machine = simulate(found, wish.vram, wish.ram, wish.gpu)
        return self._machine

    def look(self) -> Iterator[Event]:
        """See `HomeDesk`: the quick ones first; the engine's facts cost a child process."""
        yield Looking()
        yield _tried("machine", lambda: self._look_at_machine(final=False))
        yield _tried("downloaded", _look_at_store)
        yield _tried("results", _look_at_results)
        yield _tried("recommended", self._look_at_catalogue)
        yield _tried("machine", lambda: self._look_at_machine(final=True))

    def _look_at_machine(self, final: bool) -> Seen:
        from specctl.cli import home_rows

        return home_rows.machine(self.machine(engine=final), final)

    def _look_at_catalogue(self) -> Seen:
        from specctl.cli import home_rows

        return home_rows.recommended(self.machine())

    def pull(self, action: Action) -> Iterator[Event]:
        """See `HomeDesk`: what `specctl pull` does."""
        name = action.argv[-1]
        self._stop.clear()
        try:
            yield from self._pull(name)
        except SpecctlError as error:
            yield Pulled(f"{name}: {_whole(error)}", "error")
        except Exception as error:  # a bug must not leave the bar standing
            yield Pulled(f"{name}: {type(error).__name__}: {error} (a bug in specctl)", "error")

    def _pull(self, name: str) -> Iterator[Event]:
        from specctl.cli import pull
        from specctl.hub import progress
        from specctl.hub.pull import pull as pull_files
        from specctl.hub.remote import hub_from_environment

        files = pull.files_of([name])
        steps = pull.with_twins(pull_files(files, hub_from_environment(), pull.DEFAULT), files)
        end = Pulled(
            f"{name}: stopped; what was fetched is kept: specctl pull {name} goes on there"
        )
        with contextlib.closing(steps):
            for step in steps:
                if isinstance(step, progress.Done):
                    fetched = pull.done_line(step) if step.fetched else "already here"
                    end = Pulled(f"{name}: {fetched}")
                elif isinstance(step, progress.Progress):
                    count = f" {step.index}/{step.count}" if step.count > 1 else ""
                    phase = f"{step.phase}{count}"
                    yield Pulling(name, phase, step.done, step.total, pull.figures(step))
                elif isinstance(step, progress.Note):
                    yield Note(step.text)
                if self._stop.is_set():
                    break
        yield end

    def stop_pull(self) -> None:
        """See `HomeDesk`."""
        self._stop.set()

    def page(self, action: Action) -> Callable[[int], Text]:
        """See `HomeDesk`: doctor, or a kept result."""
        from specctl.bench import stored
        from specctl.cli import bench_kept, doctor
        from specctl.cli.render import rendered

        if action.argv == ("doctor",):
            machine = self._machine or self.machine()
            return lambda width: rendered(width, lambda console: doctor.show(console, machine))
        kept = stored.load(action.argv[-1])
        return lambda width: rendered(width, lambda console: bench_kept.show(console, kept))


def _look_at_store() -> Seen:
    from specctl.cli import home_store

    return home_store.downloaded()


def _look_at_results() -> Seen:
    from specctl.cli import home_rows

    return home_rows.results()


def _whole(error: SpecctlError) -> str:
    return error.message + (f" ({error.hint})" if error.hint else "")


def _tried(section: Section, look: Callable[[], Seen]) -> Seen | Failed:
    """A section, or why it cannot be looked at: one that fails must not hide the rest."""
    try:
        return look()
    except SpecctlError as error:
        return Failed(section, _whole(error))
    except OSError as error:
        return Failed(section, f"cannot read {error.filename}: {error.strerror}")
    except Exception as error:  # shown, not swallowed
        return Failed(section, f"{type(error).__name__}: {error} (a bug in specctl)")
