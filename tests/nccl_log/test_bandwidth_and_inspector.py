"""nccl-tests as text and JSON, DeepSpeed's summary, NCCL's inspector."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from nccl_log_support import Run

HEAD = """\
# nThread 1 nGpus 1 minBytes 8 maxBytes 1073741824 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0
# Using devices
#  Rank  0 Group  0 Pid  20443 on    node-a device  0 [0x31] NVIDIA H100
#  Rank  1 Group  0 Pid  20020 on    node-b device  0 [0x31] NVIDIA H100
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
"""


def row(size: int, busbw: float, wrong: str = "0") -> str:
    return (
        f"  {size}  {size // 4}  float  sum  -1  100.0  {busbw}  {busbw}  {wrong}  100.0  {busbw}  {busbw}  {wrong}\n"
    )


def test_table_with_its_devices(read: Callable[..., Run]) -> None:
    run = read(
        "+ mpirun all_reduce_perf -b 8\n" + HEAD + row(8, 0.0) + row(1 << 30, 180.5) + "# Out of bounds values : 0 OK\n"
    )
    rows = run.query("SELECT * FROM bandwidth_reference WHERE size_bytes > 8 AND NOT in_place").row(0, named=True)

    assert (rows["collective"], rows["gpus"], rows["hosts"], rows["busbw_bytes_per_s"], rows["time_ns"]) == (
        "all_reduce",
        2,
        2,
        180.5e9,
        100_000,
    )
    assert run.loud() == {}


def test_check_that_was_off_is_not_zero(read: Callable[..., Run]) -> None:
    run = read(HEAD + row(1024, 1.0, "N/A"))

    assert run.frame("bandwidth_reference")["wrong"].to_list() == [None, None]


def test_wrong_results_are_critical(read: Callable[..., Run]) -> None:
    found = read(HEAD + row(1024, 1.0, "1.04858e+06") + "# Out of bounds values : 108 FAILED\n").loud()

    assert found["COM-NCCL-TESTS-WRONG"].severity == "critical"


def test_collapse_at_large_sizes_only(read: Callable[..., Run]) -> None:
    drop = HEAD + "".join(row(1 << n, 40.0 if n < 30 else 19.0) for n in range(20, 33))

    assert set(read(drop).loud()) == {"COM-BENCH-DROP"}


def test_outlier_at_a_small_size_is_nothing(read: Callable[..., Run]) -> None:
    text = HEAD + row(1 << 15, 1.0) + row(1 << 17, 0.1) + "".join(row(1 << n, 40.0) for n in range(20, 32))

    assert read(text).loud() == {}


def test_json_of_nccl_tests(run: Run, tmp_path: Path) -> None:
    half = {"time": 100.0, "alg_bw": 90.0, "bus_bw": 180.0, "nwrong": 0.0}
    document = {
        "version": "2.18", "args": ["all_reduce_perf", "-b", "8"],
        "devices": [{"rank": r, "group": 0, "pid": 1, "hostname": f"node-{r}", "device": 0} for r in range(2)],
        "results": [{"size": 1024, "count": 256, "type": "float", "redop": "sum", "root": "-1", "out_of_place": half, "in_place": None}],
        "out_of_bounds": {"count": 0, "okay": True}, "average_bus_bandwidth": {"bandwidth": 180.0, "okay": "unchecked"},
    }  # fmt: skip
    path = tmp_path / "result.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    rows = run.read([path]).frame("bandwidth_reference").rows(named=True)

    assert len(rows) == 1
    assert (rows[0]["collective"], rows[0]["gpus"], rows[0]["hosts"], rows[0]["busbw_bytes_per_s"]) == (
        "all_reduce",
        2,
        2,
        180e9,
    )


DEEPSPEED = """\
Comm. Op            Message Size        Count               Total Latency(ms)   Avg Latency(ms)     tput_avg (Gbps)     busbw_avg (Gbps)
broadcast
                    2.0 KB              146                 11.12               0.08                0.43                0.41
reduce_scatter_tensor
                    678.86 MB           40                  602.29              9.69                1468.06             1376.31
"""


def test_summary_of_deepspeed(read: Callable[..., Run]) -> None:
    rows = read(DEEPSPEED).query("SELECT * FROM bandwidth_reference ORDER BY line").rows(named=True)

    assert [(item["tool"], item["collective"], item["size_bytes"], item["calls"]) for item in rows] == [
        ("deepspeed", "broadcast", 2048, 146),
        ("deepspeed", "reduce_scatter_tensor", round(678.86 * 1024**2), 40),
    ]
    assert rows[1]["busbw_bytes_per_s"] == 1376.31e9 / 8


def record(**perf: object) -> dict[str, object]:
    return {
        "header": {"id": "0x7f8c", "rank": 2, "n_ranks": 8, "nnodes": 1},
        "metadata": {"inspector_output_format_version": "v4.0", "dump_timestamp_us": 1748030377748202, "hostname": "node-a", "pid": 7},
        "coll_perf": {
            "coll": "AllReduce", "coll_sn": 1407, "coll_msg_size_bytes": 17179869184, "coll_exec_time_us": 61974,
            "coll_algobw_gbs": 277.2, "coll_busbw_gbs": 485.1, **perf,
        },
    }  # fmt: skip


def test_inspector_lines_and_damage(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "node-a.log"
    path.write_text(
        json.dumps(record()) + "\n" + json.dumps(record(coll_sn=1408), indent=2) + "\n" + '{"header": {"id": 1\n}\n',
        encoding="utf-8",
    )
    rows = run.read([path]).query("SELECT * FROM inspector_coll ORDER BY seq").rows(named=True)

    assert [item["seq"] for item in rows] == [1407, 1408]
    assert (rows[0]["host"], rows[0]["comm_rank"], rows[0]["dur_ns"], rows[0]["busbw_bytes_per_s"]) == (
        "node-a",
        2,
        61_974_000,
        485.1e9,
    )
    assert [issue.code for issue in run.issues] == ["inspector_bad_record"]
