"""What the full screen costs: the same answer with the dashboard and with --plain.

    python benchmarks/screen_overhead.py [--model demo-f16] [--threads 1] [--repeats 5]
    python benchmarks/screen_overhead.py --scripted [--rate 300] [--tokens 20000]

Both arms run in a pseudo-terminal of 120×40 that is read as fast as it is written to, interleaved;
tokens per second come from the cycle records (first to last cycle's clock). Scripted: a desk that
sleeps where the model would compute, so that only what the screen takes from it is measured. Needs
an idle machine.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import resource
import select
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

from specctl import recording
from specctl.events import Cycle, Decision, Finished, PromptDone, Started
from specctl.tui.desk import Ask, Change, Choice, Job, Open
from specctl.tui.messages import Event, Ready

MESSAGE = "Write a long story about a lighthouse keeper and her dog."


def in_terminal(
    command: list[str], done: Callable[[], bool], prompt: bytes, seconds: float
) -> None:
    """Run in a pty of 120×40, type the message when `prompt` shows, leave once `done()`."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    env = {**os.environ, "TERM": "xterm-256color"}
    process = subprocess.Popen(
        command, stdin=slave, stdout=slave, stderr=slave, env=env, start_new_session=True
    )
    os.close(slave)
    seen, typed, looked = b"", not prompt, 0.0
    end = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < end:
        if select.select([master], [], [], 0.1)[0]:
            try:
                seen = seen[-4096:] + os.read(master, 1 << 16)
            except OSError:
                break
        if not typed and prompt in seen:
            os.write(master, MESSAGE.encode() + b"\r")
            typed = True
        if time.monotonic() - looked > 1.0:
            looked = time.monotonic()
            if done():
                os.write(master, b"\x11\x04")  # Ctrl-Q, Ctrl-D
                end = min(end, looked + 10)
    if process.poll() is None:
        process.kill()
    process.wait()
    os.close(master)


def pace(path: Path) -> float:
    """Tokens per second of the last answer in a recording."""
    cycles = [record for record in recording.read(path) if isinstance(record, Cycle)]
    first = max(at for at, cycle in enumerate(cycles) if cycle.index == 0)
    answer = cycles[first:]
    seconds = answer[-1].clock - answer[0].clock
    return sum(len(cycle.emitted) for cycle in answer[1:]) / seconds


def one(arm: str, model: str, threads: int, tokens: int) -> float:
    """Tokens per second of one answer."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "records.jsonl"
        command = [sys.executable, "-m", "specctl", "chat", "-m", model, "-s", "none"]
        command += ["-t", str(threads), "-n", str(tokens), "--temp", "0", "--record", str(path)]
        command += ["--plain"] if arm == "plain" else []

        def done() -> bool:
            return path.exists() and '"type": "finished"' in path.read_text()

        in_terminal(command, done, b"> " if arm == "plain" else b"Enter send", 300)
        return pace(path)


class ScriptedDesk:
    """`rate` tokens per second in cycles of three, each of which sleeps as long as it may take."""

    def __init__(self, rate: float, tokens: int, result: Path) -> None:
        self._rate, self._tokens, self._result = rate, tokens, result

    def do(self, job: Job) -> Iterator[Event]:
        """Open, or the one answer."""
        if isinstance(job, Open):
            yield Ready("scripted", None, ("ngram-suffix",), None, 48, 1 << 16, 1, 0.0)
        elif isinstance(job, Ask):
            yield from self._answer()

    def _answer(self) -> Iterator[Event]:
        yield Started("scripted", None, ("ngram-suffix",), 48, 10, 1 << 16, 1, 0.0, 0, 0.0)
        yield PromptDone(10, 0, 0.0)
        step, begin = 3 / self._rate, time.perf_counter()
        for index in range(self._tokens // 3):
            time.sleep(step)
            word = "lighthouse\n" if index % 40 == 39 else " keeper"
            decision = Decision("draft", f"match {index % 7}")
            clock = time.perf_counter() - begin
            times = (0.0001, step, 0.0001, step, step * 0.8)
            yield Cycle(
                index, ("ngram-suffix",), "ngram-suffix", 4, (1, 2, 3), 2, (1, 2, 3),
                word * 3, *times, 10 + 3 * index, clock, decision, (word,) * 3, " rejected",
            )  # fmt: skip
        seconds = time.perf_counter() - begin
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        self._result.write_text(f"{self._tokens / seconds} {memory}\n")
        yield Finished("length", 10, self._tokens, seconds)

    def change(self, change: Change) -> None:
        """Nothing changes."""

    def stop(self) -> None:
        """It ends by itself."""

    recording = False

    def record(self) -> Path | None:
        """Nothing is recorded."""
        return None

    def choices(self) -> tuple[Choice, ...]:
        """The one."""
        return (Choice(("ngram-suffix",), "scripted"),)

    def close(self) -> None:
        """Nothing to free."""


def scripted_child(rate: float, tokens: int, result: Path) -> None:
    """In the pty: the screen over a scripted desk."""
    from specctl.cli import screen
    from specctl.tui.feed import Feed
    from specctl.tui.screens.live import LiveScreen

    desk, feed = ScriptedDesk(rate, tokens, result), Feed()
    screen.run(lambda: LiveScreen(desk, feed, exports=Path(), ask="go"))
    feed.close()


def scripted(rate: float, tokens: int) -> None:
    """The pace without a screen, and with it."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result"
        deque(ScriptedDesk(rate, tokens, result).do(Ask("")), maxlen=0)
        alone, memory = map(float, result.read_text().split())
        result.unlink()
        print(f"no screen: {alone:.2f} tok/s, {memory / 1024:.0f} MiB")
        child = [sys.executable, __file__, "--child", str(result)]
        child += ["--rate", str(rate), "--tokens", str(tokens)]
        in_terminal(child, result.exists, b"", 60 + 2 * tokens / rate)
        shown, memory = map(float, result.read_text().split())
        print(
            f"screen:    {shown:.2f} tok/s, {memory / 1024:.0f} MiB, loss {1 - shown / alone:.2%}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--model", default="demo-f16")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--tokens", type=int)
    parser.add_argument("--scripted", action="store_true")
    parser.add_argument("--rate", type=float, default=300.0)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        scripted_child(args.rate, args.tokens or 20_000, args.child)
    elif args.scripted:
        scripted(args.rate, args.tokens or 20_000)
    else:
        paces: dict[str, list[float]] = {"plain": [], "screen": []}
        for repeat in range(args.repeats):
            order = ["plain", "screen"] if repeat % 2 == 0 else ["screen", "plain"]
            for arm in order:
                paces[arm].append(one(arm, args.model, args.threads, args.tokens or 128))
                print(f"{repeat} {arm}: {paces[arm][-1]:.2f} tok/s", flush=True)
        plain, shown = (statistics.median(paces[arm]) for arm in ("plain", "screen"))
        print(f"plain {plain:.2f}, screen {shown:.2f} tok/s: loss {1 - shown / plain:.2%}")


if __name__ == "__main__":
    main()
