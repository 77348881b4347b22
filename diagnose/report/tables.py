"""The tables of the report as cells of text, one definition for terminal, Markdown and HTML."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diagnose.report.sheet import NAME_LENGTH, Column, Sheet, objects, sheet
from diagnose.report.view import SCENARIOS, clean, count_of, hours, shorten, times
from diagnose.units import format_bytes, format_count, format_ns, format_rate, format_ratio, format_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diagnose.report.document import Document
    from diagnose.report.measures import Interval, RankParts, Scaling


_WORTH_SAYING = 1.005
"""What buys less than half a percent is left to the JSON report."""


def what_if(document: Document, limit: int) -> Sheet:
    """What fixing one thing would buy."""
    rows = [
        (
            SCENARIOS.get(item.scenario, clean(item.scenario)),
            format_ns(item.step_ns),
            times(item.speedup),
            hours(item.gpu_hours_per_day),
            "n/a" if item.cost_per_day is None else f"{format_count(item.cost_per_day)} {clean(item.currency or '')}",
            format_ratio(item.explained_ratio),
        )
        for item in document.what_if
        if item.speedup is None or item.speedup >= _WORTH_SAYING
    ]
    columns = (
        Column("If"),
        Column("step", number=True),
        Column("speedup", number=True),
        Column("saved a day", number=True),
        Column("money a day", number=True, wide=True),
        Column("replay explains", number=True, wide=True),
    )
    note = "Each line alone; gains do not add up."
    return sheet("What fixing it would buy", columns, rows, limit, note)


def who_waits(document: Document, limit: int) -> Sheet:
    """Who waits for whom, the rank that others wait for most first."""
    waits = document.charts.who_waits if document.charts else ()
    ordered = sorted(waits, key=lambda row: (-(row.caused_wait_ns or 0), row.rank))
    rows = [
        (
            str(row.rank),
            shorten(row.host or "", 24),
            format_ns(row.wait_ns),
            format_ns(row.caused_wait_ns),
            format_ratio(row.last_ratio),
        )
        for row in ordered
    ]
    columns = (
        Column("rank", number=True),
        Column("host", name=True),
        Column("waits", number=True),
        Column("makes others wait", number=True),
        Column("comes last in", number=True),
    )
    return sheet(
        "Who waits for whom",
        columns,
        rows,
        limit,
        "Time per step, the waiting of all others added up; share of matched collectives.",
    )


def tiers(document: Document, limit: int) -> Sheet:
    """What the wire does, per tier and collective."""
    rows = [
        (
            shorten(row.tier, 24),
            shorten(row.collective, 24),
            "" if row.group_size is None else format_count(row.group_size),
            format_ns(row.alpha_ns),
            format_rate(row.busbw_bytes_per_s),
            _interval(row.busbw_ci),
            format_bytes(row.half_size_bytes),
            clean(row.bound or "unknown"),
        )
        for row in document.network.tiers
    ]
    columns = (
        Column("tier"),
        Column("collective"),
        Column("ranks", number=True),
        Column("latency", number=True),
        Column("busbw", number=True),
        Column("95 % interval", number=True, wide=True),
        Column("half-speed size", number=True, wide=True),
        Column("bound by"),
    )
    over = document.network.oversubscription
    note = ""
    if over is not None:
        between = "" if over.ci is None else f" (95 %: {times(over.ci[0])} to {times(over.ci[1])})"
        note = f"Oversubscription {times(over.ratio)}{between}."
    return sheet("Network tiers", columns, rows, limit, note)


def suspects(document: Document, limit: int) -> Sheet:
    """Parts of the network that look slow."""
    rows = [
        (
            clean(item.kind),
            ", ".join(shorten(host, NAME_LENGTH) for host in item.hosts[:8]),
            ", ".join(shorten(device, NAME_LENGTH) for device in item.devices[:8]),
            "n/a" if item.score is None else format_value(round(item.score, 2), None),
            "one of several" if item.ambiguous else "alone",
        )
        for item in document.network.suspects
        if item.score is None or item.score > 0  # without a score every host fits: the finding says so in a line
    ]
    columns = (
        Column("kind"),
        Column("hosts", name=True),
        Column("devices", name=True),
        Column("score", number=True),
        Column("fits the data"),
    )
    return sheet("Network suspects", columns, rows, limit)


def collectives(document: Document, limit: int) -> Sheet:
    """Every kind of collective by group and size."""
    rows = [
        (
            shorten(row.collective, 24),
            shorten(row.process_group or "", 30),
            "" if row.group_size is None else format_count(row.group_size),
            shorten(row.tier or "unknown", 24),
            shorten(row.dtype or "", 24),
            format_bytes(row.msg_bytes),
            format_count(row.count),
            f"{format_ratio(row.matched_ratio)} {clean(row.match_method or '')}".strip(),
            format_ns(row.transfer_ns),
            format_ns(row.wait_ns),
            format_rate(row.algbw_bytes_per_s),
            format_rate(row.busbw_bytes_per_s),
            clean(row.bound or "unknown"),
        )
        for row in document.collectives
    ]
    numbers = {"ranks", "size", "count", "matched", "transfer", "wait", "algbw", "busbw"}
    titles = "collective group ranks tier type size count matched transfer wait algbw busbw".split()  # noqa: SIM905 - one line
    columns = tuple(Column(title, number=title in numbers, name=title == "group") for title in (*titles, "bound by"))
    return sheet("Collectives", columns, rows, limit, "Medians over instances; bandwidths as nccl-tests counts them.")


def clocks(document: Document, limit: int) -> Sheet:
    """Host clocks, the least certain first."""
    ordered = sorted(document.clocks, key=lambda row: (-(row.residual_ns or 0), row.host))
    rows = [
        (
            shorten(row.host, NAME_LENGTH),
            format_ns(row.offset_ns),
            "n/a" if row.drift_ppm is None else format_value(round(row.drift_ppm, 2), "ppm"),
            format_ns(row.residual_ns),
        )
        for row in ordered
    ]
    columns = (
        Column("host", name=True),
        Column("offset", number=True),
        Column("drift", number=True),
        Column("residual", number=True),
    )
    return sheet("Clocks", columns, rows, limit, "No skew below the residual is reported.")


def transports(document: Document) -> str:
    """The paths that communication took, in one line; empty without logs."""
    found = document.transports
    pieces = [f"network {clean(found.network)}"] if found.network else []
    kinds = sorted(((kind, n) for kind, n in found.by_kind.items() if n), key=lambda item: (-item[1], item[0]))
    pieces += [f"{clean(kind)} {format_count(number)}" for kind, number in kinds[:6]]
    if not pieces:
        return ""
    return ", ".join([*pieces, f"GPUDirect RDMA: {found.gdr}"])


def problems(document: Document, limit: int) -> Sheet:
    """Input files that could not be used whole."""
    rows = [
        (
            shorten(row.path, NAME_LENGTH),
            shorten(row.kind or "unknown", 24),
            row.status,
            shorten(row.problem or "", 200),
        )
        for row in document.data_quality.sources
        if row.status != "ok"
    ]
    columns = (Column("file", name=True), Column("kind"), Column("status"), Column("problem"))
    return sheet("Files not used whole", columns, rows, limit)


def issues(document: Document, limit: int) -> Sheet:
    """What was wrong inside the inputs."""
    rank = {"error": 0, "warning": 1, "info": 2}
    ordered = sorted(document.data_quality.issues, key=lambda row: (rank.get(row.severity, 3), -row.count, row.code))
    rows = [
        (clean(row.severity), shorten(row.code, 40), format_count(row.count), shorten(row.example, 120))
        for row in ordered
    ]
    columns = (Column("severity"), Column("issue"), Column("count", number=True), Column("example", name=True))
    return sheet("Issues", columns, rows, limit)


def source_counts(document: Document) -> str:
    """How many files were read whole, in part, not at all."""
    sources = document.data_quality.sources
    if not sources:
        return "no input files"
    counted = [
        (status, sum(row.status == status for row in sources)) for status in ("ok", "partial", "skipped", "failed")
    ]
    size = sum(row.bytes or 0 for row in sources)
    listed = ", ".join(f"{format_count(number)} {status}" for status, number in counted if number)
    return f"{count_of(len(sources), 'file')}, {format_bytes(size)}: {listed}"


def nodes(document: Document, limit: int) -> Sheet:
    """Free-form rows about nodes: a list of objects whose keys end in their unit."""
    return objects("Nodes", document.charts.nodes if document.charts else None, limit)


def ranks(rows: Sequence[RankParts], limit: int) -> Sheet:
    """Medians of each rank, in the given order."""
    cells = [
        (
            "?" if row.rank is None else str(row.rank),
            shorten(row.host or "", 30),
            *(
                format_ns(value)
                for value in (
                    row.step_ns,
                    row.compute_ns,
                    row.exposed_comm_ns,
                    row.exposed_wait_ns,
                    row.exposed_transfer_ns,
                    row.overlapped_comm_ns,
                    row.exposed_memcpy_ns,
                    row.idle_ns,
                )
            ),
        )
        for row in rows
    ]
    times_ = ("step", "compute", "exposed comm.", "of it waiting", "of it transfer", "hidden comm.", "copies", "idle")
    columns = (
        Column("rank", number=True),
        Column("host", name=True),
        *(Column(title, number=True) for title in times_),
    )
    return sheet("Ranks, most own work first", columns, cells, limit, "Medians over the steps used.")


def scaling(found: Scaling) -> tuple[Sheet, ...]:
    """Measured sizes and predictions."""
    efficiency = {item.gpus: item.ratio for item in found.efficiency}
    measured = [
        (
            format_count(point.gpus),
            format_value(point.value, None),
            format_ratio(efficiency.get(point.gpus)),
            "used" if point.used else f"not used: {clean(point.why or 'no reason given')}",
        )
        for point in found.points
    ]
    predicted = [
        (
            format_count(item.gpus),
            "n/a" if item.value is None else format_value(item.value, None),
            "n/a"
            if item.interval is None
            else " to ".join("n/a" if end is None else format_value(end, None) for end in item.interval),
        )
        for item in found.predictions
    ]
    size = Column("GPUs", number=True)
    value = Column("value", number=True)
    return (
        sheet(
            f"Measured sizes ({found.type} scaling)",
            (size, value, Column("efficiency", number=True), Column("use")),
            measured,
            50,
        ),
        sheet("Predicted sizes", (size, value, Column("interval", number=True)), predicted, 50),
    )


def _interval(ci: Interval | None) -> str:
    return "n/a" if ci is None else f"{format_rate(ci[0])} to {format_rate(ci[1])}"
