"""Records a small DDP job on CPUs: real processes, real gloo traffic, real torch.profiler traces.

    python sample_traces/record_gloo.py --out sample_traces/gloo_healthy
    python sample_traces/record_gloo.py --out sample_traces/gloo_slow_rank --slow-rank 2 --factor 2

The slow rank runs its forward and backward pass --factor times per step, so it really has more work. Needs torch.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import yaml
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.data import DataLoader, TensorDataset

WAIT, WARMUP = 2, 1


def model(width: int, depth: int) -> nn.Module:
    """A stack of linear layers."""
    layers: list[nn.Module] = []
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.GELU()]
    return nn.Sequential(*layers, nn.Linear(width, 10))


def train(rank: int, options: argparse.Namespace, store: str, folder: str) -> None:
    """One rank: trains, profiles, and leaves its trace and its step times in the folder."""
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    torch.manual_seed(7)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=options.ranks)
    net = DistributedDataParallel(model(options.width, options.depth), bucket_cap_mb=1)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    count = WAIT + WARMUP + options.steps
    batch = options.batch
    data = TensorDataset(torch.randn(count, batch, options.width), torch.randint(0, 10, (count, batch)))
    repeats = options.factor if rank == options.slow_rank else 1
    os.chdir(folder)
    times = []
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=WAIT, warmup=WARMUP, active=options.steps, repeat=1),
        on_trace_ready=lambda prof: prof.export_chrome_trace(f"rank{rank}_trace.json"),
        record_shapes=True,
    ) as prof:
        begin = time.perf_counter_ns()
        for inputs, labels in DataLoader(data, batch_size=None):
            optimizer.zero_grad()
            with net.no_sync():
                for _ in range(repeats - 1):
                    nn.functional.cross_entropy(net(inputs), labels).backward()
            nn.functional.cross_entropy(net(inputs), labels).backward()
            optimizer.step()
            times.append(time.perf_counter_ns() - begin)
            prof.step()  # writes the trace after the last step
            begin = time.perf_counter_ns()
    Path(f"times{rank}.json").write_text(json.dumps(times))
    dist.barrier()
    dist.destroy_process_group()


def collect(options: argparse.Namespace, folder: Path) -> None:
    """Packs the traces without time stamps and writes the answer key."""
    options.out.mkdir(parents=True, exist_ok=True)
    steps = {}
    for rank in range(options.ranks):
        text = (folder / f"rank{rank}_trace.json").read_bytes()
        (options.out / f"rank{rank}_trace.json.gz").write_bytes(gzip.compress(text, 9, mtime=0))
        steps[rank] = json.loads((folder / f"times{rank}.json").read_text())
    slow = options.slow_rank
    fault = {
        "cause": "workload_imbalance",
        "ranks": [slow],
        "steps": "all",
        "persistence": "persistent",
        "magnitude": options.factor,
        "what": "this rank runs its forward and backward pass that many times a step, on inputs of equal shape",
    }
    answer = {
        "simulated": False,
        "recorded_with": f"torch {torch.__version__}, gloo on CPU",
        "scenario": "healthy" if slow is None else "slow_rank",
        "world_size": options.ranks,
        "profiled_steps": list(range(WAIT + WARMUP, WAIT + WARMUP + options.steps)),
        "faults": [] if slow is None else [fault],
        "expected": {
            "bottleneck": "compute" if slow is None else "straggler",
            "also_right": [] if slow is None else ["imbalance"],  # more calls of equal shape: load, not hardware
            "network_bound": None,
        },
        "step_wall_ns": {f"rank{r}": v for r, v in steps.items()},
    }
    (options.out / "truth.yaml").write_text(yaml.safe_dump({"truth": answer}, sort_keys=False, width=110))


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--steps", type=int, default=5, help="profiled steps")
    parser.add_argument("--slow-rank", type=int)
    parser.add_argument("--factor", type=int, default=2)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--depth", type=int, default=6)
    parser.add_argument("--batch", type=int, default=2048)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        mp.spawn(train, args=(options, f"{place}/store", place), nprocs=options.ranks)
        collect(options, Path(place))


if __name__ == "__main__":
    main()
