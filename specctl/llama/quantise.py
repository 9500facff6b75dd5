"""Copies of a model in another precision, by the library's own quantiser.

`convert` makes a full-precision copy in this process. `quantise` does it in a child process
(`python -m specctl.llama.quantise`): minutes of native code that Ctrl-C must end, and that aborts
on some files.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

from specctl.errors import ModelError
from specctl.llama import log
from specctl.llama.api import library
from specctl.llama.interrupt import deferred

_FTYPES = {"f32": 0, "f16": 1}
# llama_ftype → its number and the tensor type most of it becomes. Only what needs no importance
# matrix: without one llama.cpp refuses IQ1, IQ2, IQ3_XXS, IQ3_XS and Q2_K_S.
QUANTS = {
    "Q2_K": (10, "q2_K"),
    "IQ3_S": (26, "iq3_s"),
    "Q3_K_S": (11, "q3_K"),
    "Q3_K_M": (12, "q3_K"),
    "Q3_K_L": (13, "q3_K"),
    "IQ4_XS": (30, "iq4_xs"),
    "IQ4_NL": (25, "iq4_nl"),
    "Q4_0": (2, "q4_0"),
    "Q4_K_S": (14, "q4_K"),
    "Q4_K_M": (15, "q4_K"),
    "Q5_K_S": (16, "q5_K"),
    "Q5_K_M": (17, "q5_K"),
    "Q6_K": (18, "q6_K"),
    "Q8_0": (7, "q8_0"),
}
COPY = -1  # instead of a number: every tensor as it is
_TENSOR = re.compile(r"\[\s*(\d+)/\s*(\d+)\]")
CHILD = (sys.executable, "-m", "specctl.llama.quantise")


def convert(source: Path, target: Path, precision: str) -> None:
    """Write `source` as `f16` or `f32` to `target`, which appears only when it is whole.

    Raises:
        ModelError: the source cannot be read or the copy cannot be written.
    """
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        log.forget()
        with deferred():
            status = _quantise(source, part, _FTYPES[precision], 0)
        if status:
            raise ModelError(f"could not write {target}: {log.reason() or f'status {status}'}")
        part.replace(target)
    except OSError as error:
        raise ModelError(f"could not write {target}: {error.strerror}") from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def quantise(
    source: Path,
    target: Path,
    quant: str | None,
    threads: int,
    command: Sequence[str] = CHILD,
    dropped: Sequence[int] = (),
) -> Generator[tuple[int, int], None, None]:
    """Write `source` as `quant` (a key of QUANTS; None: tensors as they are) to `target`, without
    the `dropped` layers (ascending, from 0); yields (tensor, of how many).

    Matrices whose rows are no multiple of a type's block become another type, by llama.cpp's own
    rule. It renames the layers that stay and corrects their count, but cuts no list of values by
    layer: who drops layers has looked that there is none. Whatever ends it early, `target` is gone
    then. All parts of a split file become one file.

    Raises:
        ModelError: it could not be done; says what llama.cpp said.
    """
    number = QUANTS[quant][0] if quant else COPY
    layers = ",".join(map(str, dropped))
    whole = False
    with tempfile.TemporaryFile("w+") as said:
        child = subprocess.Popen(
            [*command, *map(str, (source, target, number, threads, os.getpid(), layers))],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
            errors="replace",
            env={**os.environ, "GGML_NO_BACKTRACE": "1"},
        )
        try:
            yield from _progress(child)
            code = child.wait()
            if code:
                said.seek(0)
                raise ModelError(
                    f"{source.name} could not be {f'quantised to {quant}' if quant else 'copied'}: "
                    f"{_reason(code, said.read())}"
                )
            whole = True
        finally:
            child.kill()
            child.wait()
            if child.stdout is not None:
                child.stdout.close()
            if not whole:
                with contextlib.suppress(OSError):
                    target.unlink(missing_ok=True)


def _progress(child: subprocess.Popen[str]) -> Iterator[tuple[int, int]]:
    assert child.stdout is not None
    for line in child.stdout:
        if match := _TENSOR.match(line):
            yield int(match[1]), int(match[2])


def _reason(code: int, said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    last = lines[-1][:300] if lines else "no reason given"
    if code > 0:
        return last
    with contextlib.suppress(ValueError):
        return f"llama.cpp ended with {signal.Signals(-code).name}: {last}"
    return f"llama.cpp ended with signal {-code}: {last}"


def _quantise(
    source: Path, target: Path, ftype: int, threads: int, dropped: Sequence[int] = ()
) -> int:
    lib = library()
    params: Any = lib.llama_model_quantize_default_params()
    params.allow_requantize = True
    params.only_copy = ftype == COPY
    if ftype != COPY:
        params.ftype = ftype
    if dropped:
        layers = (ctypes.c_int32 * (len(dropped) + 1))(*dropped, -1)  # held until the call is over
        params.prune_layers = ctypes.cast(layers, ctypes.POINTER(ctypes.c_int32))
    params.nthread = threads
    status: int = lib.llama_model_quantize(
        str(source).encode(), str(target).encode(), ctypes.byref(params)
    )
    return status


class _Tell(logging.Handler):
    """One line on stdout for each tensor; gives up when the parent is gone."""

    def __init__(self, target: Path, parent: int) -> None:
        super().__init__()
        self._target, self._parent = target, parent

    def emit(self, record: logging.LogRecord) -> None:
        match = _TENSOR.match(record.getMessage())
        if match is None:
            return
        try:
            if sys.platform != "win32" and os.getppid() != self._parent:
                raise BrokenPipeError
            print(f"[{match[1]}/{match[2]}]", flush=True)
        except OSError:
            with contextlib.suppress(OSError):
                self._target.unlink(missing_ok=True)
            os._exit(1)


def main(arguments: Sequence[str]) -> int:
    """The child's side. Ctrl-C is the parent's to handle: it ends this process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    source, target = Path(arguments[0]), Path(arguments[1])
    ftype, threads, parent = (int(number) for number in arguments[2:5])
    dropped = [int(layer) for layer in arguments[5].split(",") if layer]
    try:
        library()
        logger = logging.getLogger("specctl.llama")
        logger.setLevel(logging.DEBUG)
        logger.addHandler(_Tell(target, parent))
        log.forget()
        status = _quantise(source, target, ftype, threads, dropped)
    except Exception as error:  # its one line is all that the parent shows
        print(error, file=sys.stderr)
        return 1
    if status:
        print(log.reason() or f"status {status}", file=sys.stderr)
    return 1 if status else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
