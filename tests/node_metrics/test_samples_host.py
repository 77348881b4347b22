"""Small samples of host formats, logs and tables: times, zones, entities, kinds."""

from __future__ import annotations

import polars as pl
import pytest
from node_metrics_support import text_source

from diagnose.ingest.base import ReadOptions

SECOND = 10**9


def test_telegraf_units(ingest):
    text = (
        "nvidia_smi,host=node-b,index=1,name=Tesla\\ T4,uuid=GPU-aaaaaaaa-0000-4000-8000-000000000000 "
        'memory_used=549i,power_draw=70.5,driver_version="1 2",utilization_gpu=100i 1523991122000000000\n'
        "slurm_nodes,name=naboo145,host=hoth cpu_load=5774i,cpus=256i 1723466497000000000\n"
        "net,host=node-b,interface=eth0 bytes_sent=7i 1723466497000000000\n"
    )
    ingest.read([text_source(text)])
    assert ingest.value("gpu.mem_used", "gpu:GPU-aaaaaaaa-0000-4000-8000-000000000000") == 549 * 1048576
    assert ingest.value("gpu.power", "gpu:GPU-aaaaaaaa-0000-4000-8000-000000000000") == 70.5
    assert ingest.value("node.load1", "node:naboo145") == 57.74
    assert ingest.value("nic.tx_bytes_total", "nic:eth0") == 7


SADF = """{"sysstat": {"hosts": [{"nodename": "node-c", "number-of-cpus": 2, "statistics": [
 {"timestamp": {"date": "2026-01-02", "time": "03:04:05", "utc": %s, "interval": 10},
  "cpu-load": [{"cpu": "all", "user": 1.0, "iowait": 12.5, "idle": 86.5}, {"cpu": "0", "iowait": 25.0}],
  "network": {"net-dev": [{"iface": "eth0", "rxkB": 2.0, "txkB": 1.0}]}, "queue": {"ldavg-1": 0.5}}]}]}}"""


def test_sadf_json(ingest):
    ingest.read([text_source(SADF % "1", "a.json")])
    assert ingest.value("node.cpu_iowait", "node") == 0.125
    assert ingest.value("node.cpu_iowait", "node/cpu:0") == 0.25
    assert ingest.value("nic.rx_rate", "nic:eth0") == 2048
    assert ingest.value("node.load1", "node") == 0.5
    assert {row[3] for row in ingest.samples() if row[0] == "node.load1"} == {1767323045 * SECOND}
    assert not ingest.issues or {i.code for i in ingest.issues} == {"DQ-02"}


def test_sadf_zone_abbreviations_are_no_offsets(ingest):
    text = SADF.replace('"utc": %s', '"tz": "CET"')
    ingest.read([text_source(text, "a.json")], ReadOptions(timezone="Europe/Berlin"))
    assert {row[3] for row in ingest.samples() if row[0] == "node.load1"} == {(1767323045 - 3600) * SECOND}


def test_sadf_comma_and_restart(ingest):
    text = (
        "# hostname;interval;timestamp;CPU;%user;%idle\nnode-a;10;2026-01-02 03:04:05 UTC;-1;2,50;97,50\n"
        "node-a;-1;2026-01-02 03:05:05 UTC;LINUX-RESTART\t(2 CPU)\n"
    )
    ingest.read([text_source(text)])
    assert ingest.value("node.cpu_user", "node") == 0.025


def test_dynolog(ingest):
    line = (
        "I20260102 03:04:05.123456  99 Logger.cpp:57] time = 1969-12-31T16:00:00.000Z data = "
        '{"cpu_util":"12.500","rx_bytes.eth0":"400.000",'
        '"gpu_power_draw.0":"300.000","gpu_frequency_mhz.0":"1980.000","port_xmit_data.mlx5_0/1":"25.000"}\n'
    )
    ingest.read([text_source(line)], ReadOptions(timezone="-08:00"))
    assert ingest.value("node.cpu_util", "node") == 0.125
    assert ingest.value("nic.rx_bytes_window", "nic:eth0") == 400
    assert ingest.value("nic.tx_bytes_window", "nic:mlx5_0/1") == 100
    assert ingest.value("gpu.sm_clock", "gpu:index:0") == 1.98e9
    assert {row[3] for row in ingest.samples()} == {(1767323045 + 8 * 3600) * SECOND + 123_456_000}


def test_openmetrics_seconds(ingest):
    text = 'my_metric{abc="def"} 1 0.000\nmy_metric{abc="def"} 2 60.000\n# EOF\n'
    ingest.read([text_source(text, "d.txt")])
    assert [row[2:] for row in ingest.samples()] == [("series:abc=def", 0, 1.0), ("series:abc=def", 60 * SECOND, 2.0)]


def test_exposition_milliseconds_escapes_and_exemplars(ingest):
    text = (
        "# TYPE node_load1 gauge\nnode_load1 0.5 1796064688047\n"
        'other{path="C:\\\\x \\"q\\" } y"} 3 1796064688047\nreq_total{a="b"} 7 # {trace_id="z"} 1.0\n'
    )
    ingest.read([text_source(text, "d.prom")])
    assert ingest.samples()[0] == ("node.load1", None, "node", 1796064688047 * 10**6, 0.5)
    assert ingest.value("other", 'series:path=C:\\x "q" } y') == 3
    assert ingest.value("req_total", "series:a=b") == 7


def test_prometheus_text_agrees_with_the_reference_parser(ingest):
    parser = pytest.importorskip("prometheus_client.parser")
    text = (
        "# TYPE a_total counter\n"
        + "".join(f'a_total{{k="v{n}",z="é\\n"}} {n}.5e3\n' for n in range(20))
        + "b NaN\nb2{} +Inf\nc -4\n"
    )
    expected = {
        (s.name, s.labels.get("k")): s.value for f in parser.text_string_to_metric_families(text) for s in f.samples
    }
    ingest.read([text_source(text, "d.prom")])
    found = {(row[0], row[2].partition("k=")[2].split(",")[0] or None): row[4] for row in ingest.samples()}
    assert set(found) == set(expected)
    assert all(value is None or value == expected[key] for key, value in found.items())
    assert found["b", None] is None


def test_query_instant_and_expression(ingest):
    instant = (
        '{"status":"success","data":{"resultType":"vector","result":[{"metric":{"__name__":"node_load1",'
        '"instance":"n1:9100"},"value":[1796064688.5,"NaN"]}]}}'
    )
    rate = (
        '{"data":{"resultType":"matrix","result":[{"metric":{"device":"eth0","instance":"n1:9100"},'
        '"values":[[1,"2"],[2,"+Inf"]]}]}}'
    )
    ingest.read([text_source(instant, "i.json"), text_source(rate, "rate_tx_total.json")])
    assert ingest.samples()[0] == ("node.load1", "n1", "node", 1796064688500 * 10**6, None)
    assert ingest.frame().row(1, named=True)["kind"] == "gauge"
    assert ingest.frame().row(1, named=True)["metric"] == "query:rate_tx_total"
    assert ingest.frame().row(2, named=True)["value"] is None


def test_scrape_time_and_host_from_the_path(ingest):
    text = "# TYPE node_load1 gauge\nnode_load1 1\n"
    ingest.read([text_source(text, "run/snapshots/alpha/1796064688.047.prom")])
    assert ingest.samples() == [("node.load1", "alpha", "node", 1796064688047 * 10**6, 1.0)]
    assert ingest.outcomes["run/snapshots/alpha/1796064688.047.prom"].identity.host_from == "path"


def test_host_of_uname_wins_over_the_path(ingest):
    text = '# TYPE node_load1 gauge\nnode_load1 1\nnode_uname_info{nodename="real.example.org"} 1\n'
    ingest.read([text_source(text, "node1/a.prom")])
    assert ingest.samples()[0][1] == "real"


def test_no_host_is_invented(ingest):
    ingest.read([text_source("# TYPE node_load1 gauge\nnode_load1 1\n", "data/metrics/export.prom")])
    assert ingest.samples()[0][1] is None


def test_wandb_events(ingest):
    line = (
        '{"_wandb":true,"_timestamp":1796064688.25,"_runtime":3,"system.gpu.1.gpu":97,'
        '"system.gpu.1.powerWatts":400.5,"system.network.sent":9,"system.cpu":50,"system.gpu.0.temp/l:'
        'n2":40}\n'
    )
    ingest.read([text_source(line + "broken{\n")])
    assert ingest.value("gpu.util", "gpu:index:1") == 0.97
    assert ingest.value("nic.tx_bytes_total", "nic:first") == 9
    assert [row[1] for row in ingest.samples() if row[0] == "gpu.temp"] == ["n2"]
    assert "metrics_bad_line" in {issue.code for issue in ingest.issues}


def test_kernel_log_without_time_and_followers(ingest):
    text = (
        "kernel: NVRM: GPU at PCI:0000:9b:00: GPU-aaaaaaaa-0000-4000-8000-000000000000\n"
        "kernel: NVRM: Xid (PCI:0000:9b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"
        "kernel: NVRM: Xid (PCI:0000:9b:00): 45, pid=12, name=python, Ch 00000008, caused by previous Xid 79\n"
        "kernel: mlx5_core 0000:3b:00.0: Port module event[error]: module 0, Cable error, High temperature\n"
        "kernel: Memory cgroup out of memory: Killed process 4242 (python) total-vm:1kB\n"
        "kernel: pcieport 0000:3a:00.0: AER: Corrected error received: 0000:3b:00.0\n"
    )
    ingest.read([text_source(text)])
    events = ingest.frame("node_event")
    assert events.get_column("kind").to_list() == ["xid", "xid", "mlx5_thermal", "oom", "pcie_aer"]
    assert events.get_column("t_ns").null_count() == 5
    severities = {item.code: item.severity for item in ingest.findings()}
    assert severities["GPU-XID-01"] == "critical"
    assert severities["GPU-XID-02"] == "info"
    assert severities["HOST-MEM-02"] == "critical"


def test_syslog_names_the_host(ingest):
    text = "Feb 23 16:24:18 node9 kernel: [1.5] NVRM: Xid (PCI:0000:9b:00): 13, pid=1, name=x, Graphics Exception\n"
    ingest.read([text_source(text)], ReadOptions(timezone="UTC"))
    assert ingest.samples()[0][1] == "node9"
    assert ingest.samples()[0][3] is not None


def test_philly_wide_table(ingest):
    text = "time,machineId,gpu0_util,gpu1_util,\n2017-10-03 00:00:00 PDT,m1,12.5,NA,\n"
    ingest.read([text_source(text, "cluster_gpu_util.csv")])
    assert ingest.samples() == [
        ("gpu.util", "m1", "gpu:index:0", 1507014000 * SECOND, 0.125),
        ("gpu.util", "m1", "gpu:index:1", 1507014000 * SECOND, None),
    ]


def test_grafana_panel(ingest):
    text = 'sep=,\n"Time","node3 CPU iowait"\n1796064688000,3.5%\n'
    ingest.read([text_source(text, "panel.csv")])
    assert ingest.samples() == [("node.cpu_iowait", "node3", "node", 1796064688 * SECOND, 0.035)]


def test_plain_csv(ingest):
    text = (
        "time,host,device,metric,value\n2026-01-02T03:04:05Z,Node1.example,gpu:0,gpu.temp,71\n"
        "1767323045,node1,,node.load1,\n1767323045000,node2,nic:eth0,nic.tx_bytes_total,5\n"
    )
    ingest.read([text_source(text, "m.csv")])
    assert ingest.claims["m.csv"] == ["plain-metrics"]
    assert [row[:3] for row in ingest.samples()] == [
        ("gpu.temp", "node1", "gpu:index:0"),
        ("node.load1", "node1", "node"),
        ("nic.tx_bytes_total", "node2", "nic:eth0"),
    ]
    assert ingest.frame().get_column("kind").to_list() == ["gauge", "gauge", "counter"]


def test_plain_parquet(ingest, tmp_path):
    from node_metrics_support import file_source

    path = tmp_path / "m.parquet"
    pl.DataFrame(
        {"time": [1767323045.5], "host": ["n1"], "device": ["mlx5_0/1"], "metric": ["nic.rate"], "value": [4e11]}
    ).write_parquet(path)
    ingest.read([file_source(path)])
    assert ingest.samples() == [("nic.rate", "n1", "nic:mlx5_0/1", 1767323045500 * 10**6, 4e11)]


def test_bundle_gives_host_and_time_to_its_blocks(ingest):
    banner = "===== node-z | before | 2026-08-13T07:53:30Z =====\n"
    text = (
        banner + "$ ibstat\nCA 'mlx5_0'\n\tPort 1:\n\t\tState: Active\n\t\tPhysical state: LinkUp\n\t\tRate: 400\n"
        "$ cat nothing\n[exit 1]\n$ ethtool -S eth0\nNIC statistics:\n     rx_packets: 5\n"
    )
    ingest.read([text_source(text)])
    assert {(row[1], row[3]) for row in ingest.samples()} == {("node-z", 1786607610 * SECOND)}
    assert ingest.value("nic.rx_packets_total", "nic:eth0") == 5
    assert ingest.value("nic.rate", "nic:mlx5_0/1") == 4e11


def test_sacct_other_delimiter_and_nodes():
    from diagnose.ingest.node_metrics.sacct import expand_nodes

    assert expand_nodes("node[08-10,12],gpu7") == ["node08", "node09", "node10", "node12", "gpu7"]


@pytest.mark.parametrize("cut", [3, 40, 200, 800])
def test_cut_files_keep_what_they_have(ingest, cut):
    from test_samples_gpu import XML

    for text, name in ((XML, "a.xml"), (SADF % "1", "a.json"), ("index, clocks.sm [MHz]\n0, 1980\n1, 19", "a.csv")):
        ingest.read([text_source(text[:cut], name)])
    for outcome in ingest.outcomes.values():
        assert outcome.status in ("ok", "partial", "failed", "skipped")


def test_cut_gzip_is_partial(ingest, tmp_path):
    import gzip

    from node_metrics_support import file_source

    text = "# TYPE node_load1 gauge\n" + "".join(f"node_load1 {n} {1796064688047 + n}\n" for n in range(20_000))
    path = tmp_path / "x.prom.gz"
    path.write_bytes(gzip.compress(text.encode())[:-2000])
    ingest.read([file_source(path)])
    outcome = ingest.outcomes[str(path)]
    assert outcome.status == "partial"
    assert outcome.rows > 1000
