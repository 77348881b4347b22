"""What was measured beside the traces: node metrics, kernel-log events, device identities, training logs."""

from __future__ import annotations

from diagnose.store.table import Table, columns

METRIC_SAMPLE = Table(
    "metric_sample",
    "one value of one metric of one entity at one time",
    ("metric", "host", "entity", "t_ns"),
    columns("""
    metric  | VARCHAR | -  | Canonical name (docs/node_metrics.md), or the producer's own name where there is none.
    unit    | VARCHAR | -  | Unit of value: SI, ratio 0 to 1, or raw when the producer's unit is unknown.
    kind    | VARCHAR | -  | counter (grows or resets), window (count of the last interval), gauge or event.
    host    | VARCHAR | -  | Host as labels, content or options name it, shortened; null when nothing tells it.
    entity  | VARCHAR | -  | node, gpu:<uuid>, nic:<device>/<port>, disk:<device>, ...; parts follow a slash.
    t_ns    | BIGINT  | ns | Time of the sample, unix time; null when the file has none.
    value   | DOUBLE  | -  | Value in unit; null when the producer said it does not know.
    quality | VARCHAR | -  | ok, null, saturated (at all-ones: at least this), snapshot (a counter without time).
    source  | VARCHAR | -  | File the value was read from.
    format  | VARCHAR | -  | Reader that read it; a counter is only differenced within one format.
"""),
)

NODE_EVENT = Table(
    "node_event",
    "one event of a kernel log",
    ("host", "t_ns", "kind", "device"),
    columns("""
    host   | VARCHAR | -  | Host, null when nothing tells it.
    t_ns   | BIGINT  | ns | Time, unix time; null where the log has none (seconds since boot).
    kind   | VARCHAR | -  | xid, sxid, pcie_aer, pcie_limited, link_down, link_up, oom, mlx5_thermal, mlx5_error, ...
    device | VARCHAR | -  | Entity the event names, as in metric_sample.entity.
    code   | INTEGER | -  | Xid or SXid number, null for other kinds.
    fatal  | BOOLEAN | -  | What the line itself says about its gravity; null when it says nothing.
    text   | VARCHAR | -  | The message, shortened.
    source | VARCHAR | -  | File and line.
"""),
)

TRAINING_LOG = Table(
    "training_log",
    "one logged step",
    ("source", "rank", "step", "restart"),
    columns("""
    step            | BIGINT  | -     | Step or iteration number as logged.
    t_ns            | BIGINT  | ns    | Time of the line, unix time; null when the log has none.
    step_time_ns    | BIGINT  | ns    | Duration of one step; null when neither logged nor derivable.
    loss            | DOUBLE  | -     | Loss as logged.
    throughput      | DOUBLE  | -     | Throughput as logged, in throughput_unit.
    throughput_unit | VARCHAR | -     | samples/s, tokens/s, tokens/s/gpu, TFLOP/s/gpu, steps/s.
    restart         | INTEGER | count | How often the step number had jumped back before this line.
    source          | VARCHAR | -     | File the line was read from.
    rank            | INTEGER | -     | Rank that logged it, null when unknown.
    host            | VARCHAR | -     | Host that logged it, null when unknown.
"""),
)

HOST_DEVICE = Table(
    "host_device",
    "one accelerator or network device of one host, as one file names it",
    ("host", "entity"),
    columns("""
    host       | VARCHAR | - | Host, null when nothing tells it.
    entity     | VARCHAR | - | Entity used in metric_sample.
    index      | INTEGER | - | Index on its host, null when unknown.
    uuid       | VARCHAR | - | GPU-<uuid> in lower case, null when unknown.
    pci_bus_id | VARCHAR | - | dddddddd:bb:dd.f in lower case, null when unknown.
    name       | VARCHAR | - | Product or device name.
    netdev     | VARCHAR | - | Network interface of the same PCI device, null when unknown.
    source     | VARCHAR | - | File that told it.
"""),
)

HOST_ALIAS = Table(
    "host_alias",
    "one other name of a host",
    ("alias", "host"),
    columns("""
    alias  | VARCHAR | - | Name used by labels: a scrape instance, an address, a pod.
    host   | VARCHAR | - | Name the host itself states.
    source | VARCHAR | - | File that told it.
"""),
)

TABLES = (METRIC_SAMPLE, NODE_EVENT, TRAINING_LOG, HOST_DEVICE, HOST_ALIAS)
