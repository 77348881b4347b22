"""Damage of any kind: lines cut anywhere, two lines joined, any text in front. Nothing crashes, no transport is invented."""

from __future__ import annotations

import random
import re
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from nccl_log_support import SHARED, Run, corpus

from diagnose.ingest.nccl_log.consumer import Consumer
from diagnose.ingest.nccl_log.job_messages import CUES
from diagnose.ingest.nccl_log.lines import Scanner

SAMPLE = """\
node-a:20003:20003 [0] NCCL INFO NCCL version 2.27.3+cuda12.9
[1,0]<stdout>:node-a:20003:20003 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.11<0>
node-a:20003:20010 [0] NCCL INFO ncclCommInitRank comm 0x55e2 rank 0 nranks 16 cudaDev 0 nvmlDev 0 busId a0 commId 0x44 - Init START
node-a:20003:20010 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read
node-a:20003:20010 [0] NCCL INFO Channel 01/0 : 8[0] -> 0[0] [receive] via NET/IB/0/GDRDMA
node-a:20003:20010 [0] NCCL INFO Channel 02 : 0[0] -> 3[3] via SHM/direct/direct
0: node-b:20003:20010 [1] NCCL INFO Channel 03/0 : 0[0] -> 9[1] [send] via NET/AWS Libfabric/3(2)/GDRDMA/Shared
(Worker pid=7, ip=10.0.0.1) node-b:20003:20010 [1] NCCL INFO Channel 04 : 1[f5000] -> 2[35000] via direct shared memory
[0] NCCL INFO Ring 01 : 7[41000] -> 8[1b000] [send] via NET/Socket/1
node-b:20003:20011 [1] NCCL INFO CollNet 00/0 : 0 [receive] via COLLNET/SHARP/1/GDRDMA

[2026-05-02 08:00:11] node-b:20003:20012 [3] transport/net_ib.cc:87 (f) NCCL WARN NET/IB : mlx5_3:1 Got async event : port error
[rank0]:[E321 02:07:08.408271257 ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1580, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600060 milliseconds
{"log": "node-a:20010:20044 [0] NCCL INFO Channel 05/0 : 0[0] -> 1[1] via P2P/IPC\\n", "stream": "stdout", "time": "2025-06-01T10:00:02Z"}
2025-06-01T10:00:20.000000001Z stdout P node-b:20010:20044 [0] NCCL INFO Channel 06/0 : 8[0] -> 9[1] via P2P
2025-06-01T10:00:20.000000002Z stdout F /CUMEM
step 12/100 loss 2.0
""".splitlines()
KINDS = {
    "P2P/CUMEM/read", "P2P/CUMEM", "P2P/IPC", "SHM/direct/direct", "direct shared memory", "NET/IB/GDRDMA", "NET/Socket",
    "NET/AWS Libfabric/GDRDMA/Shared", "COLLNET/SHARP/GDRDMA",
}  # fmt: skip


def whole_or_cut_at_a_separator(kind: str, known: set[str]) -> bool:
    """A cut that falls on a separator leaves a whole line: no reader can know, and no finding rests on one line."""
    return kind in known or any(re.match(re.escape(kind) + r"[/(]", other) for other in known)


def read_text(text: str) -> tuple[set[str], int]:
    scanner = Scanner(b"NCCL ", CUES)
    consumer = Consumer("x.log", scanner)
    for _ in scanner.scan([text.encode("utf-8", "replace")], consumer.line):
        pass
    consumer.finish()
    kinds = {str(kind) for batch in consumer.rows.rest() if batch.table == "channel" for kind in batch.frame["kind"]}
    return kinds, consumer.torn


lines = st.sampled_from(SAMPLE)
cut = st.tuples(lines, st.integers(0, 220), st.integers(0, 220)).map(lambda item: item[0][item[1] : item[1] + item[2]])
piece = st.one_of(lines, cut, st.text(max_size=30))
damaged = st.one_of(
    piece,
    st.tuples(piece, piece).map("".join),
    st.tuples(piece, st.sampled_from([" ", "   ", "\t", "\x1b[0m "]), piece).map("".join),
    st.tuples(st.text(max_size=20), lines).map("".join),
    st.binary(max_size=40).map(lambda data: data.decode("latin-1")),
)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(damaged, min_size=1, max_size=14))
def test_damage_never_invents_a_transport(texts: list[str]) -> None:
    kinds, _ = read_text("\n".join(texts))

    assert all(whole_or_cut_at_a_separator(kind, KINDS) for kind in kinds), kinds


def test_the_sample_itself_is_read_completely() -> None:
    kinds, torn = read_text("\n".join(SAMPLE) + "\n")

    assert kinds == KINDS
    assert torn == 0


@pytest.mark.parametrize("position", range(0, 140, 3))
def test_a_line_cut_anywhere_is_torn_or_whole(position: int) -> None:
    line = "node-a:20003:20010 [0] NCCL INFO Channel 01/0 : 8[0] -> 0[0] [receive] via NET/IB/0/GDRDMA"
    kinds, _ = read_text(line[:position] + "\n")

    assert kinds <= {"NET/IB/GDRDMA", "NET/IB"}


@pytest.mark.skipif(not corpus(), reason="the corpus of real logs is not beside the project")
def test_two_lines_joined_over_the_corpus() -> None:
    """Each line of each file glued to the next one."""
    for item in corpus():
        text = (SHARED / "nccl_logs" / item["file"]).read_text(encoding="utf-8", errors="replace")
        known, _ = read_text(text)
        rows = text.splitlines()
        glued = "\n".join(first + second for first, second in pairwise(rows))
        kinds, _ = read_text(glued)
        assert all(whole_or_cut_at_a_separator(kind, known) for kind in kinds), item["file"]


@pytest.mark.skipif(not corpus(), reason="the corpus of real logs is not beside the project")
@pytest.mark.parametrize("seed", [1, 2])
def test_lines_cut_anywhere_over_the_corpus(seed: int) -> None:
    """A third of the lines of each file lose their end, a third their start."""
    rng = random.Random(seed)  # noqa: S311 - damage, no secret
    for item in corpus():
        text = (SHARED / "nccl_logs" / item["file"]).read_text(encoding="utf-8", errors="replace")
        known, _ = read_text(text)
        rows = []
        for row in text.splitlines():
            place, way = rng.randrange(len(row) + 1), rng.randrange(3)
            rows.append((row[:place], row[place:], row)[way])
        kinds, _ = read_text("\n".join(rows))
        assert all(whole_or_cut_at_a_separator(kind, known) for kind in kinds), item["file"]


PREFIXES = (
    "3: ", " 12: ", "[default2]:", "[1,5]<stdout>:", "(TrainWorker pid=99, ip=10.3.2.1) ", "[pod/job-abc-worker-0/main] ",
    "2026-01-05 11:22:33,123 ", "\x1b[36m", "some words of an unknown collector | ",
)  # fmt: skip


@pytest.mark.skipif(not corpus(), reason="the corpus of real logs is not beside the project")
def test_any_prefix_over_the_corpus() -> None:
    """Nothing is invented whatever stands in front of the lines, and known tags lose nothing."""
    for item in corpus():
        text = (SHARED / "nccl_logs" / item["file"]).read_text(encoding="utf-8", errors="replace")
        known, _ = read_text(text)
        for number, prefix in enumerate(PREFIXES):
            kinds, _ = read_text("\n".join(prefix + row for row in text.splitlines()) + "\n")
            assert kinds <= known, (item["file"], prefix)
            if number < len(PREFIXES) - 1 and not text.startswith("{"):
                assert kinds == known, (item["file"], prefix)


def test_joined_records_are_told_apart(run: Run, tmp_path: object) -> None:
    del tmp_path
    first = "node-a:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC"
    second = "node-a:1:2 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via P2P/IPC"
    path = run.folder / "a.log"
    path.write_text(f"{first}\n{first}        {second}\n{second}{second}\n", encoding="utf-8")
    run.read([path])

    assert run.kinds() == {"P2P/IPC": 4}
    assert {issue.code: issue.count for issue in run.issues} == {"torn_lines": 1, "joined_lines": 2}


def test_a_rank_beyond_the_communicator_is_torn(run: Run) -> None:
    path = run.folder / "a.log"
    path.write_text(
        "h:1:1 [0] NCCL INFO comm 0xa1 rank 0 nranks 4 cudaDev 0 busId 1a000 - Init COMPLETE\n"
        "h:1:1 [0] NCCL INFO Channel 00/0 : 0[0] -> 11[1] via P2P/IPC\n",
        encoding="utf-8",
    )
    run.read([path])

    assert run.kinds() == {}
    assert [issue.code for issue in run.issues] == ["torn_lines"]
