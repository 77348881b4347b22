"""What the map step hands over of one rank's trace."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import polars as pl

    from diagnose.model import IssueSeverity

WHOLE_TRACE = -1


class Note(NamedTuple):
    """Something a user should know of a trace: kind, how often, in one sentence."""

    code: str
    severity: IssueSeverity
    times: int
    text: str


class Reduced(NamedTuple):
    """Frames by table (without the rank, which the run decides), and what the run needs to know of the trace.

    ``lost_capture`` says why device time is unknown in every step, None when some of it is known.
    """

    frames: dict[str, pl.DataFrame]
    step_source: str
    lost_capture: str | None
    device: int | None
    devices: int
    start_ns: int | None
    end_ns: int | None
    rows: int
    notes: tuple[Note, ...] = ()
