"""Errors of the communication library: the first cause, told from its echoes, with the line that proves it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from diagnose.analysis.comm_audit.calls import first_difference
from diagnose.analysis.comm_audit.causes import Cause, causes, echo_count
from diagnose.analysis.comm_audit.transports import networks
from diagnose.analysis.comm_audit.view import View, line_evidence, names, view

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from diagnose.findings.facts import Facts
    from diagnose.model import Finding, NotChecked

CODES = frozenset(
    {
        "ib_retry_exceeded", "ib_local_protection", "ib_rnr_retry", "ib_remote_error", "ib_completion", "ib_qp_timeout",
        "ib_gid_index", "ib_unreachable", "ib_no_device", "ib_qp_error", "ib_memlock", "gdr_registration",
        "ib_port_error", "ib_async_fatal", "link_layer_mixed", "link_speed_changed", "nic_failed", "connect_failed",
        "no_interface",
        "bootstrap_mismatch", "shm_full", "shm_attach", "shm_error", "nvls_bind_failed", "mnnvl_imex", "cuda_error",
        "cuda_oom", "duplicate_gpu", "nvlink_p2p_broken", "p2p_ipc_failed", "no_transport", "driver_problem",
        "topology_too_large", "topology_wrong", "collective_mismatch", "rail_devices_differ", "ofi_request_failed",
        "net_none", "foreign_connection", "ib_gid_changed", "nccl_tests_wrong", "nccl_tests_failure", "ras_dead",
    }
)  # fmt: skip
"""Events that can start a failure; ``nic_open_failed``, ``ofi_failed`` and the versions belong to other checks."""

RETURN_CODES = {
    1: "CUDA error",
    2: "system error",
    3: "internal error",
    4: "invalid argument",
    5: "invalid usage",
    6: "remote error",
}
_NAME_DEVICES = frozenset(
    {
        "ib_retry_exceeded", "ib_local_protection", "ib_rnr_retry", "ib_remote_error", "ib_completion", "ib_qp_timeout",
        "ib_gid_index", "ib_unreachable", "ib_no_device", "ib_qp_error", "ib_port_error", "ib_async_fatal",
        "ib_gid_changed", "link_speed_changed", "nic_failed", "no_interface", "duplicate_gpu", "nvlink_p2p_broken",
        "p2p_ipc_failed",
    }
)  # fmt: skip
"""Events whose subject is a device or an interface, not a call, a file or a type of exception."""
_ECHO_ONLY = ("peer_closed", "ib_flush")
_HARMLESS_AFTER_CUDA = frozenset({"shm_error"})


def check(facts: Facts) -> Iterable[Finding | NotChecked]:
    """One finding a cause; echoes are counted, and make a finding only where no cause is in the logs."""
    seen = view(facts.tables)
    if seen.records.empty:
        return
    logs = facts.tables.query("SELECT path FROM rank_log WHERE ended IN ('open', 'shutdown')")
    ended_well = {str(path) for path in logs["path"]}
    found = [cause for cause in causes(seen.records, CODES) if not _shadowed(seen, cause, ended_well)]
    echoes = echo_count(seen.records)
    for cause in found:
        yield _error(facts, seen, cause, echoes, alone=len(found) == 1)
    yield from _plugin(facts, seen)
    yield from _desync(facts)
    if not found:
        yield from _echoes(facts, seen)
    yield from _ras(facts, seen)
    yield from _unknown(facts, seen, known=bool(found))


def _error(facts: Facts, seen: View, cause: Cause, echoes: int, *, alone: bool) -> Finding:
    rule = facts.rules["COM-" + cause.code.upper().replace("_", "-")]
    rows = cause.rows
    first = rows[0]
    peers = [row["peer"] for row in rows if row["peer"]]
    hosts = sorted({row["host"] for row in rows if row["host"]})
    text = f"{names(hosts) if hosts else 'a process'}: {first['message'][:240]}"
    if peers:
        text += f" (towards {names(peers, most=3)})"
    if echoes and (cause.first or alone):
        text += f". {echoes} later messages on other ranks or calls only follow from it"
    elif not cause.first and not alone:
        text += ". Another error came before it"
    return rule.finding(
        fields={"what": text},
        hosts=hosts,
        ranks=_ranks(seen, rows),
        devices=sorted({row["subject"] for row in rows if row["subject"]}) if cause.code in _NAME_DEVICES else (),
        confidence=0.95 if cause.first or alone else 0.7,
        evidence=line_evidence(rows, "{message}"),
    )


def _ranks(seen: View, rows: list[dict[str, Any]]) -> list[int]:
    """Global ranks, else the ranks in their communicator that the messages name."""
    found = set(seen.ranks.of(rows))
    if not found:
        found = {row["comm_rank"] for row in rows if row["comm_rank"] is not None}
    return sorted(found)


def _shadowed(seen: View, cause: Cause, ended_well: set[str]) -> bool:
    """Whether a cause is none: lack of GPU memory that was caught, CUDA errors that IMEX or NVLS explain."""
    codes = set(seen.records.events["code"].to_list())
    if cause.code == "cuda_oom":
        return {row["path"] for row in cause.rows} <= ended_well
    if cause.code == "cuda_error":
        return bool(codes & {"mnnvl_imex", "nvls_bind_failed"})
    return cause.code in _HARMLESS_AFTER_CUDA and "shm_full" in codes


def _plugin(facts: Facts, seen: View) -> Iterator[Finding]:
    """A plugin that found no device: nothing on one node, and told by the transports where sockets took over."""
    rows = [
        row for row in seen.records.events.iter_rows(named=True) if row["code"] in {"ofi_failed", "nic_open_failed"}
    ]
    failed = [row for row in rows if row["code"] == "ofi_failed" and row["role"] == "cause" and row["level"] == "WARN"]
    if not failed or seen.scale.multi_node is not True or networks(seen.records):
        return
    yield facts.rules["COM-OFI-FAILED"].finding(
        fields={"what": f"{names(row['host'] for row in failed)}: {failed[0]['message'][:200]}"},
        hosts=sorted({row["host"] for row in failed if row["host"]}),
        evidence=line_evidence(failed, "{message}"),
    )


def _desync(facts: Facts) -> Iterator[Finding]:
    """COLL lines: the first position of a communicator at which ranks logged different calls."""
    found = first_difference(facts.tables)
    if found is None:
        return
    minority: list[int] = min(found.calls.values(), key=len)
    text = "; ".join(f"rank {names(ranks, most=4)}: {call}" for call, ranks in found.calls.items())
    yield facts.rules["COM-COLL-DESYNC"].finding(
        fields={"text": f"communicator {found.comm_id}, operation {found.op_count}: {text}"},
        ranks=minority,
        confidence=0.85,
        evidence=line_evidence(found.rows, "rank {comm_rank}: {collective} of {elements} {dtype}"),
    )


def _echoes(facts: Facts, seen: View) -> Iterator[Finding]:
    for code in _ECHO_ONLY:
        rows = [row for row in seen.records.events.iter_rows(named=True) if row["code"] == code]
        if not rows:
            continue
        peers = sorted(
            {row["peer"] for row in rows if row["peer"] and row["peer"] not in {item["host"] for item in rows}}
        )
        hosts = sorted({row["host"] for row in rows if row["host"]})
        text = f"{names(hosts)}: {rows[0]['message'][:200]}"
        if peers:
            text += f". The logs of {names(peers)} hold the cause"
        yield facts.rules["COM-" + code.upper().replace("_", "-")].finding(
            fields={"what": text}, hosts=peers if code == "peer_closed" and peers else hosts, confidence=0.6,
            evidence=line_evidence(rows, "{message}"),
        )  # fmt: skip
        return


def _ras(facts: Facts, seen: View) -> Iterator[Finding]:
    events = seen.records.events
    for code, rule in (("ras_mismatch", "COM-RAS-MISMATCH"), ("ras_incomplete", "COM-RAS-INCOMPLETE")):
        rows = list(events.filter(events["code"] == code).iter_rows(named=True))
        if not rows:
            continue
        progress = list(events.filter(events["code"] == "ras_progress").iter_rows(named=True))
        listed = sorted({row["comm_rank"] for row in events.filter(events["code"] == "ras_rank").iter_rows(named=True)})
        counts = "; ".join(row["message"] for row in progress[:4])
        op = next((row["op"] for row in events.filter(events["code"] == "ras_counts").iter_rows(named=True)), None)
        text = f"communicator {rows[0]['subject']}: {op or 'operation'} counts differ"
        if counts:
            text += f" ({counts}); the listed ranks are the smaller group{_ahead(progress)}: {names(listed)}"
        yield facts.rules[rule].finding(
            fields={"text": text},
            ranks=() if "ahead" in text else listed,
            confidence=0.5,
            evidence=line_evidence([*rows, *progress], "{message}"),
        )


def _ahead(progress: list[dict[str, Any]]) -> str:
    """Whether the smaller group is ahead or behind."""
    sized = [
        (row["elements"], row["seq"]) for row in progress if row["elements"] is not None and row["seq"] is not None
    ]
    if len(sized) != 2:
        return ""
    small, large = sorted(sized)
    return ", which is ahead" if small[1] > large[1] else ", which is behind"


def _unknown(facts: Facts, seen: View, *, known: bool) -> Iterator[Finding]:
    rows = [row for row in seen.records.events.iter_rows(named=True) if row["code"] == "nccl_warning"]
    if not rows or known:
        return
    failed = [
        row
        for row in seen.records.processes.iter_rows(named=True)
        if row["last_rc"] in RETURN_CODES
        and (row["host"], row["pid"]) in {(item["host"], item["pid"]) for item in rows}
    ]
    text = rows[0]["message"][:240]
    if failed:
        text += f"; return code {failed[0]['last_rc']} ({RETURN_CODES[failed[0]['last_rc']]})"
    yield facts.rules["COM-ERROR-OTHER" if failed else "COM-WARNINGS"].finding(
        fields={"text": text},
        hosts=sorted({row["host"] for row in rows if row["host"]}),
        ranks=seen.ranks.of(rows),
        confidence=0.7 if failed else 0.4,
        evidence=line_evidence(rows, "{message}"),
    )
