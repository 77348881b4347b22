"""Numbers near the next unit, and how much longer something takes."""

from __future__ import annotations

import pytest

from diagnose.units import format_bytes, format_longer, format_ns, inside


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (999_800, "1.00 ms"),
        (999_400, "999 us"),
        (999_999_999, "1.00 s"),
        (999.6, "1.00 us"),
        (12, "12 ns"),
        (0, "0 ns"),
    ],
)
def test_a_duration_never_shows_a_thousand_of_a_unit(value: float, text: str) -> None:
    assert format_ns(value) == text


def test_bytes_likewise() -> None:
    assert format_bytes(999_999) == "1.00 MB"


@pytest.mark.parametrize(
    ("ratio", "text"), [(0.3, "30 % longer than"), (2.89, "3.89 times as long as"), (98.03, "99.0 times as long as")]
)
def test_what_takes_many_times_as_long_is_no_percentage(ratio: float, text: str) -> None:
    assert format_longer(ratio) == text


@pytest.mark.parametrize(
    ("sentence", "text"),
    [
        ("A rank was killed", "a rank was killed"),
        ("TCP retransmissions", "TCP retransmissions"),
        ("InfiniBand is off", "InfiniBand is off"),
        ("", ""),
    ],
)
def test_abbreviations_keep_their_capitals(sentence: str, text: str) -> None:
    assert inside(sentence) == text
