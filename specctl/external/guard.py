"""Runs one server and ends with whoever started it: `python -m specctl.external.guard`.

    guard GRACE LOG COMMAND…

The server gets a session of its own, so that Ctrl-C in the terminal does not reach it. Its process
id is the one line on stdout. When stdin closes, because the starter asks or because it is gone in
whatever way, the server's process group gets SIGTERM, and SIGKILL after GRACE seconds. What a
server leaves in its group when it ends by itself is ended too. Exit code: the server's.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

_POLL = 0.05  # seconds


def main(argv: list[str]) -> int:
    """Run it to its end, or to ours."""
    grace, log, command = float(argv[0]), argv[1], argv[2:]
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):  # only a closed stdin counts
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    asked = threading.Event()
    with open(log, "ab", buffering=0) as sink:
        server = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            restore_signals=True,
            preexec_fn=_default_signals if os.name == "posix" else None,
        )
    print(server.pid, flush=True)
    threading.Thread(target=_listen, args=(asked,), daemon=True).start()
    while server.poll() is None and not asked.is_set():
        time.sleep(_POLL)
    _end(server, grace)
    code = server.wait()
    return code if code >= 0 else 128 - code


def _default_signals() -> None:
    """Ignored signals are inherited; the server shall hear them."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        signal.signal(getattr(signal, name), signal.SIG_DFL)


def _listen(asked: threading.Event) -> None:
    """Unbuffered: a thread that holds Python's own stdin would abort the interpreter's end."""
    with contextlib.suppress(OSError):
        while os.read(0, 4096):
            pass
    asked.set()


def _end(server: subprocess.Popen[bytes], grace: float) -> None:
    """The whole group; a group that is gone is no error."""
    _signal(server, "SIGTERM")
    end = time.monotonic() + grace
    while time.monotonic() < end and _alive(server):
        time.sleep(_POLL)
    if _alive(server):
        _signal(server, "SIGKILL")


def _signal(server: subprocess.Popen[bytes], name: str) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(server.pid, getattr(signal, name))
        elif server.poll() is None:
            server.terminate()


def _alive(server: subprocess.Popen[bytes]) -> bool:
    """Anything of its group."""
    ended = server.poll() is not None
    if not hasattr(os, "killpg"):
        return not ended
    try:
        os.killpg(server.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return not ended
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
