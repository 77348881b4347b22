"""Versions, settings and start-up of the communication library: equal on all hosts, not forced by hand, not slow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from diagnose.analysis.comm_audit.calls import low_latency_choices
from diagnose.analysis.comm_audit.transports import networks
from diagnose.analysis.comm_audit.view import View, line_evidence, names, view
from diagnose.model import Evidence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from diagnose.findings.facts import Facts
    from diagnose.model import Finding, NotChecked

_FORCED = (
    "NCCL_ALGO",
    "NCCL_PROTO",
    "NCCL_BUFFSIZE",
    "NCCL_NTHREADS",
    "NCCL_MAX_NCHANNELS",
    "NCCL_MIN_NCHANNELS",
    "NCCL_MAX_CTAS",
)
_MUST_AGREE = (
    *_FORCED, "NCCL_IB_DISABLE", "NCCL_NET", "NCCL_P2P_DISABLE", "NCCL_P2P_LEVEL", "NCCL_SHM_DISABLE", "NCCL_CROSS_NIC",
    "NCCL_NET_GDR_LEVEL", "NCCL_COLLNET_ENABLE", "NCCL_NVLS_ENABLE", "NCCL_MNNVL_ENABLE", "NCCL_NCHANNELS_PER_NET_PEER",
    "NCCL_IB_GID_INDEX", "NCCL_IB_TC", "NCCL_PROTO", "NCCL_P2P_NET_CHUNKSIZE", "NCCL_CUMEM_ENABLE",
)  # fmt: skip
_LOW_LATENCY = ("LL", "ll")
_ADVICE = ("numa_balancing", "iommu_pt", "fine_grain_pcie")


def check(facts: Facts) -> Iterable[Finding | NotChecked]:
    """Findings on versions, settings and start-up."""
    seen = view(facts.tables)
    if seen.records.empty:
        return
    yield from _versions(facts, seen)
    yield from _forced(facts, seen)
    yield from _differing(facts, seen)
    yield from _rdma_off(facts, seen)
    yield from _nvls(facts, seen)
    yield from _slow_start(facts, seen)
    yield from _choices(facts, seen)
    advice = [row for row in seen.records.events.iter_rows(named=True) if row["code"] in _ADVICE]
    if advice:
        yield facts.rules["COM-HOST-TUNING"].finding(
            fields={"text": advice[0]["message"][:300]},
            hosts=sorted({row["host"] for row in advice if row["host"]}),
            evidence=line_evidence(advice, "{message}"),
        )


def _versions(facts: Facts, seen: View) -> Iterator[Finding]:
    rows = [row for row in seen.records.processes.iter_rows(named=True) if row["version"] and row["host"] is not None]
    versions: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        versions.setdefault(row["version"].split("+", 1)[0], []).append(row)
    versions = _without_torn(versions)
    events = [row for row in seen.records.events.iter_rows(named=True) if row["code"] == "version_mismatch"]
    if len(versions) < 2 and not events:
        return
    if versions and len(versions) > 1:
        text = "; ".join(
            f"{version}: {names(row['host'] for row in found)}" for version, found in sorted(versions.items())
        )
    else:
        text = events[0]["message"]
    sizes = {len(found) for found in versions.values()}
    fewest = min(versions.values(), key=len) if len(sizes) > 1 else rows
    yield facts.rules["COM-VERSION"].finding(
        fields={"versions": text[:400]},
        hosts=sorted({row["host"] for row in fewest}) or sorted({row["host"] for row in events if row["host"]}),
        ranks=seen.ranks.of(fewest),
        evidence=[
            *line_evidence(events, "{message}", most=2),
            *(
                Evidence(f"version {version}", source=f"{found[0]['path']}:{found[0]['first_line']}")
                for version, found in sorted(versions.items())
            ),
        ],
    )


def _without_torn(values: dict[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """Leave out a value that one process alone has while its own host says otherwise: a torn line."""
    kept = {}
    for value, rows in values.items():
        others = {row["host"] for other, found in values.items() if other != value for row in found}
        alone = sum(row.get("processes", 1) for row in rows) == 1
        if not (alone and rows[0]["host"] in others):
            kept[value] = rows
    return kept or values


def _forced(facts: Facts, seen: View) -> Iterator[Finding]:
    plugin = {row["name"] for row in seen.records.env.iter_rows(named=True) if row["origin"] == "plugin"}
    rows = [
        row
        for row in seen.records.env.iter_rows(named=True)
        if row["name"] in _FORCED and row["origin"] == "environment" and row["name"] not in plugin
    ]
    if not rows:
        return
    only_ll = any(row["name"] == "NCCL_PROTO" and row["value"] in _LOW_LATENCY for row in rows)
    yield facts.rules["COM-ENV-FORCED"].finding(
        "warning" if only_ll else "info",
        fields={"text": names((f"{row['name']}={row['value']}" for row in rows), most=8)},
        hosts=sorted({row["host"] for row in rows if row["host"]}),
        evidence=line_evidence(rows, "{name}={value}"),
    )


def _differing(facts: Facts, seen: View) -> Iterator[Finding]:
    """Values that contradict each other, or a variable that whole hosts lack. A line appears only when first read."""
    values: dict[str, dict[str, list[dict[str, Any]]]] = {}
    hosts = set()
    for row in seen.records.env.iter_rows(named=True):
        if row["origin"] == "environment" and row["host"] is not None:
            hosts.add(row["host"])
            if row["name"] in _MUST_AGREE:
                values.setdefault(row["name"], {}).setdefault(row["value"], []).append(row)
    for name, found in sorted(values.items()):
        found = _without_torn(found)
        having = {row["host"] for rows in found.values() for row in rows}
        lacking = sorted(hosts - having)
        if len(found) > 1:
            text = f"{name}: " + "; ".join(
                f"{value} on {names(row['host'] for row in rows)}" for value, rows in sorted(found.items())
            )
            fewest = min(found.values(), key=len)
            severity = "warning"
            blamed = sorted({row["host"] for row in fewest})
        elif lacking and len(having) >= len(lacking):
            text = f"{name}={next(iter(found))} on {names(sorted(having))}, not printed by {names(lacking)}"
            severity, blamed = "info", lacking
        else:
            continue
        rows = [row for group in found.values() for row in group[:2]]
        yield facts.rules["COM-ENV-DIFFER"].finding(
            "warning" if severity == "warning" else "info",
            fields={"text": text[:400]},
            hosts=blamed,
            confidence=0.9 if severity == "warning" else 0.5,
            evidence=line_evidence(rows, "{host}: {name}={value}"),
        )


def _rdma_off(facts: Facts, seen: View) -> Iterator[Finding]:
    """RDMA forbidden by a setting on a job whose network the log does not show."""
    if seen.scale.multi_node is False or networks(seen.records):
        return
    rows = [
        row
        for row in seen.records.env.iter_rows(named=True)
        if (row["name"], row["value"]) in {("NCCL_IB_DISABLE", "1"), ("NCCL_NET", "Socket")}
    ]
    if rows:
        yield facts.rules["COM-ENV-IB-OFF"].finding(
            "warning",
            fields={"setting": f"{rows[0]['name']}={rows[0]['value']}", "hosts": names(row["host"] for row in rows)},
            hosts=sorted({row["host"] for row in rows if row["host"]}),
            confidence=0.7,
            evidence=line_evidence(rows, "{name}={value}"),
        )


def _choices(facts: Facts, seen: View) -> Iterator[Finding]:
    """Values that NCCL refused, and the protocol LL at large sizes."""
    invalid = [row for row in seen.records.events.iter_rows(named=True) if row["code"] == "env_invalid"]
    if invalid:
        yield facts.rules["COM-ENV-INVALID"].finding(
            fields={"text": invalid[0]["message"]}, evidence=line_evidence(invalid, "{message}")
        )
    slow = low_latency_choices(facts.tables)
    if slow:
        yield facts.rules["COM-TUNER-LL"].finding(
            fields={"text": f"{slow[0]['name']} of {slow[0]['size_bytes']} bytes uses {slow[0]['value']}"},
            hosts=sorted({row["host"] for row in slow if row["host"]}),
            confidence=0.8,
            evidence=line_evidence(slow, "{name}: {size_bytes} bytes, {value}"),
        )


def _nvls(facts: Facts, seen: View) -> Iterator[Finding]:
    states: dict[bool, set[str]] = {True: set(), False: set()}
    for row in seen.records.processes.iter_rows(named=True):
        if row["nvls"] is not None and row["host"] is not None:
            states[row["nvls"]].add(row["host"])
    without = sorted(states[False] - states[True])
    if states[True] and without:
        yield facts.rules["COM-NVLS-SOME"].finding(
            fields={"hosts": names(without), "others": names(sorted(states[True]))}, hosts=without
        )


def _slow_start(facts: Facts, seen: View) -> Iterator[Finding]:
    rule = facts.rules["COM-INIT-SLOW"]
    rows = [row for row in seen.records.comms.iter_rows(named=True) if row["bootstrap_recv_ns"]]
    worst = max(rows, key=lambda row: row["bootstrap_recv_ns"], default=None)
    severity = rule.judge(wait=worst["bootstrap_recv_ns"]) if worst else None
    if worst is None or severity is None:
        return
    yield rule.finding(
        severity,
        fields={"rank": worst["comm_rank"], "wait_ns": worst["bootstrap_recv_ns"]},
        hosts=[worst["host"]] if worst["host"] else [],
        ranks=seen.ranks.of([worst]),
        confidence=0.7,
        evidence=line_evidence([worst], "communicator of {nranks} ranks"),
    )
