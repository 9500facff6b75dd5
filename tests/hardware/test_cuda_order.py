"""What CUDA shows of the cards, by CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specctl.hardware.cudaorder import Card, Selection, select
from specctl.hardware.device import Device


def _card(number: int, name: str = "A", speed: float | None = None, slices: int = 0) -> Card:
    pci = f"0000:0{number}:00.0"
    device = Device("nvidia", number, name, uuid=f"GPU-{number}{number}ab-{number}", pci=pci)
    parts = tuple(
        Device("nvidia", number, f"{name} MIG", uuid=f"MIG-{number}{part}cd", pci=pci)
        for part in range(slices)
    )
    return Card(device, speed, parts)


CARDS = [_card(1), _card(2), _card(3)]


def _uuids(selection: Selection) -> list[str]:
    return [(device.uuid or "")[4:6] for device in selection.visible]


@pytest.mark.parametrize(
    ("value", "visible"),
    [
        (None, ["11", "22", "33"]),
        ("", []),
        ("-1", []),
        ("0", ["11"]),
        ("2,0", ["33", "11"]),
        (" 1 , 2 ", ["22", "33"]),
        ("1,-1,2", ["22"]),
        ("0,9,1", ["11"]),
        ("9,0", []),
        ("0,abc,1", ["11"]),
        ("1,1", []),
        ("GPU-22ab-2", ["22"]),
        ("GPU-3,GPU-1", ["33", "11"]),
        ("GPU-", []),
        ("GPU-zz,0", []),
        ("0,GPU-11", []),
        ("NoDevFiles", []),
    ],
)
def test_visible_devices(value: str | None, visible: list[str]) -> None:
    environ = {} if value is None else {"CUDA_VISIBLE_DEVICES": value}
    got = select(CARDS, environ)
    assert _uuids(got) == visible
    assert len(got.visible) + len(got.hidden) == 3


def test_a_bad_entry_and_a_double_are_said() -> None:
    assert "abc" in " ".join(select(CARDS, {"CUDA_VISIBLE_DEVICES": "0,abc"}).notes)
    assert "twice" in " ".join(select(CARDS, {"CUDA_VISIBLE_DEVICES": "0,0"}).notes)
    assert select(CARDS, {"CUDA_VISIBLE_DEVICES": "0,1,2"}).notes == ()


def test_nvml_order_is_not_trusted() -> None:
    assert _uuids(select([CARDS[2], CARDS[0], CARDS[1]], {})) == ["11", "22", "33"]


def test_unlike_cards_come_fastest_first_unless_told() -> None:
    slow, fast = _card(1, "GTX 1060", 1e6), _card(2, "RTX 4090", 9e6)
    got = select([slow, fast, _card(3, "GTX 1060", 1e6)], {})
    assert _uuids(got) == ["22", "11", "33"]
    assert "estimated" in got.notes[0]
    told = select([slow, fast], {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
    assert _uuids(told) == ["11", "22"]
    assert told.notes == ()


def test_indices_count_in_that_order() -> None:
    cards = [_card(1, "GTX 1060", 1e6), _card(2, "RTX 4090", 9e6)]
    assert _uuids(select(cards, {"CUDA_VISIBLE_DEVICES": "0"})) == ["22"]
    environ = {"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert _uuids(select(cards, environ)) == ["11"]


def test_unknown_speed_is_not_guessed() -> None:
    got = select([_card(1, "A"), _card(2, "B")], {})
    assert _uuids(got) == ["11", "22"]
    assert "not known" in got.notes[0]


def test_mig_slices_by_uuid_prefix_and_by_parent() -> None:
    cards = [_card(1, slices=2), _card(2)]
    by_slice = select(cards, {"CUDA_VISIBLE_DEVICES": "MIG-11"})
    assert [device.uuid for device in by_slice.visible] == ["MIG-11cd"]
    assert len(by_slice.hidden) == 2
    by_index = select(cards, {"CUDA_VISIBLE_DEVICES": "0"})
    assert [device.uuid for device in by_index.visible] == ["MIG-10cd"]
    by_parent = select(cards, {"CUDA_VISIBLE_DEVICES": "GPU-11"})
    assert [device.uuid for device in by_parent.visible] == ["MIG-10cd"]
    assert select(cards, {"CUDA_VISIBLE_DEVICES": "MIG-1"}).visible == ()


@given(st.text(alphabet="0123-,GPUMIab ", max_size=30))
def test_any_value_shows_each_device_at_most_once(value: str) -> None:
    got = select([*CARDS, _card(4, slices=2)], {"CUDA_VISIBLE_DEVICES": value})
    uuids = [device.uuid for device in got.visible]
    assert len(set(uuids)) == len(uuids)
    assert len(got.visible) + len(got.hidden) == 5
