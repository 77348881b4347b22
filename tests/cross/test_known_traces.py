"""Public and recorded traces with known answers: who came last, what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from diagnose.config import Config
from diagnose.findings.evaluate import evaluate
from diagnose.model import NotChecked
from diagnose.pipeline.build import RunOptions, build_run
from diagnose.store.reader import Store

TRACES = Path(__file__).parents[3] / "shared" / "data" / "traces"


@pytest.fixture
def analysed(tmp_path):
    stores = []

    def run(name):
        folder = TRACES / name
        if not folder.is_dir():
            pytest.skip(f"no traces at {folder}")
        store = Store(build_run([str(folder)], tmp_path / "run.duckdb", Config(), RunOptions(name="run", jobs=1)))
        stores.append(store)
        return store, evaluate(store, Config())

    yield run
    for store in stores:
        store.close()


def ranks_named(result):
    return {
        rank
        for item in result.findings
        if item.severity != "info" and item.code.startswith("RANK-")
        for rank in item.ranks
    }


def test_dlrm_on_eight_gpus(analysed):
    store, result = analysed("param-dlrm8")

    rows = store.query("SELECT * FROM collective ORDER BY instance")
    assert rows.get_column("seen").to_list() == [8] * 8
    assert rows.get_column("members").to_list() == [8] * 8
    assert rows.get_column("last_rank").to_list().count(7) == 5
    assert rows.get_column("end_skew_ns").max() <= 7_000
    first = rows.filter(rows["collective"] == "all_to_all").row(0, named=True)
    assert first["transfer_ns"] == pytest.approx(10_000, abs=3_000)
    assert rows.get_column("start_skew_ns").max() == pytest.approx(7_600_000, rel=0.02)
    assert result.verdict.network_bound is False
    assert not [item for item in result.findings if item.code.startswith("NET-") and item.severity != "info"]


def test_one_of_many_ranks_is_refused(analysed):
    store, result = analysed("hta-rank01of128")

    assert result.verdict.network_bound is None
    assert ranks_named(result) == set()
    assert any(isinstance(item, NotChecked) and "of 128 ranks" in item.why for item in result.not_checked)
    assert store.query("SELECT count(*) FROM what_if").item() == 0


@pytest.mark.parametrize("torch", ["1.13.1", "2.4.1", "2.13.0"])
def test_a_sleeping_rank_among_noisy_ones(analysed, torch):
    """Four processes shared two cores: where their noise hides the sleep, the answer is how much it hides."""
    store, result = analysed(f"selfgen-gloo-torch{torch}/ddp_straggler")

    assert ranks_named(result) <= {2}
    if not ranks_named(result):
        noise = store.query("SELECT value FROM job_stat WHERE name = 'detectable_slowdown_ratio'").item()
        usual = store.query("SELECT median(work_ns) FROM rank_work").item()
        assert noise * usual >= 30e6 * 0.8
        assert any("told from noise" in item.why for item in result.not_checked)
    else:
        assert store.query("SELECT mode(last_rank) FROM collective").item() == 2


def test_a_rank_with_a_slow_loader(analysed):
    _, result = analysed("selfgen-gloo-torch2.13.0/ddp_dataloader")

    causes = [(item.cause, item.ranks) for item in result.findings if item.severity != "info"]
    assert causes[0] == ("input_stall", (1,))


def test_many_matched_collectives_in_a_cut_group(analysed):
    folder = TRACES.parent / "bug_cases" / "39-group-ranks-cut"
    if not folder.is_dir():
        pytest.skip(f"no traces at {folder}")
    store, result = analysed(str(folder))

    row = store.query("SELECT members, seen, transfer_ns FROM collective").row(0)
    assert row == (64, 2, None)
    assert result.verdict.network_bound is None
