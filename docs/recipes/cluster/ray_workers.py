"""Dask workers on the free CPUs of a running Ray cluster, for one run of diagnose.

ray job submit --working-dir . -- python ray_workers.py tcp://SCHEDULER:8786 64
"""

from __future__ import annotations

import subprocess
import sys

import ray


@ray.remote(num_cpus=1, max_retries=0)
def work(address: str) -> int:
    """One worker, until its scheduler has been gone for a minute."""
    command = [
        sys.executable,
        "-m",
        "dask",
        "worker",
        address,
        "--nthreads",
        "1",
        "--no-nanny",
        "--death-timeout",
        "60",
    ]
    return subprocess.run(command, check=False).returncode  # noqa: S603 - our own words


def main() -> None:
    """As many workers as asked for, where Ray finds room."""
    address, count = sys.argv[1], int(sys.argv[2])
    ray.init()
    ray.get([work.remote(address) for _ in range(count)])


if __name__ == "__main__":
    main()
