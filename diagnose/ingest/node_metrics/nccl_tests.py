"""nccl-tests' table: message size against time, algorithm and bus bandwidth, out of place and in place."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from diagnose.ingest.node_metrics.reader import TextFormat, pattern

if TYPE_CHECKING:
    from diagnose.ingest.node_metrics.samples import Samples

_ROW = re.compile(
    r"^\s*(\d+)\s+(\d+)\s+(\w+)\s+(?:(\w+)\s+)?(?:(-?\d+)\s+)?"
    r"([\d.]+)\s+([\d.]+)\s+([\d.]+)\s+(\S+)\s+([\d.]+)\s+([\d.]+)\s+([\d.]+)\s+(\S+)\s*$"
)


class NcclTests(TextFormat):
    """The text output of nccl-tests and rccl-tests; NCCL log lines may stand between the rows.

    Grain: (size, out of place). The in-place half has entity ``size:<bytes>/in_place``.
    Source: nccl-tests doc/PERFORMANCE.md
    """

    name = "nccl-tests"
    priority = 440  # read beside the bandwidth test reader: among the logs all readers that know a text read it
    markers = (pattern(r"out-of-place\s+in-place|busbw"), pattern(r"^#\s+size\s+count\s+type"))

    def parse_text(self, text: str, sink: Samples) -> None:
        """Rows to samples."""
        for line in text.splitlines():
            match = _ROW.match(line)
            if match is None:
                continue
            for tail, first in (("", 6), ("/in_place", 10)):
                entity = f"size:{match.group(1)}{tail}"
                sink.add("bench.time", entity, float(match.group(first)) / 1e6)
                sink.add("bench.algbw", entity, float(match.group(first + 1)) * 1e9)
                sink.add("bench.busbw", entity, float(match.group(first + 2)) * 1e9)
