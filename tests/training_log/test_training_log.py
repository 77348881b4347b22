"""Step lines of every framework, and what a whole run's log tells."""

from __future__ import annotations

import io
import json
from pathlib import Path

import polars as pl
import pytest

from diagnose.analysis.training_log import summarise_log
from diagnose.ingest.base import Batch, Outcome, ReadOptions, Source
from diagnose.ingest.streams import ByteStream
from diagnose.ingest.training_log import FORMATS
from diagnose.model import Issue

LAB = Path(__file__).resolve().parents[3] / "shared" / "data" / "lab"
SECOND = 10**9
MS = 10**6


class Text(Source, frozen=True, kw_only=True):
    content: bytes = b""

    def open(self) -> ByteStream:
        return ByteStream(io.BytesIO(self.content))


def read(text: str, path: str = "train.log", **options):
    source = Text(path=path, size_bytes=len(text), content=text.encode())
    head = text.encode()[:65_536]
    claims = [item for item in FORMATS if item.sniff(head, source.name)]
    assert len(claims) == 1, [item.name for item in claims]
    records = list(claims[0].read(source, ReadOptions(**options)))
    frames = [record.frame for record in records if isinstance(record, Batch)]
    outcome = next(record for record in records if isinstance(record, Outcome))
    issues = {record.code for record in records if isinstance(record, Issue)}
    return (frames[0] if frames else pl.DataFrame()), outcome, issues


def rows(text: str, path: str = "train.log", **options):
    frame, _, _ = read(text, path, **options)
    return frame.select("step", "step_time_ns", "loss", "throughput", "throughput_unit", "rank").rows()


def test_plain_key_value():
    line = "2026-11-30 18:11:55,304 INFO [rank3] step 7/45 loss=0.2277 step_time=0.6981s throughput=45.8 samples/s\n"
    assert rows(line) == [(7, 698_100_000, 0.2277, 45.8, "samples/s", 3)]
    frame, outcome, issues = read(line)
    assert frame.get_column("t_ns").to_list() == [1796062315304 * MS]
    assert issues == {"DQ-03"}
    assert outcome.identity.rank == 3
    assert read(line, timezone="+01:00")[0].get_column("t_ns").to_list() == [(1796062315304 - 3_600_000) * MS]


def test_megatron():
    line = (
        " [2026-11-30 18:25:45] iteration        5/      60 | consumed samples:           32 | "
        "elapsed time per iteration (ms): 256.3 | throughput per GPU (TFLOP/s/GPU): 123.4 | lm loss: 2.277486E-01 |\n"
    )
    assert rows(line) == [(5, 256_300_000, 0.2277486, 123.4, "TFLOP/s/gpu", None)]


def test_nanotron_suffixes():
    line = (
        "10/02/2024 15:22:35 [INFO|DP=0|PP=0|TP=0|ip-1]: iteration: 12 / 20 | consumed_tokens: 262K | "
        "elapsed_time_per_iteration_ms: 1.2K | tokens_per_sec: 203K | lm_loss: 11.2\n"
    )
    assert rows(line) == [(12, 1200 * MS, 11.2, 203_000, "tokens/s", None)]


def test_torchtitan_with_colours_derives_step_time():
    text = "".join(
        f"\x1b[0m[rank0]:[titan] 2024-10-02 15:22:{n * 5:02d},500 - root - INFO - \x1b[36mstep: {n * 10:2d}  "
        f"\x1b[32mloss: {9 - n}.5\x1b[33m  memory: 1GiB(2%)  \x1b[34mtps: 1,{n}34  tflops: 3.2\x1b[39m\n"
        for n in range(3)
    )
    assert rows(text) == [
        (0, None, 9.5, 1034, "tokens/s/gpu", 0),
        (10, 500 * MS, 8.5, 1134, "tokens/s/gpu", 0),
        (20, 500 * MS, 7.5, 1234, "tokens/s/gpu", 0),
    ]


def test_deepspeed_merges_both_lines_of_a_step():
    text = (
        "[2026-01-02 03:04:05,100] [INFO] [timer.py:1:stop] epoch=0/micro_step=10/global_step=10, "
        "RunningAvgSamplesPerSec=11.5, CurrSamplesPerSec=12.5\n"
        "steps: 10 loss: 2.3456 iter time (s): 1.250 samples/sec: 12.800\n"
    )
    assert rows(text) == [(10, 1250 * MS, 2.3456, 12.5, "samples/s", None)]


def test_trainer_dict_takes_the_step_of_the_bar():
    text = (
        " 10%|#         | 50/500 [00:10<01:30,  5.00it/s]{'loss': 2.5, 'grad_norm': 1.0, "
        "'learning_rate': 5e-05, 'epoch': 0.1}\n"
    )
    assert rows(text) == [(50, 200 * MS, 2.5, None, None, None)]


def test_trainer_state():
    text = json.dumps(
        {
            "global_step": 20,
            "log_history": [
                {"loss": 2.0, "step": 10},
                {"eval_loss": 1.0, "step": 10},
                {"train_samples_per_second": 5.5, "step": 20},
            ],
        }
    )
    assert rows(text, "trainer_state.json") == [
        (10, None, 2.0, None, None, None),
        (20, None, None, 5.5, "samples/s", None),
    ]


def test_json_lines_and_wandb_history():
    text = (
        '{"time": "2026-01-02T03:04:05Z", "rank": 1, "step": 3, "loss": 0.5, "step_time_ms": 210.5, '
        '"throughput": 9.0}\nnoise\n'
    )
    assert rows(text, "log.jsonl") == [(3, 210_500_000, 0.5, 9.0, "samples/s", 1)]
    history = (
        '{"_step":5,"_timestamp":1767323045.25,"_runtime":1,"train/loss":0.7}\n{"_step":6,"_timestamp":'
        '1767323046.25,"train/loss":0.6}\n'
    )
    frame, _, issues = read(history, "wandb-history.jsonl")
    assert frame.get_column("t_ns").to_list() == [1767323045250 * MS, 1767323046250 * MS]
    assert frame.get_column("step_time_ns").to_list() == [None, SECOND]
    assert issues == set()


def test_lightning_csv():
    text = "epoch,step,train_loss_step,val_loss\n0,49,1.5,\n0,49,,1.2\n0,99,1.25,\n"
    assert rows(text, "metrics.csv") == [(49, None, 1.5, None, None, None), (99, None, 1.25, None, None, None)]


def test_restarts_are_counted_and_not_derived_over():
    text = "".join(
        f"2026-01-02 03:04:{second:02d},000 step {step} loss=1.0\n"
        for second, step in ((1, 10), (3, 11), (30, 5), (32, 6))
    )
    frame, _, _ = read(text)
    assert frame.get_column("restart").to_list() == [0, 0, 1, 1]
    assert frame.get_column("step_time_ns").to_list() == [None, None, None, None]


def test_whole_seconds_do_not_give_step_times_of_fractions():
    text = "".join(f"2026-01-02 03:{minute:02d}:00 step {minute * 100} loss=1.0\n" for minute in range(3))
    assert read(text)[0].get_column("step_time_ns").to_list() == [None, 600 * MS, 600 * MS]


@pytest.mark.parametrize(
    "text",
    [
        "node-a:1:1 [0] NCCL INFO Channel 00/02 : 0 1\n",
        "usage: train.py --step N\nstep: begin\n",
        "index, clocks.sm [MHz]\n0, 1980\n",
        "",
    ],
)
def test_other_text_is_not_claimed(text):
    assert not any(item.sniff(text.encode(), Text(path="a.log", size_bytes=1).name) for item in FORMATS)


def test_long_nccl_log_is_taken_for_its_later_steps():
    text = "node-a:1:1 [0] NCCL INFO Channel 00/02 : 0 1\n" * 2000 + "step 1 loss=2.0 step_time=0.5s\n"
    assert rows(text, "job.out") == [(1, 500 * MS, 2.0, None, None, None)]


def log_frame(times, *, restart=None, gap=0.0):
    ends, now = [], 1_000.0
    for n, value in enumerate(times):
        now += value + (gap if restart and n == restart[0] else 0)
        ends.append(int(now * 1e9))
    steps = [n if not restart or n < restart[0] else n - restart[1] for n in range(len(times))]
    count = [0 if not restart or n < restart[0] else 1 for n in range(len(times))]
    return pl.DataFrame(
        {
            "step": steps,
            "t_ns": ends,
            "step_time_ns": [int(value * 1e9) for value in times],
            "throughput": [1.0] * len(times),
            "throughput_unit": ["samples/s"] * len(times),
            "restart": count,
            "rank": [0] * len(times),
        }
    )


def noisy(n):
    return 0.2 + 0.001 * ((n * 7) % 5)


def test_slow_period_and_profile():
    times = [noisy(n) * (3 if 40 <= n < 60 else 1) for n in range(100)]
    found = summarise_log(log_frame(times), (10, 15))
    (period,) = found.slow_periods
    assert (period.first_step, period.last_step, period.profiled) == (40, 59, False)
    assert period.ratio == pytest.approx(3, rel=0.02)
    assert period.lost_ns == pytest.approx(20 * 0.4e9, rel=0.02)
    assert found.profile.ratio_to_run == pytest.approx(1, abs=0.02)
    assert found.trend_ratio is None
    assert summarise_log(log_frame(times), (45, 50)).slow_periods[0].profiled is True


def test_periodic_spikes():
    found = summarise_log(log_frame([noisy(n) + (1 if n % 10 == 9 else 0) for n in range(100)]))
    assert (found.spikes.count, found.spikes.every, found.slow_periods) == (10, 10, ())
    assert found.goodput_ratio == pytest.approx(20.2 / 30.2, rel=0.02)


def test_trend():
    found = summarise_log(log_frame([noisy(n) * (1 + 0.001 * n) for n in range(150)]))
    assert found.trend_ratio == pytest.approx(0.15, abs=0.02)


def test_restart_and_goodput():
    found = summarise_log(log_frame([noisy(n) for n in range(100)], restart=(50, 10), gap=30))
    (restart,) = found.restarts
    assert (restart.from_step, restart.at_step, restart.repeated) == (49, 40, 10)
    assert restart.down_ns == pytest.approx(30.2e9, rel=0.01)
    assert found.goodput_ratio == pytest.approx(90 * 0.202 / 50.2, rel=0.02)


def test_too_short_a_log_says_nothing():
    assert summarise_log(log_frame([0.2] * 5)) is None
    assert summarise_log(pl.DataFrame()) is None


@pytest.mark.skipif(not LAB.is_dir(), reason="the recorded runs are not here (../shared/data/lab)")
@pytest.mark.parametrize(
    ("name", "count", "median_ms"),
    [("healthy_ddp_4h", 60, 213), ("slow_device_r0_12x", 60, 247), ("cputhrottle_h1", 50, 449)],
)
def test_recorded_logs(name, count, median_ms):
    frame, _, _ = read((LAB / name / "train.log").read_text())
    assert frame.height == count
    assert frame.filter(pl.col("step") >= 5).get_column("step_time_ns").median() / MS == pytest.approx(
        median_ms, abs=1.5
    )


@pytest.mark.skipif(not LAB.is_dir(), reason="the recorded runs are not here (../shared/data/lab)")
def test_recorded_faults_show_in_the_summary():
    storage = summarise_log(read((LAB / "storage_traffic_h1" / "train.log").read_text())[0])
    (period,) = storage.slow_periods
    assert 12 <= period.first_step <= 14
    assert 28 <= period.last_step <= 30
    saves = summarise_log(read((LAB / "ckpt_every10" / "train.log").read_text())[0])
    assert saves.spikes.every == 10
    healthy = summarise_log(read((LAB / "healthy_fsdp_4h" / "train.log").read_text())[0])
    assert healthy.slow_periods == ()
    assert healthy.restarts == ()
