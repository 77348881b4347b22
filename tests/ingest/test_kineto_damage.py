"""Damaged files: what is sound is kept, the rest is counted and explained, and nothing raises what a run cannot take."""

from __future__ import annotations

import gzip
import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kineto_files import (
    GEMM,
    annotation,
    header,
    kernel,
    kinds,
    launch,
    memcpy,
    nccl,
    operator,
    read_bytes,
    render,
    small_run,
    step,
)

from diagnose.errors import SourceError
from diagnose.ingest.kineto import chunks

if TYPE_CHECKING:
    from pathlib import Path

    from diagnose.store.rank_trace import RankTrace


def names_of(trace: RankTrace) -> list[str]:
    return [trace.names[code] for code in trace.activities.name]


def damaged(tmp_path: Path, old: bytes, new: bytes, layout: str = "dump") -> tuple[RankTrace, dict[str, int]]:
    """Forty kernels, one of them with a changed text."""
    events = [kernel(10 * number, 5, name=f"k{number}", note="plain") for number in range(40)]
    data = render(events, layout)
    assert old in data
    decoded = read_bytes(tmp_path / "trace.json", data.replace(old, new, 1))
    return decoded.trace, kinds(decoded)


@pytest.mark.parametrize("layout", ["dump", "compact", "kineto", "name-first"])
@pytest.mark.parametrize(
    ("old", "new", "kind", "name"),
    [
        (b'"k7"', b'"say "hi" to k7"', "unescaped_quote", 'say "hi" to k7'),
        (b'"k7"', b'"op("a", "b")"', "unescaped_quote", 'op("a", "b")'),
        (b'"k7"', b'"proj\\data\\new\\table"', "backslash", "proj\\data\\new\\table"),
        (b'"k7"', b'"C:\\temp\\new"', None, None),
        (b'"k7"', b'"a\xff\xfeb"', "not_utf8", "a\ufffd\ufffdb"),
        (b'"k7"', b'"a\x01\x02b"', "control_character", "a  b"),
        (b'"k7"', b'"two\nlines\tand a tab"', "control_character", "two\nlines\tand a tab"),
        (b'"k7"', b'"\\ud83d alone"', "not_utf8", "\ufffd alone"),
        (b'"k7"', b"7", None, "7"),
        (b'"k7"', b"null", None, "None"),
        (b'"plain"', b"inf", "bare_word", None),
        (b'"plain"', b"-Infinity", "bare_word", None),
        (b'"plain"', b"NaN", "bare_word", None),
        (b'"plain"', b"N/A", "bare_word", None),
        (b'"plain"', b"[1, nan, N/A]", "bare_word", None),
        (b'"plain"', b"1e999", None, None),
        (b'"plain"', b'"a "b" c"', "unescaped_quote", None),
    ],
)
def test_one_damaged_event_is_mended(
    tmp_path: Path, layout: str, old: bytes, new: bytes, kind: str | None, name: str | None
) -> None:
    trace, found = damaged(tmp_path, old, new, layout)
    assert len(trace.activities.start_ns) == 40
    if name is not None:
        assert name in names_of(trace)
    if kind is not None:
        assert set(found) == {kind}


def test_a_name_that_holds_a_bare_word_is_left_alone(tmp_path: Path) -> None:
    events = [kernel(1, 5, name="N/A is fine: inf, nan, [N/A, 1]", note="@"), kernel(9, 5)]
    decoded = read_bytes(tmp_path / "trace.json", render(events, "dump").replace(b'"@"', b"N/A"))
    assert names_of(decoded.trace)[0] == "N/A is fine: inf, nan, [N/A, 1]"
    assert kinds(decoded) == {"bare_word": 1}


def test_every_event_with_a_bare_word(tmp_path: Path) -> None:
    data = render([kernel(10 * number, 5, occupancy="@") for number in range(3000)], "dump").replace(b'"@"', b"NaN")
    decoded = read_bytes(tmp_path / "trace.json", data)
    assert len(decoded.trace.activities.start_ns) == 3000
    assert kinds(decoded) == {"bare_word": 3000}


@pytest.mark.parametrize("value", [b"[]", b'"text"', b"3", b"null"])
def test_arguments_that_are_no_object(tmp_path: Path, value: bytes) -> None:
    data = render([kernel(1, 5), operator(2, 3, x=1)], "compact").replace(b'{"x":1}', value)
    decoded = read_bytes(tmp_path / "trace.json", data)
    assert len(decoded.trace.operators.start_ns) == 1


@pytest.mark.parametrize("key", ["ts", "dur", "pid", "tid", "cat"])
@pytest.mark.parametrize("value", [b"null", b'"x"', b"1e400", b"[1]", b"1.5", b"99999999999999999999999999"])
def test_fields_of_odd_types_never_raise(tmp_path: Path, key: str, value: bytes) -> None:
    events = [kernel(1, 5), {**operator(2, 3), key: "@"}, kernel(20, 5)]
    decoded = read_bytes(tmp_path / "trace.json", render(events, "dump").replace(b'"@"', value))
    assert len(decoded.trace.activities.start_ns) == 2


@pytest.mark.parametrize("layout", ["dump", "compact", "kineto", "list"])
def test_a_file_cut_anywhere_keeps_the_events_before(tmp_path: Path, layout: str) -> None:
    events = [kernel(10 * number, 5, name=f"k{number}") for number in range(1, 30)]
    data = render(events, layout)
    first = data.index(b'"k1"')
    for cut in range(first + 200, len(data) - 3, 97):
        decoded = read_bytes(tmp_path / "trace.json", data[:cut])
        whole = [number for number in range(1, 30) if 0 <= data.find(f'"k{number + 1}"'.encode()) < cut]
        assert decoded.truncated
        assert "truncated" in kinds(decoded)
        assert set(names_of(decoded.trace)) >= {f"k{number}" for number in whole}
        assert len(decoded.trace.activities.start_ns) <= len(whole) + 1


def test_a_cut_gzip_file_keeps_what_was_written(tmp_path: Path) -> None:
    events = [kernel(10 * number, 5, name=f"k{number}", salt=str(hash(number) * 7919)) for number in range(3000)]
    data = gzip.compress(render(events))
    decoded = read_bytes(tmp_path / "trace.json.gz", data[: len(data) // 2])
    assert decoded.truncated
    assert {"compressed_stream_damaged", "truncated"} <= set(kinds(decoded))
    assert len(decoded.trace.activities.start_ns) > 500


def test_a_gzip_file_with_a_wrong_checksum_is_read_whole(tmp_path: Path) -> None:
    data = bytearray(gzip.compress(render(small_run())))
    data[-6] ^= 0xFF
    decoded = read_bytes(tmp_path / "trace.json.gz", bytes(data))
    assert len(decoded.trace.activities.start_ns) == 6
    assert "compressed_stream_damaged" in kinds(decoded)


def test_two_writers_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = render(
        [kernel(10 * n, 5, name=f"a{n}") for n in range(50)], head=header(rank=1, world=4), tail={"traceName": "a"}
    )
    second = render([kernel(10 * n, 5, name=f"b{n}") for n in range(50)], head=header(rank=2, world=4))
    for block in (300, 1 << 20):
        monkeypatch.setattr(chunks, "BLOCK_BYTES", block)
        decoded = read_bytes(tmp_path / "trace.json", first + second)
        assert {name[0] for name in names_of(decoded.trace)} == {"a"}
        assert len(decoded.trace.activities.start_ns) == 50
        assert decoded.trace.header.rank == 1
        assert set(kinds(decoded)) == {"extra_data"}


@pytest.mark.parametrize("other", ["dump", "indent"])
def test_two_writers_with_other_layouts(tmp_path: Path, other: str) -> None:
    first = render([kernel(10 * n, 5, name=f"a{n}") for n in range(20)], head=header(rank=1, world=4))
    second = render([kernel(10 * n, 5, name=f"b{n}") for n in range(20)], other)
    decoded = read_bytes(tmp_path / "trace.json", first + second)
    assert len(decoded.trace.activities.start_ns) == 20
    assert decoded.trace.header.rank == 1
    assert set(kinds(decoded)) == {"extra_data"}


def test_a_short_trace_written_over_a_longer_one(tmp_path: Path) -> None:
    long = render([kernel(10 * n, 5, name=f"old{n}") for n in range(50)])
    short = render([kernel(10 * n, 5, name=f"new{n}") for n in range(20)])
    decoded = read_bytes(tmp_path / "trace.json", short + long[len(short) + 37 :])
    assert {name[:3] for name in names_of(decoded.trace)} == {"new"}
    assert "extra_data" in kinds(decoded)


def test_two_writers_through_one_another(tmp_path: Path) -> None:
    data = render([kernel(10 * n, 5, name=f"k{n}") for n in range(60)], "kineto")
    middle = data.index(b'"k30"') + 40
    torn = data[:middle] + data[data.index(b'"k40"') + 3 : data.index(b'"k42"')] + data[middle:]
    decoded = read_bytes(tmp_path / "trace.json", torn)
    assert len(decoded.trace.activities.start_ns) >= 58
    assert "unreadable_event" in kinds(decoded)


@pytest.mark.parametrize(
    "tail",
    [
        b',"INFO": ["he said "no" twice", "C:\\dir\\x"]',
        b',"traceName": ".\\result\\run_1\\x.json"',
        b',"traceName": "a]b}c[d{.json"',
        b',"note": "two\nlines"',
        b',"note": N/A',
        b',"note": "\xff"',
    ],
)
def test_damage_in_the_metadata_behind_the_events(tmp_path: Path, tail: bytes) -> None:
    head = {"schemaVersion": 1, "baseTimeNanoseconds": 1_700_000_000_000_000_000}
    data = render(small_run(), "kineto", head=head, tail={"distributedInfo": {"rank": 5, "world_size": 8}})
    cut = data.rindex(b"}")
    decoded = read_bytes(tmp_path / "trace.json", data[:cut] + tail + data[cut:])
    assert decoded.trace.header.rank == 5
    assert decoded.trace.header.base_ns == head["baseTimeNanoseconds"]
    assert len(decoded.trace.activities.start_ns) == 6
    assert not decoded.truncated


def test_metadata_beyond_repair_is_searched(tmp_path: Path) -> None:
    data = render(small_run(), "kineto", head=header(rank=6, world=8)).replace(
        b'"schemaVersion": 1', b'"schemaVersion" 1 {{'
    )
    decoded = read_bytes(tmp_path / "trace.json", data)
    assert decoded.trace.header.rank == 6
    assert decoded.trace.header.devices == ("Example GPU",)
    assert "metadata_damaged" in kinds(decoded)


def test_a_byte_order_mark_and_leading_blanks(tmp_path: Path) -> None:
    for start in (b"\xef\xbb\xbf", b"\n\n   "):
        decoded = read_bytes(tmp_path / "trace.json", start + render(small_run(), head=header(rank=2, world=3)))
        assert decoded.trace.header.rank == 2
        assert kinds(decoded) == {}


EMPTY = {
    "empty list": (render([]), "empty"),
    "empty bare list": (render([], "list"), "empty"),
    "metadata only": (json.dumps(header()).encode(), "no list of trace events"),
    "metadata events only": (
        render([{"name": "process_name", "ph": "M", "pid": 1, "tid": 0, "args": {"name": "python"}}]),
        "metadata",
    ),
    "no time": (render([kernel(0, 0)] * 3), "usable time"),
    "cut in the header": (
        gzip.compress(b'{"schemaVersion": 1, "deviceProperties": [' + b'{"id": 0}, ' * 9999, mtime=0)[:60],
        "compressed data",
    ),
}


@pytest.mark.parametrize("case", list(EMPTY))
def test_a_trace_without_events_is_refused_with_the_reason(tmp_path: Path, case: str) -> None:
    data, message = EMPTY[case]
    with pytest.raises(SourceError, match=message):
        read_bytes(tmp_path / "trace.json", data)


def test_lost_and_impossible_records(tmp_path: Path) -> None:
    unix = 1_700_000_000_000_000
    events = [
        step(1, unix, 1000),
        operator(0, 3, name="clamped"),
        kernel(unix + 10, 20),
        kernel(0, 0),
        kernel(0, 0),
        kernel(unix + 40, -5),
        kernel(unix + 50, 0),
        kernel(unix - 3 * 86_400_000_000, 20),
        kernel(unix + 60, 3_400_000_000_000),
        kernel(unix + 90, 10),
        nccl(unix + 95, 9_000_000_000_000_000),
    ]
    decoded = read_bytes(tmp_path / "trace.json", render(events))
    assert kinds(decoded) == {
        "device_record_without_time": 2,
        "negative_duration": 1,
        "time_out_of_range": 1,
        "impossible_duration": 2,
        "host_event_without_time": 1,
    }
    activities = decoded.trace.activities
    assert [(int(start) // 1000 - unix, int(dur) // 1000) for start, dur in zip(activities.start_ns, activities.dur_ns, strict=True)] == [
        (10, 20), (50, 0), (60, 30), (90, 10), (95, 905),
    ]  # fmt: skip


def test_a_record_written_twice_counts_once(tmp_path: Path) -> None:
    twice = [
        launch(1, 5),
        *[nccl(10, 50, correlation=5)] * 2,
        *[kernel(90, 1, correlation=6)] * 2,
        *[kernel(95, 9)] * 2,
    ]
    decoded = read_bytes(tmp_path / "trace.json", render(twice))
    assert kinds(decoded) == {"duplicate_record": 1}
    assert len(decoded.trace.activities.start_ns) == 5


def test_all_device_records_out_of_range(tmp_path: Path) -> None:
    unix = 1_700_000_000_000_000
    events = [
        step(1, unix, 1000),
        *(launch(unix + n, n) for n in range(1, 9)),
        *(kernel(4_000_000 + n, 2, correlation=n) for n in range(1, 9)),
    ]
    decoded = read_bytes(tmp_path / "trace.json", render(events))
    assert kinds(decoded) == {"time_out_of_range": 8}
    assert not decoded.trace.has_device_work


def test_small_overlaps_on_a_stream_are_no_damage(tmp_path: Path) -> None:
    decoded = read_bytes(
        tmp_path / "trace.json", render([kernel(10, 20), kernel(29.9, 20), kernel(40, 99_000), memcpy(60, 5)])
    )
    assert kinds(decoded) == {}
    assert decoded.trace.activities.dur_ns.tolist() == [20_000, 20_000, 99_000_000, 5_000]


def test_ties_at_time_zero_of_a_short_trace_are_kept(tmp_path: Path) -> None:
    decoded = read_bytes(
        tmp_path / "trace.json", render([annotation(0, 50, "ProfilerStep#1"), operator(0, 3), kernel(0, 10)])
    )
    assert kinds(decoded) == {}
    assert len(decoded.trace.operators.start_ns) == len(decoded.trace.annotations.start_ns) == 1


@settings(deadline=None, max_examples=150, suppress_health_check=list(HealthCheck))
@given(
    places=st.lists(st.tuples(st.floats(0, 1), st.binary(max_size=4), st.integers(0, 6)), min_size=1, max_size=5),
    packed=st.booleans(),
)
def test_random_damage_never_raises_anything_but_a_source_error(
    tmp_path_factory: pytest.TempPathFactory, places: list[tuple[float, bytes, int]], packed: bool
) -> None:
    data = bytearray(render(small_run() * 3, "kineto", tail={"traceName": "x"}))
    data = bytearray(gzip.compress(bytes(data), mtime=0)) if packed else data
    for share, new, length in places:
        place = int(share * len(data))
        data[place : place + length] = new
    try:
        decoded = read_bytes(tmp_path_factory.mktemp("fuzz") / "trace.json", bytes(data))
    except SourceError:
        return
    assert len(decoded.trace.activities.start_ns) <= 18 + len(places)


def test_names_survive(tmp_path: Path) -> None:
    decoded = read_bytes(
        tmp_path / "trace.json", render([kernel(1, 5, name="<script>&\"'é\u2028"), kernel(9, 2, name=GEMM)])
    )
    assert names_of(decoded.trace) == ["<script>&\"'é\u2028", GEMM]
