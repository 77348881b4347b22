"""ethtool and ethtool -S of one or several interfaces, in one text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from diagnose.ingest.node_metrics import identity
from diagnose.ingest.node_metrics.nic_fields import ethtool_counter, with_part
from diagnose.ingest.node_metrics.reader import TextFormat, pattern
from diagnose.ingest.node_metrics.values import is_null

if TYPE_CHECKING:
    from diagnose.ingest.node_metrics.samples import Samples

_SETTINGS = re.compile(r"^Settings for ([^:\s]+):\s*$")
_COMMAND = re.compile(r"^\s*[#$>]?\s*(?:sudo\s+)?ethtool\s+(?:-\S+\s+)*([A-Za-z][\w.@-]*)\s*$")
_STATISTICS = re.compile(r"^\s*NIC statistics(?: for ([^:\s]+))?:\s*$")
_STANDARD = re.compile(r"^Standard stats for ([^:\s]+):\s*$")
_SPEED = re.compile(r"^\s*Speed:\s*(\d+)\s*Mb/s")
_DETECTED = re.compile(r"^\s*Link detected:\s*(yes|no)")
_VALUE = re.compile(r"^\s+([^:]+(?::[^\s:][^:]*)*):\s*(\d+)\s*$")


class Ethtool(TextFormat):
    """ethtool (settings) and ethtool -S (driver statistics since boot).

    Grain: (interface, statistic). Names are the driver's; those whose meaning is not known are left out, except that
    a name given twice keeps its first value.
    Source: ethtool(8); kernel mlx5 counters.rst
    """

    name = "ethtool"
    priority = 338
    markers = (
        pattern(r"^Settings for \S+:|^\s*NIC statistics|^\s*[#$]?\s*ethtool (?:-S )?\w+"),
        pattern(r"^\s+\S[^:\n]*:"),
    )

    def parse_text(self, text: str, sink: Samples) -> None:
        """Blocks to samples; the interface comes from the settings head or the command line above."""
        sink.host_from_path()
        entity = identity.nic_entity(_device_of_path(sink))
        counting = False
        seen: set[tuple[str, str]] = set()
        for line in text.splitlines():
            if match := _SETTINGS.match(line) or _STANDARD.match(line) or _COMMAND.match(line):
                entity, counting = identity.nic_entity(match.group(1)), False
            elif match := _STATISTICS.match(line):
                counting = True
                if match.group(1):
                    entity = identity.nic_entity(match.group(1))
            elif match := _SPEED.match(line):
                sink.add("nic.rate", entity, float(match.group(1)) * 1e6)
            elif match := _DETECTED.match(line):
                sink.add("nic.link_up", entity, float(match.group(1) == "yes"))
            elif counting and (match := _VALUE.match(line)):
                counter = ethtool_counter(match.group(1))
                if counter is None or (entity, match.group(1)) in seen or is_null(match.group(2)):
                    continue
                seen.add((entity, match.group(1)))
                sink.add(counter.metric, with_part(entity, counter), int(match.group(2)) * counter.scale)


def _device_of_path(sink: Samples) -> str:
    """An interface named by the file (``ethtool-S-ens1f0np0.txt``), else ``unknown``."""
    match = re.search(
        r"(?:^|[-_.])((?:eth|en|ib|bond|rdma|roce)[a-z0-9]*\d[a-z0-9]*)(?=[-_.]|$)", sink.source.name.name
    )
    return match.group(1) if match else "unknown"
