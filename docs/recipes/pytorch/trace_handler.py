"""Lay profiler traces where `diagnose watch` finds them: one folder a run, one file a rank, each appearing whole.

from trace_handler import lay_traces

with torch.profiler.profile(
    schedule=torch.profiler.schedule(wait=20, warmup=3, active=8, repeat=1), record_shapes=True, on_trace_ready=lay_traces("/srv/training/inbox"),
) as prof:
    for batch in loader:
        train_step(batch)
        prof.step()
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def lay_traces(inbox: str | Path, run: str | None = None, rank: int | None = None) -> Callable[[Any], None]:
    """An ``on_trace_ready`` handler.

    Args:
        inbox: the folder that `diagnose watch` looks at; must be the same on all hosts.
        run: name of the run, the same on all ranks. Default: RUN_NAME, or the job's name and id under Slurm.
        rank: global rank. Default: RANK or SLURM_PROCID.
    """
    env = os.environ
    name = (
        run
        or env.get("RUN_NAME")
        or f"{env.get('SLURM_JOB_NAME', 'run')}-{env.get('SLURM_JOB_ID') or env.get('TORCHELASTIC_RUN_ID', '0')}"
    )
    number = rank if rank is not None else int(env.get("RANK", env.get("SLURM_PROCID", "0")))
    folder = Path(inbox) / name

    def handler(prof: Any) -> None:  # noqa: ANN401 - torch.profiler.profile
        folder.mkdir(parents=True, exist_ok=True)
        hidden = folder / f".rank{number}.json.gz"
        prof.export_chrome_trace(str(hidden))
        hidden.replace(folder / f"rank{number}.json.gz")  # a watcher never sees half a trace

    return handler
