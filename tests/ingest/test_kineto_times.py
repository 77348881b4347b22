"""Times are exact: integers, floats and strings of microseconds become the nanoseconds their text says."""

from __future__ import annotations

import json
from decimal import ROUND_HALF_EVEN, Decimal
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kineto_files import header, kernel, operator, read_bytes, render

from diagnose.ingest.kineto.times import EXACT_LIMIT_US, InexactTimeError, text_ns, times_ns
from diagnose.store.rank_trace import UNKNOWN

if TYPE_CHECKING:
    from pathlib import Path

QUICK = settings(deadline=None, max_examples=200)
UNIX_US = 1_785_000_000_000_000


def nanoseconds(text: str) -> int:
    return int((Decimal(text) * 1000).to_integral_value(ROUND_HALF_EVEN))


@QUICK
@given(st.lists(st.integers(0, 2 * UNIX_US), min_size=1))
def test_integers(values: list[int]) -> None:
    assert times_ns(values).tolist() == [value * 1000 for value in values]


@QUICK
@given(st.lists(st.integers(0, int(EXACT_LIMIT_US) * 1000 - 1), min_size=1))
def test_floats_of_three_decimals_below_the_limit(values: list[int]) -> None:
    written = [f"{value // 1000}.{value % 1000:03d}" for value in values]
    assert times_ns([json.loads(text) for text in written]).tolist() == values


@QUICK
@given(st.integers(0, 2 * UNIX_US * 1000), st.integers(0, 6))
def test_texts(value: int, extra: int) -> None:
    text = f"{value // 1000}.{value % 1000:03d}" + "0" * extra
    assert text_ns(text) == value
    assert text_ns(f'"{text}"'.encode()) == value
    assert times_ns([text]).tolist() == [value]


@QUICK
@given(st.decimals(-10_000, 10**9, allow_nan=False, places=6))
def test_more_decimals_round_to_the_nearest(value: Decimal) -> None:
    assert text_ns(str(value)) == nanoseconds(str(value))


def test_floats_of_absolute_time_are_refused() -> None:
    with pytest.raises(InexactTimeError):
        times_ns([float(UNIX_US) + 0.5])
    with pytest.raises(InexactTimeError):
        times_ns([1, None, float(UNIX_US) + 0.5])


@pytest.mark.parametrize("value", [None, True, "", "soon", 1 << 80, "1e400", {}.__class__])
def test_what_is_no_time_is_unknown(value: object) -> None:
    assert times_ns([value, 3, "4"]).tolist() == [UNKNOWN, 3000, 4000]


@pytest.mark.parametrize("kind", ["float", "string", "integer"])
def test_neighbouring_nanoseconds_of_absolute_time_stay_apart(tmp_path: Path, kind: str) -> None:
    starts = [UNIX_US * 1000 + offset * (1000 if kind == "integer" else 1) for offset in range(1, 9)]
    events = [kernel("@", "@") for _ in starts]
    text = render(events, "dump").decode()
    for start in starts:
        written = str(start // 1000) if kind == "integer" else f"{start // 1000}.{start % 1000:03d}"
        text = text.replace('"@"', f'"{written}"' if kind == "string" else written, 1).replace('"@"', "7.25", 1)
    trace = read_bytes(tmp_path / "trace.json", text.encode()).trace
    assert trace.activities.start_ns.tolist() == starts
    assert set(trace.activities.dur_ns.tolist()) == {7250}


def test_relative_times_are_added_to_the_base_without_loss(tmp_path: Path) -> None:
    base = 1_782_967_788_000_000_000
    data = render(
        [kernel(6_000_000_000_000.125, 0.001), operator(6_000_000_000_000.0, 3)], head=header(baseTimeNanoseconds=base)
    )
    trace = read_bytes(tmp_path / "trace.json", data).trace
    assert trace.activities.start_ns.tolist() == [base + 6_000_000_000_000_125]
    assert trace.activities.dur_ns.tolist() == [1]


def test_columns_never_overflow() -> None:
    values = times_ns([2**63 - 1, -(2**63), 5])
    assert values.tolist() == [UNKNOWN, UNKNOWN, 5000]
    assert times_ns([2**64 - 1, 5]).tolist() == [UNKNOWN, 5000]
    assert times_ns(np.array([1.5, np.nan]).tolist()).tolist() == [1500, UNKNOWN]
