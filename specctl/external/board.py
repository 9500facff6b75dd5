"""What a watch has seen so far, and the small page that re-exports it as Prometheus text."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from specctl.errors import SpecctlError
from specctl.events import Cycle, Interval, Record
from specctl.external.alerts import Alerts
from specctl.external.document import prometheus
from specctl.external.recognise import Seen
from specctl.external.remark import Remark
from specctl.metrics import WINDOW, Totals, add, fold

_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Board:
    """Folds what a watch yields. Written by one thread, read by any."""

    def __init__(self, seen: Seen) -> None:
        self.seen = seen
        self.alerts = Alerts()
        self.whole = Totals()
        self.up = True
        self._recent: deque[Cycle | Interval] = deque(maxlen=WINDOW)
        self._lock = threading.Lock()

    def enter(self, item: Record | Remark) -> list[Record | Remark]:
        """The item, and what the rules say after it."""
        if isinstance(item, Remark):
            self.up = self.up if item.up is None else item.up
            return [item]
        if isinstance(item, Cycle | Interval):
            with self._lock:
                self.whole = add(self.whole, item)
                self._recent.append(item)
        return [item, *self.alerts.enter(item)]

    def text(self) -> str:
        """The page."""
        with self._lock:
            whole, recent = self.whole, tuple(self._recent)
        return prometheus(self.seen, whole, fold(recent), self.up)


@contextlib.contextmanager
def exporting(board: Board, port: int) -> Iterator[str]:
    """Inside, http://127.0.0.1:PORT/metrics serves the board; yields that address.

    Raises:
        SpecctlError: the port is taken.
    """

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = board.text().encode() if self.path.partition("?")[0] == "/metrics" else b""
            self.send_response(200 if body else 404)
            self.send_header("Content-Type", _TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name
            pass

    try:
        server = ThreadingHTTPServer(("127.0.0.1", port), Page)
    except OSError as error:
        raise SpecctlError(
            f"--prometheus {port}: {error.strerror}", "another port; 0 takes a free one"
        ) from error
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/metrics"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(1)
