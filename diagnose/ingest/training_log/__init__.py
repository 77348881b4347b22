"""Readers of training logs: the steps of a whole run, of which a profile shows only a window."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diagnose.ingest.training_log.json_log import JsonLinesLog, LightningCsv, TrainerState
from diagnose.ingest.training_log.text_log import TextTrainingLog

if TYPE_CHECKING:
    from diagnose.ingest.base import Format

FORMATS: list[Format] = [TextTrainingLog(), TrainerState(), JsonLinesLog(), LightningCsv()]
