"""The reduce step: what only all ranks together can tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diagnose.analysis.step_labels import label_steps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diagnose.config import Config
    from diagnose.pipeline.identify import Member
    from diagnose.store.writer import StoreWriter


def analyse_across(writer: StoreWriter, members: Sequence[Member], config: Config) -> None:
    """Label the steps, then match, align, divide and judge across ranks."""
    del config
    if not members:
        return
    steps = writer.query("SELECT * FROM step ORDER BY rank, step")
    if not steps.is_empty():
        writer.replace("step", label_steps(steps, writer.query("SELECT * FROM breakdown WHERE step >= 0"), writer.query("SELECT rank, lost_capture FROM rank")))
