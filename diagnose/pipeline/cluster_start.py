"""Which cluster: the settings in diagnose.yaml, connecting to a scheduler, and asking Slurm or Kubernetes for workers."""

from __future__ import annotations

import contextlib
from importlib import import_module
from typing import TYPE_CHECKING, Any

import msgspec

from diagnose.errors import ConfigError
from diagnose.pipeline.cluster_task import ClusterError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from diagnose.config import Config

_CONNECT_S = 20
_KINDS = {
    "slurm": ("dask_jobqueue", "SLURMCluster", "dask-jobqueue"),
    "k8s": ("dask_kubernetes.operator", "KubeCluster", "dask-kubernetes"),
}


class ClusterSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`cluster:` in diagnose.yaml. ``slurm`` and ``k8s`` are the arguments of dask-jobqueue's SLURMCluster and
    dask-kubernetes' KubeCluster.
    """

    shards: str | None = None
    """Folder or URL that client and workers share; without it shards travel through the scheduler."""
    lost_after_s: float = 60.0
    """How long to wait for a worker when there is none."""
    workers: int = 8
    """How many to ask Slurm or Kubernetes for."""
    slurm: dict[str, Any] = {}
    k8s: dict[str, Any] = {}


def cluster_settings(config: Config) -> ClusterSettings:
    """The settings of `cluster:`.

    Raises:
        ConfigError: an unknown key or a wrong type.
    """
    try:
        return msgspec.convert(config.cluster, ClusterSettings)
    except msgspec.ValidationError as error:
        raise ConfigError(f"cluster in diagnose.yaml: {error}") from error


def dask() -> Any:  # noqa: ANN401 - half of it has no types
    """The package `distributed`.

    Raises:
        ClusterError: it is not installed.
    """
    try:
        return import_module("distributed")
    except ImportError as error:
        raise ClusterError("a cluster needs Dask: pip install 'diagnose-training[cluster]'") from error


def connected(where: Any, name: str) -> Any:  # noqa: ANN401 - Dask has no types
    """A client of the scheduler or cluster ``where``, which messages call ``name``.

    Raises:
        ClusterError: nobody answers.
    """
    distributed = dask()
    try:
        if isinstance(where, str):
            # Dask leaves a client open that fails on a malformed address; whichever thread collects it then closes it,
            # which may block for good. So such an address fails before there is a client.
            import_module("distributed.comm").get_address_host(where)
        return distributed.Client(where, set_as_default=False, timeout=_CONNECT_S, name="diagnose")
    except (OSError, ValueError, RuntimeError) as error:
        raise ClusterError(
            f"no Dask scheduler answers at {name}: {_first_line(error)}; start one with `dask scheduler`, "
            "and workers with `dask worker ADDRESS`"
        ) from error


@contextlib.contextmanager
def started(kind: str, settings: ClusterSettings) -> Iterator[Any]:
    """A cluster of ``kind`` with the workers that the settings ask for, gone at the end.

    Raises:
        ClusterError: its package is missing, or it refuses the settings.
    """
    module, name, package = _KINDS[kind]
    dask()
    try:
        make = getattr(import_module(module), name)
    except ImportError as error:
        raise ClusterError(f"--cluster {kind} needs {package}: pip install {package}") from error
    with contextlib.ExitStack() as stack:
        try:
            cluster = stack.enter_context(
                contextlib.closing(make(**(settings.slurm if kind == "slurm" else settings.k8s)))
            )
            cluster.scale(settings.workers)
        except Exception as error:
            raise ClusterError(f"--cluster {kind}: {_first_line(error)} (cluster.{kind} in diagnose.yaml)") from error
        yield cluster


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
