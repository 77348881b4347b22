"""Rules and findings for the report tests."""

from __future__ import annotations

from diagnose.findings.rules import Rule, Threshold
from diagnose.model import Evidence, Finding, Impact

MS = 1_000_000

RULES = (
    Rule(
        code="RANK001",
        title="Straggling rank",
        cause="gpu_slow",
        meaning="One rank does the same work slower than its peers.",
        message="m",
        actions=("Drain the node.",),
        thresholds={
            "slowdown": Threshold(
                why="below 5 % the noise of a step hides it", unit="ratio", warning=0.05, critical=0.1
            )
        },
        explains=("COMM002",),
        references=("docs/rules/RANK001.md",),
    ),
    Rule(code="COMM002", title="Long waits", cause="congestion", meaning="w", message="m"),
    Rule(code="NET003", title="Bandwidth below reference", cause="bandwidth_bound", meaning="b", message="m"),
    Rule(code="INPUT001", title="Input stalls", cause="input_stall", meaning="i", message="m"),
    Rule(code="WARM001", title="Warm-up excluded", cause="warm_up", meaning="u", message="m", severity="info"),
)


def findings() -> list[Finding]:
    """One of every severity, one explained by another."""
    return [
        Finding(
            code="RANK001",
            title="Straggling rank",
            severity="critical",
            cause="gpu_slow",
            message="Rank 3 needs 18 % more time than its peers for the same kernels; the other 7 ranks wait for it.",
            ranks=(3,),
            hosts=("node-0",),
            devices=("GPU-3 (NVIDIA H100 80GB HBM3)",),
            persistence="persistent",
            impact=Impact(41_200_000, 0.1, 19.2),
            confidence=0.93,
            evidence=(
                Evidence("Median of the same kernels against role peers", 0.18, "ratio", "kernel_stat"),
                Evidence("SM clock while busy", 1395, "MHz", "DCGM_FI_DEV_SM_CLOCK node-0/3"),
                Evidence("Share of collectives it entered last", 0.97, "ratio", "collective.last_rank"),
            ),
            actions=(
                "Read the clock and throttle reasons: nvidia-smi -q -d PERFORMANCE -i 3 on node-0.",
                "If they show throttling, drain the node and run the vendor's diagnostic.",
            ),
            explains=("COMM002",),
        ),
        Finding(
            code="COMM002",
            title="Long waits",
            severity="warning",
            cause="congestion",
            message="7 ranks wait 38 ms per step in collectives.",
            ranks=(0, 1, 2, 4, 5, 6, 7),
            impact=Impact(38_000_000, 0.092, 17.7),
            confidence=0.9,
        ),
        Finding(
            code="INPUT001",
            title="Input stalls",
            severity="warning",
            cause="input_stall",
            message="The data loader makes every rank wait in some steps.",
            steps=(12, 16, 20, 24),
            persistence="transient",
            impact=Impact(20_600_000, 0.05, 9.6),
            confidence=0.8,
            evidence=(Evidence("Time inside the data loader's next", 20_600_000, "ns", "breakdown.idle_input_ns"),),
            actions=("Raise num_workers, or keep the decoded samples.",),
        ),
        Finding(
            code="WARM001",
            title="Warm-up excluded",
            severity="info",
            cause="warm_up",
            message="Steps 0-2 were warming up and are not counted.",
            steps=(0, 1, 2),
        ),
    ]
