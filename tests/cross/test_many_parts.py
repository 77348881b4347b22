"""A run that is read in many parts, with calls that wait on disk, gives the same tables as one read at once."""

from __future__ import annotations

import polars as pl
import pytest
from cross_support import job

from diagnose.ingest.base import Identity
from diagnose.pipeline import call_batches
from diagnose.pipeline.identify import Member
from diagnose.pipeline.matching import match_ranks
from diagnose.pipeline.result import Group, SourceResult, TraceInfo
from diagnose.store.writer import StoreWriter

RANKS, STEPS = 8, 12
PAIRS = [(rank - rank % 2, rank - rank % 2 + 1) for rank in range(RANKS)]


def comm_calls() -> pl.DataFrame:
    """Collectives of the whole job, each followed by one of every pair and one of every rank alone."""
    whole = job(RANKS, STEPS, slow=5).with_columns(group_ranks=pl.lit(None, pl.List(pl.Int32)))
    pair = whole.with_columns(
        group_name=pl.lit("pair"), group_size=pl.lit(2, pl.Int32), start_ns=pl.col("start_ns") + pl.col("dur_ns")
    )
    lone = pair.with_columns(
        group_name=pl.lit("lone"), group_size=pl.lit(1, pl.Int32), start_ns=pl.col("start_ns") + pl.col("dur_ns")
    )
    calls = pl.concat([whole, pair, lone]).sort("rank", "start_ns")
    return calls.with_columns(call=pl.int_range(pl.len()).over("rank"))


def members() -> list[Member]:
    found = []
    for rank in range(RANKS):
        groups = (Group("0", "whole", tuple(range(RANKS)), RANKS), Group("pair", "pair", PAIRS[rank], 2))
        trace = TraceInfo(
            backend="nccl", devices=("GPU",), groups=groups, versions={}, step_source="ProfilerStep", lost_capture=None, device=0,
            has_device_work=True, truncated=False,
        )  # fmt: skip
        identity = Identity(rank=rank, host=f"node{rank // 2}")
        source = SourceResult(
            path=f"rank{rank}", kind="kineto", size_bytes=1, status="ok", identity=identity, trace=trace
        )
        found.append(Member(rank, source, identity.host))
    return found


def tables(folder) -> dict[str, pl.DataFrame]:
    """What matching leaves, without the numbers of instances, which depend on the order of reading."""
    calls = comm_calls()
    exposed = calls.group_by("rank", "step").agg(pl.col("exposed_ns").sum().alias("exposed_comm_ns"))
    rows = pl.concat(
        [exposed, exposed.group_by("rank").agg(pl.col("exposed_comm_ns").sum()).select("rank", pl.lit(-1).cast(exposed.schema["step"]).alias("step"), "exposed_comm_ns")]
    )  # fmt: skip
    with StoreWriter(folder / "run.duckdb") as writer:
        writer.insert("comm_call", calls)
        writer.insert("breakdown", rows.with_columns(local_work_ns=pl.lit(1_000_000)))
        match_ranks(writer, members(), range(RANKS))
        leftovers = [path.name for path in folder.iterdir() if path.is_dir()]
        assert not leftovers
        return {
            "collective": writer.query("SELECT * EXCLUDE (instance) FROM collective ORDER BY group_id, seq, step"),
            "member": writer.query("SELECT * EXCLUDE (instance) FROM collective_rank ORDER BY rank, call"),
            "sizes": writer.query("SELECT c.group_id, c.seq, count(*) AS n FROM collective_rank JOIN collective AS c USING (instance) GROUP BY ALL ORDER BY ALL"),
            "breakdown": writer.query("SELECT * FROM breakdown ORDER BY rank, step"),
            "process_group": writer.query("SELECT * FROM process_group ORDER BY group_id"),
        }  # fmt: skip


@pytest.mark.parametrize("held", [10**9, 0], ids=["in memory", "on disk"])
def test_parts_do_not_change_the_tables(tmp_path, monkeypatch, held):
    (tmp_path / "one").mkdir()
    (tmp_path / "many").mkdir()
    at_once = tables(tmp_path / "one")
    monkeypatch.setattr(call_batches, "PART_ROWS", 50)
    monkeypatch.setattr(call_batches, "HELD_ROWS", held)

    in_parts = tables(tmp_path / "many")

    assert len(at_once["collective"]) == STEPS * 2 * (1 + RANKS // 2 + RANKS)
    assert at_once["breakdown"].get_column("exposed_wait_ns").sum() > 0
    for name, table in at_once.items():
        assert in_parts[name].equals(table), name
