"""Answers of Prometheus's HTTP API: query and query_range, values as strings, decoded without a Python object each."""

from __future__ import annotations

import re
import warnings
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import polars as pl

from diagnose.ingest.node_metrics.prometheus_series import Series, resolve
from diagnose.ingest.node_metrics.prometheus_text import finish_columns, series_frame
from diagnose.ingest.node_metrics.reader import MetricFormat, pattern, read_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import PurePosixPath

    from numpy.typing import NDArray

    from diagnose.ingest.base import Batch, Source
    from diagnose.ingest.node_metrics.samples import Samples

BATCH_POINTS = 500_000
MAX_JSON_BYTES = 2 * 1024**3
_STRIP = bytes.maketrans(b"", b"")
_KEYS = re.compile(rb'"(?:resultType|activeTargets)"|^\s*\[?\s*\{\s*"metric"\s*:\s*\{', re.MULTILINE)


class Entry(msgspec.Struct):
    """One series of an answer; points stay undecoded bytes."""

    metric: dict[str, str] = {}
    values: msgspec.Raw = msgspec.Raw()
    value: msgspec.Raw = msgspec.Raw()


class Data(msgspec.Struct):
    """The data member of an answer."""

    result: list[Entry] | msgspec.UnsetType = msgspec.UNSET


class Answer(msgspec.Struct):
    """An answer, or what some clients save of it: only its data or its result."""

    data: Data | msgspec.UnsetType = msgspec.UNSET
    result: list[Entry] | msgspec.UnsetType = msgspec.UNSET


class PrometheusJson(MetricFormat):
    """query_range matrices and instant vectors.

    Grain: (series, t_ns). A range repeats the last sample for up to the look-back, so gaps look alive: the rules
    judge that. Without ``__name__`` the answer is an expression's result, named by its file and no counter.
    Source: prometheus.io HTTP API
    """

    name = "prometheus-json"
    priority = 311
    markers = (pattern(r"^\s*[\[{]"),)

    def sniff(self, head: bytes, name: PurePosixPath) -> bool:
        """The keys of an API answer."""
        return super().sniff(head, name) and _KEYS.search(head) is not None

    def parse(self, source: Source, sink: Samples) -> Iterator[Batch]:
        """Series to batches of about half a million points."""
        sink.host_from_path()
        meanings: list[tuple[str, Series | None]] = []
        blocks: list[NDArray[np.float64]] = []
        points = 0
        for entry in _entries(read_bytes(source, sink, MAX_JSON_BYTES)):
            name = entry.metric.get("__name__", "")
            series = resolve(name, entry.metric, sink) if name else _expression(source, entry.metric, sink)
            if series is None:
                continue
            pairs = decode_points(bytes(entry.values) or bytes(entry.value))
            if not len(pairs):
                continue
            meanings.append((str(len(meanings)), series))
            blocks.append(pairs)
            points += len(pairs)
            if points >= BATCH_POINTS:
                yield sink.bulk(_frame(meanings, blocks))
                meanings, blocks, points = [], [], 0
        if blocks:
            yield sink.bulk(_frame(meanings, blocks))


def decode_points(raw: bytes) -> NDArray[np.float64]:
    """``[[t, "v"], ...]`` or ``[t, "v"]`` as an array of (seconds, value); NaN and infinities by their words."""
    text = raw.translate(_STRIP, b'[]" \n\r\t').decode("ascii", "replace")
    if not text:
        return np.empty((0, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        try:
            flat = np.fromstring(text, dtype=np.float64, sep=",")
        except (DeprecationWarning, ValueError):
            flat = np.array([_number(part) for part in text.split(",")])
    return flat[: len(flat) // 2 * 2].reshape(-1, 2)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


def _entries(data: bytes) -> list[Entry]:
    try:
        if data.lstrip()[:1] == b"[":
            return msgspec.json.decode(data, type=list[Entry])
        answer = msgspec.json.decode(data, type=Answer)
    except msgspec.DecodeError as error:
        raise ValueError(f"JSON: {error}") from error
    for found in (answer.result, answer.data.result if isinstance(answer.data, Data) else msgspec.UNSET):
        if isinstance(found, list):
            return found
    return []


def _expression(source: Source, labels: dict[str, str], sink: Samples) -> Series | None:
    """The series of an expression's result: named by the file, a raw gauge whatever its name ends in."""
    stem = source.name.name.split(".", 1)[0]
    series = resolve(f"query:{stem}", {**labels}, sink)
    return series._replace(kind="gauge") if series else None


def _frame(meanings: list[tuple[str, Series | None]], blocks: list[NDArray[np.float64]]) -> pl.DataFrame:
    lengths = [len(block) for block in blocks]
    table = series_frame(meanings)
    row = np.repeat(np.arange(len(lengths), dtype=np.uint32), lengths)
    points = np.concatenate(blocks)
    columns: dict[str, Any] = {name: table.get_column(name).gather(row) for name in table.columns if name != "key"}
    micros = np.rint(points[:, 0] * 1e6).astype(np.int64)
    return finish_columns(pl.DataFrame({**columns, "t_ns": micros * 1000, "value": points[:, 1]}))
