"""Who is who: duplicates are never merged silently, names that cannot tell ranks apart are not believed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from diagnose.errors import ConfigError
from diagnose.ingest.base import Identity
from diagnose.pipeline.identify import identify, load_host_map
from diagnose.pipeline.result import SourceResult, TraceInfo

if TYPE_CHECKING:
    from pathlib import Path

INFO = TraceInfo(
    backend="nccl",
    devices=(),
    groups=(),
    versions={},
    step_source="none",
    lost_capture=None,
    device=0,
    has_device_work=True,
    truncated=False,
)


def trace(
    path: str,
    rank: int | None,
    start: int = 0,
    end: int = 10,
    *,
    rank_from: str = "distributedInfo",
    host: str | None = None,
) -> SourceResult:
    identity = Identity(rank=rank, rank_from=None if rank is None else rank_from, start_ns=start, end_ns=end, host=host)
    return SourceResult(
        path=path, kind="kineto", size_bytes=1, status="ok", identity=identity, trace=INFO, shards={"step": [path]}
    )


def codes(results: list[SourceResult]) -> tuple[dict[int, str], list[str], dict[str, str]]:
    found = identify(results, load_host_map(None))
    used = {member.rank: member.result.path for member in found.members}
    return used, [issue.code for issue in found.issues], {result.path: result.status for result in found.results}


def test_the_newer_of_two_windows_of_a_rank_is_used_and_both_are_named() -> None:
    results = [trace("b", 0, 100, 110), trace("a", 0, 500, 510), trace("c", 0, 300, 310), trace("d", 1)]
    used, issues, status = codes(results)
    assert used == {0: "a", 1: "d"}
    assert issues == ["duplicate_rank"] * 2
    assert status == {"a": "ok", "b": "skipped", "c": "skipped", "d": "ok"}
    (first, *_) = identify(results, load_host_map(None)).issues
    assert "b" in first.example or "c" in first.example
    assert "and in a:" in first.example


def test_two_copies_of_one_file() -> None:
    used, issues, _ = codes([trace("a", 3), trace("b", 3)])
    assert used == {3: "b"}
    assert issues == ["duplicate_rank"]


def test_of_two_copies_the_whole_one_is_used() -> None:
    cut = trace("b", 3)
    cut = msgspec.structs.replace(cut, trace=msgspec.structs.replace(INFO, truncated=True))
    assert codes([trace("a", 3), cut])[0] == {3: "a"}


def test_a_stated_rank_beats_one_from_a_name() -> None:
    used, issues, status = codes([trace("a", 0, 100, 110), trace("b", 0, 500, 510, rank_from="name")])
    assert used == {0: "a"}
    assert issues == ["duplicate_rank"]
    assert status["b"] == "skipped"


def test_names_that_give_every_process_the_same_rank_are_not_believed() -> None:
    used, issues, status = codes(
        [trace(f"r0-{place}", 0, 100 + place, 200 + place, rank_from="name") for place in range(3)]
    )
    assert used == {-1: "r0-0", -2: "r0-1", -3: "r0-2"}
    assert issues == ["rank_indistinct", "rank_unknown"]
    assert set(status.values()) == {"ok"}


def test_cycles_of_one_process_with_the_rank_in_the_name() -> None:
    used, issues, _ = codes(
        [trace(f"rank0.{place}", 0, 1000 * place, 1000 * place + 500, rank_from="name") for place in range(3)]
    )
    assert used == {0: "rank0.2"}
    assert issues == ["duplicate_rank"] * 2


def test_traces_without_rank() -> None:
    assert codes([trace("a", None)])[:2] == ({-1: "a"}, ["rank_not_in_file"])
    assert codes([trace("a", None), trace("b", None)])[:2] == ({-1: "a", -2: "b"}, ["rank_unknown"])
    assert codes([trace("a", None), trace("b", 0)])[:2] == ({0: "b", -1: "a"}, ["rank_unknown"])


def test_hosts_from_a_map(tmp_path: Path) -> None:
    path = tmp_path / "hosts.yaml"
    path.write_text("0: node-a.example\n1-3: node-b\n'gpu7/': node-c\n")
    found = identify(
        [trace("x", 0), trace("y", 2, host="Other.Example"), trace("gpu7/z", 9), trace("w", 8, host="H8.Example:22")],
        load_host_map(path),
    )
    assert {member.rank: member.host for member in found.members} == {0: "node-a", 2: "node-b", 9: "node-c", 8: "h8"}


@pytest.mark.parametrize("text", ["'[': x", "- a", "0: a\n0: b", ": :"])
def test_a_wrong_host_map_is_told(tmp_path: Path, text: str) -> None:
    path = tmp_path / "hosts.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError):
        load_host_map(path)
    with pytest.raises(ConfigError):
        load_host_map(tmp_path / "absent.yaml")
