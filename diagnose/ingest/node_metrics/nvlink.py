"""nvidia-smi nvlink -s and -e: links of each GPU with their speed or their error counters."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from diagnose.ingest.node_metrics import identity
from diagnose.ingest.node_metrics.reader import TextFormat, pattern

if TYPE_CHECKING:
    from diagnose.ingest.node_metrics.samples import Samples

_GPU = re.compile(r"^\s*GPU (\d+):\s*(.*?)\s*(?:\(UUID:\s*(GPU-[0-9a-fA-F-]+)\))?\s*$")
_SPEED = re.compile(r"^\s*Link (\d+):\s*([\d.]+)\s*GB/s\s*$")
_INACTIVE = re.compile(r"^\s*Link (\d+):\s*<?inactive>?\s*$", re.IGNORECASE)
_ALL_INACTIVE = re.compile(r"all links are in-?active", re.IGNORECASE)
_ERRORS = re.compile(
    r"^\s*Link (\d+):\s*(Replay|Recovery|CRC FLIT|CRC Data|CRC)(?: Errors| Error)?(?: Counter)?:\s*(\d+)\s*$",
    re.IGNORECASE,
)
_NAMES = {
    "replay": "gpu.nvlink.replay_errors_total",
    "recovery": "gpu.nvlink.recovery_errors_total",
    "crc": "gpu.nvlink.crc_errors_total",
    "crc flit": "gpu.nvlink.crc_flit_errors_total",
    "crc data": "gpu.nvlink.crc_data_errors_total",
}


class NvlinkStatus(TextFormat):
    """nvidia-smi nvlink --status and --errorcounters.

    Grain: (gpu, link). Error counters are life totals that may have been reset by hand, per link.
    A GPU whose links are all inactive prints a sentence and no link: that is zero active links.
    Source: nvidia-smi nvlink -h
    """

    name = "nvidia-smi-nvlink"
    priority = 324
    markers = (pattern(r"^\s*GPU \d+: "), pattern(r"^\s*Link \d+:|links are in-?active"))

    def parse_text(self, text: str, sink: Samples) -> None:
        """Each GPU's links to samples."""
        parse_nvlink(text, sink)


def parse_nvlink(text: str, sink: Samples, *, t_ns: int | None = None) -> None:
    """The nvlink lines of a text to samples; other lines are passed over."""
    entity: str | None = None
    active: dict[str, int] = {}
    inactive: dict[str, int] = {}
    for line in text.splitlines():
        if match := _GPU.match(line):
            index, name, uuid = match.groups()
            entity = identity.gpu_entity(uuid=uuid, index=index)
            sink.device(entity, index=int(index), uuid=uuid, name=name or None)
        elif entity is None:
            continue
        elif match := _SPEED.match(line):
            sink.add("gpu.nvlink_link_speed", f"{entity}/link:{match.group(1)}", float(match.group(2)) * 1e9, t_ns=t_ns)
            active[entity] = active.get(entity, 0) + 1
        elif match := _INACTIVE.match(line):
            active.setdefault(entity, 0)
            inactive[entity] = inactive.get(entity, 0) + 1
        elif _ALL_INACTIVE.search(line):
            active.setdefault(entity, 0)
            inactive.setdefault(entity, 0)
        elif match := _ERRORS.match(line):
            sink.add(
                _NAMES[match.group(2).lower()], f"{entity}/link:{match.group(1)}", float(match.group(3)), t_ns=t_ns
            )
    for gpu, count in active.items():
        sink.add("gpu.nvlink_links_active", gpu, float(count), t_ns=t_ns)
        if gpu in inactive:
            sink.add("gpu.nvlink_links_inactive", gpu, float(inactive[gpu]), t_ns=t_ns)
