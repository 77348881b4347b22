"""Hugging Face Trainer: `Trainer(..., callbacks=[ProfileCallback("/srv/training/inbox")])`."""

from __future__ import annotations

import torch
from trace_handler import lay_traces
from transformers import TrainerCallback


class ProfileCallback(TrainerCallback):
    """Profiles eight steps after the first twenty-three, on every rank."""

    def __init__(self, inbox: str) -> None:
        schedule = torch.profiler.schedule(wait=20, warmup=3, active=8, repeat=1)
        self._prof = torch.profiler.profile(schedule=schedule, record_shapes=True, on_trace_ready=lay_traces(inbox))

    def on_train_begin(self, *_: object, **__: object) -> None:
        """Begin to count steps."""
        self._prof.start()

    def on_step_end(self, *_: object, **__: object) -> None:
        """One step more."""
        self._prof.step()

    def on_train_end(self, *_: object, **__: object) -> None:
        """Write what was recorded, should training end early."""
        self._prof.stop()
