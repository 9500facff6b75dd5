"""The tiny models do what tiny.py says of them, seen through raw llama.cpp calls."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tiny

pytestmark = pytest.mark.native


class Raw:
    """One model and one context over the raw bindings: row-by-row decoding of any tokens."""

    def __init__(self, path: Path, n_ctx: int = 512) -> None:
        import llama_cpp.llama_cpp as llama

        self.llama = llama
        llama.llama_log_set(_silent(llama), None)
        llama.llama_backend_init()
        params = llama.llama_model_default_params()
        params.n_gpu_layers = 0
        self.model = llama.llama_model_load_from_file(str(path).encode(), params)
        assert self.model, f"{path.name} does not load"
        settings = llama.llama_context_default_params()
        settings.n_ctx, settings.n_threads, settings.n_threads_batch = n_ctx, 1, 1
        self.context = llama.llama_init_from_model(self.model, settings)
        assert self.context, f"no context for {path.name}"
        self.vocab = llama.llama_model_get_vocab(self.model)
        self.size = llama.llama_vocab_n_tokens(self.vocab)

    def close(self) -> None:
        self.llama.llama_free(self.context)
        self.llama.llama_model_free(self.model)

    def logits(self, tokens: list[int]) -> np.ndarray:
        """Decode `tokens` after what is there; the logits after the last of them."""
        array = (ctypes.c_int32 * len(tokens))(*tokens)
        assert (
            self.llama.llama_decode(
                self.context, self.llama.llama_batch_get_one(array, len(tokens))
            )
            == 0
        )
        row = self.llama.llama_get_logits_ith(self.context, -1)
        return np.ctypeslib.as_array(row, (self.size,)).copy()

    def greedy(self, prompt: list[int], n: int) -> list[int]:
        self.llama.llama_memory_clear(self.llama.llama_get_memory(self.context), True)
        out = [int(self.logits(prompt).argmax())]
        while len(out) < n:
            out.append(int(self.logits(out[-1:]).argmax()))
        return out

    def tokenize(self, text: str) -> list[int]:
        data, out = text.encode(), (ctypes.c_int32 * 512)()
        n = self.llama.llama_tokenize(self.vocab, data, len(data), out, 512, True, True)
        return list(out[:n])


_KEPT: list[object] = []


def _silent(llama: object) -> object:
    if not _KEPT:
        _KEPT.append(llama.llama_log_callback(lambda *_: None))  # type: ignore[attr-defined]
    return _KEPT[0]


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Raw]:
    raw = Raw(path)
    try:
        yield raw
    finally:
        raw.close()


@pytest.mark.parametrize("name", [n for n in tiny.MODELS if n != "slow" and n not in tiny.BROKEN])
def test_every_model_loads_and_speaks(tiny_models, name):
    with opened(tiny_models[name]) as raw:
        text = raw.greedy([tiny.word("amber"), 10, 65], 20)
        assert all(0 <= token < tiny.SIZE for token in text)
        assert len(set(text)) > 5


@pytest.mark.parametrize(
    ("name", "clock"),
    [
        ("clock", tiny.clock_target()),
        ("clock-draft", tiny.clock_draft()),
        ("clock-emoji", tiny.clock_emoji()),
        ("clock-eog", tiny.clock_eog()),
        ("draft-padded-128", tiny.clock_draft()),
    ],
)
def test_clock_laws_are_exact(tiny_models, name, clock):
    with opened(tiny_models[name]) as raw:
        assert raw.greedy([65, 66], 80) == clock.greedy(66, 80)
        for token in (0, 10, tiny.IM_END, tiny.FIRST_WORD, tiny.SIZE - 1):
            logits = raw.logits([token]).astype(np.float64)
            probs = np.exp(logits - logits.max())
            probs /= probs.sum()
            assert np.abs(probs[: tiny.SIZE] - clock.law(token)).max() < 1e-6


def test_vocabulary_takes_words_whole_and_the_rest_as_bytes(tiny_models):
    with opened(tiny_models["clock"]) as raw:
        assert raw.size == 320
        assert raw.tokenize(" amber birch<|im_end|>x\n") == [
            tiny.word("amber"), tiny.word("birch"), tiny.IM_END, ord("x"), 10
        ]  # fmt: skip
        assert raw.tokenize(tiny.EMOJI) == list(tiny.EMOJI.encode())


@pytest.mark.parametrize("name", ["jitter", "jitter-qwen3", "jitter-swa", "jitter-draft", "hybrid"])
def test_jitter_depends_on_the_whole_context(tiny_models, name):
    """One different token 20 tokens back changes the text, for each of four prompts."""
    clock, shares = tiny.clock_target(), []
    with opened(tiny_models[name]) as raw:
        for seed in range(4):
            rng = np.random.default_rng(seed)
            prompt = [int(t) for t in rng.integers(tiny.FIRST_WORD + 1, tiny.SIZE, 24)]
            other = [*prompt[:3], prompt[3] - 1, *prompt[4:]]
            text = raw.greedy(prompt, 120)
            assert text != raw.greedy(other, 120)
            before = [prompt[-1], *text[:-1]]
            first = sum(clock.first[a] == b for a, b in zip(before, text, strict=True))
            shares.append(first / len(text))
        assert 0.2 < sum(shares) / len(shares) < 0.95  # neither a clock nor noise


def test_jitter_draft_agrees_often_but_not_always(tiny_models):
    with opened(tiny_models["jitter"]) as target, opened(tiny_models["jitter-draft"]) as draft:
        prompt = [tiny.word("amber")]
        text = target.greedy(prompt, 150)
        agree = 0
        last = prompt[-1]
        for token in text:
            agree += int(draft.logits([last]).argmax()) == token
            last = token
        assert 0.4 < agree / len(text) < 0.97


def test_eog_and_emoji_are_on_the_way(tiny_models):
    eog, emoji = tiny.clock_eog(), tiny.clock_emoji()
    assert tiny.IM_END in eog.greedy(10, 61)
    assert tiny.EMOJI.encode() in bytes(t for t in emoji.greedy(10, 70) if t < 256)


def test_walk_counts_by_hand():
    """Three cycles written out: full accept, a rejection at once, and the end in between."""
    target, draft = tiny.clock_target(), tiny.clock_draft()
    wrong = tiny.disagreeing()
    start = next(
        v for v in range(tiny.FIRST_WORD, tiny.SIZE)
        if not {v, *target.greedy(v, 2)} & wrong and target.greedy(v, 3)[2] in wrong
    )  # fmt: skip
    got = tiny.walk(start, 5, 2, target, draft)
    # 2 of 2 accepted and the bonus; wrong at once, so 0 of 1; then one token left and no draft
    assert got.tokens == tuple(target.greedy(start, 5))
    assert (got.cycles, got.drafted, got.accepted) == (3, 3, 2)
