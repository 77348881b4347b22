"""sacct --parsable: jobs and steps with their nodes, times and states."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from diagnose.ingest.node_metrics.reader import TextFormat, pattern

if TYPE_CHECKING:
    from diagnose.ingest.node_metrics.samples import Samples

_DELIMITER = re.compile(r"JobID(?:Raw)?(\|#|\|;|[|;,\t]|\W{1,3}?)(?=[A-Za-z])")
_GPUS = re.compile(r"gres/gpu(?::[^=,]+)?=(\d+)")
_ELAPSED = re.compile(r"^(?:(\d+)-)?(\d+):(\d+):(\d+)(?:\.\d+)?$")


class Sacct(TextFormat):
    """sacct --parsable or --parsable2, any delimiter; a field may hold a line break.

    Grain: (job or step, field). Times are the cluster's local time.
    Source: sacct(1)
    """

    name = "slurm-sacct"
    priority = 353
    markers = (pattern(r"\bJobID(?:Raw)?\W"), pattern(r"\b(?:State|Elapsed|NodeList|Start|ExitCode|AllocTRES)\b"))

    def parse_text(self, text: str, sink: Samples) -> None:
        """Records to samples; lines are joined until a record has all fields."""
        lines = text.splitlines()
        start = next((n for n, line in enumerate(lines) if "JobID" in line), None)
        found = _DELIMITER.search(lines[start]) if start is not None else None
        if start is None or found is None:
            return
        delimiter = found.group(1)
        names = lines[start].split(delimiter)
        trailing = names[-1] == ""
        wanted = len(names)
        pending = ""
        for line in lines[start + 1 :]:
            pending = f"{pending}\n{line}" if pending else line
            cells = pending.split(delimiter)
            if len(cells) >= wanted:
                _add(dict(zip(names, cells, strict=False)), sink)
                pending = ""
        if pending.strip() and not trailing:
            sink.broken += 1


def _add(cells: dict[str, str], sink: Samples) -> None:
    job = cells.get("JobID") or cells.get("JobIDRaw")
    if not job or set(job) <= {"-"}:
        return
    entity = f"job:{job.strip()}"
    start, end = (sink.clock.parse(cells.get(name, "")) for name in ("Start", "End"))
    elapsed = cells.get("ElapsedRaw", "").strip()
    seconds = float(elapsed) if elapsed.isdigit() else _seconds(cells.get("Elapsed", ""))
    if seconds is not None:
        sink.add("job.elapsed", entity, seconds, t_ns=start)
    nodes = cells.get("AllocNodes") or cells.get("NNodes") or ""
    if nodes.strip().isdigit():
        sink.add("job.nodes", entity, float(nodes), t_ns=start)
    if match := _GPUS.search(cells.get("AllocTRES", "") or cells.get("ReqTRES", "")):
        sink.add("job.gpus", entity, float(match.group(1)), t_ns=start)
    for metric, t_ns in (("job.start", start), ("job.end", end)):
        if t_ns is not None:
            sink.add(metric, entity, t_ns / 1e9, t_ns=t_ns)
    if state := cells.get("State", "").strip():
        sink.add("job.in_state", f"{entity}/{state.split()[0].lower()}", 1.0, t_ns=end or start)


def _seconds(text: str) -> float | None:
    match = _ELAPSED.match(text.strip())
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return float(((days * 24 + hours) * 60 + minutes) * 60 + seconds)


def expand_nodes(text: str) -> list[str]:
    """``node[1820-1822,1838],gpu7`` as single names; widths of numbers are kept."""
    names: list[str] = []
    for prefix, body, plain in re.findall(r"([^\[\],]*)\[([^\]]*)\]|([^\[\],]+)", text):
        if plain:
            names.append(plain)
            continue
        for part in body.split(","):
            low, _, high = part.partition("-")
            if low.isdigit() and (high.isdigit() or not high):
                names += [f"{prefix}{number:0{len(low)}d}" for number in range(int(low), int(high or low) + 1)]
    return names
