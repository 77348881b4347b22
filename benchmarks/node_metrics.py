"""Time and memory of reading node metrics into a store: 1 000 hosts x 40 metrics x 2 h at 15 s, 19.2 M samples.

    python benchmarks/node_metrics.py --hosts 1000 --format prometheus-json
    python benchmarks/node_metrics.py --hosts 100 --format all

Each format is written once to a temporary folder, one file a metric, and read in a process of its own. Target: below
60 s and 2 GB on two cores for 19.2 million samples.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl

START_S = 1_796_062_353
STEP_S = 15
COUNTERS = (
    "node_network_receive_bytes_total",
    "node_network_transmit_bytes_total",
    "node_disk_read_bytes_total",
    "node_disk_written_bytes_total",
)
FORMATS = ("prometheus-json", "promtool-dump", "openmetrics", "plain-csv", "plain-parquet")
TARGET_S, TARGET_BYTES = 60, 2_000_000_000


def metric_name(number: int) -> tuple[str, str]:
    """Exporter name and labels beside the instance."""
    name = COUNTERS[number % len(COUNTERS)]
    label = f'device="dev{number // len(COUNTERS)}"'
    return name, label


def series(hosts: int, points: int, number: int) -> np.ndarray:
    rng = np.random.default_rng(number)
    return np.cumsum(rng.integers(0, 10_000_000, size=(hosts, points)), axis=1)


def write(folder: Path, kind: str, hosts: int, metrics: int, points: int) -> int:
    times = START_S + STEP_S * np.arange(points)
    for number in range(metrics):
        values = series(hosts, points, number)
        name, label = metric_name(number)
        path = folder / f"{number:02d}"
        if kind == "prometheus-json":
            _write_json(path.with_suffix(".json"), name, label, values, times)
        elif kind in ("promtool-dump", "openmetrics"):
            _write_text(path.with_suffix(".txt"), name, label, values, times, dump=kind == "promtool-dump")
        else:
            frame = pl.DataFrame(
                {
                    "time": np.tile(times, hosts),
                    "host": [f"node{host:04d}" for host in range(hosts) for _ in range(points)],
                    "device": [f"nic:dev{number}"] * (hosts * points),
                    "metric": ["nic.tx_bytes_total"] * (hosts * points),
                    "value": values.ravel(),
                }
            )
            if kind == "plain-csv":
                frame.write_csv(path.with_suffix(".csv"))
            else:
                frame.write_parquet(path.with_suffix(".parquet"))
    return sum(item.stat().st_size for item in folder.iterdir())


def _write_json(path: Path, name: str, label: str, values: np.ndarray, times: np.ndarray) -> None:
    extra = f',"device":"{label.split(chr(34))[1]}"' if label else ""
    with path.open("w") as out:
        out.write('{"status":"success","data":{"resultType":"matrix","result":[')
        for host, row in enumerate(values):
            points = ",".join(f'[{t},"{v}"]' for t, v in zip(times, row, strict=True))
            labels = f'"__name__":"{name}","instance":"node{host:04d}:9100","job":"node"{extra}'
            out.write(f'{"," if host else ""}{{"metric":{{{labels}}},"values":[{points}]}}')
        out.write("]}}")


def _write_text(path: Path, name: str, label: str, values: np.ndarray, times: np.ndarray, *, dump: bool) -> None:
    with path.open("w") as out:
        for host, row in enumerate(values):
            labels = f'instance="node{host:04d}:9100",job="node"' + (f",{label}" if label else "")
            key = f'{{__name__="{name}",{labels}}}' if dump else f"{name}{{{labels}}}"
            scale, suffix = (1000, "") if dump else (1, ".000")
            out.writelines(f"{key} {v} {t * scale}{suffix}\n" for t, v in zip(times, row, strict=True))
        if not dump:
            out.write("# EOF\n")


def ingest(folder: Path) -> None:
    """Read every file into shards and a store, as a run does; print what it took."""
    from diagnose.ingest.base import Batch, ReadOptions, Source
    from diagnose.ingest.node_metrics import FORMATS as READERS
    from diagnose.store.writer import StoreWriter

    started = time.perf_counter()
    reading = 0.0
    rows = 0
    shards: dict[str, list[Path]] = {}
    with StoreWriter(folder / "run.duckdb") as writer:
        for path in sorted(folder.iterdir()):
            if path.name.endswith((".tmp", ".duckdb", ".wal", ".shard")):
                continue
            source = Source(path=str(path), size_bytes=path.stat().st_size)
            with source.open() as handle:
                head = handle.read(65_536)
            reader = next(item for item in READERS if item.sniff(head, source.name))
            mark = time.perf_counter()
            for record in reader.read(source, ReadOptions()):
                reading += time.perf_counter() - mark
                if isinstance(record, Batch):
                    rows += record.frame.height
                    shard = folder / f"{record.table}-{rows}.shard"
                    record.frame.write_parquet(shard, compression="lz4", statistics=False)
                    shards.setdefault(record.table, []).append(shard)
                mark = time.perf_counter()
        for table, paths in shards.items():
            writer.insert_parquet(table, paths)
        writer.publish()
    total = time.perf_counter() - started
    usage = resource.getrusage(resource.RUSAGE_SELF)
    peak = usage.ru_maxrss * 1024
    size = (folder / "run.duckdb").stat().st_size
    print(rows, f"{reading:.2f}", f"{total:.2f}", peak, size, f"{usage.ru_utime + usage.ru_stime:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=100)
    parser.add_argument("--metrics", type=int, default=40)
    parser.add_argument("--hours", type=float, default=2.0)
    parser.add_argument("--format", choices=(*FORMATS, "all"), default="prometheus-json")
    parser.add_argument("--ingest", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ingest:
        ingest(options.ingest)
        return
    points = int(options.hours * 3600 / STEP_S)
    for kind in FORMATS if options.format == "all" else (options.format,):
        with tempfile.TemporaryDirectory(prefix="node-metrics-") as place:
            size = write(Path(place), kind, options.hosts, options.metrics, points)
            done = subprocess.run(
                [sys.executable, __file__, "--ingest", place], capture_output=True, text=True, check=True
            )
            rows, reading, total, peak, stored, cpu = (float(part) for part in done.stdout.split())
        scaled = total * 19_200_000 / rows
        verdict = "meets" if scaled < TARGET_S and peak < TARGET_BYTES else "misses"
        print(
            f"{kind:16} {rows / 1e6:6.2f} M samples, {size / 1e6:7.0f} MB: read {reading:6.1f} s, "
            f"with store {total:6.1f} s ({cpu:.1f} s of CPU), peak {peak / 1e6:5.0f} MB, store {stored / 1e6:5.0f} MB; "
            f"at 19.2 M samples {scaled:5.1f} s: {verdict} the target"
        )


if __name__ == "__main__":
    main()
