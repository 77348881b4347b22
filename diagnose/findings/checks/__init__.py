"""Checks: one module a topic, each with one function ``check``; listed here, in the order they run."""

from __future__ import annotations

BUILTIN: tuple[str, ...] = (
    "steps",
    "labelled",
    "ranks",
    "memory",
    "imbalance",
    "pipeline_stages",
    "network",
    "what_if",
    "contention",
    "transport",
    "gdr",
    "comm_links",
    "comm_devices",
    "comm_settings",
    "comm_errors",
    "comm_bench",
    "late_ranks",
    "hang",
    "node_metrics",
)
"""Module names below this package."""
