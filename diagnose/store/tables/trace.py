"""Facts from profiler traces, and the split of each step."""

from __future__ import annotations

from diagnose.store.table import Table, columns

PARTS = """
    compute_ns          | BIGINT | ns | Union of compute activities.
    exposed_comm_ns     | BIGINT | ns | Communication not hidden by compute; the sum of its wait and transfer.
    exposed_wait_ns     | BIGINT | ns | Exposed communication spent waiting for peers; null until matched.
    exposed_transfer_ns | BIGINT | ns | Exposed communication that moves data; null until matched.
    overlapped_comm_ns  | BIGINT | ns | Communication hidden by compute.
    exposed_memcpy_ns   | BIGINT | ns | Copies hidden by neither compute nor communication.
    idle_ns             | BIGINT | ns | Nothing on the device; null when the capture lost device records.
    idle_input_ns       | BIGINT | ns | Idle inside the data loader's next.
    idle_host_ns        | BIGINT | ns | Idle because the next kernel was launched late.
    idle_sync_ns        | BIGINT | ns | Idle while the host waited for the device.
    idle_bubble_ns      | BIGINT | ns | Idle of a pipeline stage waiting for its neighbours.
    idle_other_ns       | BIGINT | ns | The remaining idle time.
"""

STEP = Table(
    "step",
    "one step of one rank",
    ("rank", "step"),
    columns("""
    rank         | INTEGER | -  | Global rank; -1 stands for the only rank of a trace that names none.
    step         | BIGINT  | -  | Step number.
    host_start_ns | BIGINT | ns | Start of the host window (annotation) that launched the step.
    host_end_ns  | BIGINT  | ns | End of the host window.
    start_ns     | BIGINT  | ns | Start of the first device activity (CPU runs: of the host window).
    end_ns       | BIGINT  | ns | End of the step window: the later of its last activity and the next step's start.
    window_ns    | BIGINT  | ns | Length of the step window.
    step_ns      | BIGINT  | ns | First start to the next step's first start; the last step: its window.
    label        | VARCHAR | -  | normal, warm_up, checkpoint, cut, profiler_start, no_device_work or lost_capture.
    why          | VARCHAR | -  | Why the label is not normal.
    activities   | BIGINT  | count | Device activities launched in the step.
"""),
)

BREAKDOWN = Table(
    "breakdown",
    "the split of one step of one rank; step -1 is the whole trace",
    ("rank", "step"),
    columns(
        """
    rank         | INTEGER | -  | Global rank.
    step         | BIGINT  | -  | Step number; -1 for the whole trace, first to last device activity.
    span_ns      | BIGINT  | ns | Length of the window the parts add up to.
"""
        + PARTS
        + """
    exposed_transfer_max_ns | BIGINT | ns | Upper bound of exposed_transfer_ns, known even where peers are missing.
    late_comm_ns      | BIGINT | ns | Part of exposed_comm in which the host had not launched what comes next.
    blocking_transfer_ns | BIGINT | ns | Part of exposed_transfer outside late_comm: what the rank really waits for.
    idle_gc_ns        | BIGINT | ns | Part of idle_host in which no operator or runtime call ran for 50 ms: likely garbage collection.
    idle_allocator_ns | BIGINT | ns | Part of idle_host or idle_sync inside device memory allocation calls.
    local_work_ns     | BIGINT | ns | Work that waits for nobody: compute, copies, late_comm and idle that the rank caused itself.
    memcpy_ns         | BIGINT | ns | Union of copies.
    comm_ns           | BIGINT | ns | Union of communication.
"""
    ),
)

KERNEL = Table(
    "kernel",
    "one device activity",
    ("rank", "device", "stream", "start_ns"),
    columns("""
    rank        | INTEGER | -     | Global rank.
    device      | INTEGER | -     | Device index in the trace.
    stream      | BIGINT  | -     | Stream.
    start_ns    | BIGINT  | ns    | Start, unix time.
    dur_ns      | BIGINT  | ns    | Duration.
    class       | VARCHAR | -     | compute, comm, memcpy or memset.
    name        | VARCHAR | -     | Name as traced.
    correlation | BIGINT  | -     | Joins the activity with its launch; null when absent.
    launch_ns   | BIGINT  | ns    | Start of the launching call, null when it lies outside the file.
    step        | BIGINT  | -     | Step that launched it, null when outside any step.
    graph       | BOOLEAN | -     | True when several activities share the launch (graph replay).
"""),
)

KERNEL_STAT = Table(
    "kernel_stat",
    "one signature in one step of one rank",
    ("rank", "step", "signature"),
    columns("""
    rank      | INTEGER | -     | Global rank.
    step      | BIGINT  | -     | Step, null when outside any step.
    class     | VARCHAR | -     | compute, comm, memcpy, memset or cpu_op.
    name      | VARCHAR | -     | Name as traced.
    signature | BIGINT  | -     | Hash of name, grid and block (CPU operators: name and input shapes): the same work on every rank.
    count     | BIGINT  | count | Executions.
    total_ns  | BIGINT  | ns    | Sum of durations.
    median_ns | BIGINT  | ns    | Median duration.
    bytes     | BIGINT  | bytes | Sum of copied bytes, null for kernels.
    alone_count  | BIGINT | count | Executions beside which no communication ran; null on CPUs.
    alone_ns     | BIGINT | ns | Sum of their durations.
    beside_count | BIGINT | count | Executions of which communication ran beside nine tenths or more.
    beside_ns    | BIGINT | ns | Sum of their durations.
"""),
)

HOST_GAP = Table(
    "host_gap",
    "one gap of a device above 50 us in which it had nothing to do, or only communication, with its cause",
    ("rank", "start_ns"),
    columns("""
    rank       | INTEGER | -  | Global rank.
    step       | BIGINT  | -  | Step of the next activity.
    start_ns   | BIGINT  | ns | Start of the gap.
    dur_ns     | BIGINT  | ns | Length.
    cause      | VARCHAR | -  | input, host, sync, bubble, other.
    detail     | VARCHAR | -  | gc, allocator, checkpoint, or the call that covered it.
    cause_ns   | BIGINT  | ns | Part of it that the detail accounts for, else the cause.
    beside_comm | BOOLEAN | - | Communication ran, and the host had not launched what comes next.
"""),
)

PROCESS_GROUP = Table(
    "process_group",
    "one group of ranks",
    ("group_id",),
    columns("""
    group_id    | BIGINT | -  | Hash of the sorted rank set (or of what is known of it).
    name        | VARCHAR | - | Name in the traces; names are not identities.
    description | VARCHAR | - | Description in the traces.
    ranks       | INTEGER[] | - | Members, null when the traces give only the size.
    size        | INTEGER | - | Members in number.
    nodes       | INTEGER | - | Hosts that the members span, null when unknown.
    tier        | VARCHAR | - | intra-node, inter-node, intra-leaf, cross-leaf; null when unknown.
    known_from  | VARCHAR | - | pg_config, args, inferred.
"""),
)

COMM_CALL = Table(
    "comm_call",
    "one communication activity on one rank, before matching",
    ("rank", "call"),
    columns("""
    rank        | INTEGER | -     | Global rank.
    call        | BIGINT  | -     | Position of the activity in the rank's order of starts.
    step        | BIGINT  | -     | Step that launched it.
    stream      | BIGINT  | -     | Stream, or thread for CPU communication.
    start_ns    | BIGINT  | ns    | Start on the rank's clock.
    dur_ns      | BIGINT  | ns    | Duration.
    issue_ns    | BIGINT  | ns    | Start of the call that issued it.
    ready_ns    | BIGINT  | ns    | When it could have run: issued, and the work launched before it done; null where unknown.
    exposed_ns  | BIGINT  | ns    | Part not hidden by compute.
    exposed_from_ns | BIGINT[] | ns | Where its exposed stretches start, after its own start.
    exposed_to_ns   | BIGINT[] | ns | Where they end.
    exposed_late_ns | BIGINT[] | ns | Until where the host had not launched what ends the stretch; null without launches.
    collective  | VARCHAR | -     | all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, reduce, send, recv, barrier, ..., unknown.
    group_name  | VARCHAR | -     | Process group name, null when not traced.
    group_desc  | VARCHAR | -     | Process group description.
    group_ranks | INTEGER[] | -   | Members, null when unknown or cut.
    group_size  | INTEGER | -     | Members in number, null when unknown.
    seq         | BIGINT  | -     | Sequence number in the group, null when not traced.
    is_p2p      | BOOLEAN | -     | Point to point.
    peer        | INTEGER | -     | Other end of send or recv, global rank.
    dtype       | VARCHAR | -     | Element type.
    in_elems    | BIGINT  | count | Input elements on this rank.
    out_elems   | BIGINT  | count | Output elements on this rank.
    in_split    | VARCHAR | -     | Input split sizes, JSON list, null when even or unknown.
    out_split   | VARCHAR | -     | Output split sizes.
    msg_bytes   | BIGINT  | bytes | Size S of nccl-tests on this rank, null when unknown.
    name        | VARCHAR | -     | Kernel or annotation name.
"""),
)

COLLECTIVE = Table(
    "collective",
    "one matched collective",
    ("instance",),
    columns("""
    instance     | BIGINT  | -     | Number of the instance.
    group_id     | BIGINT  | -     | Its process group.
    collective   | VARCHAR | -     | Kind.
    seq          | BIGINT  | -     | Sequence number, or the order in the group.
    step         | BIGINT  | -     | Step in which most members issued it.
    dtype        | VARCHAR | -     | Element type.
    msg_bytes    | BIGINT  | bytes | Size S of nccl-tests.
    members      | INTEGER | count | Members expected.
    seen         | INTEGER | count | Members seen.
    match_method | VARCHAR | -     | seq, order, p2p, kernel_order or inferred.
    transfer_ns  | BIGINT  | ns    | Shortest duration over the members (P2P and rooted: from aligned clocks).
    wire_ns      | BIGINT  | ns    | Last arrival to first departure where clocks are sure enough, else transfer_ns: what bandwidth is fitted to.
    wait_ns      | BIGINT  | ns    | Sum over members of the time spent waiting.
    start_skew_ns | BIGINT | ns    | Longest minus shortest duration; clock-free arrival skew.
    end_skew_ns  | BIGINT  | ns    | Spread of aligned ends, null without clocks.
    last_rank    | INTEGER | -     | Member that arrived last, null when the skew is below the clock residual.
    algbw_bytes_per_s | DOUBLE | bytes/s | S / transfer.
    busbw_bytes_per_s | DOUBLE | bytes/s | algbw times nccl-tests' factor.
"""),
)

COLLECTIVE_RANK = Table(
    "collective_rank",
    "one member of one matched collective",
    ("instance", "rank"),
    columns("""
    instance | BIGINT  | -  | The collective.
    rank     | INTEGER | -  | The member.
    step     | BIGINT  | -  | Step in which this rank issued it.
    call     | BIGINT  | -  | Its row in comm_call.
    start_ns | BIGINT  | ns | Start on the aligned clock.
    dur_ns   | BIGINT  | ns | Duration.
    wait_ns  | BIGINT  | ns | Duration minus the transfer.
    exposed_wait_ns     | BIGINT | ns | Exposed part of the wait.
    exposed_transfer_ns | BIGINT | ns | Exposed part of the transfer.
"""),
)

CLOCK = Table(
    "clock",
    "one host's clock against the reference host",
    ("host",),
    columns("""
    host        | VARCHAR | -   | Host (or rank<N> where hosts are unknown).
    offset_ns   | BIGINT  | ns  | To subtract from its times.
    drift_ppm   | DOUBLE  | ppm | Rate error.
    residual_ns | BIGINT  | ns  | What remains; no skew below it is reported.
    component   | INTEGER | -   | Hosts of different components cannot be aligned.
    samples     | BIGINT  | count | Collective ends used.
"""),
)

TABLES = (
    STEP,
    BREAKDOWN,
    KERNEL,
    KERNEL_STAT,
    HOST_GAP,
    PROCESS_GROUP,
    COMM_CALL,
    COLLECTIVE,
    COLLECTIVE_RANK,
    CLOCK,
)
