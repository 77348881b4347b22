"""Runs without a device: the training threads' operators against the communication library's threads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from kineto_files import annotation, operator, read_bytes, read_file, render, step

from diagnose.analysis.rank.reduce import Reduced, reduce_rank

TRACES = Path(__file__).parents[3] / "shared" / "data" / "traces"
CPU = {"schemaVersion": 1, "deviceProperties": [], "distributedInfo": {"backend": "gloo", "rank": 0, "world_size": 2}}
PARTS = ("compute_ns", "exposed_comm_ns", "exposed_memcpy_ns", "idle_ns")


def reduced(tmp_path: Path, events: list[dict[str, Any]], layout: str = "kineto") -> Reduced:
    return reduce_rank(read_bytes(tmp_path / "trace.json", render(events, layout, head=CPU)).trace, keep_kernels=True)


def one_step() -> list[dict[str, Any]]:
    return [
        step(1, 0, 1000),
        operator(100, 300, name="aten::linear"),
        operator(120, 200, name="aten::addmm"),
        {
            **annotation(350, 200, "gloo:all_reduce"),
            "tid": 77,
            "args": {"Input Dims": [[1000]], "Input type": ["float"]},
        },
        annotation(600, 150, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"),
    ]


def test_the_split(tmp_path: Path) -> None:
    result = reduced(tmp_path, one_step())
    row = result.frames["breakdown"].row(by_predicate=pl.col("step") == 1, named=True)
    assert (row["compute_ns"], row["exposed_comm_ns"], row["overlapped_comm_ns"]) == (300_000, 150_000, 50_000)
    assert (row["idle_input_ns"], row["idle_host_ns"]) == (150_000, 400_000)
    assert sum(row[name] for name in PARTS) == row["span_ns"] == 1_000_000
    call = result.frames["comm_call"].row(0, named=True)
    assert (call["collective"], call["msg_bytes"], call["exposed_ns"]) == ("all_reduce", 4000, 150_000)


@pytest.mark.parametrize(("transfer_us", "compute_us"), [(390, 10), (391, 10), (100, 390)])
def test_an_operator_that_stays_open_until_its_transfer_ends_waits(
    tmp_path: Path, transfer_us: int, compute_us: int
) -> None:
    """FSDP hands gradients on inside an autograd function, which blocks; a span may be closed after the wait."""
    events = [
        step(1, 0, 10_000),
        operator(1000, 4000, name="RegisterPostBackwardFunctionBackward"),
        operator(1050, 50, name="c10d::_reduce_scatter_base_"),
        {**annotation(1100, 10 * transfer_us, "gloo:all_reduce"), "tid": 77, "args": {"Input Dims": [[1000]]}},
    ]
    row = reduced(tmp_path, events).frames["breakdown"].row(by_predicate=pl.col("step") == 1, named=True)
    assert row["compute_ns"] == pytest.approx(10_000 * compute_us, abs=60_000)
    assert row["exposed_comm_ns"] == pytest.approx(0 if transfer_us == 100 else 10_000 * transfer_us, abs=20_000)


@pytest.mark.parametrize("layout", ["kineto", "dump", "name-first"])
def test_the_same_operator_on_other_shapes_is_other_work(tmp_path: Path, layout: str) -> None:
    shapes = [[[128, 64]], [[128, 64]], [[256, 64]], None]
    events = [step(1, 0, 1000)]
    for place, dims in enumerate(shapes):
        events.append(
            operator(100 + 50 * place, 20, **({} if dims is None else {"Input Dims": dims, "Input type": ["float"]}))
        )
    stats = reduced(tmp_path, events, layout).frames["kernel_stat"]
    assert stats.get_column("name").to_list() == ["aten::mm"] * 3
    assert sorted(stats.get_column("count").to_list()) == [1, 1, 2]
    again = reduced(tmp_path, events, "compact").frames["kernel_stat"]
    assert again.get_column("signature").to_list() == stats.get_column("signature").to_list()
    late = json.dumps({"traceEvents": events} | CPU, sort_keys=True).encode()
    behind = json.dumps({"traceEvents": events} | CPU).encode()
    for text in (late, behind):  # post-processed files name their devices after the events, or sort all keys
        last = reduce_rank(read_bytes(tmp_path / "trace.json", text).trace, keep_kernels=True).frames["kernel_stat"]
        assert last.get_column("signature").to_list() == stats.get_column("signature").to_list()


@pytest.mark.skipif(not TRACES.is_dir(), reason=f"{TRACES} is not here")
@pytest.mark.parametrize("version", ["1.13.1", "2.4.1", "2.13.0"])
def test_recorded_gloo_runs_are_split_without_rest(version: str) -> None:
    files = sorted((TRACES / f"selfgen-gloo-torch{version}").glob("*/rank*.pt.trace.json.gz"))
    assert files
    for file in files:
        result = reduce_rank(read_file(file).trace, keep_kernels=False)
        assert result.lost_capture is None
        for row in result.frames["breakdown"].iter_rows(named=True):
            assert sum(row[name] for name in PARTS) == row["span_ns"], file
            assert min(row[name] for name in PARTS) >= 0
        whole = result.frames["breakdown"].row(by_predicate=pl.col("step") == -1, named=True)
        assert whole["compute_ns"] > 0
        assert whole["exposed_comm_ns"] > 0
        assert set(result.frames["comm_call"].get_column("collective")) != {"unknown"}


@pytest.mark.skipif(not TRACES.is_dir(), reason=f"{TRACES} is not here")
def test_a_rank_that_computes_more_waits_less() -> None:
    """The truth files name rank 2 as the one that was slowed down."""
    for version in ("2.4.1", "2.13.0"):
        compute = []
        for file in sorted((TRACES / f"selfgen-gloo-torch{version}" / "ddp_straggler").glob("rank*.pt.trace.json.gz")):
            frame = (
                reduce_rank(read_file(file).trace, keep_kernels=False).frames["breakdown"].filter(pl.col("step") >= 0)
            )
            compute.append(frame.select((pl.col("span_ns") - pl.col("exposed_comm_ns")).median()).item())
        assert compute.index(max(compute)) == 2
