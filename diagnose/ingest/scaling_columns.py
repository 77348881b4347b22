"""The vocabulary of scaling tables: header names, units, numbers as people write them."""

from __future__ import annotations

import math
import re
from typing import Literal, NamedTuple

Kind = Literal["throughput", "per_gpu", "step_time", "step_rate", "work_time", "time_to_train"]

SIZES = {
    "gpus": (
        "gpus",
        "gpu",
        "ngpus",
        "num gpus",
        "n gpus",
        "gpu count",
        "number of gpus",
        "world size",
        "worldsize",
        "ranks",
        "nranks",
        "n ranks",
        "num ranks",
        "devices",
        "accelerators",
        "chips",
        "n",
        "processes",
    ),
    "nodes": ("nodes", "node", "nnodes", "num nodes", "n nodes", "number of nodes", "servers", "machines"),
}
"""Header words for the size. Hosts beside a column of GPUs tell the node size; alone they are the size."""

HOSTS = ("hosts", "host", "nhosts", "num hosts")
VALUES = ("value", "throughput", "performance", "perf", "speed", "result", "measurement")
STEP_TIMES = (
    "step time",
    "steptime",
    "step s",
    "step",
    "iteration time",
    "iter time",
    "time per step",
    "time per iteration",
    "step duration",
    "step time median",
    "step s median",
)
UNITS = ("unit", "units")
MODELS = ("model", "config", "configuration", "job", "workload")
GLOBAL_BATCHES = ("global batch", "global batch size", "gbs", "total batch", "total batch size")
LOCAL_BATCHES = (
    "local batch",
    "batch per gpu",
    "per gpu batch",
    "micro batch",
    "micro batch size",
    "mbs",
    "batch size per gpu",
    "local batch size",
)
BATCHES = ("batch", "batch size", "bs")
REPEATS = ("repeat", "repeats", "rep", "run", "trial", "seed")
PARTS = ("compute", "exposed wait", "exposed transfer", "exposed comm", "exposed memcpy", "idle")

_SECONDS = {
    "s": 1.0,
    "sec": 1.0,
    "secs": 1.0,
    "second": 1.0,
    "seconds": 1.0,
    "ms": 1e-3,
    "msec": 1e-3,
    "millisecond": 1e-3,
    "milliseconds": 1e-3,
    "us": 1e-6,
    "µs": 1e-6,
    "ns": 1e-9,
    "min": 60.0,
    "mins": 60.0,
    "minute": 60.0,
    "minutes": 60.0,
    "h": 3600.0,
    "hr": 3600.0,
    "hour": 3600.0,
    "hours": 3600.0,
    "day": 86400.0,
    "days": 86400.0,
    "d": 86400.0,
}
_TO_TRAIN = re.compile(
    r"(time|hours?|hrs?|minutes?|mins?|days?)[ _-]*to[ _-]*(train|target|accuracy|converge)|train(ing)?[ "
    r"_-]*time|\bttt\b|converge"
)
_STEPS = re.compile(r"^(steps?|it|its|iters?|iterations?|batch(es)?)$")
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")


class Unit(NamedTuple):
    """What the numbers are: the unit as written, its kind, the seconds of its time (null: no work per time)."""

    label: str
    kind: Kind
    seconds: float | None
    known: bool


def normal(header: str) -> str:
    """A header in lower case, words parted by one blank, without its unit in brackets."""
    text = re.sub(r"[\(\[].*?[\)\]]", " ", header)
    text = re.sub(r"(?<=[a-z])(?=[A-Z][a-z])", " ", text.strip())
    return re.sub(r"[\s_\-.#]+", " ", text).strip().lower()


def bracketed(header: str) -> str | None:
    """The unit in brackets of a header such as ``step time (ms)``."""
    found = re.search(r"[\(\[](.*?)[\)\]]", header)
    return found.group(1).strip() or None if found else None


def time_suffix(header: str) -> tuple[str, float] | None:
    """Name and nanoseconds per unit of a time column: ``compute_ms``, ``idle (s)``; null without a time unit."""
    unit = bracketed(header)
    name = normal(header)
    if unit is not None and unit.lower() in _SECONDS:
        return name, _SECONDS[unit.lower()] * 1e9
    words = name.split(" ")
    if len(words) > 1 and words[-2] != "per" and words[-1] in ("s", "ms", "us", "ns", "sec", "seconds"):
        return " ".join(words[:-1]), _SECONDS[words[-1]] * 1e9
    return None


def read_unit(text: str) -> Unit:
    """What a unit says: throughput, per GPU, step time, steps per second, time of a fixed amount of work, time to train.

    Whatever names no time is read as a throughput, the larger the better, and marked as not known.
    """
    label = text.strip()
    low = re.sub(r"\s+", " ", label.lower().replace("_", " "))
    if _TO_TRAIN.search(low):
        return Unit(label, "time_to_train", None, known=True)
    if low in _SECONDS:
        return Unit(label, "step_time" if _SECONDS[low] <= 1 else "time_to_train", None, known=True)
    if re.search(r"(step|iter(ation)?) ?time|time per (step|iter)", low):
        return Unit(label, "step_time", None, known=True)
    low = re.sub(r" (per|a) ", "/", low).replace(" / ", "/")
    low = re.sub(r"ps$", "/s", low) if re.fullmatch(r"[a-z]*(flop|token|sample|image|seq)s?ps", low) else low
    factors = [
        words[0] if number and (words := part.split()) else part.strip() for number, part in enumerate(low.split("/"))
    ]
    head, rest = factors[0], factors[1:]
    if head in _SECONDS and rest and _STEPS.match(rest[0]):
        return Unit(label, "step_time", None, known=True)
    times = [part for part in rest if part in _SECONDS]
    per_gpu = any(re.fullmatch(r"(gpu|device|rank|chip|accelerator)s?", part) for part in rest)
    if _STEPS.match(head) and times:
        return Unit(label, "step_rate", None, known=True)
    aggregate = re.search(r"x ?(gpu|chip|device|node)s?", low)
    if re.search(r"\b(mfu|hfu)\b|^((parallel|scaling|weak scaling) )?efficiency\b", low) and not aggregate:
        return Unit(label, "per_gpu", None, known=True)
    if head.split(" ")[0] in _SECONDS:
        return Unit(label, "work_time", None, known=True)
    if times:
        return Unit(label, "per_gpu" if per_gpu else "throughput", _SECONDS[times[0]], known=True)
    proportional = re.search(r"flops?\b|mfu|speed-?up|efficiency|throughput|proportional", low)
    return Unit(label, "per_gpu" if per_gpu else "throughput", None, known=bool(proportional))


def header_unit(header: str) -> str | None:
    """The unit in a value column's header: ``tokens/s``, ``tokens_per_sec``, ``throughput (samples/s)``."""
    inner = bracketed(header)
    name = normal(header)
    if inner:
        return (
            f"{inner} per step"
            if _is_step_time(name) and inner.lower() in _SECONDS and _SECONDS[inner.lower()] <= 1
            else inner
        )
    if timed := time_suffix(header):
        return f"{name.split(' ')[-1]} per step" if _is_step_time(timed[0]) else None
    low = re.sub(r"\s+", " ", header.strip().lower().replace("_", " "))
    if _TO_TRAIN.search(low):
        return header.strip()
    if re.search(
        r"/ ?(s|sec|second|min|h|hour|day)\b|\bper "
        r"(s|sec|second|min|minute|hour|day)\b|flops?\b|\bmfu\b|(token|sample|image|seq)s?ps\b",
        low,
    ):
        return re.sub(r"\s+", " ", header.strip().replace("_", " "))
    return None


def _is_step_time(name: str) -> bool:
    return name in STEP_TIMES or name in ("iteration", "iter", "elapsed time per iteration")


def read_number(text: str, *, decimal_comma: bool = False) -> float | None:
    """A number as people write it: ``1234.5``, ``1,234,567``, ``1 234``, ``1_234``, ``1'234``; null when it is none.

    A comma before exactly three digits parts thousands, unless the column was found to use decimal commas.
    """
    cleaned = re.sub(r"(?<=\d)[ \u00a0\u202f_'’](?=\d{3}(\D|$))", "", text.strip())
    if decimal_comma:
        cleaned = cleaned.replace(".", "").replace(",", ".")
    elif re.fullmatch(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?", cleaned):
        cleaned = cleaned.replace(",", "")
    elif re.fullmatch(r"[+-]?\d{1,3}(\.\d{3}){2,}", cleaned):
        cleaned = cleaned.replace(".", "")
    if not _NUMBER.fullmatch(cleaned):
        return None
    number = float(cleaned)
    return number if math.isfinite(number) else None


def uses_decimal_comma(texts: list[str]) -> bool:
    """Whether a column writes 12,5 for twelve and a half: some comma is not before exactly three digits."""
    with_comma = [text.strip() for text in texts if "," in text]
    return (
        bool(with_comma)
        and all(re.fullmatch(r"[+-]?[\d.]*,\d+", text) for text in with_comma)
        and any(not re.fullmatch(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?", text) for text in with_comma)
    )
