"""The data-sheet table: names as drivers write them, sizes, and what users type."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specctl.hardware.bandwidth import cards, cards_of_memory, find_cards, lookup, median_bandwidth
from specctl.hardware.device import Kind
from specctl.units import GIB


@pytest.mark.parametrize(
    ("kind", "name", "gib", "rate"),
    [
        ("nvidia", "NVIDIA GeForce RTX 3080", 10, 760),
        ("nvidia", "NVIDIA GeForce RTX 3080", 12, 912),
        ("nvidia", "NVIDIA GeForce RTX 3080 Ti", 12, 912),
        ("nvidia", "NVIDIA GeForce RTX 4070", 12, 504),
        ("nvidia", "NVIDIA GeForce RTX 4070 Ti SUPER", 16, 672),
        ("nvidia", "NVIDIA GeForce RTX 4090 Laptop GPU", 16, 576),
        ("nvidia", "NVIDIA GeForce RTX 3080 Laptop GPU", 16, None),
        ("nvidia", "NVIDIA GeForce RTX 3070 Laptop GPU", 8, None),
        ("nvidia", "NVIDIA GeForce GTX 1060 6GB", 6, 192),
        ("nvidia", "NVIDIA A100-SXM4-40GB", 40, 1555),
        ("nvidia", "NVIDIA A100 80GB PCIe", 80, 1935),
        ("nvidia", "NVIDIA A100-SXM4-80GB", 80, 2039),
        ("nvidia", "NVIDIA H100 80GB HBM3", 79.6, 3350),
        ("nvidia", "NVIDIA H100 PCIe", 79.6, 2000),
        ("nvidia", "NVIDIA H200", 140.4, 4800),
        ("nvidia", "Tesla T4", 15, 320),
        ("nvidia", "NVIDIA A10", 22.2, 600),
        ("nvidia", "NVIDIA RTX A6000", 48, 768),
        ("nvidia", "NVIDIA RTX 6000 Ada Generation", 48, 960),
        ("nvidia", "NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 95, 1792),
        ("nvidia", "NVIDIA GB10", None, 273),
        ("nvidia", "NVIDIA T400", 4, None),
        ("amd", "NVIDIA GeForce RTX 4090", 24, None),
        ("amd", "Navi 31 [Radeon RX 7900 XT/7900 XTX/7900M]", 24, 960),
        ("amd", "Navi 31 [Radeon RX 7900 XT/7900 XTX/7900M]", 20, 800),
        ("amd", "Navi 31 [Radeon RX 7900 XT/7900 XTX/7900M]", None, None),
        ("amd", "Navi 21 [Radeon RX 6800/6800 XT / 6900 XT]", 16, 512),
        ("amd", "Navi 21 [Radeon RX 6800/6800 XT / 6900 XT]", 8, None),
        ("amd", "AMD Radeon RX 7900 XTX (RADV NAVI31)", 24, 960),
        ("amd", "Radeon 8060S Graphics", None, 256),
        ("intel", "Intel(R) Arc(TM) B580 Graphics", 12, 456),
        ("intel", "DG2 [Arc A770]", 16, 560),
        ("apple", "Apple M1", 16, 68),
        ("apple", "Apple M1 Max", 32, 400),
        ("apple", "Apple M3 Max", 36, 300),
        ("apple", "Apple M3 Max", 128, 400),
        ("apple", "Apple M4 Max", 64, 546),
    ],
)
def test_drivers_names(kind: Kind, name: str, gib: float | None, rate: int | None) -> None:
    card = lookup(kind, name, None if gib is None else int(gib * GIB))
    assert (card and card.bandwidth / 1e9) == rate


def test_every_row_finds_itself() -> None:
    for card in cards():
        found = lookup(card.kind, card.driver_name or card.name, card.memory)
        assert found is not None, card
        assert found.bandwidth == card.bandwidth, card
        assert found.name == card.name, card


def test_rows_are_sane() -> None:
    assert len(cards()) > 120
    assert len({(card.kind, card.name, card.memory) for card in cards()}) == len(cards())
    for card in cards():
        assert 2 * GIB < card.memory <= 512 * GIB
        assert 50e9 < card.bandwidth <= 8000e9


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("4090", {"RTX 4090"}),
        ("rtx 3060", {"RTX 3060"}),
        ("RTX 3060 Ti", {"RTX 3060 Ti"}),
        ("m2", {"Apple M2"}),
        ("M2 Max", {"Apple M2 Max"}),
        ("rx 7900 xtx", {"RX 7900 XTX"}),
        ("a770", {"Arc A770"}),
        ("4090 laptop", {"RTX 4090 Laptop"}),
        ("h100", {"H100 SXM", "H100 PCIe", "H100 NVL"}),
        ("voodoo 2", set()),
        ("rtx", set()),
        ("", set()),
    ],
)
def test_what_users_type(text: str, names: set[str]) -> None:
    assert {card.name for card in find_cards(text)} == names


def test_cards_by_size() -> None:
    sixteen = cards_of_memory(16 * GIB)
    assert {card.memory for card in sixteen} == {16 * GIB}
    assert not any("Laptop" in card.name or card.unified for card in sixteen)
    assert [card.bandwidth for card in sixteen] == sorted(card.bandwidth for card in sixteen)
    # as a driver reports a 24 GiB card with ECC
    assert {card.memory for card in cards_of_memory(int(22.5 * GIB))} == {24 * GIB}
    # 14 GiB is sold by nobody here: the nearest size
    assert {card.memory for card in cards_of_memory(14 * GIB)} <= {12 * GIB, 16 * GIB}


@pytest.mark.parametrize("gib", [4, 6, 8, 12, 16, 24, 32, 48, 80])
def test_median_is_a_real_card_and_named(gib: int) -> None:
    rate, why = median_bandwidth(gib * GIB)
    found = cards_of_memory(gib * GIB)
    named = [card for card in found if f"data sheet of the {card.name}," in why]
    assert rate in {card.bandwidth for card in named}
    below = sum(card.bandwidth < rate for card in found)
    above = sum(card.bandwidth > rate for card in found)
    assert below <= len(found) / 2
    assert above <= len(found) / 2


@given(st.text(max_size=40), st.integers(0, 1 << 50))
def test_any_name_is_survived(name: str, memory: int) -> None:
    lookup("amd", name, memory)
    find_cards(name)
    assert cards_of_memory(memory)
