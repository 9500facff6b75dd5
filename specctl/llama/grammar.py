"""A grammar's state after some tokens: which tokens may come next.

llama.cpp aborts or throws through ctypes where a token that the grammar does not allow is accepted:
each one is checked first.
"""

from __future__ import annotations

import ctypes
import functools
from typing import TYPE_CHECKING, Any, Self

from specctl.errors import EngineError, GrammarError
from specctl.llama import gbnf as text_of
from specctl.llama.api import library
from specctl.llama.model import Model

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ids = NDArray[np.int64]

_ROOT = b"root"
# After these first bytes of a character, not every second one is UTF-8: RFC 3629, section 4.
_SECOND = {0xE0: (0xA0, 0xBF), 0xED: (0x80, 0x9F), 0xF0: (0x90, 0xBF), 0xF4: (0x80, 0x8F)}


def _no_token(which: str = "") -> GrammarError:
    return GrammarError(
        f"the grammar names a token that is none, or more than one, of this model{which}",
        "`<text>` in a grammar is one token; characters go between quotes",
    )


class Grammar:
    """Follows the answer token by token. `clone` goes its own way; each is closed.

    Tokens that are written as nothing (control tokens) are not allowed where the grammar speaks of
    characters alone: llama.cpp would match `<|im_start|>` with the text between quotes. Nor are
    bytes that are no UTF-8, which it takes for characters. Those that end a generation are allowed
    where the text is complete.

    Raises:
        GrammarError: the text is no grammar, or names a token that the model does not have.
    """

    def __init__(self, model: Model, gbnf: str) -> None:
        text_of.check(gbnf)
        self._lib = lib = library()
        self._model = model
        for name in text_of.named_tokens(gbnf):  # llama.cpp would print the whole grammar
            if len(model.tokenize(name, special=True, add_special=False)) != 1:
                raise _no_token(f": {name[:60]}")
        self._never = None if text_of.names_tokens(gbnf) else model.unwritable
        self._second: tuple[int, int] | None = None  # bytes that may come next, where few may
        vocab = lib.llama_model_get_vocab(model.handle)
        self._handle: Any = lib.llama_sampler_init_grammar(vocab, gbnf.encode(), _ROOT)
        if not self._handle:
            raise _no_token()

    def allowed(self, ids: Ids) -> NDArray[np.bool_]:
        """For each of the tokens `ids` [n]: may it come next? Cost grows with n."""
        import numpy as np

        data = np.zeros(len(ids), _token_data())
        data["id"] = ids
        lib = self._lib
        array = lib.llama_token_data_array(
            data=ctypes.cast(data.ctypes.data, lib.llama_token_data_p),
            size=len(ids),
            selected=-1,
            sorted=False,
        )
        lib.llama_sampler_apply(self._live, ctypes.byref(array))
        allowed: NDArray[np.bool_] = data["logit"] == 0
        if self._never is not None:
            allowed &= ~self._never[ids]
        if self._second is not None:
            first = self._model.first_bytes[ids]
            allowed &= (first >= self._second[0]) & (first <= self._second[1])
        return allowed

    def accept(self, token: int) -> None:
        """Go on after `token`.

        Raises:
            EngineError: the grammar does not allow it here; nothing was changed.
        """
        import numpy as np

        if not self.allowed(np.array([token]))[0]:
            raise EngineError(f"token {token} is outside the grammar")
        self._lib.llama_sampler_accept(self._live, token)
        piece = self._model.piece(token)
        self._second = _SECOND.get(piece[-1]) if piece else None

    def clone(self) -> Self:
        """Another one in the same state."""
        other = object.__new__(type(self))
        other._lib, other._model = self._lib, self._model
        other._never, other._second = self._never, self._second
        other._handle = self._lib.llama_sampler_clone(self._live)
        return other

    def close(self) -> None:
        """Free it, before the model's `close`; may be called twice."""
        if self._handle:
            self._lib.llama_sampler_free(self._handle)
            self._handle = None

    @property
    def _live(self) -> Any:
        if not self._handle or not self._model.handle:
            raise EngineError("this grammar is closed")
        return self._handle


@functools.cache
def _token_data() -> np.dtype[Any]:
    import numpy as np

    return np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])
