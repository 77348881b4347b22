"""Snapshot bundles: a banner with node and time, then commands and their outputs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from diagnose.ingest.node_metrics.ethtool import Ethtool
from diagnose.ingest.node_metrics.ibstat import IbLinkInfo, IbStat
from diagnose.ingest.node_metrics.nvidia_query import NvidiaQuery
from diagnose.ingest.node_metrics.nvlink import NvlinkStatus
from diagnose.ingest.node_metrics.perfquery import Perfquery
from diagnose.ingest.node_metrics.rdma_stat import RdmaStatistic
from diagnose.ingest.node_metrics.reader import TextFormat, pattern
from diagnose.ingest.node_metrics.sysfs import SysfsDump

if TYPE_CHECKING:
    from collections.abc import Iterator

    from diagnose.ingest.node_metrics.samples import Samples

_BANNER = re.compile(r"^=+\s*([^|=]+?)\s*\|\s*(\w+)\s*\|\s*(\S+?)\s*=+\s*$")
_COMMAND = re.compile(r"^\$ (.+)$")
_MEMBERS: tuple[TextFormat, ...] = (
    NvidiaQuery(),
    NvlinkStatus(),
    SysfsDump(),
    Perfquery(),
    IbStat(),
    IbLinkInfo(),
    Ethtool(),
    RdmaStatistic(),
)


class Bundle(TextFormat):
    """``===== <node> | before | <UTC> =====`` and ``$ command`` blocks; ``[exit N]`` marks a failed command.

    Each block goes to the reader that knows its output; the banner gives host and time of all of them.
    Source: srt-slurm's hardware snapshots
    """

    name = "node-bundle"
    priority = 305
    markers = (pattern(r"^=+\s*[^|=\n]+\|\s*\w+\s*\|\s*\d{4}-\d{2}-\d{2}T\S+\s*=+\s*$"),)

    def parse_text(self, text: str, sink: Samples) -> None:
        """Banners set host and time, blocks are read in their order."""
        for host, stamp, block in _blocks(text):
            sink.set_host(host, "banner")
            sink.path_t_ns = sink.clock.parse(stamp) if stamp else sink.path_t_ns
            head = block.encode()
            for member in _MEMBERS:
                if member.sniff(head, sink.source.name):
                    member.parse_text(block, sink)
                    break


def _blocks(text: str) -> Iterator[tuple[str, str, str]]:
    host = stamp = ""
    lines: list[str] = []
    for line in text.splitlines():
        if match := _BANNER.match(line):
            if lines:
                yield host, stamp, "\n".join(lines)
            host, stamp, lines = match.group(1), match.group(3), []
        elif match := _COMMAND.match(line):
            if lines:
                yield host, stamp, "\n".join(lines)
            lines = [f"# {match.group(1)}"] if match.group(1).startswith("ethtool") else []
        else:
            lines.append(line)
    if lines:
        yield host, stamp, "\n".join(lines)
