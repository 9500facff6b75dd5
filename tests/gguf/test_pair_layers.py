"""`check` and the engine say the same of every draft that reads layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import tiny
import tiny_dflash

from specctl.cli.check import _with_drafter
from specctl.engine.session import open_session
from specctl.enginefacts import room_for_chain
from specctl.errors import GgufError, ModelError, PairError
from specctl.gguf.facts import read_facts
from specctl.gguf.pair import PairCheck, check_pair
from specctl.llama import blocks
from specctl.settings import EngineSettings, SpecSettings

pytestmark = pytest.mark.native
EAGLES = sorted(name for name in tiny.MODELS if name.startswith("eagle-"))
ELSEWHERE = {"dflash-block-long", "dflash-streams", "dflash2"}  # other engines run them
IN_THE_DATA = "eagle-d2t-range"  # its token ids: no header says them


def checked(models: Mapping[str, Path], target: str, draft: str) -> PairCheck:
    theirs = read_facts(str(models[draft]))
    return _with_drafter(check_pair(read_facts(str(models[target])), theirs), theirs)


def refusal(models: Mapping[str, Path], target: str, draft: str) -> str:
    """What the engine says when it opens the pair; empty where it does."""
    settings, spec = EngineSettings(n_ctx=256, threads=1), SpecSettings(types=("auto",))
    try:
        with open_session(models[target], models[draft], (spec,), settings):
            return ""
    except (PairError, ModelError) as error:
        return error.message


@pytest.mark.parametrize("target", ["clock", "hybrid-clock", "jitter-swa"])
@pytest.mark.parametrize("draft", [*tiny_dflash.FLASHES, *EAGLES])
def test_check_says_ok_where_the_engine_opens_the_pair(
    tiny_models: Mapping[str, Path], target: str, draft: str
) -> None:
    why = refusal(tiny_models, target, draft)
    if draft == "dflash-no-blocks":
        with pytest.raises(GgufError, match="0 layers"):
            read_facts(str(tiny_models[draft]))
        assert why
        return
    found = checked(tiny_models, target, draft)
    if draft == IN_THE_DATA and target != "jitter-swa":
        assert "names token" in why
        assert any("(d2t) too" in one.text for one in found.findings if one.level == "note")
        return
    refused = [one.text for one in found.findings if one.level == "no"]
    if draft in ELSEWHERE and not refused:
        assert found.verdict == "ok with warnings"
        assert why
        return
    assert bool(refused) == bool(why), (refused, why)
    assert found.verdict == ("no" if why else "ok")


@pytest.mark.parametrize(
    ("draft", "said"),
    [
        ("dflash-mask-range", "mask token 320 is outside its vocabulary of 320"),
        ("dflash-borrow-mask", "mask token 324 is outside the target's vocabulary of 320"),
        ("dflash-borrow-padded", "a vocabulary of 328 tokens where the target's has 320"),
        ("dflash-d2t-i32", "own vocabulary (d2t) are i32"),
        ("dflash-no-fc", "fc.weight"),
        ("dspark-long-chain", "no room for the draft's chain over blocks of 100"),
        ("dspark-no-second", "markov_w2.weight"),
        ("eagle-d2t-i32", "own vocabulary (d2t) are i32"),
        ("eagle-d2t-no-output", "but no output tensor"),
        ("eagle-two", "reads 2 layers of a target"),
        ("eagle-blocks", "has 2 layers"),
        ("eagle-no-fc", "fc.weight"),
    ],
)
def test_the_reason_is_the_one(tiny_models: Mapping[str, Path], draft: str, said: str) -> None:
    (one,) = (x for x in checked(tiny_models, "clock", draft).findings if x.level == "no")
    assert said in one.text


class Told:
    """A header as `blocks.wrong` asks it."""

    def __init__(self, layers: int, mapped: bool, n_tensors: int) -> None:
        self._layers, self._mapped, self.n_tensors = layers, mapped, n_tensors

    def number(self, key: str) -> int:
        assert key == "dflash.block_count"
        return self._layers

    def has_key(self, key: str) -> bool:
        return False

    def has(self, tensor: str) -> bool:
        return self._mapped

    def vocabulary(self) -> int:
        return 10


def test_the_room_for_a_chain_is_counted_as_the_engine_counts_it() -> None:
    seen = set()
    for layers, mapped, sure, n_tensors in product(
        (1, 5, 8), (True, False), (True, False), (9, 180)
    ):
        for size in range(2, 129):
            block = blocks.Block(size, 0, 0, False, sure)
            there = not blocks.wrong(Told(layers, mapped, n_tensors), "dspark", block)  # type: ignore[arg-type]
            seen.add(there)
            assert there == room_for_chain(size, layers, n_tensors, mapped=mapped, confident=sure)
    assert seen == {True, False}


def test_an_assistant_is_compared_with_what_the_target_gives(
    tiny_models: Mapping[str, Path],
) -> None:
    """`embedding_length_out`, where a header has it, in both files: as `sharedkv` reads them."""
    target, head = (read_facts(str(tiny_models[n])) for n in ("gemma4-clock", "assistant-draft"))
    assert target.n_embd_out == head.n_embd_out == target.shape.n_embd
    narrow = replace(target, n_embd_out=128)
    assert check_pair(narrow, head).verdict == "no"
    assert check_pair(narrow, replace(head, n_embd_out=128)).verdict == "ok"
