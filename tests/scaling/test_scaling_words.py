"""What a reader sees: units, numbers, commands in a page, marks of the chart."""

import re
import xml.etree.ElementTree as ET

import pytest
from click.testing import CliRunner

from diagnose.cli.scaling import scaling


def call(*arguments, stdin=None):
    result = CliRunner().invoke(scaling, [str(a) for a in arguments], input=stdin)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("gpus,tokens/s\n8,81222\n16,161319\n32,321403\n64,630000\n")
    return path


@pytest.mark.parametrize(
    ("header", "label"),
    [("TFLOP/s per GPU", "TFLOP/s per GPU"), ("tokens_per_sec", "tokens per sec"), ("step time (s)", "s per step")],
)
def test_unit_is_shown_as_written(header, label):
    assert call("-", stdin=f"gpus,{header}\n16,4\n32,3.9\n64,3.8\n").startswith(f"Scaling of {label} over GPUs\n")


def test_what_doubling_buys_is_said(table):
    text = call(table, "--type", "weak")
    buys = re.search(r"At 128: .* tokens/s expected, (1\.9\d) times the speed of 64, 90 % interval", text)
    assert buys
    assert float(buys[1]) < 2


def test_numbers_are_grouped_alike_from_ten_thousand_on(table):
    text = call(table)
    assert "81 222" in text
    assert "161 319" in text


def test_page_shows_commands_as_code(table, tmp_path):
    page = call(table, "--format", "html", "--base", _slower(table, tmp_path))
    assert "`" not in re.sub(r"<svg.*?</svg>", "", page, flags=re.DOTALL)
    assert "<code>diagnose" in page


def test_prediction_ring_is_not_crossed_by_its_interval(tmp_path):
    table, chart = tmp_path / "steep.csv", tmp_path / "c.svg"
    table.write_text("gpus,tokens/s\n16,100\n32,140\n64,190\n")
    call(table, "--svg", chart)
    root = ET.fromstring(chart.read_text())  # noqa: S314 - our own output
    marks = [element for element in root.iter() if element.get("class") == "guess"]
    ring = next(m for m in marks if m.tag.endswith("circle"))
    lines = [m for m in marks if m.tag.endswith("line")]
    assert len(lines) == 2
    for line in lines:
        ends = sorted(float(line.get(name)) - float(ring.get("cy")) for name in ("y1", "y2"))
        assert ends[0] >= 4.9 or ends[1] <= -4.9


def _slower(table, folder):
    """A base that is faster than the table, so that there is a regression to speak of."""
    path = folder / "base.csv"
    path.write_text(table.read_text().replace("630000", "700000"))
    return path
