"""Facts from communication records: NCCL and RCCL logs, watchdogs, flight recorders, inspectors, bandwidth tests.

``path`` and ``line`` say where a fact was read. ``host``, ``pid`` and ``comm`` name a process and its communicator;
``comm_rank`` is the rank inside that communicator, never the global rank, which is ``rank`` where the log states it.
"""

from __future__ import annotations

from diagnose.store.table import Table, columns

COMM_PROCESS = Table(
    "comm_process",
    "one process that wrote to a communication log",
    ("path", "host", "pid"),
    columns("""
    path           | VARCHAR | -  | The log.
    host           | VARCHAR | -  | Host as the library prints it, null when the poster removed it.
    pid            | BIGINT  | -  | Process.
    rank           | INTEGER | -  | Global rank as the launcher's tag states it, null when it does not.
    device         | INTEGER | -  | CUDA device of the main thread, null when never printed.
    library        | VARCHAR | -  | nccl or rccl.
    version        | VARCHAR | -  | Version of the library as its banner prints it.
    driver_version | INTEGER | -  | cudaDriverVersion: 1000 * major + 10 * minor.
    network        | VARCHAR | -  | The last "Using network".
    plugin         | VARCHAR | -  | External network plugin that was loaded, null when none was.
    nvls           | BOOLEAN | -  | NVLink SHARP multicast available; null when not stated.
    all_direct_p2p | BOOLEAN | -  | All pairs of one host reach each other by P2P; null when not stated.
    lines          | BIGINT  | count | Records of this process.
    first_line     | BIGINT  | -  | Its first line in the file.
    last_rc        | INTEGER | -  | Last return code of a "file:line -> n" chain, null without one.
"""),
)

COMMUNICATOR = Table(
    "communicator",
    "one process's view of one communicator",
    ("path", "host", "pid", "comm"),
    columns("""
    path         | VARCHAR | -  | The log.
    line         | BIGINT  | -  | Line that first named it.
    host         | VARCHAR | -  | Host.
    pid          | BIGINT  | -  | Process.
    comm         | VARCHAR | -  | Pointer inside the process.
    comm_id      | VARCHAR | -  | Hash shared by its processes, null before NCCL 2.16.
    parent       | VARCHAR | -  | Communicator it was split from.
    api          | VARCHAR | -  | Call that made it.
    comm_rank    | INTEGER | -  | Rank in this communicator.
    nranks       | INTEGER | -  | Size.
    nnodes       | INTEGER | -  | Groups of ranks that are joined without the network (not always hosts).
    local_ranks  | INTEGER | -  | Ranks in the own group.
    mnnvl        | BOOLEAN | -  | Multi-node NVLink.
    cuda_device  | INTEGER | -  | CUDA device.
    nvml_device  | INTEGER | -  | NVML device.
    bus_id       | VARCHAR | -  | PCI bus id, hex.
    state        | VARCHAR | -  | started, complete, destroyed, aborted; null when no such line was seen.
    started_line | BIGINT  | -  | Line of Init START.
    init_ns      | BIGINT  | ns | Total of "Init timings".
    bootstrap_ns | BIGINT  | ns | Bootstrap part of it.
    bootstrap_recv_ns | BIGINT | ns | Waiting for peers in the bootstrap.
    connect_ns   | BIGINT  | ns | Connections part of it.
    coll_channels | INTEGER | count | Channels for collectives.
    nvls_channels | INTEGER | count | NVLS channels.
    collnet_channels | INTEGER | count | CollNet channels.
    p2p_channels | INTEGER | count | Channels for send and receive.
    connected    | BOOLEAN | -  | A "Connected all rings" or later line followed.
"""),
)

CHANNEL = Table(
    "channel",
    "one connection of a communicator as printed by one end, in one part of the log; lines add up",
    ("path", "host", "pid", "comm", "channel", "connection", "source", "target", "direction"),
    columns("""
    path       | VARCHAR | -     | The log.
    line       | BIGINT  | -     | First line that printed it.
    host       | VARCHAR | -     | Host of the printing end.
    pid        | BIGINT  | -     | Process of the printing end.
    rank       | INTEGER | -     | Global rank as the launcher's tag states it.
    comm       | VARCHAR | -     | Communicator, where the log or the thread tells.
    channel    | INTEGER | -     | Channel.
    connection | INTEGER | -     | 0 collectives, 1 send and receive; null when not printed.
    source     | INTEGER | -     | Sending rank of the communicator.
    target     | INTEGER | -     | Receiving rank, null for in-network reduction.
    source_device | VARCHAR | -  | Bracket after the source: NVML index or PCI bus id.
    target_device | VARCHAR | -  | Bracket after the target.
    direction  | VARCHAR | -     | send or receive for networks, null for links that only the sender prints.
    kind       | VARCHAR | -     | Transport without device: P2P/IPC, SHM/direct/direct, NET/IB/GDRDMA, ...
    family     | VARCHAR | -     | P2P, SHM, NET or COLLNET.
    network    | VARCHAR | -     | Network of NET links: IB, Socket, Libfabric, ...
    nic        | INTEGER | -     | Network device index.
    proxy      | INTEGER | -     | Rank whose NIC is used (PXN), null for the own one.
    gdr        | BOOLEAN | -     | GPUDirect RDMA, null where it does not apply.
    lines      | BIGINT  | count | Lines that said so; a lazy reconnect repeats them.
"""),
)

COMM_EVENT = Table(
    "comm_event",
    "one kind of message of one process with one subject",
    ("path", "line", "code"),
    columns("""
    path       | VARCHAR | -     | The log.
    line       | BIGINT  | -     | First line.
    last_line  | BIGINT  | -     | Last line.
    t_ns       | BIGINT  | ns    | Time of the first, unix time of an assumed UTC clock, null when not printed.
    host       | VARCHAR | -     | Host.
    pid        | BIGINT  | -     | Process.
    device     | INTEGER | -     | CUDA device in the prefix.
    rank       | INTEGER | -     | Global rank as the log states it.
    code       | VARCHAR | -     | Signature.
    role       | VARCHAR | -     | cause, echo (follows from another), advice or fact.
    level      | VARCHAR | -     | WARN, INFO, torch, gloo, python, launcher or ras.
    message    | VARCHAR | -     | The message, shortened.
    count      | BIGINT  | count | How often.
    peer       | VARCHAR | -     | Other end: address, host or rank.
    subject    | VARCHAR | -     | Device, interface, file or parameter it is about.
    detail     | VARCHAR | -     | Error text or another distinguishing word.
    status     | INTEGER | -     | Completion status, errno, signal or exit code.
    comm_rank  | INTEGER | -     | Rank in the communicator that the message names.
    comm_group | VARCHAR | -     | Process group.
    op         | VARCHAR | -     | Collective.
    seq        | BIGINT  | -     | Its sequence number.
    enqueued   | BIGINT  | -     | Last enqueued sequence number.
    completed  | BIGINT  | -     | Last completed sequence number.
    timeout_ns | BIGINT  | ns    | Timeout that expired.
    elements   | BIGINT  | count | Elements of the collective.
    value_a    | DOUBLE  | -     | First number of the message (minimum, distance, local size, version code).
    value_b    | DOUBLE  | -     | Second number of the message.
"""),
)

COMM_ENV = Table(
    "comm_env",
    "one setting of one process",
    ("path", "host", "pid", "name"),
    columns("""
    path   | VARCHAR | - | The log.
    line   | BIGINT  | - | Line.
    host   | VARCHAR | - | Host.
    pid    | BIGINT  | - | Process.
    name   | VARCHAR | - | Variable, or configuration key.
    value  | VARCHAR | - | Value as printed.
    origin | VARCHAR | - | environment, plugin (set by a plugin itself) or config (by the application).
"""),
)

COMM_NET = Table(
    "comm_net",
    "one NIC or interface that the processes of one host were offered",
    ("path", "host", "kind", "device_index", "name"),
    columns("""
    path         | VARCHAR | -       | The log.
    line         | BIGINT  | -       | Line.
    host         | VARCHAR | -       | Host.
    pid          | BIGINT  | -       | First process that printed it.
    kind         | VARCHAR | -       | ib, ofi, socket, bootstrap or oob (out of band of NET/IB).
    device_index | INTEGER | -       | Position in the list.
    name         | VARCHAR | -       | NIC or interface.
    port         | INTEGER | -       | Port of the NIC.
    link_layer   | VARCHAR | -       | IB or RoCE.
    address      | VARCHAR | -       | Address of an interface.
    bytes_per_s  | DOUBLE  | bytes/s | Rate, null when not stated.
    gdr_capable  | BOOLEAN | -       | GPUDirect RDMA enabled for the NIC: a capability, not its use.
    sharp        | BOOLEAN | -       | In-network reduction.
"""),
)

COMM_TOPOLOGY = Table(
    "comm_topology",
    "one fact on the layout: ring, pattern, link, tuner choice",
    ("path", "line", "kind", "name"),
    columns("""
    path        | VARCHAR | -       | The log.
    line        | BIGINT  | -       | Line.
    host        | VARCHAR | -       | Host.
    pid         | BIGINT  | -       | Process.
    comm        | VARCHAR | -       | Communicator.
    kind        | VARCHAR | -       | ring, tree, pattern, link, gdr, tuner or system.
    name        | VARCHAR | -       | Channel, pattern, node pair or function.
    value       | VARCHAR | -       | As printed, shortened.
    bytes_per_s | DOUBLE  | bytes/s | Rate that belongs to it.
    size_bytes  | BIGINT  | bytes   | Message size of a tuner choice.
"""),
)

COMM_COLL = Table(
    "comm_coll",
    "one collective call of one rank as logged: a per-rank shard, not the total of the collective",
    ("path", "line"),
    columns("""
    path       | VARCHAR | -     | The log.
    line       | BIGINT  | -     | Line.
    host       | VARCHAR | -     | Host.
    pid        | BIGINT  | -     | Process.
    comm       | VARCHAR | -     | Communicator.
    op_count   | BIGINT  | -     | Position in the communicator (printed in hex).
    collective | VARCHAR | -     | As printed.
    elements   | BIGINT  | count | Count argument of this rank.
    dtype      | VARCHAR | -     | Element type.
    bytes      | BIGINT  | bytes | elements times the size of the type, of this rank.
    reduction  | VARCHAR | -     | sum, prod, max, min, avg.
    root       | INTEGER | -     | Root, or the peer of send and receive.
    nranks     | INTEGER | -     | Size of the communicator.
"""),
)

RANK_LOG = Table(
    "rank_log",
    "one log that speaks for one rank, and how it ends",
    ("path",),
    columns("""
    path       | VARCHAR | -  | The log.
    rank       | INTEGER | -  | Global rank.
    host       | VARCHAR | -  | Host, null when not stated.
    world_size | INTEGER | -  | Ranks of the job as the log states it.
    backend    | VARCHAR | -  | gloo, nccl, ...
    last_t_ns  | BIGINT  | ns | Last time printed, unix time of an assumed UTC clock.
    last_line  | BIGINT  | -  | Lines of the file.
    last_step  | BIGINT  | -  | Last step printed.
    total_steps | BIGINT | -  | Steps planned, where the log says "n/total".
    last_seq   | BIGINT  | -  | Last collective announced by the wrapper of TORCH_DISTRIBUTED_DEBUG=DETAIL.
    ended      | VARCHAR | -  | exception, network_error, signal, shutdown or open (the log just stops).
    stage      | VARCHAR | -  | Last start-up stage seen: store, group, reducer, ddp, steps.
    text       | VARCHAR | -  | The last line, shortened.
"""),
)

FLIGHT_RECORD = Table(
    "flight_record",
    "one process group in one rank's flight recorder dump",
    ("path", "rank", "comm_group"),
    columns("""
    path        | VARCHAR | -  | The dump.
    rank        | INTEGER | -  | Global rank, null when neither name nor content tells it.
    host        | VARCHAR | -  | Host from the file name, null when it has none.
    comm_group  | VARCHAR | -  | Name of the group (its id where it has no name).
    description | VARCHAR | -  | Description.
    ranks       | INTEGER[] | - | Members, null when not stated.
    last_seq    | BIGINT  | -  | Greatest collective sequence number among the entries.
    enqueued    | BIGINT  | -  | Last enqueued (point to point included), -1 when unknown.
    started     | BIGINT  | -  | Last started.
    completed   | BIGINT  | -  | Last completed.
    pending_seq | BIGINT  | -  | First collective that is not completed, null when none.
    pending_op  | VARCHAR | -  | Its operation.
    pending_state | VARCHAR | - | Its state: scheduled or started.
    entries     | BIGINT  | count | Entries kept for the group.
    version     | VARCHAR | -  | Version of the dump.
"""),
)

FLIGHT_ENTRY = Table(
    "flight_entry",
    "one operation in one rank's flight recorder dump",
    ("path", "rank", "record"),
    columns("""
    path         | VARCHAR | -  | The dump.
    rank         | INTEGER | -  | Global rank.
    record       | BIGINT  | -  | Position in the dump.
    comm_group   | VARCHAR | -  | Group.
    op           | VARCHAR | -  | Operation, without the backend's prefix.
    backend      | VARCHAR | -  | nccl, gloo, ...
    is_p2p       | BOOLEAN | -  | Point to point.
    seq          | BIGINT  | -  | Collective sequence number (point to point: its own count).
    state        | VARCHAR | -  | scheduled, started or completed.
    in_sizes     | VARCHAR | -  | Input shapes, JSON.
    out_sizes    | VARCHAR | -  | Output shapes, JSON.
    dtype        | VARCHAR | -  | Input element types.
    created_ns   | BIGINT  | ns | When it was issued, unix time.
    started_ns   | BIGINT  | ns | When it was seen started, null when not.
    completed_ns | BIGINT  | ns | When it was seen completed, null when not.
    timeout_ns   | BIGINT  | ns | Its timeout.
"""),
)

INSPECTOR_COLL = Table(
    "inspector_coll",
    "one collective of one rank as NCCL's inspector plugin measured it; the time includes waiting for peers",
    ("path", "line"),
    columns("""
    path        | VARCHAR | -       | The file.
    line        | BIGINT  | -       | Line.
    host        | VARCHAR | -       | Host.
    pid         | BIGINT  | -       | Process.
    comm_id     | VARCHAR | -       | Communicator.
    comm_rank   | INTEGER | -       | Rank in it.
    nranks      | INTEGER | -       | Its size.
    nnodes      | INTEGER | -       | Its nodes.
    collective  | VARCHAR | -       | As printed.
    seq         | BIGINT  | -       | coll_sn.
    size_bytes  | BIGINT  | bytes   | Message size of the rank.
    dur_ns      | BIGINT  | ns      | Execution time.
    timing_source | VARCHAR | -     | kernel_gpu, kernel_cpu or collective_cpu.
    algbw_bytes_per_s | DOUBLE | bytes/s | As printed.
    busbw_bytes_per_s | DOUBLE | bytes/s | As printed.
    t_ns        | BIGINT  | ns      | Time of the dump, unix time.
"""),
)

BANDWIDTH_REFERENCE = Table(
    "bandwidth_reference",
    "one row of a bandwidth test or of a communication summary",
    ("path", "line", "in_place"),
    columns("""
    path       | VARCHAR | -       | The output.
    line       | BIGINT  | -       | Line.
    tool       | VARCHAR | -       | nccl-tests or deepspeed.
    test       | BIGINT  | -       | Number of the table in the file.
    collective | VARCHAR | -       | all_reduce, all_gather, ..., null when the header does not name it.
    size_bytes | BIGINT  | bytes   | Size S of nccl-tests.
    dtype      | VARCHAR | -       | Element type.
    reduction  | VARCHAR | -       | Reduction.
    gpus       | INTEGER | count   | Ranks, null when the header does not list them.
    hosts      | INTEGER | count   | Hosts of these ranks.
    in_place   | BOOLEAN | -       | In place.
    time_ns    | BIGINT  | ns      | Time of one operation.
    algbw_bytes_per_s | DOUBLE | bytes/s | S / time.
    busbw_bytes_per_s | DOUBLE | bytes/s | algbw times the factor of the operation.
    wrong      | DOUBLE  | count   | Wrong elements, null when the check was off.
    calls      | BIGINT  | count   | Calls that were averaged, null when not stated.
"""),
)

TABLES = (
    COMM_PROCESS,
    COMMUNICATOR,
    CHANNEL,
    COMM_EVENT,
    COMM_ENV,
    COMM_NET,
    COMM_TOPOLOGY,
    COMM_COLL,
    RANK_LOG,
    FLIGHT_RECORD,
    FLIGHT_ENTRY,
    INSPECTOR_COLL,
    BANDWIDTH_REFERENCE,
)
