"""Stands for the llama-server program: takes its flags, and one of `--fake MODE` for trouble.

dies: ends at once with words; hangs: never healthy; off: healthy, without speculation; idle: drafts
nothing; deaf: ignores SIGTERM; child: starts a child of its own; crash: dies after it was ready.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from fake_engine import FakeEngine, _Handler


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int)
    parser.add_argument("--fake", default="")
    parser.add_argument("--pids", type=Path)
    known, _ = parser.parse_known_args()
    print("build: 1 (0c1e570)", flush=True)
    if known.fake == "dies":
        print("error: failed to load model 'nothing.gguf'", file=sys.stderr, flush=True)
        sys.exit(3)
    if known.fake == "deaf":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if known.fake == "child":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        known.pids.write_text(str(child.pid))
    if known.fake == "hangs":
        time.sleep(600)
    engine = FakeEngine("llama-server", speculative=known.fake != "off", port=known.port)

    def answer_chat(self: _Handler) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        for accepted in (4, 2, 0):
            engine.cycle(0 if known.fake in ("idle", "off") else 4, accepted)
        body = {"choices": [{"message": {"role": "assistant", "content": "text"}}]}
        self._send(200, "application/json", json.dumps(body).encode())

    _Handler.do_POST = answer_chat  # type: ignore[method-assign]
    engine.open()
    print("speculative decoding: loading draft model", flush=True)
    if known.fake == "crash":
        time.sleep(1.5)
        print("ggml_abort: out of memory", flush=True)
        sys.exit(9)
    threading.Event().wait()


if __name__ == "__main__":
    main()
