"""A window of a run as Chrome trace JSON, which Perfetto opens: one process a rank, all on the aligned clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import data
import msgspec

from diagnose.units import MS

if TYPE_CHECKING:
    from catalog import Run

MOST_RANKS = 64
MARGIN_NS = 20 * MS
"""Time kept before the first arrival and after the last end."""
_COLLECTIVE_TRACK = 1_000_000
"""Thread number of the track with matched collectives, above any stream."""


def window(run: Run, instance: int, margin_ns: int = MARGIN_NS) -> bytes:
    """The window around one collective: kernels of its members, and every matched collective within it."""
    span = data.rows(run, "member_tracks", instance=instance).row(0, named=True)
    if span["first_ns"] is None:
        return _encode([], run, "this collective has no members")
    members = data.rows(run, "collective_members", instance=instance)
    ranks = _chosen(members.get_column("rank").to_list())
    start, end = span["first_ns"] - margin_ns, span["last_ns"] + margin_ns
    events = _names(run, ranks)
    for row in data.rows(run, "window_kernels", ranks=ranks, from_ns=start, to_ns=end).iter_rows(named=True):
        facts = {"class": row["class"], "step": row["step"], "correlation": row["correlation"], "device": row["device"]}
        events.append(_slice(row, row["name"], row["class"], row["stream"], start, facts))
    for row in data.rows(run, "window_collectives", ranks=ranks, from_ns=start, to_ns=end).iter_rows(named=True):
        facts = {
            key: row[key]
            for key in ("instance", "process_group", "msg_bytes", "step", "wait_ns", "last_rank", "busbw_bytes_per_s")
        }
        name = f"{row['collective']} #{row['instance']}" + (" (chosen)" if row["instance"] == instance else "")
        events.append(_slice(row, name, "collective", _COLLECTIVE_TRACK, start, facts))
    left = len(members) - len(ranks)
    return _encode(
        events,
        run,
        f"{left} of {len(members)} members left out: the first and the last to arrive are kept"
        if left
        else "all members",
    )


def _chosen(ranks: list[int]) -> list[int]:
    """Ranks in order of arrival; of many the first and the last."""
    return ranks if len(ranks) <= MOST_RANKS else [*ranks[: MOST_RANKS // 2], *ranks[-MOST_RANKS // 2 :]]


def _names(run: Run, ranks: list[int]) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    listed = data.rows(run, "rank_list")
    hosts = dict(zip(listed["rank"], listed["host"], strict=True))
    for place, rank in enumerate(ranks):
        events += [
            {
                "ph": "M",
                "pid": rank,
                "name": "process_name",
                "args": {"name": f"rank {rank}" + (f" on {hosts.get(rank)}" if hosts.get(rank) else "")},
            },
            {"ph": "M", "pid": rank, "name": "process_sort_index", "args": {"sort_index": place}},
            {
                "ph": "M",
                "pid": rank,
                "tid": _COLLECTIVE_TRACK,
                "name": "thread_name",
                "args": {"name": "matched collectives"},
            },
        ]
    return events


def _slice(
    row: dict[str, Any], name: str, kind: str, track: int, origin_ns: int, facts: dict[str, Any]
) -> dict[str, Any]:
    """One complete event; microseconds from the window's start, so that no digit is lost in a double."""
    return {
        "ph": "X", "pid": row["rank"], "tid": track, "name": name, "cat": kind, "ts": (row["start_ns"] - origin_ns) / 1000, "dur": row["dur_ns"] / 1000,
        "args": {key: value for key, value in facts.items() if value is not None},
    }  # fmt: skip


def _encode(events: list[dict[str, Any]], run: Run, ranks: str) -> bytes:
    quality = data.rows(run, "clock_quality").row(0, named=True)
    about = {
        "run": run.id,
        "ranks": ranks,
        "clock": f"aligned over hosts, residual {quality['residual_ns']} ns"
        if quality["residual_ns"] is not None
        else "not aligned: no clock was fitted",
    }
    return msgspec.json.encode({"traceEvents": events, "displayTimeUnit": "ns", "otherData": about})
