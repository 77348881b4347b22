"""Step lines of text logs, one function a framework: line in, Step out, None when the line is not theirs."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from diagnose.ingest.training_log.records import Step

if TYPE_CHECKING:
    from collections.abc import Callable

ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_NUMBER = r"[-+]?(?:\d[\d,]*\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|nan|inf"
_WHEN = re.compile(
    r"(\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(?:[.,]\d+)?(?:Z|[+-]\d{2}:?\d{2})?|\d{2}/\d{2}/\d{4} \d{2}:\d{2}:\d{2})"
)
_RANK = re.compile(r"\[\s*rank[ :=]?(\d+)\s*\]|\bRANK[ =:](\d+)\b|^\s*(\d+): ", re.IGNORECASE)
_SUFFIX = {"K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}

_MEGATRON = re.compile(r"\biteration:?\s+(\d+)\s*/\s*\d+\s*\|(.*)$")
_MEGATRON_ITEM = re.compile(r"([^|:]+):\s*([^|]+?)\s*(?:\||$)")
_TITAN = re.compile(rf"\bstep:\s*(\d+)\s+loss:\s*({_NUMBER})(.*)$", re.IGNORECASE)
_TITAN_TPS = re.compile(rf"\btps:\s*({_NUMBER})")
_DS_TIMER = re.compile(rf"global_step=(\d+),.*?CurrSamplesPerSec=({_NUMBER})")
_DS_STEPS = re.compile(
    rf"\bsteps:\s*(\d+)\s+loss:\s*({_NUMBER})\s+iter time \(s\):\s*({_NUMBER})(?:\s+samples/sec:\s*({_NUMBER}))?"
)
_KEY_VALUE_STEP = re.compile(r"\b(?:global[_ ]?)?(?:step|iter(?:ation)?)[ =:]+(\d+)(?:\s*/\s*\d+)?\b", re.IGNORECASE)
_LOSS = re.compile(rf"\b(?:train[_/ ]?)?(?:lm[_ ])?loss[ =:]+({_NUMBER})", re.IGNORECASE)
_DURATION = re.compile(
    rf"\b(?:step|iter(?:ation)?|batch)[_ ]?(?:time|duration)(?:[_ ]?(ms|s|sec))?[ =:]+({_NUMBER})\s*(ms|s|sec|us)?\b|"
    rf"\b(?:time|dt)[=:]\s*({_NUMBER})\s*(ms|s|us)\b",
    re.IGNORECASE,
)
_THROUGHPUT = re.compile(
    r"\b(?:throughput|samples[_ ]?per[_ ]?sec(?:ond)?|tokens[_ ]?per[_ ]?sec(?:ond)?|tok/s(?:ec)?)[ =:]+"
    rf"({_NUMBER})\s*((?:samples|tokens|tok|img|images)/s(?:ec)?)?",
    re.IGNORECASE,
)
_HF_DICT = re.compile(r"(\{'(?:loss|train_loss|eval_loss|grad_norm|train_runtime)'.*?\})")
_TQDM = re.compile(r"(\d+)/(\d+) \[[\d:]+<[\d:?]+,\s*([\d.]+)(s/it|it/s)")


def parse_line(line: str) -> Step | None:
    """The step of a line in any style, with the time and rank its prefix prints."""
    plain = ANSI.sub("", line)
    for style in STYLES:
        found = style(plain)
        if found is not None:
            return found._replace(
                when=found.when or _when(plain), rank=found.rank if found.rank is not None else _rank(plain)
            )
    return None


def megatron(line: str) -> Step | None:
    """Megatron-LM and nanotron: ``iteration 5/ 60 | name: value | ...``.

    Source: Megatron-LM training_log; nanotron's log items with K, M, B suffixes
    """
    match = _MEGATRON.search(line)
    if match is None:
        return None
    items = {name.strip().lower(): value for name, value in _MEGATRON_ITEM.findall(match.group(2))}
    duration = _first(
        items, "elapsed time per iteration (ms)", "elapsed_time_per_iteration_ms", "time_per_iteration_ms"
    )
    rate, unit = _megatron_rate(items)
    return Step(
        step=int(match.group(1)),
        step_time_ns=None if duration is None else round(duration * 1e6),
        loss=_first(items, "lm loss", "lm_loss", "loss"),
        throughput=rate,
        throughput_unit=unit,
    )


def torchtitan(line: str) -> Step | None:
    """torchtitan: ``step: 10  loss: 3.2  ...  tps: 12,345  tflops: ...`` (tokens a second per device).

    Source: torchtitan components/metrics.py
    """
    match = _TITAN.search(line)
    if match is None or "iter time" in line:
        return None
    rate = _TITAN_TPS.search(match.group(3))
    return Step(
        step=int(match.group(1)),
        loss=_number(match.group(2)),
        throughput=_number(rate.group(1)) if rate else None,
        throughput_unit="tokens/s/gpu" if rate else None,
    )


def deepspeed(line: str) -> Step | None:
    """DeepSpeed: the throughput timer's line, and the pipeline engine's ``steps: N loss: L iter time (s): T``.

    Source: deepspeed/utils/timer.py, deepspeed/runtime/pipe/engine.py
    """
    if match := _DS_STEPS.search(line):
        duration = _number(match.group(3))
        return Step(
            step=int(match.group(1)),
            loss=_number(match.group(2)),
            step_time_ns=None if duration is None else round(duration * 1e9),
            throughput=_number(match.group(4)) if match.group(4) else None,
            throughput_unit="samples/s" if match.group(4) else None,
        )
    if match := _DS_TIMER.search(line):
        return Step(step=int(match.group(1)), throughput=_number(match.group(2)), throughput_unit="samples/s")
    return None


def trainer_dict(line: str) -> Step | None:
    """Hugging Face Trainer: a printed dict, its step from the progress bar on the same line when there is one.

    Source: transformers trainer_callback.ProgressCallback
    """
    match = _HF_DICT.search(line)
    if match is None:
        return None
    try:
        row = ast.literal_eval(match.group(1))
    except (ValueError, SyntaxError):
        return None
    bar = _TQDM.search(line)
    per_step = None
    if bar:
        rate = float(bar.group(3))
        per_step = rate if bar.group(4) == "s/it" else (1 / rate if rate else None)
    speed = row.get("train_samples_per_second")
    step = int(bar.group(1)) if bar else row.get("step")
    if step is None and "loss" not in row:
        return None
    return Step(
        step=step,
        loss=_float(row.get("loss", row.get("train_loss"))),
        step_time_ns=round(per_step * 1e9) if per_step else None,
        throughput=_float(speed),
        throughput_unit="samples/s" if speed is not None else None,
    )


def key_value(line: str) -> Step | None:
    """Anything like ``step 3/60 loss=0.22 step_time=0.21s throughput=134 samples/s``: a step and a second measure."""
    match = _KEY_VALUE_STEP.search(line)
    if match is None:
        return None
    loss, duration, rate = _LOSS.search(line), _DURATION.search(line), _THROUGHPUT.search(line)
    if not (loss or duration or rate):
        return None
    return Step(
        step=int(match.group(1)),
        loss=_number(loss.group(1)) if loss else None,
        step_time_ns=_duration_ns(duration) if duration else None,
        throughput=_number(rate.group(1)) if rate else None,
        throughput_unit=_unit(rate) if rate else None,
    )


STYLES: tuple[Callable[[str], Step | None], ...] = (megatron, deepspeed, torchtitan, trainer_dict, key_value)
"""Most particular first."""


def _megatron_rate(items: dict[str, str]) -> tuple[float | None, str | None]:
    for name, unit in (
        ("tokens_per_sec", "tokens/s"),
        ("tokens_per_sec_per_gpu", "tokens/s/gpu"),
        ("throughput per gpu (tflop/s/gpu)", "TFLOP/s/gpu"),
        ("samples per second", "samples/s"),
        ("samples/sec", "samples/s"),
        ("tokens/sec", "tokens/s"),
    ):
        if name in items:
            return _number(items[name]), unit
    return None, None


def _first(items: dict[str, str], *names: str) -> float | None:
    return next((_number(items[name]) for name in names if name in items), None)


def _number(text: str) -> float | None:
    cleaned = text.strip().replace(",", "")
    scale = _SUFFIX.get(cleaned[-1:])
    try:
        return float(cleaned[:-1]) * scale if scale else float(cleaned)
    except ValueError:
        return None


def _float(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _duration_ns(match: re.Match[str]) -> int | None:
    value = _number(match.group(2) or match.group(4))
    unit = (match.group(3) or match.group(1) or match.group(5) or "s").lower()
    scale = {"ms": 1e6, "us": 1e3}.get(unit, 1e9)
    return None if value is None or value != value else round(value * scale)


def _unit(match: re.Match[str]) -> str:
    written = (match.group(2) or match.group(0)).lower()
    return "tokens/s" if "tok" in written else "samples/s"


def _when(line: str) -> str | None:
    match = _WHEN.search(line)
    return match.group(1) if match else None


def _rank(line: str) -> int | None:
    match = _RANK.search(line)
    return int(next(part for part in match.groups() if part)) if match else None
