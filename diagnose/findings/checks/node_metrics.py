"""What node metrics say of GPUs, links, congestion and hosts: the rules of docs/node_metrics.md."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diagnose.findings.accelerator import accelerator
from diagnose.findings.node.congestion import check_congestion
from diagnose.findings.node.context import build
from diagnose.findings.node.gpu import check_gpu
from diagnose.findings.node.gpu_errors import check_gpu_errors
from diagnose.findings.node.host import check_host
from diagnose.findings.node.link import check_link
from diagnose.findings.node.moves import check_moves
from diagnose.findings.node.quality import check_quality
from diagnose.model import NotChecked

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from diagnose.findings.facts import Facts
    from diagnose.findings.node.context import Context
    from diagnose.model import Finding

COLLECT_GPU = (
    "nvidia-smi --query-gpu=timestamp,index,uuid,pci.bus_id,clocks.sm,clocks.max.sm,power.draw,enforced.power.limit,"
    "temperature.gpu,utilization.gpu,clocks_event_reasons.active,clocks_event_reasons_counters.sw_power_cap,"
    "clocks_event_reasons_counters.hw_thermal_slowdown,clocks_event_reasons_counters.sw_thermal_slowdown "
    "--format=csv -l 5 > gpu-$(hostname).csv"
)
COLLECT_AMD = "amd-smi metric --clock --power --temperature --usage --ecc --watch 5 --csv > gpu-$(hostname).csv"
COLLECT_NIC = (
    "before and after the run: "
    'grep "" /sys/class/infiniband/*/ports/*/{rate,state,phys_state,counters/*,hw_counters/*} '
    "> nic-$(hostname)-before.txt, the same for -after.txt"
)
COLLECT_HOST = "node_exporter scraped every 15 s or less, or: sadf -d -- -A > host-$(hostname).csv"


def check(facts: Facts) -> Iterable[Finding | NotChecked]:
    """Findings of all node rules, and which families of metrics were absent."""
    if (
        facts.tables.query("SELECT 1 FROM metric_sample LIMIT 1").is_empty()
        and facts.tables.query("SELECT 1 FROM node_event LIMIT 1").is_empty()
    ):
        yield NotChecked(
            "Is hardware or the host the cause?",
            "no node metrics were given",
            "; ".join(one for one in (_collect_gpu(facts), COLLECT_NIC, COLLECT_HOST) if one),
        )
        return
    context = build(facts)
    for part in (check_gpu, check_gpu_errors, check_link, check_congestion, check_host, check_moves, check_quality):
        yield from part(context)
    yield from _absent(context, _collect_gpu(facts))


def _collect_gpu(facts: Facts) -> str | None:
    """What records the devices' state; None where there are none, or no reader for their tool."""
    return {"cpu": None, "amd": COLLECT_AMD, "other": None}.get(accelerator(facts.tables) or "", COLLECT_GPU)


def _absent(context: Context, collect_gpu: str | None) -> Iterator[NotChecked]:
    names = set(context.summary.get_column("metric").to_list()) if not context.summary.is_empty() else set()
    if collect_gpu is not None and not any(name.startswith("gpu.") for name in names):
        yield NotChecked("Did a GPU throttle or run at a lower clock?", "no GPU metrics", collect_gpu)
    if not any(name.startswith("nic.") for name in names):
        yield NotChecked("Did a NIC lose its rate, retransmit or pause?", "no NIC counters", COLLECT_NIC)
    if not any(name.startswith(("node.", "job.")) for name in names):
        yield NotChecked("Was the host short of CPU, memory or I/O?", "no host metrics", COLLECT_HOST)
