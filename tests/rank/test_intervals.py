"""Unions of intervals against brute force on a grid."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from diagnose.analysis.intervals import Merged, covered_ns, gaps, intersect, merge, split, subtract

QUICK = settings(deadline=None, max_examples=200)
END = 60

spans = st.lists(st.tuples(st.integers(0, END), st.integers(0, END)), max_size=12)


def arrays(pairs: list[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
    return np.array([low for low, _ in pairs], np.int64), np.array([high for _, high in pairs], np.int64)


def points(pairs: list[tuple[int, int]]) -> set[int]:
    return {point for low, high in pairs for point in range(low, high)}


def covered(merged: Merged) -> set[int]:
    return points(list(zip(merged.start_ns.tolist(), merged.end_ns.tolist(), strict=True)))


def is_disjoint(merged: Merged) -> bool:
    return bool(np.all(merged.end_ns > merged.start_ns) and np.all(merged.start_ns[1:] > merged.end_ns[:-1]))


@QUICK
@given(spans)
def test_merge(pairs: list[tuple[int, int]]) -> None:
    merged = merge(*arrays(pairs))
    assert covered(merged) == points(pairs)
    assert is_disjoint(merged)
    assert merged.length_ns == len(points(pairs))


@QUICK
@given(spans, st.integers(0, END), st.integers(0, END))
def test_gaps(pairs: list[tuple[int, int]], low: int, high: int) -> None:
    free = gaps(merge(*arrays(pairs)), low, high)
    assert covered(free) == set(range(low, high)) - points(pairs)


@QUICK
@given(spans, spans)
def test_subtract_and_intersect(left: list[tuple[int, int]], right: list[tuple[int, int]]) -> None:
    one, other = merge(*arrays(left)), merge(*arrays(right))
    assert covered(subtract(one, other)) == points(left) - points(right)
    assert covered(intersect(one, other)) == points(left) & points(right)
    assert is_disjoint(intersect(one, other))


@QUICK
@given(spans, spans)
def test_covered(pairs: list[tuple[int, int]], asked: list[tuple[int, int]]) -> None:
    found = covered_ns(merge(*arrays(pairs)), *arrays(asked))
    assert found.tolist() == [len(points(pairs) & set(range(low, high))) for low, high in asked]


@QUICK
@given(st.lists(st.tuples(st.integers(0, END), st.integers(0, 20), st.integers(0, 2), st.integers(0, 2)), max_size=15))
def test_split(rows: list[tuple[int, int, int, int]]) -> None:
    start = np.array([row[0] for row in rows], np.int64)
    end = start + np.array([row[1] for row in rows], np.int64)
    klass = np.array([row[2] for row in rows], np.int8)
    group = np.array([row[3] for row in rows], np.int64)
    parts = split(start, end, klass, group, 3)
    for one in range(3):
        compute, comm, copies = (
            points([(row[0], row[0] + row[1]) for row in rows if row[2] == kind and row[3] == one]) for kind in range(3)
        )
        assert [column[one] for column in parts] == [
            len(compute), len(comm), len(copies), len(comm - compute), len(comm & compute), len(copies - comm - compute), len(compute | comm | copies),
        ]  # fmt: skip


def test_times_of_the_present_stay_exact() -> None:
    base = 1_785_000_000_000_000_000
    merged = merge(np.array([base, base + 5]), np.array([base + 6, base + 9]))
    assert (merged.start_ns.tolist(), merged.end_ns.tolist()) == ([base], [base + 9])
