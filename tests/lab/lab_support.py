"""Recorded runs with injected faults: what was done, what the report says."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import yaml

from diagnose.config import Config
from diagnose.findings.evaluate import evaluate
from diagnose.pipeline.build import RunOptions, build_run
from diagnose.store.reader import Store

LAB = Path(__file__).parents[3] / "shared" / "data" / "lab"

CAUSES = {
    "network_bandwidth": {"bandwidth_bound", "congestion"}, "slow_nic": {"nic_slow", "bandwidth_bound", "link_errors"},
    "oversubscribed_uplink": {"oversubscription", "bandwidth_bound", "congestion"}, "shared_nic_traffic": {"traffic_mixing"},
    "latency_bound_small_messages": {"latency_bound"}, "slow_device": {"gpu_slow", "throttling"}, "cpu_throttle": {"host_slow", "throttling"},
    "data_loader_stall": {"input_stall"}, "data_loading_slow": {"input_stall"}, "storage_slow": {"input_stall"}, "storage_slow_one_node": {"input_stall"},
    "gc_pause": {"gc_pause", "host_slow"}, "transient": {"host_slow", "gc_pause", "gpu_slow", "input_stall"}, "workload_imbalance": {"workload_imbalance"},
    "pipeline_stage_imbalance": {"stage_imbalance"}, "checkpoint": {"checkpoint"}, "rank_died": {"hang", "comm_error"}, "rank_hung": {"hang", "comm_error"},
    "crash_at_start": {"comm_error", "hang"},
}  # fmt: skip
"""The recordings' causes in the report's words."""


class Truth(NamedTuple):
    """``network`` is None where the recording leaves it open; ``who`` are alternatives, a rank or its host."""

    network: bool | None
    causes: list[set[str]]
    who: list[set[str]]


def runs() -> list[str]:
    folder = LAB / "truth"
    return sorted(path.parent.name for path in folder.glob("*/truth.yaml")) if folder.is_dir() else []


def truth(run: str) -> Truth:
    known = yaml.safe_load((LAB / "truth" / run / "truth.yaml").read_text())
    expected, hosts = known["expected"], known["hosts"]
    network = {"yes": True, "no": False}.get(str(expected["network_bottleneck"]).split()[0].strip("(,"))
    named = str(expected["cause_class"]).replace("+", ",")
    causes = [] if named in ("none", "None") else [CAUSES[part.strip()] for part in named.split(",")]
    where = str(expected["straggler"]).split("(")[0].strip()
    home = {rank: host for host, ranks in hosts.items() for rank in ranks}
    who = []
    for name in [] if where in ("none", "None") else where.split(","):
        one = name.strip()
        others = {home[int(one[4:])]} if one.startswith("rank") else {f"rank{rank}" for rank in hosts[one]}
        who.append({one} | others)
    return Truth(network, causes, who)


def judge(run: str, folder: Path, config: Config | None = None) -> dict[str, Any]:
    """The verdict and loud findings of a run, analysed in this process."""
    store = build_run(
        [str(LAB / run)], folder / f"{run}.duckdb", config or Config(), RunOptions(name=run, jobs=1, keep="kernels")
    )
    with Store(store) as tables:
        result = evaluate(tables, config or Config())
        suspects = tables.query("SELECT host FROM network_suspect WHERE host IS NOT NULL").get_column("host").to_list()
    loud = [item for item in result.findings if item.severity != "info"]
    named = (
        {f"rank{rank}" for item in loud for rank in item.ranks}
        | {host for item in loud for host in item.hosts}
        | set(suspects)
    )
    return {"verdict": result.verdict, "loud": loud, "named": named, "findings": result.findings}
