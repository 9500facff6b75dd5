"""A pseudo-terminal around a specctl command: type, wait for text, look at the screen."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from types import TracebackType

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """`with Terminal("chat", "--model", path) as t: t.wait("> "); t.type("hello")`."""

    def __init__(self, *arguments: str, **environ: str) -> None:
        self.master, slave = pty.openpty()
        self._slave = slave
        self.before = termios.tcgetattr(slave)
        env = {**os.environ, "TERM": "xterm", "COLUMNS": "80", **environ}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "specctl", *arguments],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=env,
            start_new_session=True,
            preexec_fn=self._own_terminal,
        )
        self.raw = ""

    @staticmethod
    def _own_terminal() -> None:
        import fcntl

        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    @property
    def text(self) -> str:
        """All output so far without escape codes."""
        return _ESCAPES.sub("", self.raw).replace("\r", "")

    def read(self, seconds: float = 0.05) -> str:
        """Take in what comes within `seconds`."""
        if select.select([self.master], [], [], seconds)[0]:
            try:
                self.raw += os.read(self.master, 65536).decode("utf-8", "replace")
            except OSError:
                time.sleep(seconds)
        return self.raw

    def wait(self, text: str, seconds: float = 60, after: int = 0) -> int:
        """Wait until `text` shows after offset `after` of `self.text`; the offset behind it."""
        end = time.monotonic() + seconds
        while (at := self.text.find(text, after)) < 0:
            assert time.monotonic() < end, f"no {text!r} in {self.text[after:]!r}"
            self.read()
        return at + len(text)

    def type(self, text: str) -> None:
        """Type a line."""
        os.write(self.master, text.encode() + b"\r")

    def press_ctrl_c(self) -> None:
        """As the key does: through the terminal's line discipline."""
        os.write(self.master, b"\x03")

    def exit_code(self, seconds: float = 20) -> int:
        """Wait for the end."""
        end = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < end, f"still running: {self.text!r}"
            self.read()
        while select.select([self.master], [], [], 0.05)[0]:
            before = self.raw
            if self.read() == before:
                break
        return self.process.returncode

    def settings_restored(self) -> bool:
        """Is the terminal as it was?"""
        return termios.tcgetattr(self._slave) == self.before

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        os.close(self.master)
        os.close(self._slave)
