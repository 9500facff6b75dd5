"""What llama.cpp does per architecture that a header does not say: windows, recurrence, rollback.

Read from llama.cpp's source, commit 0c1e570 (src/llama-arch.cpp, src/llama-model.cpp and
src/models/*.cpp: `load_arch_hparams`, `load_swa_pattern`, `create_memory`).
"""

from __future__ import annotations

from dataclasses import dataclass


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


KNOWN = _names(
    """
    afmoe apertus arcee arctic arwkv7 baichuan bailingmoe bailingmoe2 bailingmoe3 bert bitnet bloom
    chameleon chatglm clip codeshell cogvlm cohere2 cohere2moe command-r dbrx deci deepseek
    deepseek2 deepseek2-ocr deepseek32 deepseek4 dflash dots1 dots3note dream eagle3 ernie4_5
    ernie4_5-moe eurobert exaone exaone-moe exaone4 falcon falcon-h1 gemma gemma-embedding gemma2
    gemma3 gemma3n gemma4 gemma4-assistant glm-dsa glm4 glm4moe glm5-next gpt-oss gpt2 gptj gptneox
    granite granite_swa granitehybrid granitemoe graniteswitch grok grovemoe hrm_text hunyuan-dense
    hunyuan-moe hunyuan_vl hy_v3 hy_v4 internlm2 jais jais2 jamba jina-bert-v2 jina-bert-v3 kimi-k3
    kimi-linear laguna lfm2 lfm2moe llada llada-moe llama llama-embed llama4 maincoder mamba mamba2
    maple mellum mimo2 minicpm minicpm3 minimax-01 minimax-m2 minimax-m3 mistral3 mistral4
    modern-bert mpt muse-glimmer nanbeige nemotron nemotron_h nemotron_h_moe neo-bert nomic-bert
    nomic-bert-moe olmo olmo2 olmoe openelm orion paddleocr pangu-embedded phi2 phi3 phimoe plamo
    plamo2 plamo3 plm pockettts qwen qwen2 qwen2moe qwen2vl qwen3 qwen35 qwen35moe qwen3moe
    qwen3next qwen3tts qwen3vl qwen3vlmoe qwen4exp refact rnd1 rwkv6 rwkv6qwen2 rwkv7 seed_oss
    smallthinker smollm3 spark2_5 stablelm starcoder starcoder2 step35 t5 t5encoder talkie
    wavtokenizer-dec xverse
    """
)


@dataclass(frozen=True, slots=True)
class SlidingWindow:
    """Which layers slide: all but every `period`-th (the first of each group if `dense_first`).

    `window` is used where the header has none (None: then nothing slides); `fixed` windows override
    the header's. `period` None means that the header must bring the pattern as an array.
    """

    period: int | None
    dense_first: bool = False
    window: int | None = None
    fixed: bool = False


SLIDING = {
    "gemma2": SlidingWindow(2, window=4096),
    "gemma3": SlidingWindow(6),
    "gemma3n": SlidingWindow(5),
    "gemma4": SlidingWindow(None),
    "gemma4-assistant": SlidingWindow(None),
    "olmo2": SlidingWindow(4),
    "cohere2": SlidingWindow(4),
    "cohere2moe": SlidingWindow(4, dense_first=True),
    "gpt-oss": SlidingWindow(2),
    "llama4": SlidingWindow(4, window=8192, fixed=True),
    "exaone4": SlidingWindow(4, window=4096),
    "exaone-moe": SlidingWindow(4, window=128),
    "smallthinker": SlidingWindow(4, dense_first=True, fixed=True, window=4096),
    "afmoe": SlidingWindow(4),
    "plamo3": SlidingWindow(8),
    "laguna": SlidingWindow(4, dense_first=True),
    "mellum": SlidingWindow(4),
    "muse-glimmer": SlidingWindow(4),
    "granite_swa": SlidingWindow(None),
    "mimo2": SlidingWindow(None),
    "step35": SlidingWindow(None),
    "spark2_5": SlidingWindow(None),
    "maple": SlidingWindow(None),
    "dots3note": SlidingWindow(None),
    "dflash": SlidingWindow(None),
    "lfm2": SlidingWindow(0),
    "lfm2moe": SlidingWindow(0),
}
"""Architectures whose sliding layers llama.cpp honours; elsewhere the key is ignored (phi3 too)."""

RECURRENT = frozenset({"mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7"})
"""Every layer is recurrent; there is no KV cache at all."""

INTERVAL_HYBRID = frozenset({"qwen3next", "qwen35", "qwen35moe", "qwen4exp", "minimax-01"})
"""Layer i is recurrent unless (i + 1) is a multiple of `full_attention_interval` (default 4)."""

HEADLESS_HYBRID = _names(
    "jamba plamo2 granitehybrid lfm2 lfm2moe kimi-linear kimi-k3 bailingmoe3 glm5-next"
)
"""A layer is recurrent where its head_count_kv is 0."""

MIXED_HYBRID = frozenset({"nemotron_h", "nemotron_h_moe"})
"""Recurrent where head_count_kv and feed_forward_length are 0; attention where only the latter."""

PARALLEL_HYBRID = frozenset({"falcon-h1"})
"""Every layer has both a KV cache and a recurrent state."""

ROLLBACK = _names(
    "kimi-k3 qwen35 qwen35moe qwen4exp deepseek4 glm5-next nemotron_h nemotron_h_moe lfm2 lfm2moe"
    " bailingmoe3"
)
"""llama.cpp keeps snapshots of the recurrent state, so rejected tokens can be taken back."""

NO_MEMORY = _names(
    "bert jina-bert-v2 jina-bert-v3 nomic-bert nomic-bert-moe neo-bert eurobert wavtokenizer-dec"
    " modern-bert gemma-embedding dream llada llada-moe rnd1 t5encoder"
)
"""Encoders and diffusion models: they keep no KV cache and do not generate token by token."""

INDEXED = frozenset({"deepseek32", "glm-dsa", "hy_v4", "glm5-next", "minimax-m3", "qwen4exp"})
"""A sparse-attention index of its own lies beside the KV cache; it is not counted here."""
