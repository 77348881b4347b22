"""Which evidence a set of inputs lacks, and the exact lines that would collect it next time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diagnose.model import NotChecked

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from diagnose.pipeline.identify import Identified, Member
    from diagnose.pipeline.result import SourceResult

PROFILER = """\
from torch.profiler import ProfilerActivity, profile, schedule
rank = torch.distributed.get_rank()     # on every rank
with profile(
    activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
    schedule=schedule(wait=10, warmup=3, active=8, repeat=1),
    record_shapes=True,
    on_trace_ready=lambda p: p.export_chrome_trace(f"rank{rank}.json.gz"),
) as prof:
    for batch in loader:
        train_step(batch)
        prof.step()"""
LOST = (
    """\
# Profile CPU and CUDA activities with 3 warm-up steps or more, with no
# other profiler on the device, and a run without graph replay once.
dcgmi profile --pause               # while profiling; --resume afterwards
"""
    + PROFILER
)
NCCL_LOG = """\
export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,NET,GRAPH,TUNING
export NCCL_DEBUG_TIMESTAMP_LEVELS=WARN,INFO        # NCCL 2.26 and later
export NCCL_DEBUG_FILE=/shared/logs/nccl.%h.%p.log"""
METRICS = """\
# On each node; the counters of the network cards before and after the run.
nvidia-smi --format=csv -l 1 --query-gpu=timestamp,index,uuid,clocks.sm,\\
power.draw,temperature.gpu,utilization.gpu,clocks_event_reasons.active,\\
ecc.errors.uncorrected.volatile.total,pcie.link.width.current \\
> $(hostname)-gpu.csv &
journalctl -k -f -o short-iso > $(hostname)-kernel.log &
grep "" /sys/class/infiniband/*/ports/*/{counters,hw_counters}/* \\
> $(hostname)-nic-$(date +%s).txt"""
TRAINING_LOG = """\
# A line a step with its number, time and loss, each with a time stamp, or
# the trainer's own JSON log, e.g. Hugging Face's trainer_state.json."""
FLIGHT_RECORDER = """\
export TORCH_NCCL_TRACE_BUFFER_SIZE=2000 TORCH_NCCL_DUMP_ON_TIMEOUT=true
export TORCH_NCCL_DEBUG_INFO_TEMP_FILE=/shared/logs/nccl_trace_rank_"""
RANKS = """\
# Start the profiler after torch.distributed.init_process_group(). For these
# files: --rank-from REGEX, the rank as its first group, for example
diagnose inspect --rank-from 'gpu(\\d+)' PATH"""
SIZES = """\
# PyTorch 2.4 and later record group, type and sizes of each collective.
profile(..., record_shapes=True)"""
HOSTS = """\
prof.add_metadata("host_name", socket.gethostname())    # inside the profile
# For these files: --host-map hosts.yaml, with lines such as
0-7: node-a"""


def missing_evidence(identified: Identified) -> list[NotChecked]:
    """Questions that these inputs leave open, each with why, and what to run."""
    traces = [member for member in identified.members if member.result.trace is not None]
    if not traces:
        first = [NotChecked("Where does the time of each step go?", "there is no profiler trace", PROFILER)]
    else:
        first = [*_about_steps(traces), *_about_ranks(traces, identified.results)]
    return [*first, *_about_other_sources(traces, identified.results)]


def _about_steps(traces: Sequence[Member]) -> Iterator[NotChecked]:
    infos = [(member, member.result.trace) for member in traces if member.result.trace is not None]
    lost = [member for member, info in infos if info.lost_capture]
    if lost:
        yield NotChecked(
            "What did the device do?",
            f"{_count(lost)} lost its device records: {lost[0].result.trace.lost_capture}"
            if lost[0].result.trace
            else "",
            LOST,
        )
    unmarked = [member for member, info in infos if info.step_source == "none"]
    if unmarked:
        yield NotChecked(
            "How do single steps differ?",
            f"{_count(unmarked)} marks no steps (no ProfilerStep#, no optimizer annotation, no repeating communication)",
            PROFILER,
        )


def _about_ranks(traces: Sequence[Member], results: Sequence[SourceResult]) -> Iterator[NotChecked]:
    world = max((result.identity.world_size or 0 for result in results), default=0)
    ranks = {member.rank for member in traces if member.rank >= 0}
    if world > len(ranks):
        yield NotChecked(
            "Do all ranks behave alike, and who waits for whom?",
            f"traces of {len(ranks)} of {world} ranks: waiting and transfer cannot be told apart without the others",
            PROFILER,
        )
    unnamed = [member for member in traces if member.rank < 0]
    if len(unnamed) > 1 or (unnamed and ranks):
        yield NotChecked(
            "Which trace is which rank?",
            f"{_count(unnamed)} says no rank, neither inside nor in its name",
            RANKS,
        )
    silent = [member for member in traces if "comm_call" in member.result.shards and not _has_sizes(member)]
    if silent:
        yield NotChecked(
            "How fast are the collectives?",
            f"{_count(silent)} does not say the sizes of its messages",
            SIZES,
        )
    if len(ranks) > 1 and any(member.host is None for member in traces):
        yield NotChecked(
            "Which ranks share a host?",
            "the traces do not name their hosts",
            HOSTS,
        )


def _about_other_sources(traces: Sequence[Member], results: Sequence[SourceResult]) -> Iterator[NotChecked]:
    tables = {table for result in results for table in result.shards}
    backends = {info.backend for member in traces if (info := member.result.trace) is not None and info.backend}
    on_device = not backends or any("nccl" in backend for backend in backends)
    if on_device and not tables & {"communicator", "comm_process", "channel"}:
        yield NotChecked(
            "Does the traffic take the fast path (RDMA, GPUDirect, NVLink)?", "there is no NCCL log", NCCL_LOG
        )
    if "metric_sample" not in tables:
        yield NotChecked(
            "Is there a physical cause (heat, clocks, errors, retransmissions)?", "there are no node metrics", METRICS
        )
    if "training_log" not in tables:
        yield NotChecked("Is the profiled window like the rest of the run?", "there is no training log", TRAINING_LOG)
    if on_device and not traces and "flight_entry" not in tables:
        yield NotChecked("If it hangs: which rank is missing?", "there is no Flight Recorder dump", FLIGHT_RECORDER)


def _has_sizes(member: Member) -> bool:
    import polars as pl

    files = member.result.shards["comm_call"]
    return bool(pl.scan_parquet(files).select(pl.col("msg_bytes").is_not_null().any()).collect().item())


def _count(members: Sequence[Member]) -> str:
    return "the trace" if len(members) == 1 else f"each of {len(members)} traces"
