"""What the cross-rank analyses found: judged against by the rules, never recomputed for a report."""

from __future__ import annotations

from diagnose.store.table import Table, columns

RANK_WORK = Table(
    "rank_work",
    "one rank against the ranks that do the same work",
    ("rank",),
    columns("""
    rank         | INTEGER | -     | Global rank.
    role         | INTEGER | -     | Pipeline stage; ranks of one stage do the same work.
    peers        | INTEGER | count | Ranks with the same role.
    work_ns      | BIGINT  | ns    | Median local work per step: what waits for nobody.
    reference_ns | BIGINT  | ns    | The same for the role's ordinary ranks.
    slowdown_ratio | DOUBLE | ratio | Median over steps of local work over the role's, minus 1.
    sigma_ratio  | DOUBLE  | ratio | Ordinary spread of that number over the role's ranks.
    p_value      | DOUBLE  | -     | Chance of it among ordinary ranks.
    slow_steps_ratio | DOUBLE | ratio | Share of steps in which the rank is slow.
    verdict      | VARCHAR | -     | persistent, transient, ordinary.
    slow_steps   | BIGINT[] | -    | Steps in which it is slow, for transient ranks.
    burst_ns     | BIGINT  | ns    | Mean excess in those steps.
    compute_excess_ns | BIGINT | ns | Part of the excess in compute.
    input_excess_ns | BIGINT | ns  | Part in the data loader.
    host_excess_ns | BIGINT | ns   | Part in late launches, garbage collection and the allocator included.
    gc_excess_ns | BIGINT  | ns    | Part in which the process showed no event.
    allocator_excess_ns | BIGINT | ns | Part in device memory allocation.
    copy_excess_ns | BIGINT | ns   | Part in exposed copies.
    speed_ratio  | DOUBLE  | ratio | Same kernels, same shapes: time over that of the others, minus 1.
    speed_spread_ratio | DOUBLE | ratio | Interquartile range of that over the signatures.
    matrix_ratio | DOUBLE  | ratio | The same for matrix kernels alone.
    memory_ratio | DOUBLE  | ratio | The same for the other, memory-bound kernels.
    breadth_ratio | DOUBLE | ratio | The same for all but the few signatures that take most of the time.
    volume_ratio | DOUBLE  | ratio | Amount of work (counts at the others' durations) over the others', minus 1.
    unshared_ratio | DOUBLE | ratio | Share of its compute in kernels or shapes that most peers never run, above the role's median.
    cause        | VARCHAR | -     | Cause from the contract's list, null for ordinary ranks.
    cost_ns      | BIGINT  | ns    | What the job's step would save without this rank's excess.
"""),
)

JOB_STAT = Table(
    "job_stat",
    "one number of the whole job",
    ("name",),
    columns("""
    name  | VARCHAR | - | What it is.
    value | DOUBLE  | - | Its value, in the unit its name ends in.
    text  | VARCHAR | - | Its value when it is text.
"""),
)

WHO_WAITS = Table(
    "who_waits",
    "one rank: how long it waits, and how long others wait for it",
    ("rank",),
    columns("""
    rank           | INTEGER | -     | Global rank.
    wait_ns        | BIGINT  | ns    | Its own waiting per step.
    caused_wait_ns | BIGINT  | ns    | Waiting per step of all others in collectives where it came last.
    last_ratio     | DOUBLE  | ratio | Share of its collectives in which it came last.
"""),
)

NETWORK_TIER = Table(
    "network_tier",
    "one tier, collective and group size: its fitted cost model",
    ("tier", "collective", "group_size"),
    columns("""
    tier        | VARCHAR | -     | intra-node, inter-node, intra-leaf, cross-leaf.
    collective  | VARCHAR | -     | Kind.
    group_size  | INTEGER | count | Members.
    groups      | INTEGER | count | Process groups behind it.
    instances   | BIGINT  | count | Collectives behind it.
    alpha_ns    | BIGINT  | ns    | Fixed cost; null where one size only was seen.
    root_ratio  | DOUBLE  | -     | Weight of the square-root term; null in the straight-line model.
    busbw_bytes_per_s | DOUBLE | bytes/s | Bandwidth term of the model (experienced: median).
    busbw_low   | DOUBLE  | bytes/s | Lower end of its 95 % interval.
    busbw_high  | DOUBLE  | bytes/s | Upper end.
    best_busbw_bytes_per_s | DOUBLE | bytes/s | Best decile of the largest size seen.
    half_size_bytes | BIGINT | bytes | Size at which half of the bandwidth is reached.
    reference_bytes_per_s | DOUBLE | bytes/s | What it should reach.
    reference_from | VARCHAR | -   | Where that comes from.
    wait_ratio  | DOUBLE  | ratio | Share of kernel time spent waiting.
    latency_ratio | DOUBLE | ratio | Share of the transfer that is fixed cost.
    tail_ratio  | DOUBLE  | ratio | Share of the transfer time above 1.25 times the median of the same size and group.
    exposed_transfer_ns | BIGINT | ns | Its exposed transfer per step.
    bound       | VARCHAR | -     | wait, latency, bandwidth, tail, contention, wire or unknown.
"""),
)

NETWORK_SUSPECT = Table(
    "network_suspect",
    "one host or device whose groups are slow",
    ("kind", "name"),
    columns("""
    kind      | VARCHAR | -     | node, rank (its NIC or link); "node tail", "rank tail": by its outliers.
    name      | VARCHAR | -     | Which.
    host      | VARCHAR | -     | Its host.
    ranks     | INTEGER[] | -   | Its ranks.
    score     | DOUBLE  | -     | Evidence: robust standard deviations above healthy groups.
    slowdown_ratio | DOUBLE | ratio | Transfer time of its groups over the class median, minus 1.
    ambiguous | BOOLEAN | -     | Others explain the same evidence as well.
    tier      | VARCHAR | -     | inter-node, or intra-node for links inside the host.
"""),
)

WHAT_IF = Table(
    "what_if",
    "one scenario, replayed over the matched schedule",
    ("scenario",),
    columns("""
    scenario  | VARCHAR | -     | What was changed.
    step_ns   | BIGINT  | ns    | Step time then.
    speedup   | DOUBLE  | ratio | Measured step over that.
    explained_ratio | DOUBLE | ratio | Replayed over measured step of the unmodified run.
"""),
)

TABLES = (RANK_WORK, JOB_STAT, WHO_WAITS, NETWORK_TIER, NETWORK_SUSPECT, WHAT_IF)
