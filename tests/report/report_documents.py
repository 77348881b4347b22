"""Documents for the report tests: rich, empty, one rank, hostile names, thousands of ranks."""

from __future__ import annotations

from report_content import raw
from report_findings import MS
from report_job import parts

from diagnose.model import Evidence, Finding, NotChecked
from diagnose.report.document import Document, from_raw

HOSTILE = (
    '<script>alert(1)</script>"></svg>',
    "a|b`c`*d*_e_@team",
    "\x1b[31mred\x1b[0m\r\n# heading",
    "\u202eevil",
    "]]>&amp;",
)


def rich_document() -> Document:
    """8 ranks on 2 hosts, everything filled."""
    return from_raw(raw())


def empty_document() -> Document:
    """Logs only: no step, no rank, no finding."""
    return from_raw(
        {
            "tool": {"version": "0.1.0"},
            "run": {"name": "logs"},
            "verdict": {
                "bottleneck": "inconclusive",
                "text": "The data cannot say why the run was slow: there is no trace.",
                "confidence": 0.0,
            },
            "not_checked": [
                NotChecked(
                    "Where does the step's time go?", "No trace was given.", "torch.profiler.profile(schedule=...)"
                )
            ],
        }
    )


def single_document() -> Document:
    """One trace whose rank nothing tells; communication not split."""
    split = parts(9 * MS) | {"exposed_wait_ns": None, "exposed_transfer_ns": None}
    return from_raw(
        {
            "tool": {"version": "0.1.0"},
            "run": {"name": "trace", "hosts": [], "steps": [1, 2]},
            "verdict": {
                "bottleneck": "compute",
                "network_bound": None,
                "text": "Compute fills 50 % of the step.",
                "confidence": 0.7,
            },
            "step_time": {
                "window": "ProfilerStep",
                "steps_used": 2,
                "median_ns": 9 * MS,
                "breakdown": split,
                "trace": {"?": split | {"span_ns": 18 * MS}},
                "per_rank": [{"rank": None, "host": None, "step_ns": 9 * MS, **split}],
                "per_step": [
                    {"rank": None, "step": step, "step_ns": 9 * MS, "window_ns": 9 * MS, "label": "normal", **split}
                    for step in (1, 2)
                ],
            },
        }
    )


def hostile_document() -> Document:
    """Every name that comes from a file tries to break the output."""
    values = raw(host=HOSTILE[0] + "{}")
    bad = " ".join(HOSTILE)
    values["run"] |= {"name": bad, "backend": bad, "device_names": [bad]}
    values["findings"] = [
        Finding(
            code="RANK001",
            title=f"Straggling {bad}",
            severity="critical",
            cause="gpu_slow",
            message=bad,
            ranks=(3,),
            hosts=HOSTILE,
            devices=HOSTILE,
            evidence=tuple(Evidence(name, name, None, name) for name in HOSTILE),
            actions=HOSTILE,
        )
    ]
    values["verdict"]["text"] = f"Rank 3 on {bad} is slow."
    for row in values["collectives"]:
        row |= {"process_group": bad, "collective": bad, "dtype": bad, "tier": bad}
    for row in values["charts"]["busbw"]:
        row |= {"tier": bad, "collective": bad}
    values["charts"]["nodes"] = [{bad: bad, "x_ns": 5}]
    values["not_checked"] = [NotChecked(bad, bad, bad)]
    values["data_quality"] = {
        "sources": [{"path": bad, "kind": bad, "status": "failed", "problem": bad}],
        "issues": [{"code": bad, "severity": "warning", "count": 1, "example": bad}],
    }
    return from_raw(values)


def large_document() -> Document:
    """4096 ranks on 512 hosts."""
    return from_raw(raw(4096, per_host=8))
