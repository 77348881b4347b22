"""The command, its formats, run stores, and published tables where they lie beside the repository."""

import json
import re
import statistics
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import polars as pl
import pytest
import yaml
from click.testing import CliRunner

from diagnose.cli.scaling import scaling
from diagnose.errors import DiagnoseError, SourceError, UsageError
from diagnose.store.writer import StoreWriter

ROOT = Path(__file__).parents[2]
TABLES = ROOT.parent / "shared/data/scaling/tables.yaml"
TABLE = "gpus,tokens/s\n8,81222\n16,161319\n32,321403\n64,630000\n"


def call(*arguments, stdin=None):
    result = CliRunner().invoke(scaling, [str(a) for a in arguments], input=stdin)
    if isinstance(result.exception, DiagnoseError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(TABLE)
    return path


def test_three_pasted_lines_give_an_answer_and_a_chart(tmp_path):
    chart = tmp_path / "chart.svg"
    text = call("-", "--svg", chart, stdin="gpus,tokens/s\n16,161319\n32,321403\n64,640000\n")
    assert "64 GPUs are 3.97 times as fast as 16" in text
    assert "128" in text
    ET.fromstring(chart.read_text())  # noqa: S314 - our own output


def test_json_has_the_contract_names(table):
    out = json.loads(call(table, "--predict", 128, "--predict", 1024, "--format", "json", "--type", "weak"))
    assert out["schema"] == "diagnose.scaling/1"
    found = out["scaling"]
    assert list(found)[:7] == ["type", "points", "fit", "efficiency", "predictions", "plateau", "warnings"]
    assert found["type"] == "weak"
    assert found["points"][0]["gpus"] == 8
    assert not found["points"][0]["used"]
    assert "tier" in found["points"][0]["why"]
    near, far = found["predictions"]
    assert near["interval"][0] < near["value"] < near["interval"][1]
    assert (far["value"], far["confidence"]) == (None, "none")
    assert all(isinstance(text, str) for text in found["warnings"])


def test_svg_is_well_formed_and_alone(table, tmp_path):
    chart = tmp_path / "c.svg"
    call(table, "--svg", chart)
    text = chart.read_text()
    root = ET.fromstring(text)  # noqa: S314 - our own output
    classes = {element.get("class") for element in root.iter()}
    assert {"point", "fit", "band", "ideal", "off", "guess"} <= classes
    assert not re.search(r"<script|https?://(?!www.w3.org/2000/svg)|@import|url\(", text)
    assert "prefers-color-scheme" in text
    assert "tokens/s" in text


def test_names_from_the_table_cannot_break_the_output(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text(
        "gpus,value,unit,model\n16,1,<b>|x</b>/s,<script>alert(1)</script>\n32,2,<b>|x</b>/s,b|c\n64,4,<b>|x</b>/s,b|c\n128,8,<b>|x</b>/s,b|c\n".replace(
            "|x", "x"
        )
    )
    page = call(path, "--format", "html")
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "b\\|c" in call(path, "--format", "md")


@pytest.mark.parametrize("form", ["text", "md", "html", "json"])
def test_formats_are_deterministic_and_name_points_left_out(table, form):
    first = call(table, "--format", form)
    assert first == call(table, "--format", form)
    assert "another tier" in first


def test_targets_and_costs(table):
    text = call(
        table, "--type", "weak", "--work", "1e12", "--deadline", "30d", "--cost-per-gpu-hour", 2, "--budget", 40000
    )
    assert "Target, 1 000 000 000 000 tokens within 720 h: 48 GPUs, " in text
    assert "cost per million tokens" in text


def test_price_of_the_configuration_counts(table, tmp_path):
    settings = tmp_path / "diagnose.yaml"
    settings.write_text("price_per_gpu_hour: 2\n")
    assert "cost per million tokens" in call(table, "--config", settings)
    assert "cost per million tokens" not in call(table)


def test_regression_against_a_base(table, tmp_path):
    slower = tmp_path / "new.csv"
    slower.write_text(TABLE.replace("321403", "290000").replace("630000", "560000"))
    assert "SCALE-REGRESSION" in call(slower, "--base", table)
    assert "SCALE-REGRESSION" not in call(table, "--base", table)


def test_output_is_not_overwritten(table, tmp_path):
    target = tmp_path / "r.md"
    call(table, "--format", "md", "--output", target)
    with pytest.raises(UsageError, match="exists already"):
        call(table, "--format", "md", "--output", target)
    call(table, "--format", "md", "--output", target, "--force")


@pytest.mark.parametrize(
    ("text", "arguments", "error", "message"),
    [
        ("gpus,tokens/s\n8,1\n", [], SourceError, "one size only"),
        (TABLE, ["--deadline", "3d"], UsageError, "need --work"),
        (TABLE, ["--work", "1", "--deadline", "soon"], UsageError, "is no time"),
        (TABLE, ["--work", "1", "--budget", "1"], UsageError, "needs --cost-per-gpu-hour"),
        (TABLE.replace("tokens/s", "step_time_s"), ["--work", "1", "--deadline", "3h"], UsageError, "work per time"),
    ],
)
def test_wrong_calls_are_explained(tmp_path, text, arguments, error, message):
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(error, match=message):
        call(path, *arguments)


def test_missing_file_and_empty_folder(tmp_path):
    with pytest.raises(SourceError, match="cannot read"):
        call(tmp_path / "none.csv")
    with pytest.raises(SourceError, match="holds no run store"):
        call(tmp_path)


def store(path, world, step_ns, *, hosts=None, parts=None):
    """A run store with the tables that scaling reads: one row per step and rank."""
    with StoreWriter(path) as writer:
        writer.insert("run", pl.DataFrame({"name": [path.stem], "schema_version": [1], "world_size": [world]}))
        writer.insert("host", pl.DataFrame({"host": [f"node{i}" for i in range(hosts or world)]}))
        steps = list(range(len(step_ns)))
        writer.insert(
            "step",
            pl.DataFrame(
                {"rank": [0] * len(steps), "step": steps, "step_ns": step_ns, "label": ["normal"] * len(steps)}
            ),
        )
        if parts:
            writer.insert(
                "breakdown",
                pl.DataFrame(
                    {"rank": [0] * len(steps), "step": steps} | {f"{k}_ns": [v] * len(steps) for k, v in parts.items()}
                ),
            )
        writer.publish()


def test_run_stores_name_what_bends_the_curve(tmp_path):
    for world in (2, 4, 8, 16):
        transfer = 60_000_000 * (world - 1) // world
        parts = {"compute": 100_000_000, "exposed_wait": 2_000_000, "exposed_transfer": transfer, "idle": 1_000_000}
        store(tmp_path / f"{world}.duckdb", world, [sum(parts.values())] * 6, parts=parts)
    found = json.loads(call(tmp_path, "--predict", 32, "--format", "json"))["scaling"]
    assert found["type"] == "weak"
    assert found["plateau"]["cause"] == "exposed_transfer"
    assert "(N-1)/N" in found["parts"][0]["shape"]
    assert "weak scaling" in found["notes"][0]
    expected = (103_000_000 + 60_000_000 * 31 / 32) / 1e9
    low, high = found["predictions"][0]["interval"]
    assert low <= expected <= high


def test_one_store_gives_a_model_estimate(tmp_path):
    parts = {"compute": 100_000_000, "exposed_wait": 2_000_000, "exposed_transfer": 30_000_000, "idle": 1_000_000}
    store(tmp_path / "one.duckdb", 8, [133_000_000] * 6, parts=parts)
    text = call(tmp_path / "one.duckdb")
    assert "model, not measured: at 16" in text.lower()
    assert "- weak scaling: every rank keeps its work" in text


needs_tables = pytest.mark.skipif(not TABLES.is_file(), reason="the published tables are not beside the repository")


@pytest.fixture(scope="module")
def bench():
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        import scaling as benchmark
    finally:
        sys.path.pop(0)
    return benchmark


@pytest.fixture(scope="module", params=[False, True], ids=["unstated", "stated"])
def cases(request, bench):
    clean = [t for t in bench.tables([TABLES]) if bench.is_clean(t)]
    return [bench.case(t, bench.stated_type(t) if request.param else "unknown") for t in clean]


@needs_tables
def test_published_tables_within_the_bounds(bench, cases, capsys):
    def bounds(name):
        errors = sorted(abs(c.errors["ours"]) * 100 for c in cases if bench.GROUPS[name](c.kind))
        return statistics.median(errors), errors[int(0.9 * (len(errors) - 1))]

    median, p90 = bounds("all clean families")
    assert median <= 1.5
    assert p90 <= 5
    median, p90 = bounds("visible loss and strong")
    assert median <= 2.5
    assert p90 <= 8
    assert 0.85 <= statistics.fmean(c.inside for c in cases) <= 0.95
    bench.print_errors(cases, "Test")
    assert "| all clean families | 41 |" in capsys.readouterr().out


TRAPS = {
    "trap_superlinear": "super-linear.*configuration changed",
    "trap_non_monotone": "non-monotone",
    "trap_outlier": "outlier",
    "trap_data_quality": "data quality",
    "two_points": "two points only",
    "tier_cliff": "one curve must not mix",
    "time_to_train": "time-to-train mixes convergence",
}


@needs_tables
def test_every_trap_gets_its_warning(bench):
    seen = 0
    for table in yaml.safe_load(TABLES.read_text())["tables"]:
        wanted = TRAPS.get(table["class"])
        comparable = table.get("comparable_gpus")
        if wanted is None and comparable == "all":
            continue
        result = bench.result_of(table, None, bench.stated_type(table))
        said = "; ".join(warned.text for warned in result.warnings)
        if wanted:
            assert re.search(wanted, said), (table["id"], said)
        if isinstance(comparable, list):
            assert [p.gpus for p in result.selection.used] == comparable, table["id"]
            assert re.search("configuration changed|data quality", said), table["id"]
        seen += 1
    assert seen > 20
