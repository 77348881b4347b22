"""Small samples of every NIC format: words and bytes, widths, states, snapshots before and after."""

from __future__ import annotations

from node_metrics_support import text_source


def sysfs(values: dict[str, str], device: str = "mlx5_0") -> str:
    return "".join(f"/sys/class/infiniband/{device}/ports/1/{name}:{value}\n" for name, value in values.items())


def test_node_exporter_infiniband_is_bytes_and_saturates(ingest):
    labels = 'device="mlx5_0",port="1"'
    text = (
        "# TYPE node_infiniband_port_data_transmitted_bytes_total counter\n"
        f"node_infiniband_port_data_transmitted_bytes_total{{{labels}}} 400\n"
        f"node_infiniband_port_transmit_wait_total{{{labels}}} 4.294967295e+09\n"
        f"node_infiniband_rate_bytes_per_second{{{labels}}} 5e+10\n"
        f"node_infiniband_state_id{{{labels}}} 4\nnode_infiniband_physical_state_id{{{labels}}} 5\n"
        f'node_infiniband_info{{device="mlx5_0"}} 1\n'
    )
    ingest.read([text_source(text, "n.prom")])
    assert ingest.value("nic.tx_bytes_total", "nic:mlx5_0/1") == 400
    assert ingest.value("nic.rate", "nic:mlx5_0/1") == 4e11
    quality = {row["metric"]: row["quality"] for row in ingest.frame().iter_rows(named=True)}
    assert quality["nic.xmit_wait_ticks_total"] == "saturated"
    assert "NIC-SAT-01" in ingest.codes()
    assert ingest.loud() == []


def test_single_files_of_a_tree_give_what_the_dump_gives(ingest, tmp_path):
    values = {
        "rate": "400 Gb/sec (4X NDR)",
        "state": "4: ACTIVE",
        "phys_state": "3: Disabled",
        "counters/port_rcv_data": "25",
    }
    files = [
        text_source(f"{value}\n", f"node7/sys/class/infiniband/mlx5_0/ports/1/{name}") for name, value in values.items()
    ]
    ingest.read(files)
    assert all(claims == ["sysfs-file"] for claims in ingest.claims.values())
    assert ingest.value("nic.rx_bytes_total", "nic:mlx5_0/1") == 100
    assert ingest.value("nic.rate", "nic:mlx5_0/1") == 4e11
    assert {row[1] for row in ingest.samples()} == {"node7"}
    assert "NIC-LINK-01" in ingest.loud()


def test_not_available_and_lifespan(ingest):
    ingest.read([text_source(sysfs({"counters/symbol_error": "N/A (no PMA)", "hw_counters/lifespan": "12"}))])
    assert ingest.samples() == [("nic.symbol_errors_total", None, "nic:mlx5_0/1", None, None)]


def test_before_and_after_make_a_dated_increase(ingest):
    before = text_source(
        sysfs({"counters/symbol_error": "5", "counters/link_downed": "1"}), "snap/nic-node1-before.txt"
    )
    after = text_source(
        sysfs({"counters/symbol_error": "905", "counters/link_downed": "2"}), "snap/nic-node1-after.txt"
    )
    ingest.read([after, before])
    found = {item.code: item for item in ingest.findings()}
    assert found["NIC-ERR-01"].severity == "warning"
    assert "900" in found["NIC-ERR-01"].message
    assert found["NIC-LINK-03"].severity == "critical"
    assert found["NIC-ERR-01"].hosts == ("node1",)
    assert found["NIC-ERR-01"].devices == ("nic:mlx5_0/1",)


def test_one_snapshot_is_never_loud(ingest):
    ingest.read(
        [
            text_source(
                sysfs(
                    {
                        "counters/symbol_error": "905",
                        "counters/link_downed": "20",
                        "hw_counters/packet_seq_err": "99999",
                    }
                )
            )
        ]
    )
    assert ingest.loud() == []
    assert {"NIC-ERR-01", "NIC-LINK-03", "NIC-ROCE-01", "DQ-05"} <= ingest.codes()


def test_ibqueryerrors(ingest):
    text = (
        'Errors for "node-a HCA-1"\n'
        "   GUID 0xAB01 port 1: [SymbolErrorCounter == 65535 (64.00K)] [PortXmitData == 10 (40 B)]\n"
        'Errors for 0x09 "sw1"\n   GUID 0x09 port ALL: [LinkDownedCounter == 3]\n'
    )
    ingest.read([text_source(text)])
    assert ingest.value("nic.symbol_errors_total", "nic:0xab01/1") == 65535
    assert ingest.value("nic.tx_bytes_total", "nic:0xab01/1") == 40
    assert ingest.value("nic.link_downed_total", "switch:0x09/all") == 3
    assert {"NIC-SAT-01", "NIC-ERR-01"} <= ingest.codes()


def test_ibstatus_prints_a_rate_while_disabled(ingest):
    text = (
        "Infiniband device 'mlx4_0' port 2 status:\n\tdefault gid:\t fe80::1\n\tbase lid:\t 0x0\n\tsm lid:\t\t 0x0\n"
        "\tstate:\t\t 1: DOWN\n\tphys state:\t 3: Disabled\n\trate:\t\t 40 Gb/sec (4X "
        "QDR)\n\tlink_layer:\t InfiniBand\n"
    )
    ingest.read([text_source(text)])
    assert ingest.value("nic.link_up", "nic:mlx4_0/2") == 0
    assert ingest.value("nic.rate", "nic:mlx4_0/2") == 4e10
    assert ingest.loud() == ["NIC-LINK-01"]


def ethtool(pause: int, duration: int) -> str:
    return (
        "NIC statistics:\n     rx_packets: 10\n"
        f"     rx_prio3_pause: {pause}\n     rx_prio3_pause_duration: {duration}\n     tx_prio3_pause: 0\n"
        "     rx_discards_phy: 0\n     rx_out_of_buffer: 0\n"
    )


def test_pause_durations_are_microseconds(ingest):
    sources = [
        text_source(ethtool(100, 2_000_000), "1796064600.prom-ethtool-S-ens1f0np0.txt"),
        text_source(ethtool(200, 12_000_000), "1796064660.prom-ethtool-S-ens1f0np0.txt"),
    ]
    ingest.read(sources)
    entity = "nic:ens1f0np0/prio:3"
    assert sorted(r[4] for r in ingest.samples() if r[0] == "nic.rx_pause_seconds_total" and r[2] == entity) == [2, 12]
    finding = next(item for item in ingest.findings() if item.code == "NIC-PFC-01")
    assert finding.severity == "critical"
    assert finding.evidence[0].value == 10 / 60


def test_rdma_statistic_with_efa(ingest):
    text = (
        "link efa_0/1 \n    tx_bytes 100\n    retrans_timeout_events 3\n    lifespan 12\nlink mlx5_0/1 "
        "out_of_sequence 4 packet_seq_err 2\n"
    )
    ingest.read([text_source(text)])
    assert ingest.value("nic.tx_bytes_total", "nic:efa_0/1") == 100
    assert ingest.value("nic.efa.retrans_timeout_total", "nic:efa_0/1") == 3
    assert ingest.value("nic.roce.packet_seq_err_total", "nic:mlx5_0/1") == 2


def test_ibdiagnet_pm_is_hexadecimal_and_wide(ingest):
    text = (
        "Port=1 Lid=0x4c14 GUID=0x0011223344660001 Device=4123 Port Name=node001/U1/P1\n"
        "symbol_error_counter_extended=0x000000000000ffff\nport_rcv_errors_extended=0x05\n"
    )
    ingest.read([text_source(text)])
    row = next(row for row in ingest.frame().iter_rows(named=True) if row["metric"] == "nic.symbol_errors_total")
    assert (row["value"], row["quality"], row["host"]) == (65535, "snapshot", "node001")


def test_rates_of_different_devices_are_not_compared(ingest):
    ports = {f"mlx5_{n}": "400 Gb/sec (4X NDR)" for n in range(4)} | {"mlx5_bond_0": "200 Gb/sec (4X HDR)"}
    for host in ("node0", "node1", "node2"):
        text = "".join(
            sysfs({"rate": rate, "state": "4: ACTIVE", "phys_state": "5: LinkUp"}, name) for name, rate in ports.items()
        )
        ingest.read([text_source(text, f"{host}/nic.txt")])
    assert ingest.loud() == []


def test_one_slow_port_among_hosts(ingest):
    for host in ("node0", "node1", "node2", "node3"):
        rate = "200 Gb/sec (4X HDR)" if host == "node2" else "400 Gb/sec (4X NDR)"
        ingest.read(
            [text_source(sysfs({"rate": rate, "state": "4: ACTIVE", "phys_state": "5: LinkUp"}), f"{host}/nic.txt")]
        )
    finding = next(item for item in ingest.findings() if item.severity != "info")
    assert (finding.code, finding.hosts, finding.devices) == ("NIC-LINK-02", ("node2",), ("nic:mlx5_0/1",))
