"""Sizes and times as text."""

from __future__ import annotations

import contextlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specctl.errors import UsageError
from specctl.units import GIB, KIB, MIB, a_or_an, format_bytes, format_seconds, parse_size


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1000, "1000 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (MIB - 1, "1.0 MiB"),
        (1000 * MIB, "1000.0 MiB"),
        (GIB, "1.0 GiB"),
        (2.5 * 1024 * GIB, "2.5 TiB"),
        (-1536, "-1.5 KiB"),
    ],
)
def test_format_bytes(count, text):
    assert format_bytes(count) == text


def test_format_bytes_digits():
    assert format_bytes(1.234 * GIB, 2) == "1.23 GiB"
    assert format_bytes(1.6 * GIB, 0) == "2 GiB"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.00025, "250 µs"),
        (0.0009996, "1.0 ms"),
        (0.0123, "12.3 ms"),
        (0.09996, "100 ms"),
        (0.25, "250 ms"),
        (0.9997, "1.0 s"),
        (12.34, "12.3 s"),
        (59.96, "1 min 00 s"),
        (75, "1 min 15 s"),
        (3599.7, "1 h 00 min"),
        (3600 * 5 + 125, "5 h 02 min"),
        (-0.25, "-250 ms"),
    ],
)
def test_format_seconds(seconds, text):
    assert format_seconds(seconds) == text


@given(st.floats(0, 86400))
def test_no_time_shows_more_than_three_figures(seconds):
    text = format_seconds(seconds)
    number = re.match(r"[\d.]+", text)[0]
    assert len(number.replace(".", "")) <= 3
    assert not re.search(r"\b60 (s|min)\b", text)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("16", 16 * GIB),
        ("16G", 16 * GIB),
        ("16 gib", 16 * GIB),
        ("7.5GiB", int(7.5 * GIB)),
        ("512M", 512 * MIB),
        ("64kb", 64 * KIB),
        ("100B", 100),
        ("1t", 1024 * GIB),
        (" 0 ", 0),
    ],
)
def test_parse_size(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "G", "-1", "1e3", "16GiBB", "16 bananas", "1,5G", "nan"])
def test_what_is_no_size(text):
    with pytest.raises(UsageError, match="not a size"):
        parse_size(text)


@pytest.mark.parametrize("text", ["9" * 400, "1" + "0" * 20])
def test_more_than_any_machine_has(text):
    with pytest.raises(UsageError, match="more than any machine"):
        parse_size(text)


@given(st.text(max_size=8))
def test_any_text_is_a_size_or_a_usage_error(text):
    with contextlib.suppress(UsageError):
        assert parse_size(text) >= 0


@pytest.mark.parametrize(
    ("noun", "said"),
    [
        ("encoder", "an encoder"),
        ("eagle3", "an eagle3"),
        ("mtp head", "an mtp head"),
        ("dspark", "a dspark"),
    ],
)
def test_an_article_before_a_kind_of_file(noun: str, said: str) -> None:
    assert a_or_an(noun) == said
