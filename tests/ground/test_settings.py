"""Settings that cannot be meant are refused when they are made, with the value in the message."""

from __future__ import annotations

import dataclasses
import math

import pytest

from specctl.errors import SettingsError
from specctl.settings import (
    KV_TYPES,
    DraftSettings,
    EngineSettings,
    ModelSettings,
    NgramModSettings,
    NgramSettings,
    Request,
    Sampling,
    SpecSettings,
    limit_drafts,
)


@pytest.mark.parametrize(
    ("cls", "values", "words"),
    [
        (ModelSettings, {"gpu_layers": -2}, "-2"),
        (ModelSettings, {"n_cpu_moe": -1}, "-1"),
        (ModelSettings, {"kv_type_k": "q3_k"}, "q3_k"),
        (ModelSettings, {"kv_type_v": ""}, "''"),
        (EngineSettings, {"n_ctx": 31}, "31"),
        (EngineSettings, {"n_ctx": 1 << 25}, str(1 << 25)),
        (EngineSettings, {"n_batch": 8, "n_ubatch": 9}, "n_ubatch"),
        (EngineSettings, {"n_ubatch": 0}, "n_ubatch"),
        (EngineSettings, {"threads": 0}, "0 threads"),
        (EngineSettings, {"threads": 5000}, "5000"),
        (EngineSettings, {"flash_attn": "maybe"}, "maybe"),
        (Sampling, {"temperature": -0.1}, "-0.1"),
        (Sampling, {"temperature": math.nan}, "nan"),
        (Sampling, {"temperature": math.inf}, "inf"),
        (Sampling, {"top_k": -1}, "-1"),
        (Sampling, {"top_p": 0.0}, "0.0"),
        (Sampling, {"top_p": 1.01}, "1.01"),
        (Sampling, {"top_p": math.nan}, "nan"),
        (Sampling, {"min_p": 1.0}, "1.0"),
        (Sampling, {"repeat_penalty": 0.0}, "0.0"),
        (Sampling, {"repeat_penalty": math.inf}, "inf"),
        (Sampling, {"frequency_penalty": 101.0}, "101"),
        (Sampling, {"presence_penalty": math.nan}, "nan"),
        (Sampling, {"penalty_last_n": -1}, "-1"),
        (Sampling, {"seed": -1}, "-1"),
        (Sampling, {"seed": 1 << 64}, str(1 << 64)),
        (NgramSettings, {"size_n": 0}, "size-n 0"),
        (NgramSettings, {"size_m": 1025}, "size-m 1025"),
        (NgramSettings, {"min_hits": 0}, "min-hits 0"),
        (NgramModSettings, {"n_match": 0}, "n-match 0"),
        (NgramModSettings, {"n_max": 0, "n_min": 0}, "n-max 0"),
        (NgramModSettings, {"n_max": 8}, "n-min 48"),
        (DraftSettings, {"n_max": 0}, "n-max 0"),
        (DraftSettings, {"n_min": 4}, "n-min 4"),
        (DraftSettings, {"p_min": 1.5}, "1.5"),
        (DraftSettings, {"sampling": "warm"}, "warm"),
        (SpecSettings, {"types": ()}, "no spec type"),
        (SpecSettings, {"k": 0}, "k 0"),
        (SpecSettings, {"types": ("ngram-mod", "ngram-mod")}, "twice"),
        (SpecSettings, {"types": ("none", "ngram-mod")}, "none"),
        (Request, {"tokens": ()}, "empty"),
        (Request, {"tokens": (1,), "max_tokens": 0}, "0"),
        (Request, {"tokens": (1,), "stop": ("a", "")}, "stop"),
    ],
)
def test_refused_with_the_value(cls, values, words):
    with pytest.raises(SettingsError, match=words) as caught:
        cls(**values)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("side", ["target", "draft"])
def test_quantised_values_need_flash_attention(side):
    model = ModelSettings(kv_type_v="q8_0")
    EngineSettings(**{side: model})
    EngineSettings(flash_attn="off", **{side: ModelSettings(kv_type_k="q8_0")})
    with pytest.raises(SettingsError, match=r"q8_0.*flash attention"):
        EngineSettings(flash_attn="off", **{side: model})


def test_all_defaults_are_valid_and_frozen():
    for made in (EngineSettings(), Sampling(), SpecSettings(), Request((1,))):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(made, dataclasses.fields(made)[0].name, None)
    assert hash(SpecSettings()) == hash(SpecSettings())
    for kv_type in KV_TYPES:
        ModelSettings(kv_type_k=kv_type, kv_type_v=kv_type)


def test_what_counts_as_greedy_and_penalised():
    assert Sampling().greedy
    assert not Sampling(temperature=0.01).greedy
    assert not Sampling().penalised
    for changed in ({"repeat_penalty": 1.1}, {"frequency_penalty": -1}, {"presence_penalty": 1}):
        assert Sampling(**changed).penalised
        assert not Sampling(**changed, penalty_last_n=0).penalised


# ---------------------------------------------------------------- --k


def test_without_k_nothing_changes():
    spec = SpecSettings(types=("ngram-mod", "draft-simple"))
    assert limit_drafts(spec) == (spec, ())


def test_k_caps_every_drafter_and_raises_the_draft_model():
    limited, notes = limit_drafts(SpecSettings(types=("ngram-simple",), k=8))
    assert limited.ngram_simple == NgramSettings(12, 8, 1)
    assert limited.ngram_map_k.size_m == limited.ngram_map_k4v.size_m == 8
    assert (limited.ngram_mod.n_max, limited.ngram_mod.n_min) == (8, 8)
    assert limited.draft.n_max == 8  # 3 by default
    assert notes == ()  # ngram-mod's n-min was lowered too, but nobody asked for it


def test_k_above_a_drafters_own_length_does_not_raise_it():
    limited, _ = limit_drafts(SpecSettings(types=("ngram-simple",), k=500))
    assert limited.ngram_simple.size_m == 48
    assert limited.ngram_mod == NgramModSettings()


def test_a_lowered_minimum_is_said():
    spec = SpecSettings(
        types=("ngram-mod", "draft-simple"), k=4, draft=DraftSettings(n_max=8, n_min=6)
    )
    limited, notes = limit_drafts(spec)
    assert (limited.draft.n_max, limited.draft.n_min) == (4, 4)
    assert notes == (
        "ngram-mod: n-min 48 lowered to k 4",
        "draft-simple: n-min 6 lowered to k 4",
    )
    low = SpecSettings(types=("ngram-mod",), k=4, ngram_mod=NgramModSettings(24, 64, 4))
    assert limit_drafts(low)[1] == ()


def test_limiting_twice_is_limiting_once():
    once, _ = limit_drafts(SpecSettings(types=("ngram-mod",), k=5))
    assert limit_drafts(once) == (once, ())
