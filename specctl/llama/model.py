"""One loaded model: its vocabulary, tokens and text. Weights are freed by `close`."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specctl.errors import EngineError, ModelError
from specctl.llama import devices, log, preflight, rollback
from specctl.llama.api import amx_is_risky, library
from specctl.llama.interrupt import deferred
from specctl.settings import ModelSettings
from specctl.vocabulary import Vocabulary

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_NEVER = frozenset({0xC0, 0xC1, *range(0xF5, 0x100)})  # bytes that UTF-8 does not have
_CUT_OFF = "not within the file bounds"  # llama.cpp of a file that is shorter than its tensors
_VOCABULARY_KINDS = {0: "none", 1: "spm", 2: "bpe", 3: "wpm", 4: "ugm", 5: "rwkv", 6: "plamo2"}


class Model:
    """Weights and vocabulary of a GGUF file; with `heads` also the layers of its MTP heads.

    Without `trunk` the file may hold heads alone: then no context but theirs may be opened.

    Raises:
        ModelError: the file is missing, broken, or this build cannot load it.
        SettingsError: a device or override that this build does not have.
    """

    def __init__(
        self, path: Path, settings: ModelSettings, *, heads: bool = False, trunk: bool = True
    ) -> None:
        self.path = path
        lib = library()
        preflight.check(path, trunk=trunk)
        params = lib.llama_model_default_params()
        params.n_gpu_layers = 0x7FFFFFFF if settings.gpu_layers < 0 else settings.gpu_layers
        params.use_extra_bufts = not amx_is_risky()
        if heads:
            params.load_mtp = True
        self._device_list = devices.device_list(settings.devices)  # kept alive with the model
        self._override_list = devices.override_list(settings)
        if self._device_list is not None:
            params.devices = ctypes.cast(self._device_list, ctypes.c_void_p)
        if self._override_list is not None:
            params.tensor_buft_overrides = ctypes.cast(self._override_list, ctypes.c_void_p)
        log.forget()
        self.handle: Any = None
        try:
            with deferred():
                self.handle = lib.llama_model_load_from_file(str(path).encode(), params)
        except KeyboardInterrupt:
            if self.handle:
                lib.llama_model_free(self.handle)
            raise
        if not self.handle:
            reason = log.reason()
            raise ModelError(
                f"{path.name} does not load: {reason or 'llama.cpp gives no reason'}",
                "fetch it again"
                if _CUT_OFF in reason
                else "a newer architecture needs a newer llama-cpp-python",
            )
        self._lib = lib
        self._vocab = lib.llama_model_get_vocab(self.handle)
        self.n_vocab: int = lib.llama_vocab_n_tokens(self._vocab)
        self.n_ctx_train: int = lib.llama_model_n_ctx_train(self.handle)
        self.n_swa: int = lib.llama_model_n_swa(self.handle)
        # A recurrent state cannot give up rejected tokens as a KV cache can.
        self.can_cut = not (
            lib.llama_model_is_recurrent(self.handle) or lib.llama_model_is_hybrid(self.handle)
        )
        self.n_bytes: int = lib.llama_model_size(self.handle)  # of all tensors
        self.n_embd: int = lib.llama_model_n_embd(self.handle)
        self.n_embd_out: int = lib.llama_model_n_embd_out(self.handle)
        self.n_layer: int = lib.llama_model_n_layer(self.handle)
        self.has_decoder = bool(lib.llama_model_has_decoder(self.handle))
        self._pieces: dict[int, bytes] = {}
        self._is_eog: dict[int, bool] = {}

    @cached_property
    def most_snapshots(self) -> int | None:
        """How many snapshots of its recurrent state are worth their memory, 0 where llama.cpp keeps
        none; None for a KV cache, which needs none.
        """
        return None if self.can_cut else self._state.most(self.n_bytes)

    @property
    def snapshot_bytes(self) -> int:
        """Bytes of one snapshot; 0 where there is none."""
        return 0 if self.can_cut else round(self._state.bytes)

    @cached_property
    def _state(self) -> rollback.StateFacts:
        return rollback.survey(self.handle)

    @property
    def arch(self) -> str:
        """`general.architecture`."""
        return self.metadata("general.architecture") or "unknown"

    def metadata(self, key: str) -> str | None:
        """A scalar metadata value as text, or None. Arrays are not available here."""
        size = 256
        while True:
            buffer = ctypes.create_string_buffer(size)
            length = self._lib.llama_model_meta_val_str(self.handle, key.encode(), buffer, size)
            if length < 0:
                return None
            if length < size - 1:
                return buffer.value.decode("utf-8", "replace")
            size = length + 2

    def tokenize(self, text: str, *, special: bool = False, add_special: bool = True) -> list[int]:
        """Tokens of `text`. `special` reads `<|…|>` marks as tokens; `add_special` adds BOS/EOS."""
        data = text.encode("utf-8", "replace")  # a lone surrogate must not reach C++
        room = len(data) + 16
        for _ in range(2):
            buffer = (ctypes.c_int32 * room)()
            count = self._lib.llama_tokenize(
                self._vocab, data, len(data), buffer, room, add_special, special
            )
            if count >= 0:
                return list(buffer[:count])
            room = -count
        raise EngineError(f"llama.cpp could not tokenise {len(data)} bytes of text")

    def piece(self, token: int) -> bytes:
        """The token's bytes; control tokens have none. (The library's own detokeniser drops pieces
        longer than 32 bytes.)
        """
        cached = self._pieces.get(token)
        if cached is None:
            cached = self._pieces[token] = self._read_piece(token, special=False)
        return cached

    def control_text(self, token: int) -> str:
        """How a control token is written, `<|im_end|>`: for templates."""
        return self._read_piece(token, special=True).decode("utf-8", "replace")

    def _read_piece(self, token: int, *, special: bool) -> bytes:
        if not 0 <= token < self.n_vocab:
            raise EngineError(f"token {token} is not in the vocabulary of {self.n_vocab}")
        size = 64
        while True:
            buffer = ctypes.create_string_buffer(size)
            length = self._lib.llama_token_to_piece(self._vocab, token, buffer, size, 0, special)
            if length >= 0:
                return buffer.raw[:length]
            size = -length

    def is_eog(self, token: int) -> bool:
        """Does this token end a generation?"""
        known = self._is_eog.get(token)
        if known is None:
            known = self._is_eog[token] = bool(self._lib.llama_vocab_is_eog(self._vocab, token))
        return known

    @cached_property
    def unwritable(self) -> NDArray[np.bool_]:
        """Tokens that add nothing to the text and end no generation, or a byte that is never part
        of UTF-8: [n_vocab]. Some 100 ms for 150 000 tokens.
        """
        import numpy as np

        def never(token: int) -> bool:
            piece = self.piece(token)
            return not _NEVER.isdisjoint(piece) if piece else not self.is_eog(token)

        return np.array([never(token) for token in range(self.n_vocab)])

    @cached_property
    def first_bytes(self) -> NDArray[np.uint8]:
        """What each token's text begins with, 0 where there is none: [n_vocab]."""
        import numpy as np

        return np.array([(self.piece(t) or b"\0")[0] for t in range(self.n_vocab)], np.uint8)

    @property
    def bos(self) -> int:
        """Beginning-of-sequence token, -1 when there is none."""
        return int(self._lib.llama_vocab_bos(self._vocab))

    @property
    def eos(self) -> int:
        """End-of-sequence token, -1 when there is none."""
        return int(self._lib.llama_vocab_eos(self._vocab))

    @property
    def adds_bos(self) -> bool:
        """Prompts of plain text start with BOS."""
        return bool(self._lib.llama_vocab_get_add_bos(self._vocab))

    @property
    def chat_template(self) -> str | None:
        """The Jinja template in the file."""
        template = self._lib.llama_model_chat_template(self.handle, None)
        return template.decode("utf-8", "replace") if template else None

    def vocabulary(self) -> Vocabulary:
        """What the pair rule looks at. Some 100 ms for 150 000 tokens."""
        lib, vocab = self._lib, self._vocab
        kind = int(lib.llama_vocab_type(vocab))
        texts: Sequence[str] = [
            (lib.llama_vocab_get_text(vocab, token) or b"").decode("utf-8", "replace")
            for token in range(self.n_vocab)
        ]
        return Vocabulary(
            kind=_VOCABULARY_KINDS.get(kind, f"type {kind}"),
            texts=texts,
            bos=self.bos,
            eos=self.eos,
            add_bos=self.adds_bos,
            add_eos=bool(lib.llama_vocab_get_add_eos(vocab)),
        )

    def close(self) -> None:
        """Free the weights. Every context of this model must be closed before."""
        if self.handle:
            self._lib.llama_model_free(self.handle)
            self.handle = None
