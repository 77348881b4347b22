"""amd-smi metric in its plain text: ``GPU: 0`` blocks of indented keys in capitals."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from diagnose.ingest.node_metrics.reader import TextFormat, pattern
from diagnose.ingest.node_metrics.rocm import add_card

if TYPE_CHECKING:
    from diagnose.ingest.node_metrics.samples import Samples

_GPU = re.compile(r"^\s*GPU:\s*(\d+)\s*$")
_KEY = re.compile(r"^(\s+)([A-Z0-9_]+):\s*(.*?)\s*$")


class AmdText(TextFormat):
    """amd-smi metric, text output.

    Grain: (gpu index, metric). Throttle accumulators are ticks of ACCUMULATION_COUNTER since driver load.
    Source: amdsmi documentation, GPU violations
    """

    name = "amd-smi-text"
    priority = 343
    markers = (pattern(r"^\s*GPU:\s*\d+\s*$"), pattern(r"^\s+[A-Z][A-Z0-9_]+:"))

    def parse_text(self, text: str, sink: Samples) -> None:
        """Blocks to samples, by the path of their indents."""
        gpu: str | None = None
        items: list[tuple[str, str]] = []
        path: list[tuple[int, str]] = []
        for line in text.splitlines():
            if match := _GPU.match(line):
                if gpu is not None:
                    add_card(gpu, list(items), sink)
                gpu, items, path = match.group(1), [], []
            elif gpu is not None and (match := _KEY.match(line)):
                depth, key, value = len(match.group(1)), match.group(2).lower(), match.group(3)
                while path and path[-1][0] >= depth:
                    path.pop()
                if value:
                    items.append(("/".join([*(name for _, name in path), key]), value))
                path.append((depth, key))
        if gpu is not None:
            add_card(gpu, list(items), sink)
