"""Stands for the llama-server program: takes its flags, and one of `--fake MODE` for trouble.

dies: ends at once with words; hangs: never healthy; off: healthy, without speculation; idle: drafts
nothing; deaf: ignores SIGTERM; child: starts a child of its own; crash: dies after it was ready;
faints: dies of its first whole answer; slow: never gives one; mute: has no metrics; drops: dies,
where it speculates, at its fifth streamed answer. With FAKE_LLAMA_SERVER (the mode, or empty) it
speculates only where a --spec-type is given.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from answering import Answering
from fake_engine import _Handler


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int)
    mode = os.environ.get("FAKE_LLAMA_SERVER")  # for starters that pass no flags on
    parser.add_argument("--fake", default=mode or "")
    parser.add_argument("--pids", type=Path)
    parser.add_argument("--spec-type")
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
    speculative = known.fake != "off" and (mode is None or known.spec_type is not None)
    engine = Answering("llama-server", speculative=speculative, port=known.port)

    def answer_chat(self: _Handler) -> None:
        asked = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))))
        if asked.get("stream"):
            engine.asked.append(asked)
            if known.fake == "drops" and speculative and len(engine.asked) > 4:
                print("ggml_abort: a bad graph", flush=True)
                os._exit(9)
            self._stream(iter(engine.reply(asked)))
            return
        if known.fake == "faints":
            print("ggml_abort: fainted", flush=True)
            os._exit(9)
        if known.fake == "slow":
            time.sleep(600)
        for accepted in (4, 2, 0):
            engine.cycle(0 if known.fake in ("idle", "off") else 4, accepted)
        body = {"choices": [{"message": {"role": "assistant", "content": "text"}}]}
        self._send(200, "application/json", json.dumps(body).encode())

    engine.metrics = known.fake != "mute"
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
