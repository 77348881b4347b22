"""Which simulated runs are scored: scenario classes with magnitudes, layouts and sizes drawn from the seed."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

DEVELOPMENT_SEEDS = range(1, 100)
SCORING_SEEDS = range(5000, 5100)
"""Never looked at while the analysis was changed."""


class Case(NamedTuple):
    """One run to simulate. ``group`` is the class in the table; ``job`` and ``parameters`` go to the simulator."""

    group: str
    scenario: str
    seed: int
    parameters: dict[str, float]
    job: dict[str, object]
    topology: bool = False
    """Whether the analysis is told which host is in which leaf."""


Draw = Callable[[np.random.Generator], tuple[dict[str, float], dict[str, object]]]


def _pick(rng: np.random.Generator, *values: float) -> float:
    return float(values[int(rng.integers(len(values)))])


def _rank(rng: np.random.Generator, ranks: int) -> dict[str, float]:
    return {"rank": float(rng.integers(ranks))}


def _host(rng: np.random.Generator, ranks: int) -> dict[str, float]:
    return {"host": float(rng.integers(ranks // 4))}


_SIZES = (8, 16, 32)
_LAYOUTS = ("ddp", "fsdp", "hsdp")


def _data_parallel(rng: np.random.Generator, *sizes: int) -> dict[str, object]:
    ranks = int(_pick(rng, *(sizes or _SIZES)))
    layout = _LAYOUTS[int(rng.integers(3))]
    return {"ranks": ranks, "layout": layout, "steps": 20}


def _straggler(*factors: float, place: Callable[[np.random.Generator, int], dict[str, float]] = _rank) -> Draw:
    def draw(rng: np.random.Generator) -> tuple[dict[str, float], dict[str, object]]:
        job = _data_parallel(rng)
        return {"factor": _pick(rng, *factors), **place(rng, int(job["ranks"]))}, job  # type: ignore[call-overload]

    return draw


def _plain(
    parameters: Callable[[np.random.Generator], dict[str, float]] | None = None, *sizes: int, **job: object
) -> Draw:
    def draw(rng: np.random.Generator) -> tuple[dict[str, float], dict[str, object]]:
        base = _data_parallel(rng, *sizes)
        return (parameters(rng) if parameters else {}), base | job

    return draw


def _fixed(
    parameters: Callable[[np.random.Generator], dict[str, float]] | None = None, *sizes: int, **job: object
) -> Draw:
    """The scenario's own layout; only size and parameters vary."""

    def draw(rng: np.random.Generator) -> tuple[dict[str, float], dict[str, object]]:
        size = {"ranks": int(_pick(rng, *sizes))} if sizes else {}
        return (parameters(rng) if parameters else {}), {"steps": 20} | size | job

    return draw


def _placed(
    parameters: Callable[[np.random.Generator], dict[str, float]],
    place: Callable[[np.random.Generator, int], dict[str, float]],
    *sizes: int,
    **job: object,
) -> Draw:
    def draw(rng: np.random.Generator) -> tuple[dict[str, float], dict[str, object]]:
        ranks = int(_pick(rng, *sizes))
        return parameters(rng) | place(rng, ranks), {"steps": 20, "ranks": ranks} | job

    return draw


_CLASSES: dict[str, tuple[str, Draw]] = {
    "1 healthy": ("healthy", _plain()),
    "1 healthy, tensor parallel": ("healthy", _fixed(None, 16, layout="dp_tp", tp=4)),
    "1 healthy, 8 steps": ("healthy", _plain(None, steps=8)),
    "2 healthy, devices differ": ("healthy_spread", _plain(lambda rng: {"spread": _pick(rng, 0.02, 0.03)})),
    "3 healthy, noisy": ("healthy_noisy", _plain(lambda rng: {"noise": _pick(rng, 0.05, 0.1)})),
    "4 slow GPU, below 10 %": ("slow_gpu", _straggler(1.05, 1.08)),
    "4 slow GPU": ("slow_gpu", _straggler(1.1, 1.15, 1.3, 2.0)),
    "5 slow memory": ("slow_memory", _straggler(1.3, 1.5)),
    "6 slow node": ("slow_node", _straggler(1.1, 1.2, 1.3, place=_host)),
    "7 two stragglers": ("two_stragglers", _straggler(1.2, 1.25, place=lambda rng, ranks: {"rank": float(rng.integers(2, ranks))})),
    "8 one in a hundred slow": ("few_slow_gpus", _fixed(None, 128)),
    "9 transient": ("transient_gpu", _placed(lambda rng: {"factor": _pick(rng, 1.3, 1.5, 2.0), "share": _pick(rng, 0.25, 0.34)}, _rank, *_SIZES)),
    "10 onset": ("onset", _placed(lambda rng: {"factor": _pick(rng, 1.2, 1.3)}, _rank, *_SIZES)),
    "11 busy host": ("busy_host", _placed(lambda rng: {"factor": _pick(rng, 3.0, 4.0, 5.0)}, _host, *_SIZES)),
    "12 loader of one rank": ("loader_one", _placed(lambda rng: {"share": _pick(rng, 0.2, 0.5, 1.0)}, _rank, *_SIZES)),
    "13 loader of random ranks": ("loader_random", _plain(lambda rng: {"share": _pick(rng, 0.3, 0.6)})),
    "13 loaders of all ranks": ("input_bound", _plain(lambda rng: {"share": _pick(rng, 0.4, 0.7)})),
    "14 garbage collection": ("gc", _plain(lambda rng: {"every": _pick(rng, 12, 24, 48)})),
    "15 allocator": ("allocator", _placed(lambda rng: {"every": _pick(rng, 1, 2)}, _rank, *_SIZES)),
    "16 slow NIC": ("slow_nic", _placed(lambda rng: {"share": _pick(rng, 0.25, 0.5)}, _host, 16, 32)),
    "17 lossy link": ("lossy_link", _placed(lambda rng: {"probability": 0.05}, _rank, 16, layout="hsdp")),
    "18 NVLink": ("nvlink", _placed(lambda rng: {"factor": _pick(rng, 3.0, 4.0)}, _host, 16)),
    "19 congestion": ("congestion", _fixed(lambda rng: {"probability": _pick(rng, 0.3, 0.4)}, 16, 32)),
    "20 oversubscription": ("oversubscription", _fixed(lambda rng: {"ratio": _pick(rng, 2.0, 4.0)})),
    "21 slow network": ("slow_network", _fixed(lambda rng: {"share": _pick(rng, 0.2, 0.25)}, 8, 16, layout="fsdp")),
    "22 tiny buckets": ("tiny_buckets", _fixed(lambda rng: {"buckets": _pick(rng, 32, 64)})),
    "23 wrong protocol": ("wrong_protocol", _fixed(lambda rng: {"factor": _pick(rng, 0.2, 0.3)}, 8, 16)),
    "24 bubble": ("bubble", _fixed(lambda rng: {"micro_batches": _pick(rng, 4, 8)})),
    "25 heavy stage": ("heavy_stage", _fixed(lambda rng: {"factor": _pick(rng, 1.3, 1.4, 1.8)})),
    "26 sequence lengths": ("sequence_lengths", _plain(lambda rng: {"cv": _pick(rng, 0.1, 0.2, 0.4)})),
    "27 long documents": ("long_documents", _plain(lambda rng: {"factor": _pick(rng, 1.15, 1.25)})),
    "28 MoE, changing": ("moe_imbalance", _fixed(lambda rng: {"peak": _pick(rng, 2.0, 3.0)}, 8, 16)),
    "29 MoE, hot rank": ("moe_hot_rank", _placed(lambda rng: {"peak": _pick(rng, 2.0, 3.0)}, _rank, 8, 16)),
    "30 checkpoint": ("checkpoint", _plain()),
    "31 warm-up": ("warm_up", _plain()),
    "33 extra work on rank 0": ("rank0_work", _plain(lambda rng: {"ms": _pick(rng, 15, 25, 40)})),
    "34 mixed GPUs": ("mixed_gpus", _placed(lambda rng: {"factor": _pick(rng, 1.3, 1.6)}, _host, *_SIZES)),
    "35 waiting, not network": ("wait_not_network", _placed(lambda rng: {"factor": _pick(rng, 1.5, 1.8)}, _rank, 8, 16)),
    "36 overlapped": ("overlapped", _fixed(None, 8, 16)),
    "37 launch-bound": ("small_model", _fixed(None, 8, 16)),
    "38 contention": ("contention", _fixed(None, 8, 16)),
    "39 clocks off": ("clocks_off", _placed(lambda rng: {"factor": _pick(rng, 1.15, 1.3)}, _rank, 16, 32)),
    "40 missing ranks": ("missing_ranks", _plain(lambda rng: {"factor": 1.3, "missing": _pick(rng, 0.1, 0.25)}, 8, 16)),
    "41 two faults": ("two_faults", _placed(lambda rng: {"factor": 1.25, "share": 0.25}, lambda rng, ranks: {"rank": float(rng.integers(4)), "host": float(rng.integers(1, ranks // 4))}, 16, 32)),
}  # fmt: skip


def groups() -> list[str]:
    """All classes."""
    return list(_CLASSES)


def case(group: str, seed: int) -> Case:
    """One run of a class."""
    scenario, draw = _CLASSES[group]
    rng = np.random.default_rng([seed, zlib.crc32(group.encode())])
    parameters, job = draw(rng)
    return Case(group, scenario, seed, parameters, job, topology=group.startswith("20"))


def large_cases(seed: int) -> list[Case]:
    """Runs of many ranks, coarse kernels."""
    return [
        Case(f"large, {ranks} ranks", name, seed, parameters, {"ranks": ranks, "steps": 20, "layout": layout, "coarse": True})
        for ranks in (512, 2048)
        for name, parameters, layout in (
            ("healthy", {}, "hsdp"), ("slow_gpu", {"factor": 1.1, "rank": float(ranks // 3)}, "hsdp"), ("slow_nic", {"share": 0.5, "host": 7.0}, "hsdp")
        )
    ]  # fmt: skip
