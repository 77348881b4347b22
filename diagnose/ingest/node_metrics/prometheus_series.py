"""A Prometheus series (name and labels) to the canonical series it is."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from diagnose.ingest.node_metrics import identity
from diagnose.ingest.node_metrics.dcgm_fields import dcgm_field
from diagnose.ingest.node_metrics.nic_fields import ethtool_counter, port_counter
from diagnose.ingest.node_metrics.prometheus_names import MOUNT_OPERATIONS, NAMES, NOISE, SMI_PREFIX, Name, smi_metric
from diagnose.ingest.node_metrics.vocabulary import describe

if TYPE_CHECKING:
    from collections.abc import Mapping

    from diagnose.ingest.node_metrics.samples import Samples

_LABEL = re.compile(r'([A-Za-z_][A-Za-z0-9_]*|"(?:[^"\\]|\\.)*")\s*=\s*"((?:[^"\\]|\\.)*)"')
_QUOTED_NAME = re.compile(r'^\s*"((?:[^"\\]|\\.)*)"\s*(?:,|$)')
_ESCAPE = re.compile(r"\\(.)")
_HOUSEKEEPING = frozenset(
    {
        "__name__",
        "instance",
        "job",
        "prometheus",
        "cluster",
        "endpoint",
        "service",
        "container_id",
        *identity.HOST_LABELS,
    }
)
_OPERATIONS = "node_mountstats_nfs_operations_"
_ETHTOOL = "node_ethtool_"
_IB_OTHER = ("node_infiniband_", "infiniband_hca_port_")


class Series(NamedTuple):
    """One series: canonical identity, the factor of its values, and which sentinels its producer prints."""

    metric: str
    unit: str
    kind: str
    host: str | None
    entity: str
    scale: float
    blanks: bool


def split_key(key: str) -> tuple[str, dict[str, str]]:
    """Name and labels of ``name{a="b"}``, ``{__name__="name",a="b"}`` or ``{"name",a="b"}``."""
    name, brace, rest = key.partition("{")
    if not brace:
        return key.strip(), {}
    body = rest.rsplit("}", 1)[0]
    if not name.strip() and (quoted := _QUOTED_NAME.match(body)):
        name = _ESCAPE.sub(r"\1", quoted.group(1))
    labels = {
        label.strip('"'): _ESCAPE.sub(lambda found: "\n" if found.group(1) == "n" else found.group(1), value)
        for label, value in _LABEL.findall(body)
    }
    return name.strip() or labels.get("__name__", ""), labels


def resolve(name: str, labels: Mapping[str, str], sink: Samples) -> Series | None:
    """The series of a name and its labels; None for housekeeping. Identities in labels go to the sink."""
    series = _resolve(name, labels, sink)
    if series is not None:
        sink.kinds[name] = series.kind
    return series


def _resolve(name: str, labels: Mapping[str, str], sink: Samples) -> Series | None:
    if name.startswith(NOISE) or name.endswith(("_bucket", "_created")):
        return None
    host = identity.host_of_labels(labels)
    if name == "node_uname_info":
        _learn_uname(labels, sink)
        return None
    if found := dcgm_field(name):
        return _gpu(found[0], found[1], labels, host, sink, blanks=True)
    if name.startswith(SMI_PREFIX):
        if name == f"{SMI_PREFIX}gpu_info":
            _learn_gpu(labels, host, sink)
            return None
        metric = smi_metric(name)
        if metric is None:
            sink.unused.add(name)
            return None
        return _gpu(metric, 1.0, labels, host, sink)
    known = NAMES.get(name) or NAMES.get(name.removeprefix("amd_")) or _family(name, labels)
    if known is None:
        return _foreign(name, labels, host, sink)
    if known.entity == "gpu":
        return _gpu(known.metric, known.scale, labels, host, sink)
    return _series(known.metric, host, _entity(known.entity, labels), known.scale)


def _family(name: str, labels: Mapping[str, str]) -> Name | None:
    if name.startswith(_OPERATIONS):
        metric = MOUNT_OPERATIONS.get((name.removeprefix(_OPERATIONS), labels.get("operation", "")))
        return Name(metric, 1.0, "mount") if metric else None
    if name.startswith(_ETHTOOL):
        plain = (
            name.removeprefix(_ETHTOOL)
            .removesuffix("_total")
            .replace("received_", "rx_")
            .replace("transmitted_", "tx_")
        )
        counter = ethtool_counter(plain)
        return (
            Name(counter.metric, counter.scale, f"net/{counter.part}" if counter.part else "net") if counter else None
        )
    for prefix in _IB_OTHER:
        if name.startswith(prefix):
            counter = port_counter(name.removeprefix(prefix).removesuffix("_total"))
            return Name(counter.metric, 1.0 if "data" in name else counter.scale, "ib") if counter else None
    if name == "gpu_clock" or name == "amd_gpu_clock":
        kind = labels.get("clock_type", "").upper()
        if kind.endswith(("SYSTEM", "GFX")):
            return Name("gpu.sm_clock", 1e6, "gpu")
        return Name("gpu.mem_clock", 1e6, "gpu") if kind.endswith("MEMORY") else None
    return None


def _entity(kind: str, labels: Mapping[str, str]) -> str:
    base, _, part = kind.partition("/")
    tail = f"/{part}" if part else ""
    if base == "cpu":
        return f"node/cpu:{labels.get('cpu', '?')}/mode:{labels.get('mode', '?')}"
    if base == "net":
        return identity.nic_entity(labels.get("device", labels.get("interface", "?"))) + tail
    if base == "ib":
        device = labels.get("device") or labels.get("hca") or labels.get("guid") or labels.get("lid") or "?"
        return identity.nic_entity(device, labels.get("port")) + tail
    if base == "disk":
        return f"disk:{labels.get('device', '?')}"
    if base == "mount":
        return f"mount:{labels.get('export') or labels.get('mountpoint') or '?'}"
    if base == "container":
        return "job:" + "/".join(
            labels[key] for key in ("namespace", "pod", "container", "name", "id") if labels.get(key)
        )
    if base == "rank":
        return f"rank:{labels.get('rank', '?')}/{labels.get('operation', '?')}/level:{labels.get('level', '?')}"
    return f"job:{labels.get('job', '?')}" if base == "job" else "node"


def _gpu(
    metric: str, scale: float, labels: Mapping[str, str], host: str | None, sink: Samples, *, blanks: bool = False
) -> Series:
    uuid = labels.get("UUID") or labels.get("uuid")
    pci = labels.get("pci_bus_id") or labels.get("pci")
    index = labels.get("gpu") or labels.get("index") or labels.get("gpu_id") or labels.get("minor_number")
    entity = identity.gpu_entity(uuid=uuid, pci=pci, index=index)
    number = int(index) if index and index.isdigit() else None
    sink.device(
        entity, index=number, uuid=uuid, pci=pci, name=labels.get("modelName") or labels.get("card_model"), host=host
    )
    if instance := labels.get("GPU_I_ID"):
        entity = f"{entity}/gi:{instance}"
    if link := labels.get("nvlink") or labels.get("link"):
        entity = f"{entity}/link:{link}"
    return _series(metric, host, entity, scale, blanks=blanks)


def _series(metric: str, host: str | None, entity: str, scale: float, *, blanks: bool = False) -> Series:
    spec = describe(metric)
    return Series(metric, spec.unit, spec.kind, host, entity, scale, blanks)


def _foreign(name: str, labels: Mapping[str, str], host: str | None, sink: Samples) -> Series | None:
    """A series no table knows: kept raw, unless it is one of node_exporter's many that no rule reads."""
    if not name or name.startswith(("node_", "DCGM_", "XPU_TIMER_", "gpu_", "amd_gpu_")) or name.endswith("_info"):
        sink.unused.add(name)
        return None
    rest = ",".join(f"{key}={value}" for key, value in sorted(labels.items()) if key not in _HOUSEKEEPING)
    owner = f"job:{labels['job']}" if labels.get("job") else "node"
    return _series(name, host, f"series:{rest}" if rest else owner, 1.0)


def _learn_uname(labels: Mapping[str, str], sink: Samples) -> None:
    nodename = labels.get("nodename", "")
    if instance := labels.get("instance"):
        sink.alias(instance, nodename)
    else:
        sink.set_host(nodename, "node_uname_info")


def _learn_gpu(labels: Mapping[str, str], host: str | None, sink: Samples) -> None:
    uuid, pci, index = labels.get("uuid"), labels.get("pci_bus_id"), labels.get("index")
    entity = identity.gpu_entity(uuid=uuid, pci=pci, index=index)
    number = int(index) if index and index.isdigit() else None
    sink.device(entity, index=number, uuid=uuid, pci=pci, name=labels.get("name"), host=host)
