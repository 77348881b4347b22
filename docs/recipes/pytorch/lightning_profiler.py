"""PyTorch Lightning: `Trainer(profiler=inbox_profiler("/srv/training/inbox"))`."""

from __future__ import annotations

import torch
from lightning.pytorch.profilers import PyTorchProfiler
from trace_handler import lay_traces


def inbox_profiler(inbox: str) -> PyTorchProfiler:
    """Profiles eight steps after the first twenty-three, on every rank."""
    schedule = torch.profiler.schedule(wait=20, warmup=3, active=8, repeat=1)
    return PyTorchProfiler(
        schedule=schedule, record_shapes=True, on_trace_ready=lay_traces(inbox), export_to_chrome=False
    )
