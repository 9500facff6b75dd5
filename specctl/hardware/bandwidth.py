"""Memory bandwidth of cards by name, from their makers' data sheets. GB/s are 10⁹ bytes a second.

One row a card: name | memory sizes, GiB | GB/s | the driver's name where it is another. A name
sold with two bandwidths has a row for each, told apart by the memory size. Only figures that the
makers publish (bus width × data rate); a card that is not here is not guessed. Laptop variants are
cards of their own.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from specctl.hardware.device import Kind
from specctl.units import GIB

GB = 10**9

_NVIDIA = """
GTX 1050 Ti | 4 | 112
GTX 1060 3GB | 3 | 192
GTX 1060 | 6 | 192
GTX 1070 | 8 | 256
GTX 1070 Ti | 8 | 256
GTX 1080 | 8 | 320
GTX 1080 Ti | 11 | 484
GTX 1660 | 6 | 192
GTX 1660 SUPER | 6 | 336
GTX 1660 Ti | 6 | 288
RTX 2060 | 6 12 | 336
RTX 2060 SUPER | 8 | 448
RTX 2070 | 8 | 448
RTX 2070 SUPER | 8 | 448
RTX 2080 | 8 | 448
RTX 2080 SUPER | 8 | 496
RTX 2080 Ti | 11 | 616
TITAN RTX | 24 | 672
TITAN V | 12 | 653
RTX 3050 | 8 | 224
RTX 3050 | 6 | 168
RTX 3060 | 12 | 360
RTX 3060 | 8 | 240
RTX 3060 Ti | 8 | 448
RTX 3070 | 8 | 448
RTX 3070 Ti | 8 | 608
RTX 3080 | 10 | 760
RTX 3080 | 12 | 912
RTX 3080 Ti | 12 | 912
RTX 3090 | 24 | 936
RTX 3090 Ti | 24 | 1008
RTX 4060 | 8 | 272
RTX 4060 Ti | 8 16 | 288
RTX 4070 | 12 | 504
RTX 4070 SUPER | 12 | 504
RTX 4070 Ti | 12 | 504
RTX 4070 Ti SUPER | 16 | 672
RTX 4080 | 16 | 717
RTX 4080 SUPER | 16 | 736
RTX 4090 | 24 | 1008
RTX 4060 Laptop | 8 | 256
RTX 4070 Laptop | 8 | 256
RTX 4080 Laptop | 12 | 432
RTX 4090 Laptop | 16 | 576
RTX 5050 | 8 | 320
RTX 5060 | 8 | 448
RTX 5060 Ti | 8 16 | 448
RTX 5070 | 12 | 672
RTX 5070 Ti | 16 | 896
RTX 5080 | 16 | 960
RTX 5090 | 32 | 1792
RTX 5090 Laptop | 24 | 896
Quadro RTX 4000 | 8 | 416
Quadro RTX 5000 | 16 | 448
Quadro RTX 6000 | 24 | 672
Quadro RTX 8000 | 48 | 672
RTX A2000 | 6 12 | 288
RTX A4000 | 16 | 448
RTX A4500 | 20 | 640
RTX A5000 | 24 | 768
RTX A5500 | 24 | 768
RTX A6000 | 48 | 768
RTX 2000 Ada | 16 | 224
RTX 4000 Ada | 20 | 360
RTX 4500 Ada | 24 | 432
RTX 5000 Ada | 32 | 576
RTX 6000 Ada | 48 | 960
RTX PRO 4000 Blackwell | 24 | 672
RTX PRO 4500 Blackwell | 32 | 896
RTX PRO 5000 Blackwell | 48 | 1344
RTX PRO 6000 Blackwell | 96 | 1792
Tesla P4 | 8 | 192
Tesla P40 | 24 | 346
Tesla P100 | 16 | 732
Tesla T4 | 16 | 320
Tesla V100 | 16 32 | 900
A2 | 16 | 200
A10 | 24 | 600
A10G | 24 | 600
A30 | 24 | 933
A40 | 48 | 696
A100 PCIe | 40 | 1555
A100 SXM4 | 40 | 1555
A100 PCIe | 80 | 1935
A100 SXM4 | 80 | 2039
L4 | 24 | 300
L40 | 48 | 864
L40S | 48 | 864
H100 PCIe | 80 | 2000
H100 SXM | 80 | 3350 | H100 HBM3
H100 NVL | 94 | 3900
H200 | 141 | 4800
B200 | 180 | 8000
GB10 | 128 unified | 273
AGX Orin | 64 unified | 205
AGX Thor | 128 unified | 273
"""

_AMD = """
RX 580 | 8 | 256
RX 5700 XT | 8 | 448
RX 6600 | 8 | 224
RX 6600 XT | 8 | 256
RX 6650 XT | 8 | 280
RX 6700 XT | 12 | 384
RX 6750 XT | 12 | 432
RX 6800 | 16 | 512
RX 6800 XT | 16 | 512
RX 6900 XT | 16 | 512
RX 6950 XT | 16 | 576
RX 7600 | 8 | 288
RX 7600 XT | 16 | 288
RX 7700 XT | 12 | 432
RX 7800 XT | 16 | 624
RX 7900 GRE | 16 | 576
RX 7900 XT | 20 | 800
RX 7900 XTX | 24 | 960
RX 9060 XT | 8 16 | 320
RX 9070 | 16 | 640
RX 9070 XT | 16 | 640
Radeon VII | 16 | 1024
PRO W6800 | 32 | 512
PRO W7800 | 32 | 576
PRO W7900 | 48 | 864
AI PRO R9700 | 32 | 640
MI50 | 16 32 | 1024
MI60 | 32 | 1024
MI100 | 32 | 1229
MI210 | 64 | 1638
MI300X | 192 | 5300
MI325X | 256 | 6000
8050S | 32 64 96 128 unified | 256
8060S | 32 64 96 128 unified | 256
"""

_INTEL = """
Arc A310 | 4 | 124
Arc A380 | 6 | 186
Arc A580 | 8 | 512
Arc A750 | 8 | 512
Arc A770 | 8 | 512
Arc A770 | 16 | 560
Arc B570 | 10 | 380
Arc B580 | 12 | 456
Arc Pro B50 | 16 | 224
Arc Pro B60 | 24 | 456
"""

_APPLE = """
Apple M1 | 8 16 unified | 68
Apple M1 Pro | 16 32 unified | 200
Apple M1 Max | 32 64 unified | 400
Apple M1 Ultra | 64 128 unified | 800
Apple M2 | 8 16 24 unified | 100
Apple M2 Pro | 16 32 unified | 200
Apple M2 Max | 32 64 96 unified | 400
Apple M2 Ultra | 64 128 192 unified | 800
Apple M3 | 8 16 24 unified | 100
Apple M3 Pro | 18 36 unified | 150
Apple M3 Max | 36 96 unified | 300
Apple M3 Max | 48 64 128 unified | 400
Apple M3 Ultra | 96 256 512 unified | 819
Apple M4 | 16 24 32 unified | 120
Apple M4 Pro | 24 48 64 unified | 273
Apple M4 Max | 36 unified | 410
Apple M4 Max | 48 64 128 unified | 546
Apple M5 | 16 24 32 unified | 153
"""

_TABLES: dict[Kind, str] = {"nvidia": _NVIDIA, "amd": _AMD, "intel": _INTEL, "apple": _APPLE}


@dataclass(frozen=True, slots=True)
class Card:
    """A card of the data-sheet table with one of its memory sizes; bytes, bytes per second."""

    kind: Kind
    name: str
    memory: int
    bandwidth: float
    unified: bool = False
    driver_name: str = ""


@functools.cache
def cards() -> tuple[Card, ...]:
    """Every listed card, once for each memory size it was sold with."""
    found = []
    for kind, table in _TABLES.items():
        for line in table.strip().splitlines():
            name, sizes, rate, *driver_name = (part.strip() for part in line.split("|"))
            unified = sizes.endswith("unified")
            found += [
                Card(kind, name, int(size) * GIB, int(rate) * float(GB), unified, *driver_name)
                for size in sizes.removesuffix("unified").split()
            ]
    return tuple(found)


def _fits(card: Card, memory: int) -> bool:
    """Drivers report less than the label says: ECC and reservations take up to a tenth."""
    return card.memory * 0.9 <= memory <= card.memory * 1.03


def cards_of_memory(memory: int) -> tuple[Card, ...]:
    """Desktop and server cards of that size in bytes (up to a tenth less, as drivers report it).

    Where no card has it, those of the nearest listed size. Sorted by bandwidth.
    """
    discrete = [card for card in cards() if not card.unified and "Laptop" not in card.name]
    near = [card for card in discrete if _fits(card, memory)]
    if not near:
        nearest = min({card.memory for card in discrete}, key=lambda size: abs(size - memory))
        near = [card for card in discrete if card.memory == nearest]
    return tuple(sorted(near, key=lambda card: (card.bandwidth, card.name)))


def median_bandwidth(memory: int) -> tuple[float, str]:
    """The (lower) median of the listed cards of that size, bytes per second, and whose it is."""
    found = cards_of_memory(memory)
    middle = found[(len(found) - 1) // 2]
    sizes = sorted({card.memory // GIB for card in found})
    span = "–".join(str(size) for size in sorted({sizes[0], sizes[-1]}))
    return middle.bandwidth, (
        f"data sheet of the {middle.name}, the median of {len(found)} listed {span} GiB cards "
        f"({found[0].bandwidth / GB:.0f} to {found[-1].bandwidth / GB:.0f} GB/s)"
    )


_NOISE = {"nvidia", "geforce", "amd", "ati", "radeon", "intel", "graphics", "gpu"}
_SERIES = {"rtx", "gtx", "rx", "arc", "tesla", "quadro", "apple"}


def _words(name: str) -> list[str]:
    """`NVIDIA A100-SXM4-40GB` → a100 sxm4 40gb; makers' names and trade marks are dropped."""
    plain = re.sub(r"\((?:tm|r|c)\)", " ", name.lower())
    return [word for word in re.findall(r"[a-z0-9+]+", plain) if word not in _NOISE]


def _key(card: Card) -> list[str]:
    return _words(card.driver_name or card.name)


def _contains(words: list[str], key: list[str]) -> bool:
    """All words of the key, in order; others may stand between them (A100 80GB PCIe)."""
    rest = iter(words)
    return all(part in rest for part in key)


def _variants(name: str) -> list[str]:
    """`Navi 31 [Radeon RX 7900 XT/7900 XTX/7900M]` names three cards."""
    inside = re.search(r"\[(.+)\]", name)
    if inside is None:
        return [name]
    first, *others = (part.strip() for part in inside[1].split("/"))
    prefix = re.split(r"\d", first, maxsplit=1)[0]
    return [first, *(other if other[:1].isalpha() else prefix + other for other in others)]


def _named(kind: Kind, name: str) -> list[Card]:
    """The cards whose name is the longest one found in `name`."""
    words = _words(name)
    found = [card for card in cards() if card.kind == kind and _contains(words, _key(card))]
    longest = max((len(_key(card)) for card in found), default=0)
    found = [card for card in found if len(_key(card)) == longest]
    portable = "laptop" in words or "mobile" in words
    return [card for card in found if portable == ("Laptop" in card.name)]


def lookup(kind: Kind, name: str, memory: int | None = None) -> Card | None:
    """The listed card that a driver's name means, or None: not listed, or several that differ.

    `memory` in bytes tells variants of one name apart.
    """
    found = [card for variant in _variants(name) for card in _named(kind, variant)]
    if memory is not None:
        sized = [card for card in found if _fits(card, memory)]
        same_name = len({card.name for card in found}) == 1
        found = sized or (found if same_name else [])
    if len({card.bandwidth for card in found}) != 1:
        return None
    return found[0]


def find_cards(text: str) -> tuple[Card, ...]:
    """Listed cards that a user may mean: `rtx 3060`, `4090`, `m2 max`; shortest names first.

    An exact name hides the longer ones that contain it; laptop cards want the word.
    """
    asked = [word for word in _words(text) if word not in _SERIES]
    if not asked:
        return ()
    found = [
        card
        for card in cards()
        if _contains(_words(card.name), asked) and ("laptop" in asked) == ("Laptop" in card.name)
    ]
    exact = [
        card
        for card in found
        if [word for word in _words(card.name) if word not in _SERIES] == asked
    ]
    return tuple(sorted(exact or found, key=lambda card: (len(card.name), card.name, card.memory)))
