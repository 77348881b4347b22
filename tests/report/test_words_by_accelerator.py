"""Findings speak of the accelerator that the run used, under the same codes."""

from __future__ import annotations

import re

import polars as pl
import pytest

from diagnose.findings.accelerator import KINDS, accelerator
from diagnose.findings.rules import RuleBook

NVIDIA = re.compile(r"nvidia|nvlink|dcgm|\bcuda|pytorch_cuda", re.IGNORECASE)


class Ranks:
    """A store that knows its ranks and its backend."""

    def __init__(self, backend: str | None, *ranks: tuple[str | None, bool]) -> None:
        self.backend, self.ranks = backend, ranks

    def query(self, sql: str) -> pl.DataFrame:
        if "FROM run" in sql:
            return pl.DataFrame({"backend": [self.backend]})
        return pl.DataFrame(self.ranks, schema={"device_name": pl.String, "has_device_work": pl.Boolean}, orient="row")


@pytest.mark.parametrize(
    ("tables", "kind"),
    [
        (Ranks("gloo", (None, False), (None, False)), "cpu"),
        (Ranks(None, (None, False)), "cpu"),
        (Ranks("nccl", (None, False)), None),
        (Ranks("nccl", ("NVIDIA H100 80GB HBM3", True)), None),
        (Ranks("gloo", ("NVIDIA A100-SXM4-40GB", False)), None),
        (Ranks("nccl", ("AMD Instinct MI300X", True)), "amd"),
        (Ranks("xccl", ("Intel(R) Data Center GPU Max 1550", True)), "other"),
        (Ranks(None), None),
    ],
)
def test_the_kind_follows_the_devices(tables, kind):
    assert accelerator(tables) == kind


@pytest.mark.parametrize("kind", KINDS)
def test_no_advice_for_other_devices_needs_a_tool_that_they_lack(kind):
    book = RuleBook().worded(kind)
    codes = [rule.code for rule in book if re.match(r"RANK-|NET-|PIPE-|MOE-", rule.code)]
    assert len(codes) > 20
    not_on_cpus = {"RANK-ALLOCATOR", "NET-PROTOCOL"}  # need a device, or its communication library
    for code in codes:
        if kind == "cpu" and code in not_on_cpus:
            continue
        assert not [text for text in book[code].actions if NVIDIA.search(text)], code


def test_words_change_and_the_rule_does_not():
    plain, other = RuleBook()["RANK-GPU"], RuleBook().worded("cpu")["RANK-GPU"]

    assert "device" not in other.title.lower()
    assert "cgroup" in " ".join(other.actions)
    assert "nvidia-smi" in " ".join(plain.actions)
    assert (other.code, other.cause, other.thresholds) == (plain.code, plain.cause, plain.thresholds)
