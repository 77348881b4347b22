"""`diagnose inspect`: what files are, what is wrong with them, what evidence is missing and how to collect it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from kineto_files import header, kernel, launch, nccl, render, small_run, step, write

from diagnose.cli.inspect import inspect
from diagnose.errors import ConfigError, SourceError, UsageError


def invoke(*arguments: object) -> Result:
    result = CliRunner().invoke(inspect, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    run = tmp_path / "run"
    write(
        run / "rank0.json",
        small_run(),
        head=header(rank=0, world=4, host_name="node-a.example", baseTimeNanoseconds=1_767_189_312_000_000_000),
    )
    write(run / "rank1_trace.json.gz", small_run(), head=header(rank=None))
    (run / "cut.json").write_bytes(render(small_run(), head=header(rank=2, world=4))[:1500])
    (run / "observer_0.json").write_text('{"schema": "1.0", "nodes": [{"id": 1}]}')
    (run / "nccl.log").write_text(
        "node-a:100:200 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>\nnode-a:100:200 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>\n"
    )
    return run


def test_text_names_kind_rank_host_time_and_problem(folder: Path) -> None:
    text = invoke(folder).output
    joined = " ".join(text.split())
    assert "ranks: 0-2 of 4" in text
    assert "rank 0 (distributedInfo), host node-a (host_name)" in joined
    assert "rank 1 (name)" in joined
    assert "2025-12-31 13:55:12.000 UTC, 1.22 ms" in text
    assert "partial: the file ends inside its events" in joined
    assert "skipped: an execution trace" in joined
    assert "nccl-log" in text


def test_text_fits_eighty_columns(folder: Path) -> None:
    lines = invoke(folder).output.splitlines()
    assert not [line for line in lines if len(line) > 80 and str(folder) not in line]


def test_json_is_complete(folder: Path) -> None:
    document = json.loads(invoke(folder, "--format", "json").stdout)
    assert document["schema"] == "diagnose.inspect/1"
    files = {Path(item["path"]).name: item for item in document["files"]}
    assert files["rank0.json"]["kind"] == "kineto"
    assert (files["rank0.json"]["rank"], files["rank0.json"]["rank_from"], files["rank0.json"]["host"]) == (
        0,
        "distributedInfo",
        "node-a",
    )
    assert files["rank0.json"]["end_ns"] - files["rank0.json"]["start_ns"] == 1_220_000
    assert files["cut.json"]["status"] == "partial"
    assert files["cut.json"]["issues"][0]["byte_offset"] > 0
    assert files["observer_0.json"]["kind"] == "execution-trace"
    assert {"question", "why", "collect"} == set(document["missing"][0])


@pytest.mark.parametrize(
    ("events", "head", "line"),
    [
        (small_run(), header(world=4), "export_chrome_trace"),
        ([kernel(1, 5)], header(), "prof.step()"),
        ([step(1, 0, 99), *(launch(n, n) for n in range(1, 9))], header(), "dcgmi profile --pause"),
        ([nccl(1, 5)], header(), "record_shapes=True"),
        (small_run(), header(), "NCCL_DEBUG_SUBSYS=INIT,ENV,NET"),
        (small_run(), header(), "nvidia-smi --format=csv"),
        (small_run(), header(), "trainer_state.json"),
    ],
)
def test_the_exact_lines_that_collect_what_is_missing(
    tmp_path: Path, events: list[dict[str, object]], head: dict[str, object], line: str
) -> None:
    write(tmp_path / "rank0.json", events, head=head)
    assert line in invoke(tmp_path / "rank0.json").output


def test_without_traces_the_profiler_is_shown_first(folder: Path) -> None:
    document = json.loads(invoke(folder / "nccl.log", "--format", "json").stdout)
    assert "profile(" in document["missing"][0]["collect"]
    assert not [item for item in document["missing"] if "NCCL_DEBUG=" in item["collect"]]


def test_a_host_map_and_a_pattern_for_ranks(tmp_path: Path) -> None:
    for number in (3, 4):
        write(tmp_path / "run" / f"gpu{number}.json", small_run(), head=header(rank=None))
    (tmp_path / "hosts.yaml").write_text("3-4: node-b\n")
    text = invoke(tmp_path / "run", "--rank-from", r"gpu(\d+)", "--host-map", tmp_path / "hosts.yaml").output
    assert "rank 3 (option), host node-b (host map)" in " ".join(text.split())


def test_an_output_file(folder: Path, tmp_path: Path) -> None:
    result = invoke(folder / "rank0.json", "--format", "json", "--output", tmp_path / "out.json")
    assert result.stdout == ""
    assert json.loads((tmp_path / "out.json").read_text())["files"]


def test_usage_errors(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        invoke(tmp_path / "absent")
    with pytest.raises(SourceError, match="no files"):
        invoke(tmp_path)
    with pytest.raises(ConfigError):
        invoke(tmp_path, "--host-map", tmp_path / "absent.yaml")
    assert invoke().exit_code == 2


def test_control_characters_in_names_do_not_reach_the_terminal(tmp_path: Path) -> None:
    name = "rank0\x1b[31m\n.json"
    (tmp_path / name).write_bytes(render(small_run()))
    text = invoke(tmp_path).output
    assert "\x1b" not in text
