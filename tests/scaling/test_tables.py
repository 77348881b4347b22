"""Reading tables as people write them, and what they are told when one cannot be read."""

import pytest

from diagnose.analysis.scaling.table import build_curve
from diagnose.errors import SourceError
from diagnose.ingest.scaling_columns import read_number, read_unit
from diagnose.ingest.scaling_table import decode, read_text

PLAIN = "gpus,value,unit\n8,100,tokens/s\n16,190,tokens/s\n32,370,tokens/s\n"


def values(text, name="t.csv", **more):
    table = read_text(text, name, **more)
    return [(row.gpus, row.value) for row in table.rows], table.unit.kind


@pytest.mark.parametrize(
    "text",
    [
        PLAIN,
        "\ufeff# measured in May\n gpus , value , unit \n8, 100 ,tokens/s\n\n16,190,tokens/s\n32,370,tokens/s\n",
        "gpus;tokens/s\n8;100\n16;190\n32;370\n",
        "GPUs\tTokens per second\n8\t100\n16\t190\n32\t370\n",
        "world_size,throughput (tokens/s)\n8,100\n16,190 # best of three\n32,370\n",
        "| n | tokens_per_sec |\n|---|---:|\n| 8 | 100 |\n| 16 | 190 |\n| 32 | 370 |\n",
        "ngpus tokens/s\n8 100\n16 190\n32 370\n",
        "gpus,tok,unit,value\n8,x,tokens/s,100\r\n16,x,tokens/s,190\r\n32,x,tokens/s,370\r\n",
    ],
)
def test_spellings_of_one_table(text):
    assert values(decode(text.encode(), "t.csv")) == ([(8, 100.0), (16, 190.0), (32, 370.0)], "throughput")


def test_utf16_and_quotes():
    assert values(decode('gpus,tokens/s\n8,"1,234,567"\n16,"2,400,000.5"\n'.encode("utf-16"), "t.csv"))[0] == [
        (8, 1234567.0),
        (16, 2400000.5),
    ]


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1234.5", 1234.5),
        ("1,234", 1234.0),
        ("1 234 567", 1234567.0),
        ("1_234", 1234.0),
        ("1'234", 1234.0),
        ("1.234.567", 1234567.0),
        ("2e3", 2000.0),
        ("12,5", None),
        ("fast", None),
        ("", None),
        ("nan", None),
        ("inf", None),
        ("1e999", None),
        ("8x", None),
    ],
)
def test_numbers(text, number):
    assert read_number(text) == number


def test_decimal_commas_by_column():
    table = read_text("gpus;samples/s\n8;12,5\n16;24,75\n32;1.048,25\n", "t.csv")
    assert [row.value for row in table.rows] == [12.5, 24.75, 1048.25]
    assert "decimal" in table.notes[0]


@pytest.mark.parametrize(
    ("unit", "kind"),
    [
        ("tokens/s", "throughput"),
        ("samples per second", "throughput"),
        ("images/sec", "throughput"),
        ("tokens/day", "throughput"),
        ("tokens/s/GPU", "per_gpu"),
        ("TFLOP/s per GPU", "per_gpu"),
        ("MFU percent", "per_gpu"),
        ("efficiency", "per_gpu"),
        ("MFU percent x GPUs (proportional to throughput)", "throughput"),
        ("achieved teraFLOP/s aggregate", "throughput"),
        ("efficiency (vs 128 GPUs) x GPUs", "throughput"),
        ("PFLOPS", "throughput"),
        ("TFLOPS/GPU", "per_gpu"),
        ("s", "step_time"),
        ("ms", "step_time"),
        ("s/step", "step_time"),
        ("ms per iteration", "step_time"),
        ("step time", "step_time"),
        ("it/s", "step_rate"),
        ("steps per second", "step_rate"),
        ("s/epoch", "work_time"),
        ("ms per sample", "work_time"),
        ("days for 300B tokens", "work_time"),
        ("minutes", "time_to_train"),
        ("hours", "time_to_train"),
        ("time-to-train minutes", "time_to_train"),
        ("min to train", "time_to_train"),
    ],
)
def test_units(unit, kind):
    assert read_unit(unit).kind == kind
    assert read_unit(unit).known


def test_unknown_unit_is_a_throughput_and_said():
    table = read_text("gpus,value,unit\n8,1,widgets\n16,2,widgets\n", "t.csv")
    assert table.unit.kind == "throughput"
    assert "widgets" in table.notes[0]


def test_step_time_columns():
    assert values("gpus,step_time_ms\n8,100\n16,104\n") == ([(8, 100.0), (16, 104.0)], "step_time")
    assert values("nodes,step time (s)\n1,1.5\n2,1.6\n")[1] == "step_time"
    table = read_text("gpus,tokens/s,step_time_s\n8,100,2\n16,190,2.1\n", "t.csv")
    assert [row.step_ns for row in table.rows] == [2e9, 2.1e9]


def test_parts_repeats_models_batches_hosts():
    text = (
        "gpus,hosts,samples/s,repeat,model,global_batch,compute_ms,exposed_wait_ms,exposed transfer (us)\n"
        "8,1,100,1,a,64,10,1,500\n8,1,101,2,a,64,10,1,500\n16,2,190,1,a,128,10,2,700\n"
    )
    first = read_text(text, "t.csv").rows[0]
    assert (first.hosts, first.repeat, first.model, first.global_batch) == (1, "1", "a", 64.0)
    assert first.parts_ns == {"compute": 10e6, "exposed_wait": 1e6, "exposed_transfer": 0.5e6}


def test_plain_batch_is_global_only_when_it_grows():
    growing = read_text("gpus,samples/s,batch\n8,100,64\n16,190,128\n", "t.csv")
    assert [row.global_batch for row in growing.rows] == [64, 128]
    constant = read_text("gpus,samples/s,batch\n8,100,64\n16,190,64\n", "t.csv")
    assert [row.global_batch for row in constant.rows] == [None, None]
    assert "batch_per_gpu" in constant.notes[0]


def test_yaml_tables():
    text = (
        "unit: tokens/s\nscaling: strong\npoints:\n- {gpus: 8, value: [100, 102]}\n- "
        "{gpus: 16, value: 190, step_s: 2.5}\n"
    )
    table = read_text(text.replace(", step_s: 2.5", ""), "t.yaml")
    assert table.stated_type == "strong"
    assert [(row.gpus, row.value, row.repeat) for row in table.rows] == [
        (8, 100.0, "1"),
        (8, 102.0, "2"),
        (16, 190.0, None),
    ]
    assert read_text(text, "t.yaml").rows[2].step_ns == 2.5e9
    assert values('[{"gpus": 8, "tokens/s": 100}, {"gpus": 16, "tokens/s": 190}]', "t.json")[0] == [
        (8, 100.0),
        (16, 190.0),
    ]
    several = (
        "tables:\n- {id: a, unit: tokens/s, points: [{gpus: 8, value: 1}]}\n- "
        "{id: b, unit: tokens/s, points: [{gpus: 8, value: 2}]}\n"
    )
    assert values(several, "t.yaml", table="b")[0] == [(8, 2.0)]
    with pytest.raises(SourceError, match="holds 2 tables: choose one with --table"):
        read_text(several, "t.yaml")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty: expected a header"),
        ("# only a comment\n", "is empty"),
        ("gpus,value,unit\n", "a header but no rows"),
        ("8,100\n16,190\n", "line 1: no header"),
        ("gpus,value,unit\n8,fast,tokens/s\n", "line 2: value .*'fast' is not a number"),
        ("gpus,value,unit\n8,,tokens/s\n", "line 2: value .*nothing stands there"),
        ("gpus,value,unit\neight,100,tokens/s\n", "line 2: gpus .*'eight' is not a number"),
        ("gpus,value,unit\n8.5,100,tokens/s\n", "gpus is 8.5; a size is a whole number"),
        ("gpus,value\n8,100\n16,190\n", "no unit"),
        ("gpus,value,unit\n8,100,\n16,190,\n", "no unit"),
        ("gpus,value,unit\n8,100,tokens/s\n16,190,\n", "line 3: no unit"),
        ("gpus,value,unit\n8,100,tokens/s\n16,190,samples/s\n", "two units"),
        ("gpus,step_time\n8,100\n16,190\n", "has no unit: name it step_time_s"),
        ("size,value,unit\n8,100,tokens/s\n", "no column says the size"),
        ("gpus,loss\n8,100\n", "no column holds the measurement"),
        ("gpus,tokens/s\n8,1,234\n", "line 2: 3 fields, the header has 2"),
        ("gpus,tokens/s,samples/s\n8,1,2\n", "both 'tokens/s' and 'samples/s'"),
        ("gpus,gpus,value\n8,1,2\n", "appears twice"),
        ("gpus,tokens/s,compute\n8,1,2\n", "'compute' has no unit: name it compute_ms"),
    ],
)
def test_what_is_wrong_is_said(text, message):
    with pytest.raises(SourceError, match=message):
        read_text(text, "t.csv")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gpus,value,unit\n8,-100,tokens/s\n16,1,tokens/s\n", "line 2: the value is -100.*positive"),
        ("gpus,value,unit\n8,0,tokens/s\n16,1,tokens/s\n", "line 2: the value is 0.*positive"),
        ("gpus,value,unit\n-8,100,tokens/s\n16,1,tokens/s\n", "gpus is -8; a size is a whole number of at least 1"),
        (
            "gpus,value,unit\n8,100,tokens/s\n8,120,tokens/s\n",
            r"gpus 8 appears 2 times \(t.csv line 2 and t.csv line 3\).*repeat",
        ),
        ("gpus,value,unit,repeat\n8,100,tokens/s,1\n8,120,tokens/s,1\n", "the same `repeat` twice"),
    ],
)
def test_wrong_measurements_are_refused(text, message):
    table = read_text(text, "t.csv")
    with pytest.raises(SourceError, match=message):
        build_curve(table.rows, unit=table.unit.label, kind=table.unit.kind)


def test_unsorted_rows_are_sorted_and_said():
    table = read_text("gpus,tokens/s\n32,370\n8,100\n16,190\n", "t.csv")
    assert table.notes == ("rows were not in order of gpus: sorted",)
    assert [point.gpus for point in build_curve(table.rows, unit="tokens/s", kind="throughput").points] == [8, 16, 32]


def test_binary_is_refused():
    with pytest.raises(SourceError, match="is not text"):
        decode(b"\x89PNG\r\n\x1a\n\xff", "a.png")
