"""The one palette, shared with the HTML report: colour-blind safe, letters and words always beside the colour."""

from __future__ import annotations

from diagnose.report.view import PARTS

PART_COLOURS = {
    "compute": "#0072b2",
    "exposed_wait": "#e69f00",
    "exposed_transfer": "#d55e00",
    "exposed_comm": "#d55e00",
    "exposed_memcpy": "#cc79a7",
    "idle_input": "#009e73",
    "idle_host": "#56b4e9",
    "idle_sync": "#b5a7d6",
    "idle_bubble": "#f0e442",
    "idle_other": "#b8bec5",
}
PART_LABELS = {part.key: f"{part.letter}  {part.label}" for part in PARTS}
LABELS = tuple(PART_LABELS.values())
COLOURS = tuple(PART_COLOURS[part.key] for part in PARTS)
SEVERITY_ICON = {"critical": ":material/error:", "warning": ":material/warning:", "info": ":material/info:"}
SEVERITY_COLOUR = {"critical": "red", "warning": "orange", "info": "blue"}
TRANSPORT_COLOURS = {
    "P2P": "#009e73",
    "SHM": "#56b4e9",
    "NET/IB": "#0072b2",
    "NET/Socket": "#d55e00",
    "NET/Libfabric": "#7f6fb0",
    "COLLNET": "#cc79a7",
}
RANK_COLOUR, PEER_COLOUR, REFERENCE_COLOUR = "#d55e00", "#0072b2", "#8a8f96"
SEQUENTIAL = "viridis"
DIVERGING = "blueorange"
