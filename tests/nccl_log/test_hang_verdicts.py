"""Who stopped the job: flight recorders, watchdogs, exits, logs that just end."""

from __future__ import annotations

import json
import pickle
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

import pytest

from diagnose.ingest.flight_recorder import FlightRecorder, RefusedPickleError, load_plain, name_parts

if TYPE_CHECKING:
    from collections.abc import Callable

    from nccl_log_support import Run

MS = 1_000_000


def entry(
    seq: int, *, op: str = "nccl:all_reduce", state: str = "completed", sizes: object = None, created: int = 0
) -> dict[str, Any]:
    return {
        "record_id": seq, "pg_id": 0, "process_group": ("0", "default_pg"), "collective_seq_id": seq, "p2p_seq_id": 0, "op_id": seq,
        "profiling_name": op, "time_created_ns": created or seq * MS, "input_sizes": sizes or [[1024]], "input_dtypes": ["Float"],
        "output_sizes": sizes or [[1024]], "output_dtypes": ["Float"], "state": state, "time_discovered_started_ns": None,
        "time_discovered_completed_ns": None, "retired": state == "completed", "timeout_ms": 600_000, "is_p2p": False,
    }  # fmt: skip


def dump(entries: list[dict[str, Any]], members: str = "[0, 1, 2, 3]") -> dict[str, Any]:
    return {
        "version": "2.10", "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": members}}, "pg_status": {},
        "entries": entries,
    }  # fmt: skip


def write(folder: Path, rank: int, content: dict[str, Any], *, as_json: bool = False) -> Path:
    path = folder / f"nccl_trace_rank_{rank}"
    path.write_bytes(json.dumps(content).encode() if as_json else pickle.dumps(content, protocol=2))
    return path


@pytest.mark.parametrize("as_json", [True, False])
def test_rank_that_never_issued_the_collective(as_json: bool, run: Run, tmp_path: Path) -> None:
    waiting = [entry(1), entry(2), entry(3, state="started")]
    paths = [write(tmp_path, rank, dump(waiting if rank != 1 else waiting[:2]), as_json=as_json) for rank in range(4)]
    (finding,) = run.read(paths).loud().values()

    assert (finding.code, finding.ranks, finding.severity, finding.cause) == (
        "COM-HANG-BEHIND",
        (1,),
        "critical",
        "hang",
    )
    assert "all_reduce number 3 of group default_pg" in finding.message


def test_rank_in_another_collective(run: Run, tmp_path: Path) -> None:
    paths = [
        write(
            tmp_path,
            rank,
            dump([entry(1), entry(2, state="started", op="nccl:all_gather" if rank == 3 else "nccl:all_reduce")]),
        )
        for rank in range(4)
    ]
    (finding,) = run.read(paths).loud().values()

    assert (finding.code, finding.ranks) == ("COM-HANG-MISMATCH", (3,))


def test_rank_with_another_size(run: Run, tmp_path: Path) -> None:
    paths = [
        write(tmp_path, rank, dump([entry(1, state="started", sizes=[[8]] if rank == 2 else [[16]])]))
        for rank in range(4)
    ]
    (finding,) = run.read(paths).loud().values()

    assert (finding.code, finding.ranks) == ("COM-HANG-MISMATCH", (2,))


def test_rank_that_came_late(run: Run, tmp_path: Path) -> None:
    start = 10**15
    paths = [
        write(tmp_path, rank, dump([entry(1, state="started", created=start + (25_000 * MS if rank == 1 else rank))]))
        for rank in range(4)
    ]
    (finding,) = run.read(paths).loud().values()

    assert (finding.code, finding.ranks) == ("COM-HANG-LATE", (1,))
    assert "25.0 s after the first" in finding.message


def test_dumps_of_a_job_that_ended_well_are_quiet(run: Run, tmp_path: Path) -> None:
    assert run.read([write(tmp_path, rank, dump([entry(1), entry(2)])) for rank in range(4)]).loud() == {}


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("/tmp/diagnose-was-executed"),))  # noqa: S108 - must never be made


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_crafted_pickle_is_refused_and_not_executed(protocol: int, run: Run, tmp_path: Path) -> None:
    marker = Path("/tmp/diagnose-was-executed")  # noqa: S108 - must never be made
    marker.unlink(missing_ok=True)
    path = tmp_path / "nccl_trace_rank_0"
    path.write_bytes(pickle.dumps({"entries": [Evil()], "pg_config": {}}, protocol=protocol))
    run.read([path])

    assert not marker.exists()
    assert [(issue.code, issue.severity) for issue in run.issues] == [("pickle_refused", "error")]
    assert "asks for" in run.issues[0].example
    assert run.outcomes[0][1].status == "failed"


@pytest.mark.parametrize(
    "payload",
    [
        b"cposix\nsystem\n(S'true'\ntR.",
        b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x04true\x85R.",
        b"(S'true'\niposix\nsystem\n.",
        b"\x80\x02Ppersistent\n.",
        b"\x80\x02\x82\x01.",
        b"\x80\x04\x97.",
    ],
)
def test_every_way_out_of_plain_data_is_closed(payload: bytes) -> None:
    with pytest.raises((RefusedPickleError, ValueError)):
        load_plain(payload)


def test_plain_data_passes() -> None:
    value = {"a": [1, 2.5, None, True, "text", b"bytes", (1, 2), {3}]}

    assert load_plain(pickle.dumps(value, protocol=4)) == value


def test_damaged_dumps_are_issues(run: Run, tmp_path: Path) -> None:
    good = pickle.dumps(dump([entry(1)]), protocol=2)
    for number, content in enumerate(
        (good[:40], b"\x80\x02.", b'{"entries": [1, "pg_config": "pg_status"', pickle.dumps(7, protocol=2))
    ):
        (tmp_path / f"nccl_trace_rank_{number}").write_bytes(content)
    run.read(sorted(tmp_path.glob("nccl_trace_rank_*")))

    assert {issue.code for issue in run.issues} == {"flight_recorder_damaged"}


@pytest.mark.parametrize(
    ("name", "rank", "host"),
    [
        ("nccl_trace_rank_3", 3, None),
        ("comm_lib_trace_rank_17", 17, None),
        ("fr_rank0.json.gz", 0, None),
        ("fr_trace_rank_2.json", 2, None),
        ("fr_1.json", 1, None),
        ("gpu-node-07_fr_rank5.json", 5, "gpu-node-07"),
        ("nccl_trace_rank_gpu-node-07_12", 12, "gpu-node-07"),
    ],
)
def test_names_of_dumps(name: str, rank: int, host: str | None) -> None:
    assert name_parts(PurePosixPath(name)) == (rank, host)


def test_other_pickles_are_not_claimed() -> None:
    assert not FlightRecorder().sniff(pickle.dumps({"weights": [1]}), PurePosixPath("model.pt"))


def watchdog(rank: int, seq: int, enqueued: int, op: str = "ALLREDUCE") -> str:
    head = f"[rank{rank}]:[E709 17:05:38.162700000 ProcessGroupNCCL.cpp:670]"
    return (
        f"{head} [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn=1, NumelOut=1, "
        f"Timeout(ms)=600000) ran for 600014 milliseconds before timing out.\n"
        f"{head} [PG ID 0 PG GUID 0(default_pg) Rank {rank}]  failure detected by watchdog at work sequence id: {seq} PG status: "
        f"last enqueued work: {enqueued}, last completed work: {seq - 1}\n"
    )


def test_silent_rank_of_a_known_world(read: Callable[..., Run]) -> None:
    (finding,) = read("".join(watchdog(rank, 9, 11) for rank in (0, 1, 3))).loud(world_size=4).values()

    assert (finding.code, finding.ranks) == ("COM-HANG-SILENT", (2,))


def test_all_ranks_wait(read: Callable[..., Run]) -> None:
    (finding,) = read("".join(watchdog(rank, 9, 11) for rank in range(4))).loud(world_size=4).values()

    assert finding.code == "COM-HANG-STUCK"


def test_different_operations_at_one_number(read: Callable[..., Run]) -> None:
    text = watchdog(0, 9, 9) + watchdog(1, 9, 9, op="BROADCAST")

    assert set(read(text).loud(world_size=2)) == {"COM-HANG-MISMATCH"}


TORCHRUN = """\
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2024-05-01_10:00:00
  host      : node-b
  rank      : 5 (local_rank: 1)
  exitcode  : -9 (pid: 1234)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 1234
============================================================
"""
EXITS = {
    "torchrun": (TORCHRUN, 5, "node-b"),
    "srun": ("srun: error: node-b: task 5: Killed\nsrun: Terminating StepId=1.0\n", 5, "node-b"),
    "srun segv": ("srun: error: node-b: task 5: Segmentation fault (core dumped)\n", 5, "node-b"),
    "mpirun": (
        "mpirun noticed that process rank 5 with PID 77 on node node-b exited on signal 9 (Killed).\n",
        5,
        "node-b",
    ),
    "slurm oom": (
        "slurmstepd: error: Detected 1 oom-kill event(s) in StepId=1.0. Some of your processes may have been killed\n",
        None,
        None,
    ),
}


@pytest.mark.parametrize("name", EXITS)
def test_exit_by_a_signal_goes_before_all_echoes(name: str, read: Callable[..., Run]) -> None:
    text, rank, host = EXITS[name]
    found = read(watchdog(0, 9, 11) + watchdog(1, 9, 11) + text).loud()

    assert set(found) == {"COM-HANG-DIED"}
    assert found["COM-HANG-DIED"].ranks == (() if rank is None else (rank,))
    assert found["COM-HANG-DIED"].hosts == (() if host is None else (host,))


def test_the_launchers_own_sigterm_is_an_echo(read: Callable[..., Run]) -> None:
    text = "W0501 torch/distributed/elastic/multiprocessing/api.py:851] Sending process 77 closing signal SIGTERM\n"
    text += "  rank      : 3 (local_rank: 3)\n  exitcode  : -15 (pid: 1234)\n"

    assert read(text + "torch.distributed.elastic.multiprocessing\n").loud() == {}


START = "[I1130 18:43:25.98 TCPStore.cpp:316] [c10d - debug] TCP client connected to host 10.0.0.1:29500\n"
STEPS = "".join(f"2026-11-30 18:43:{28 + n},811 INFO [rank{{r}}] step {n}/60 loss=0.2\n" for n in range(8))
CLOSED = "Traceback (most recent call last):\n  File x\nRuntimeError: [/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.3]:36492. This is typical\n"
TIMEOUT = "Traceback (most recent call last):\nRuntimeError: [/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 8000ms for recv operation to complete\n"
OWN = "Traceback (most recent call last):\n  File x\nValueError: bad sample 17\n"


def logs(**endings: str) -> dict[str, str]:
    return {name: START + STEPS.format(r=name[-1]) + ending for name, ending in endings.items()}


def test_log_that_just_stops_among_broken_connections(read: Callable[..., Run]) -> None:
    found = read(**logs(rank0=CLOSED, rank1=CLOSED, rank2="", rank3=CLOSED)).loud()

    assert (set(found), found["COM-HANG-DIED"].ranks) == ({"COM-HANG-DIED"}, (2,))


def test_only_exception_of_its_own(read: Callable[..., Run]) -> None:
    found = read(**logs(rank0=CLOSED, rank1=CLOSED, rank2=CLOSED, rank3=OWN)).loud()

    assert (set(found), found["COM-HANG-EXCEPTION"].ranks) == ({"COM-HANG-EXCEPTION"}, (3,))
    assert "ValueError: bad sample 17" in found["COM-HANG-EXCEPTION"].message


def test_victims_time_out_and_the_guilty_one_does_not(read: Callable[..., Run]) -> None:
    found = read(**logs(rank0=TIMEOUT, rank1=CLOSED, rank2=TIMEOUT, rank3=TIMEOUT)).loud()

    assert found["COM-HANG-BEHIND"].ranks == (1,)


def test_rank_without_a_log(read: Callable[..., Run]) -> None:
    world = (
        "[/gloo/transport/tcp/context.cc:243] INFO Rank 0 is connected to 3. Expected number of connected peers is: 3\n"
    )
    found = read(
        **{
            name: text if name != "rank0" else world + text
            for name, text in logs(rank0=CLOSED, rank1=CLOSED, rank3=CLOSED).items()
        }
    ).loud()

    assert found["COM-HANG-SILENT"].ranks == (2,)


def test_monitored_barrier_names_the_rank(read: Callable[..., Run]) -> None:
    text = "RuntimeError: Ranks 3 failed to pass monitoredBarrier in 20000 ms\n"
    found = read(**logs(rank0="Traceback (most recent call last):\n" + text)).loud()

    assert found["COM-HANG-BEHIND"].ranks == (3,)


def test_caught_exception_is_nothing(read: Callable[..., Run]) -> None:
    assert read(rank0=START + OWN + STEPS.format(r=0)).loud() == {}


def test_finished_logs_are_nothing(read: Callable[..., Run]) -> None:
    assert read(**logs(rank0="", rank1="[I1130 x] [c10d] uv_loop cleanup finished.\n")).loud() == {}


def test_exception_of_one_rank_in_a_stream_of_all(read: Callable[..., Run]) -> None:
    text = "[rank3]: Traceback (most recent call last):\n[rank3]: ValueError: bad sample 17\n"
    text += "[rank0]: Traceback (most recent call last):\n[rank0]: torch.distributed.DistBackendError: NCCL error in: x.cpp:1, remote process exited\n"
    found = read("NCCL version 2.20.5+cuda12.4\n" + text).loud()

    assert (set(found), found["COM-HANG-EXCEPTION"].ranks) == ({"COM-HANG-EXCEPTION"}, (3,))
