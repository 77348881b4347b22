"""Collecting samples of one source into batches, with the counts that become data-quality issues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from diagnose.ingest.base import Batch, Identity, Outcome
from diagnose.ingest.node_metrics import identity
from diagnose.ingest.node_metrics.times import Clock
from diagnose.ingest.node_metrics.vocabulary import describe, is_saturated
from diagnose.model import Issue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from diagnose.ingest.base import ReadOptions, Source
    from diagnose.model import SourceStatus

BATCH_ROWS = 200_000
SAMPLE_SCHEMA: dict[str, Any] = {
    "metric": pl.String,
    "unit": pl.String,
    "kind": pl.String,
    "host": pl.String,
    "entity": pl.String,
    "t_ns": pl.Int64,
    "value": pl.Float64,
    "quality": pl.String,
    "source": pl.String,
    "format": pl.String,
}
EVENT_SCHEMA: dict[str, Any] = {
    "host": pl.String,
    "t_ns": pl.Int64,
    "kind": pl.String,
    "device": pl.String,
    "code": pl.Int32,
    "fatal": pl.Boolean,
    "text": pl.String,
    "source": pl.String,
}
DEVICE_SCHEMA: dict[str, Any] = {
    "host": pl.String,
    "entity": pl.String,
    "index": pl.Int32,
    "uuid": pl.String,
    "pci_bus_id": pl.String,
    "name": pl.String,
    "netdev": pl.String,
    "source": pl.String,
}
ALIAS_SCHEMA: dict[str, Any] = {"alias": pl.String, "host": pl.String, "source": pl.String}
EVENT_TEXT_CHARS = 400


class Samples:
    """What one source yields. ``host`` is the file's host: options, then content, then path; rows may override it."""

    def __init__(self, format_name: str, source: Source, options: ReadOptions) -> None:
        self.format = format_name
        self.source = source
        self.clock = Clock(options.timezone)
        self.host: str | None = identity.host_name(options.host) if options.host else None
        self.host_from: str | None = "option" if self.host else None
        self.path_t_ns = identity.epoch_of_path(source.name)
        self.rows = 0
        self.nulls = 0
        self.null_example = ""
        self.without_time = 0
        self.contradictions: dict[str, str] = {}
        self.kinds: dict[str, str] = {}
        """Producer's names that were used, with the kind we gave them."""
        self.unused: set[str] = set()
        self.broken = 0
        """Lines or cells that look like samples and are none."""
        self.cut: str | None = None
        """Why the content is incomplete, None when it is whole."""
        self.first_ns: int | None = None
        self.last_ns: int | None = None
        self._samples: list[tuple[Any, ...]] = []
        self._events: list[tuple[Any, ...]] = []
        self._devices: dict[tuple[Any, ...], None] = {}
        self._aliases: dict[tuple[str, str], None] = {}

    def set_host(self, name: str | None, how: str) -> None:
        """Take a host from the content, unless the user named one."""
        found = identity.host_name(name) if name else None
        if found and self.host_from != "option":
            self.host, self.host_from = found, how

    def host_from_path(self) -> None:
        """Fall back to a host spelled out by the path."""
        if self.host is None and (found := identity.host_of_path(self.source.name)):
            self.host, self.host_from = found, "path"

    def add(
        self,
        metric: str,
        entity: str,
        value: float | None,
        *,
        t_ns: int | None = None,
        host: str | None = None,
        saturated: bool | None = None,
    ) -> None:
        """One value in canonical units. ``saturated`` overrides the test of the width where value is scaled."""
        spec = describe(metric)
        time = self.path_t_ns if t_ns is None else t_ns
        if value is None:
            self.nulls += 1
            self.null_example = self.null_example or f"{metric} of {entity}"
            quality = "null"
        elif is_saturated(metric, value) if saturated is None else saturated:
            quality = "saturated"
        else:
            quality = "snapshot" if time is None and spec.kind == "counter" else "ok"
        self._cover(time)
        self._samples.append((metric, spec.unit, spec.kind, host, entity, time, value, quality))
        self.rows += 1

    def event(
        self,
        kind: str,
        device: str,
        text: str,
        *,
        t_ns: int | None,
        code: int | None = None,
        fatal: bool | None = None,
        line: int | None = None,
    ) -> None:
        """One kernel-log event; it also becomes a sample ``event.<kind>`` whose value is the code, or 1."""
        where = self.source.label if line is None else f"{self.source.label}:{line}"
        self._events.append((None, t_ns, kind, device, code, fatal, text[:EVENT_TEXT_CHARS], where))
        self.add(f"event.{kind}", device, float(code) if code is not None else 1.0, t_ns=t_ns)

    def device(
        self,
        entity: str,
        *,
        index: int | None = None,
        uuid: str | None = None,
        pci: str | None = None,
        name: str | None = None,
        netdev: str | None = None,
        host: str | None = None,
    ) -> None:
        """One device's identities, kept once."""
        known = identity.gpu_uuid(uuid) if uuid else None
        place = identity.pci_id(pci) if pci else None
        self._devices[(host, entity, index, known, place, name, netdev)] = None

    def alias(self, alias: str, host: str) -> None:
        """Another name of a host."""
        one, other = identity.host_name(alias), identity.host_name(host)
        if one and other and one != other:
            self._aliases[(one, other)] = None

    def bulk(self, frame: pl.DataFrame) -> Batch:
        """A batch of an already built frame (metric, unit, kind, host, entity, t_ns, value, quality)."""
        self.rows += frame.height
        if unknown := frame.get_column("value").null_count():
            self.nulls += unknown
            first = frame.row(frame.get_column("value").is_null().arg_true()[0], named=True)
            self.null_example = self.null_example or f"{first['metric']} of {first['entity']}"
        if self.path_t_ns is not None:
            frame = frame.with_columns(pl.col("t_ns").fill_null(self.path_t_ns))
        self.without_time += frame.get_column("t_ns").null_count()
        low, high = frame.get_column("t_ns").min(), frame.get_column("t_ns").max()
        for bound in (low, high):
            if isinstance(bound, int):
                self._span(bound)
        return Batch("metric_sample", self._finish(frame))

    def flush(self, *, force: bool = False) -> Iterator[Batch]:
        """The rows collected so far, once they fill a batch."""
        if self._samples and (force or len(self._samples) >= BATCH_ROWS):
            columns = list(SAMPLE_SCHEMA)[:8]
            frame = pl.DataFrame(
                self._samples, schema={name: SAMPLE_SCHEMA[name] for name in columns}, orient="row", strict=False
            )
            self._samples = []
            yield Batch("metric_sample", self._finish(frame))

    def finish(self, status: SourceStatus = "ok", problem: str | None = None) -> Iterator[Batch | Issue | Outcome]:
        """Everything left, the data-quality issues, and the outcome."""
        self.host_from_path()
        yield from self.flush(force=True)
        yield from self._side_tables()
        yield from self._issues()
        who = Identity(host=self.host, host_from=self.host_from, start_ns=self.first_ns, end_ns=self.last_ns)
        if self.cut and status == "ok":
            status, problem = "partial", self.cut
            yield Issue("metrics_cut_short", "warning", 1, self.cut[:200], self.source.label)
        if self.rows == 0 and not self._devices and status == "ok":
            status, problem = "skipped", problem or "it holds no value this reader knows"
        yield Outcome(status=status, rows=self.rows, problem=problem, identity=who)

    def _side_tables(self) -> Iterator[Batch]:
        label = self.source.label
        if self._events:
            rows = [(self.host, *row[1:]) for row in self._events]
            yield Batch("node_event", pl.DataFrame(rows, schema=EVENT_SCHEMA, orient="row", strict=False))
        if self._devices:
            devices = [(row[0] or self.host, *row[1:], label) for row in self._devices]
            yield Batch("host_device", pl.DataFrame(devices, schema=DEVICE_SCHEMA, orient="row", strict=False))
        if self._aliases:
            aliases = [(alias, host, label) for alias, host in self._aliases]
            yield Batch("host_alias", pl.DataFrame(aliases, schema=ALIAS_SCHEMA, orient="row"))

    def _issues(self) -> Iterator[Issue]:
        path = self.source.label
        if self.nulls:
            yield Issue("DQ-01", "info", self.nulls, f"unknown, not zero: {self.null_example}", path)
        if self.without_time:
            yield Issue("DQ-02", "info", self.without_time, "no time in the file: levels and totals only", path)
        if self.clock.assumed:
            yield Issue(
                "DQ-03", "info", self.clock.assumed, "times without a zone read as UTC; --timezone sets it", path
            )
        if self.broken:
            yield Issue("metrics_bad_line", "warning", self.broken, "lines that do not follow the format", path)
        if self.unused:
            names = ", ".join(sorted(self.unused)[:5])
            yield Issue("metrics_unused", "info", len(self.unused), f"names no rule reads: {names}", path)
        for name, why in self.contradictions.items():
            yield Issue("DQ-06", "info", 1, f"{name}: {why}", path)

    def _finish(self, frame: pl.DataFrame) -> pl.DataFrame:
        return frame.with_columns(
            pl.col("host").fill_null(pl.lit(self.host, dtype=pl.String)),
            pl.lit(self.source.label).alias("source"),
            pl.lit(self.format).alias("format"),
        )

    def _cover(self, t_ns: int | None) -> None:
        if t_ns is None:
            self.without_time += 1
        else:
            self._span(t_ns)

    def _span(self, t_ns: int) -> None:
        self.first_ns = t_ns if self.first_ns is None else min(self.first_ns, t_ns)
        self.last_ns = t_ns if self.last_ns is None else max(self.last_ns, t_ns)
