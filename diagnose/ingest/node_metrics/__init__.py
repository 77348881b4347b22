"""Readers of node metrics: GPUs, NICs, hosts, jobs and kernel events, all into one vocabulary."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diagnose.ingest.node_metrics.amd_text import AmdText
from diagnose.ingest.node_metrics.bundle import Bundle
from diagnose.ingest.node_metrics.dmon import DcgmiDmon, NvidiaDmon
from diagnose.ingest.node_metrics.dstat import Dstat
from diagnose.ingest.node_metrics.dynolog import Dynolog
from diagnose.ingest.node_metrics.ethtool import Ethtool
from diagnose.ingest.node_metrics.ibstat import IbLinkInfo, IbStat
from diagnose.ingest.node_metrics.kernel_log import KernelLog
from diagnose.ingest.node_metrics.line_protocol import LineProtocol
from diagnose.ingest.node_metrics.nccl_tests import NcclTests
from diagnose.ingest.node_metrics.nvidia_csv import NvidiaCsv
from diagnose.ingest.node_metrics.nvidia_query import NvidiaQuery
from diagnose.ingest.node_metrics.nvidia_xml import NvidiaXml
from diagnose.ingest.node_metrics.nvlink import NvlinkStatus
from diagnose.ingest.node_metrics.perfquery import IbdiagnetPm, IbQueryErrors, Perfquery
from diagnose.ingest.node_metrics.plain_table import PlainTable
from diagnose.ingest.node_metrics.prometheus_json import PrometheusJson
from diagnose.ingest.node_metrics.prometheus_text import PrometheusText
from diagnose.ingest.node_metrics.rdma_stat import RdmaStatistic
from diagnose.ingest.node_metrics.rocm import AmdCsv, AmdJson, RocmTable
from diagnose.ingest.node_metrics.sacct import Sacct
from diagnose.ingest.node_metrics.sadf import SadfCsv, SadfJson
from diagnose.ingest.node_metrics.sysfs import SysfsDump, SysfsFile, SysfsJson
from diagnose.ingest.node_metrics.wandb_events import WandbEvents
from diagnose.ingest.node_metrics.wide_csv import WideCsv

if TYPE_CHECKING:
    from diagnose.ingest.base import Format

FORMATS: list[Format] = [
    Bundle(),
    PrometheusText(),
    PrometheusJson(),
    LineProtocol(),
    NvidiaXml(),
    NvidiaCsv(),
    NvidiaQuery(),
    NvidiaDmon(),
    DcgmiDmon(),
    NvlinkStatus(),
    SysfsDump(),
    SysfsJson(),
    SysfsFile(),
    Perfquery(),
    IbQueryErrors(),
    IbdiagnetPm(),
    IbStat(),
    IbLinkInfo(),
    Ethtool(),
    RdmaStatistic(),
    AmdJson(),
    AmdCsv(),
    RocmTable(),
    AmdText(),
    SadfCsv(),
    SadfJson(),
    Dstat(),
    Sacct(),
    WandbEvents(),
    Dynolog(),
    NcclTests(),
    KernelLog(),
    PlainTable(),
    WideCsv(),
]
"""In order of priority: exact formats first, tables by their titles last."""
