"""Taking tokens back: how a memory gives up those that did not stand. One way per kind of memory.

Cells        a KV cache: any number of tokens, exactly.
Snapshots    a recurrent state of which llama.cpp keeps one copy per token of the last pass
             (`n_rs_seq`): tokens of that pass but its first.
Checkpoint   a recurrent state without: a copy from before the pass is put back, and what stands
             after it is read again.

llama.cpp says yes to more than it can do: after passes of one token, or once the whole last pass is
taken back, a snapshot is of another moment, and the logits are wrong without a word (seen: up to
2.4). So what it may be asked for is decided here, by what was decoded. After a decode that was
interrupted a recurrent state is damaged, whatever its positions say: only a copy repairs it.
"""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from typing import Any, Protocol

from specctl.enginefacts import most_snapshots
from specctl.llama import log
from specctl.llama.api import library

_SEQUENCE = 0
_RECURRENT_ONLY = 1  # LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY: the KV cache of a hybrid can be cut
_STATE_SIZE = re.compile(r"size =\s*([\d.]+) MiB \(\s*\d+ cells,.*rs_seq\)")


class Rollback(Protocol):
    """What a context asks of it. `held` is how many tokens the memory holds."""

    def save(self, held: int) -> None:
        """What is held stands, and the next pass may be taken back to it."""

    def decoded(self, count: int) -> None:
        """A pass of `count` tokens is through."""

    def rewind(self, held: int, length: int) -> int:
        """Give up tokens so that at most `length` are held; returns how many are. 0: clear it."""

    def interrupted(self, held: int) -> int:
        """A decode after `held` tokens did not finish: returns how many are held now. 0: clear."""

    def forget(self) -> None:
        """The memory was cleared."""


class Cells:
    """A KV cache."""

    def __init__(self, lib: Any, memory: Any) -> None:
        self._lib, self._memory = lib, memory

    def save(self, held: int) -> None:
        """Nothing to do."""

    def decoded(self, count: int) -> None:
        """Nothing to do."""

    def rewind(self, held: int, length: int) -> int:
        """Exactly `length`."""
        return length if _remove(self._lib, self._memory, length) else 0

    def interrupted(self, held: int) -> int:
        """Whole micro-batches may have stayed."""
        now = int(self._lib.llama_memory_seq_pos_max(self._memory, _SEQUENCE)) + 1
        return now if now >= held else 0

    def forget(self) -> None:
        """Nothing to do."""


class Snapshots:
    """`most` states besides the newest one, all of the last pass."""

    def __init__(self, lib: Any, memory: Any, most: int) -> None:
        self._lib, self._memory, self._most = lib, memory, most
        self._reach = 0  # tokens that can be taken back now

    def save(self, held: int) -> None:
        """llama.cpp does it by itself, in the pass."""

    def decoded(self, count: int) -> None:
        """The states of older passes are gone; before this pass's first token there is none."""
        self._reach = min(self._most, count - 1)

    def rewind(self, held: int, length: int) -> int:
        """`length`, if it lies within the last pass and nothing was taken back from it before."""
        if held - length > self._reach or not _remove(self._lib, self._memory, length):
            return 0
        self._reach = 0
        return length

    def interrupted(self, held: int) -> int:
        """The newest state is damaged."""
        return 0

    def forget(self) -> None:
        """Nothing can be taken back."""
        self._reach = 0


class Checkpoint:
    """A copy of the recurrent state, made when `save` is called."""

    def __init__(self, lib: Any, memory: Any, handle: Any) -> None:
        self._lib, self._memory, self._handle = lib, memory, handle
        self._copy: Any = None
        self._size = self._length = 0  # of the copy: bytes, tokens it had read; 0: there is none

    def save(self, held: int) -> None:
        """Copy the state; before the first token there is none."""
        if held == self._length:
            return
        lib, flags = self._lib, _RECURRENT_ONLY
        self._length = 0
        if not held:
            return
        size = int(lib.llama_state_seq_get_size_ext(self._handle, _SEQUENCE, flags))
        if self._copy is None or len(self._copy) < size:
            self._copy = (ctypes.c_uint8 * size)()
        written = lib.llama_state_seq_get_data_ext(self._handle, self._copy, size, _SEQUENCE, flags)
        self._size, self._length = size, held if written == size else 0

    def decoded(self, count: int) -> None:
        """The copy stays what it is."""

    def rewind(self, held: int, length: int) -> int:
        """Back to the copy, if that is early enough."""
        if not 0 < self._length <= length:
            return 0
        return self._put_back()

    def interrupted(self, held: int) -> int:
        """Back to the copy."""
        return self._put_back() if 0 < self._length <= held else 0

    def forget(self) -> None:
        """The copy is of another text."""
        self._length = 0

    def _put_back(self) -> int:
        read = self._lib.llama_state_seq_set_data_ext(
            self._handle, self._copy, self._size, _SEQUENCE, _RECURRENT_ONLY
        )
        done = read == self._size and _remove(self._lib, self._memory, self._length)
        if not done:
            self._length = 0
        return self._length


def _remove(lib: Any, memory: Any, length: int) -> bool:
    return bool(lib.llama_memory_seq_rm(memory, _SEQUENCE, length, -1))


@dataclass(frozen=True, slots=True)
class StateFacts:
    """Of a recurrent or hybrid model: does this llama.cpp keep snapshots, and their size, bytes."""

    snapshots: bool
    bytes: float

    def most(self, weights: int) -> int:
        """Snapshots worth their memory (`enginefacts.most_snapshots`), 0 where there are none."""
        return most_snapshots(weights, self.bytes) if self.snapshots else 0


def survey(model: Any) -> StateFacts:
    """Ask llama.cpp by opening its smallest context with one snapshot; some milliseconds.

    The size is the library's own figure, from its log.
    """
    lib = library()
    params = lib.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = 32
    params.n_seq_max = params.n_outputs_max = 1
    params.n_rs_seq = 1
    with log.collected() as lines:
        handle = lib.llama_init_from_model(model, params)
        if not handle:
            return StateFacts(False, 0.0)
        kept = int(lib.llama_n_rs_seq(handle))
        lib.llama_free(handle)
    found = [match for line in lines if (match := _STATE_SIZE.search(line))]
    if not kept or not found:
        return StateFacts(False, 0.0)
    # of a figure rounded to hundredths the upper bound
    return StateFacts(True, (float(found[-1][1]) + 0.005) * (1 << 20) / 2)
