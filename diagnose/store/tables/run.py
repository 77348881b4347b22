"""The run itself and where its facts came from."""

from __future__ import annotations

from diagnose.store.table import Table, columns

RUN = Table(
    "run",
    "one row: the run",
    (),
    columns("""
    name                | VARCHAR | -  | Name of the run, from --name or the input folder.
    tool_version        | VARCHAR | -  | Version of diagnose that wrote the store.
    schema_version      | INTEGER | -  | Version of this schema.
    world_size          | INTEGER | -  | Ranks of the job: from the traces or logs, else the ranks seen, null when unknown.
    backend             | VARCHAR | -  | Communication backend as the job named it (nccl, gloo, ...).
    device_names        | VARCHAR[] | - | Distinct accelerator names.
    parallelism         | VARCHAR | -  | JSON object of parallel dimensions and their sizes, null when unknown.
    start_ns            | BIGINT  | ns | First event of the run, unix time.
    end_ns              | BIGINT  | ns | Last event of the run, unix time.
    step_source         | VARCHAR | -  | Where steps come from: ProfilerStep, optimizer, period, none.
    config              | VARCHAR | -  | JSON of the configuration the analysis used.
"""),
)

SOURCE = Table(
    "source",
    "one input file",
    ("path",),
    columns("""
    path       | VARCHAR | -     | Path or URL as read; members of archives follow a "!".
    kind       | VARCHAR | -     | What the content is: kineto, nccl-log, execution-trace, ...
    bytes      | BIGINT  | bytes | Size on disk.
    rank       | INTEGER | -     | Rank of the file, null when unknown.
    rank_from  | VARCHAR | -     | How the rank is known: distributedInfo, content, name, option; null when unknown.
    host       | VARCHAR | -     | Host of the file, null when unknown.
    host_from  | VARCHAR | -     | How the host is known.
    start_ns   | BIGINT  | ns    | First event, unix time.
    end_ns     | BIGINT  | ns    | Last event, unix time.
    rows       | BIGINT  | count | Records kept from the file.
    status     | VARCHAR | -     | ok, partial, skipped or failed.
    problem    | VARCHAR | -     | Why it is not ok, in one sentence.
    read_ns    | BIGINT  | ns    | Time spent reading it.
"""),
)

ISSUE = Table(
    "issue",
    "one kind of problem in one input",
    ("path", "code"),
    columns("""
    path        | VARCHAR | -     | The input.
    code        | VARCHAR | -     | Kind of problem.
    severity    | VARCHAR | -     | error, warning or info.
    count       | BIGINT  | count | How often it occurred.
    example     | VARCHAR | -     | One occurrence, shortened.
    byte_offset | BIGINT  | bytes | Where the example stands in the decompressed content, null when it has no place.
"""),
)

HOST = Table(
    "host",
    "one host",
    ("host",),
    columns("""
    host      | VARCHAR | -     | Host name as shortened for joins.
    full_name | VARCHAR | -     | Host name as first seen.
    ranks     | INTEGER[] | -   | Ranks that ran there.
    inferred  | BOOLEAN | -     | True when the name was inferred, not stated by the job.
"""),
)

RANK = Table(
    "rank",
    "one rank",
    ("rank",),
    columns("""
    rank          | INTEGER | -  | Global rank.
    local_rank    | INTEGER | -  | Position on its host, null when unknown.
    host          | VARCHAR | -  | Host, null when unknown.
    device        | INTEGER | -  | Device index in the trace.
    device_name   | VARCHAR | -  | Accelerator name.
    trace         | VARCHAR | -  | The trace file used for this rank.
    role          | INTEGER | -  | Ranks with the same number do the same work; null when not compared.
    start_ns      | BIGINT  | ns | First event, unix time of the rank's own clock.
    end_ns        | BIGINT  | ns | Last event.
    has_device_work | BOOLEAN | - | False for CPU-only ranks.
    lost_capture  | VARCHAR | -  | Why device time is unknown (launches without kernels, ...), null when it is known.
"""),
)

TABLES = (RUN, SOURCE, ISSUE, HOST, RANK)
