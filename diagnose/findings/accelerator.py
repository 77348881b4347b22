"""What kind of accelerator a run used: the words and tools of its findings follow."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    from diagnose.findings.facts import Tables

Accelerator = Literal["cpu", "amd", "other"]
KINDS: tuple[str, ...] = get_args(Accelerator)

_AMD = re.compile(r"\bAMD\b|\bMI\d{2,3}|Radeon|\bgfx\d", re.IGNORECASE)
_OTHER = re.compile(r"Intel|Gaudi|Ascend|\bTPU\b|\bMTIA\b|\bMLU", re.IGNORECASE)


def accelerator(tables: Tables) -> Accelerator | None:
    """The kind; None for NVIDIA devices and where nothing tells, since the rules speak of those."""
    ranks = tables.query("SELECT device_name, has_device_work FROM rank")
    names = " ".join(ranks.get_column("device_name").drop_nulls().unique(maintain_order=True).to_list())
    if names:
        return "amd" if _AMD.search(names) else "other" if _OTHER.search(names) else None
    backend = tables.query("SELECT backend FROM run").item() or ""
    if len(ranks) and not ranks.get_column("has_device_work").any() and "nccl" not in backend:
        return "cpu"
    return None
