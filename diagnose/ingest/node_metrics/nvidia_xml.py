"""nvidia-smi -q -x: the same as -q in XML, units inside the text."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING

from diagnose.ingest.node_metrics import identity
from diagnose.ingest.node_metrics.nvidia_fields import REASON_BITS, SECTION_FIELDS, XML_PATHS
from diagnose.ingest.node_metrics.nvidia_query import merge
from diagnose.ingest.node_metrics.reader import TextFormat, pattern
from diagnose.ingest.node_metrics.values import to_flag, to_number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from diagnose.ingest.node_metrics.samples import Samples

_REASON = re.compile(r"clocks_(?:event|throttle)_reason_(.+)")
_REASON_TAGS = {
    "gpu_idle": "idle",
    "applications_clocks_setting": "applications clocks setting",
    "sw_power_cap": "sw power cap",
    "hw_slowdown": "hw slowdown",
    "sync_boost": "sync boost",
    "sw_thermal_slowdown": "sw thermal slowdown",
    "hw_thermal_slowdown": "hw thermal slowdown",
    "hw_power_brake_slowdown": "hw power brake slowdown",
    "display_clocks_setting": "display clock setting",
}
_POWER_TAGS = ("power_readings", "gpu_power_readings")
_COUNTER_TAGS = ("clocks_event_reasons_counters", "clocks_throttle_reasons_counters")
_DOCTYPE = re.compile(r"<!DOCTYPE[^>\[]*(?:\[[^\]]*\])?[^>]*>")


class NvidiaXml(TextFormat):
    """nvidia-smi -x.

    Grain: (gpu, metric); MIG devices give their memory under ``gpu:<uuid>/gi:<id>``.
    Source: nvsmi_device_v12.dtd, named by the file itself
    """

    name = "nvidia-smi-xml"
    priority = 319
    markers = (pattern(r"<nvidia_smi_log>"),)

    def parse_text(self, text: str, sink: Samples) -> None:
        """Each gpu element to samples. A document type with entities is never expanded: it is cut off first."""
        end = text.find("</nvidia_smi_log>")
        body = _DOCTYPE.sub(
            "", text[text.index("<nvidia_smi_log>") : end + len("</nvidia_smi_log>") if end > 0 else None]
        )
        try:
            root = ET.fromstring(body)  # noqa: S314 - no document type is left, so no entity can expand
        except ET.ParseError as error:
            raise ValueError(f"XML: {error}") from error
        t_ns = sink.clock.parse(root.findtext("timestamp", ""))
        for index, gpu in enumerate(root.iter("gpu")):
            add_gpu(gpu, index, t_ns, sink)


def add_gpu(gpu: ET.Element, index: int, t_ns: int | None, sink: Samples) -> None:
    """One GPU element to samples."""
    uuid, pci = gpu.findtext("uuid"), gpu.get("id")
    entity = identity.gpu_entity(uuid=uuid, pci=pci)
    sink.device(entity, index=index, uuid=uuid, pci=pci, name=gpu.findtext("product_name"))
    values: dict[str, float | None] = {}
    mask, masked = 0.0, False
    for parent, tag, text in leaves(gpu):
        if (reason := _REASON.fullmatch(tag)) and "counters" not in parent:
            masked = masked or reason.group(1) in _REASON_TAGS
            if text.strip().lower() == "active" and reason.group(1) in _REASON_TAGS:
                mask += REASON_BITS[_REASON_TAGS[reason.group(1)]]
            continue
        key = f"{parent}/{tag}"
        if parent in _POWER_TAGS:
            key = f"power/{tag}"
        elif parent in _COUNTER_TAGS:
            key = "counters/" + re.sub(r"^clocks_(?:event|throttle)_reasons_counters_", "", tag).replace(
                "_slowdown_us", "_slowdown"
            )
        field = SECTION_FIELDS.get(XML_PATHS.get(key, ""))
        if field is not None:
            merge(values, field.metric, to_flag(text) if field.flag else to_number(text, field.scale))
    for metric, value in values.items():
        sink.add(metric, entity, value, t_ns=t_ns)
    if masked:
        sink.add("gpu.throttle_mask", entity, mask, t_ns=t_ns)
    for mig in gpu.iter("mig_device"):
        part = f"{entity}/gi:{(mig.findtext('gpu_instance_id') or '?').strip()}"
        for tag, metric in (("total", "gpu.mem_total"), ("used", "gpu.mem_used")):
            sink.add(metric, part, to_number(mig.findtext(f"fb_memory_usage/{tag}", ""), 1048576.0), t_ns=t_ns)


def leaves(element: ET.Element) -> Iterator[tuple[str, str, str]]:
    """(parent tag, tag, text) of every leaf outside MIG devices and processes."""
    for child in element:
        if child.tag in ("mig_devices", "processes", "accounted_processes", "supported_clocks"):
            continue
        if len(child):
            yield from leaves(child)
        else:
            yield element.tag, child.tag, child.text or ""
