"""Where to read: in this process and its children, on the workers of a scheduler, or on workers that are started for it."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from diagnose.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from diagnose.config import Config
    from diagnose.pipeline.cluster import DaskEngine


def engine_for(
    scheduler: str | None, cluster: str | None, config: Config, notice: Callable[[str], None] | None = None
) -> AbstractContextManager[DaskEngine | None]:
    """The engine of a run; None for this machine.

    Args:
        scheduler: address of a Dask scheduler.
        cluster: "slurm" or "k8s": workers are started there, as the configuration says.
        config: its ``cluster`` section holds for both.
        notice: called with what the user should know while it runs.

    Raises:
        UsageError: both are given.
        ClusterError: no scheduler or worker answers, or they differ from this side.
    """
    if scheduler is None and cluster is None:
        return nullcontext()
    if scheduler is not None and cluster is not None:
        raise UsageError("--scheduler names a cluster that runs, --cluster starts one: give one of them")
    from diagnose.pipeline.cluster import DaskEngine
    from diagnose.pipeline.cluster_start import cluster_settings, dask

    dask()
    for name in ("distributed", "distributed.client"):  # what matters of their errors is in ours
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return DaskEngine(scheduler, kind=cluster, settings=cluster_settings(config), notice=notice)
