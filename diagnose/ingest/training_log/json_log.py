"""Structured training logs: JSON lines, W&B history, Hugging Face trainer_state.json, Lightning's metrics.csv."""

from __future__ import annotations

import csv
import io
import re
from typing import TYPE_CHECKING, Any, TypeGuard

import msgspec

from diagnose.ingest.training_log.records import Step, StepLog

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import PurePosixPath

    from diagnose.ingest.base import ReadOptions, Record, Source

STEP_KEYS = (
    "step",
    "global_step",
    "_step",
    "iteration",
    "iter",
    "train/step",
    "trainer/global_step",
    "train/global_step",
)
LOSS_KEYS = (
    "loss",
    "train/loss",
    "train_loss",
    "lm_loss",
    "lm loss",
    "training_loss",
    "loss/train",
    "loss_metrics/global_avg_loss",
)
SECONDS_KEYS = (
    "step_time",
    "step_time_s",
    "iter_time",
    "iteration_time",
    "time_per_step",
    "train/step_time",
    "time_metrics/end_to_end(s)",
    "dt",
)
MILLI_KEYS = (
    "step_time_ms",
    "iteration_time_ms",
    "elapsed_time_per_iteration_ms",
    "iter_time_ms",
    "train/step_time_ms",
)
TIME_KEYS = ("_timestamp", "timestamp", "time", "ts", "t", "created", "@timestamp")
RATE_KEYS: dict[str, str] = {
    "throughput": "samples/s",
    "samples_per_second": "samples/s",
    "samples_per_sec": "samples/s",
    "samples/s": "samples/s",
    "train_samples_per_second": "samples/s",
    "throughput/samples_per_sec": "samples/s",
    "tokens_per_second": "tokens/s",
    "tokens_per_sec": "tokens/s",
    "tokens/s": "tokens/s",
    "throughput(tps)": "tokens/s/gpu",
    "tps": "tokens/s/gpu",
    "train/tokens_per_sec": "tokens/s",
}
_STEP_KEY = re.compile(
    rb'"(?:step|global_step|_step|iteration|iter|train/step|trainer/global_step|train/global_step)"\s*:\s*\d'
)
_FIRST_EPOCH_S = 946_684_800


class JsonLinesLog:
    """JSON lines of steps, W&B's history export included.

    Grain: one line. Keys of steps, losses, durations and rates are those of the tables above.
    """

    name = "training-jsonl"
    priority = 410

    def sniff(self, head: bytes, name: PurePosixPath) -> bool:  # noqa: ARG002 - part of the protocol
        """Lines of objects with a step and a loss, a duration or a rate."""
        for line in head.splitlines()[:50]:
            start = line.find(b"{")
            if 0 <= start < 200 and line.rstrip().endswith(b"}") and _STEP_KEY.search(line):
                row = _decoded(line[start:])
                if row is not None and _step_of(row) is not None:
                    return True
        return False

    def read(self, source: Source, options: ReadOptions) -> Iterator[Record]:
        """Every line that holds a step; text before the object (a logger's prefix) is passed over."""
        log = StepLog(source, options)
        rest = b""
        with source.open() as handle:
            for block in handle.blocks(1 << 20):
                *lines, rest = (rest + block).split(b"\n")
                _take_json(lines, log)
            log.cut = handle.damage
        _take_json([rest], log)
        yield from log.finish()


class TrainerState:
    """Hugging Face trainer_state.json (``log_history``), and a plain list of log objects.

    Grain: one history entry. It has no times: only losses and the mean rates of the end.
    Source: transformers TrainerState
    """

    name = "hf-trainer-state"
    priority = 405

    def sniff(self, head: bytes, name: PurePosixPath) -> bool:  # noqa: ARG002 - part of the protocol
        """The key of the history."""
        return head.lstrip()[:1] in (b"{", b"[") and (b'"log_history"' in head or _is_list(head))

    def read(self, source: Source, options: ReadOptions) -> Iterator[Record]:
        """Entries with a step."""
        log = StepLog(source, options)
        with source.open() as handle:
            data = b"".join(handle.blocks(1 << 20))
            log.cut = handle.damage
        try:
            content: Any = msgspec.json.decode(data)
        except msgspec.DecodeError as error:
            log.cut = log.cut or f"JSON: {error}"
            content = []
        rows = content.get("log_history", []) if isinstance(content, dict) else content
        for row in rows:
            step = _step_of(row) if isinstance(row, dict) else None
            if step is not None:
                log.add(step)
        yield from log.finish()


class LightningCsv:
    """Lightning's CSVLogger: metrics.csv with ``epoch,step,...`` and empty cells between train and validation rows.

    Source: lightning.pytorch.loggers.CSVLogger
    """

    name = "lightning-csv"
    priority = 415

    def sniff(self, head: bytes, name: PurePosixPath) -> bool:  # noqa: ARG002 - part of the protocol
        """A header with a step and a loss or a step time."""
        titles = [
            cell.strip().strip('"').lower()
            for cell in head.split(b"\n", 1)[0].decode("utf-8-sig", "replace").split(",")
        ]
        has_step = any(title in ("step", "global_step", "iteration") for title in titles)
        return has_step and any(
            "loss" in title or title in (*SECONDS_KEYS, *MILLI_KEYS, *RATE_KEYS) for title in titles
        )

    def read(self, source: Source, options: ReadOptions) -> Iterator[Record]:
        """Rows with a step; suffixes such as ``train_loss_step`` count as the loss."""
        log = StepLog(source, options)
        with source.open() as handle:
            text = b"".join(handle.blocks(1 << 20)).decode("utf-8-sig", "replace")
            log.cut = handle.damage
        for row in csv.DictReader(io.StringIO(text)):
            cells = {
                str(key).strip().removesuffix("_step") if key != "global_step" else key: value
                for key, value in row.items()
                if value
            }
            if "step" not in cells and row.get("step"):
                cells["step"] = row["step"]
            step = _step_of({key: _cell(value) for key, value in cells.items()})
            if step is not None:
                log.add(step)
        yield from log.finish()


def _step_of(row: Mapping[str, Any]) -> Step | None:
    """The step an object describes, None when it has no step or no measure of it."""
    number = _number(row, STEP_KEYS)
    seconds, milli = _number(row, SECONDS_KEYS), _number(row, MILLI_KEYS)
    rate = next(((key, row[key]) for key in RATE_KEYS if _is_number(row.get(key))), None)
    loss = _number(row, LOSS_KEYS)
    if number is None or (seconds is None and milli is None and rate is None and loss is None):
        return None
    duration = seconds * 1e9 if seconds is not None else (milli * 1e6 if milli is not None else None)
    t_ns, when = _time(row)
    rank = _number(row, ("rank", "global_rank"))
    unit = str(row.get("throughput_unit") or RATE_KEYS[rate[0]]) if rate else None
    return Step(
        step=int(number),
        when=when,
        t_ns=t_ns,
        step_time_ns=None if duration is None or duration != duration else round(duration),
        loss=loss,
        throughput=float(rate[1]) if rate else None,
        throughput_unit=unit,
        rank=None if rank is None else int(rank),
    )


def _time(row: Mapping[str, Any]) -> tuple[int | None, str | None]:
    for key in TIME_KEYS:
        value = row.get(key)
        if _is_number(value):
            number = float(value)
            for limit, scale in ((1e11, 1e6), (1e14, 1e3), (1e17, 1.0)):
                if _FIRST_EPOCH_S < number < limit:
                    return round(number * scale) * 1000, None
            return (int(value), None) if number >= 1e17 else (None, None)
        if isinstance(value, str) and re.match(r"\d{4}-\d{2}-\d{2}", value):
            return None, value
    return None, None


def _take_json(lines: list[bytes], log: StepLog) -> None:
    for line in lines:
        start = line.find(b"{")
        row = _decoded(line[start:]) if start >= 0 and _STEP_KEY.search(line) else None
        step = _step_of(row) if row is not None else None
        if step is not None:
            log.add(step)


def _decoded(data: bytes) -> dict[str, Any] | None:
    try:
        row = msgspec.json.decode(data.strip())
    except msgspec.DecodeError:
        return None
    return row if isinstance(row, dict) else None


def _is_list(head: bytes) -> bool:
    return head.lstrip()[:1] == b"[" and _STEP_KEY.search(head) is not None and b'"loss"' in head


def _number(row: Mapping[str, Any], keys: tuple[str, ...]) -> float | None:
    return next((float(row[key]) for key in keys if _is_number(row.get(key))), None)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _cell(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text
