"""algbw and busbw as nccl-tests defines them: published numbers and what they imply."""

from __future__ import annotations

import polars as pl
import pytest

from diagnose.analysis.cross.bandwidth import algbw, alltoallv_bytes, busbw_factor, factor, param_alltoallv_bytes

MIB = 2**20


@pytest.mark.parametrize(
    ("kind", "members", "size", "alg", "bus"),
    [
        ("all_reduce", 8, 64 * MIB, 67.109, 117.441),
        ("all_gather", 8, 64 * MIB, 67.109, 58.720),
        ("reduce_scatter", 8, 64 * MIB, 67.109, 58.720),
    ],
)
def test_golden_vectors(kind, members, size, alg, bus):
    speed = algbw(size, 1e6)

    assert speed / 1e9 == pytest.approx(alg, abs=1e-3)
    assert speed * factor(kind, members) / 1e9 == pytest.approx(bus, abs=1e-3)


def test_uneven_all_to_all_in_both_conventions():
    sent = [[4 * MIB, 12 * MIB], [2 * MIB, 6 * MIB]]

    whole = alltoallv_bytes(sent)

    assert whole == 18 * MIB
    assert algbw(whole, 1e6) / 1e9 == pytest.approx(18.874, abs=1e-3)
    assert algbw(whole, 1e6) * factor("all_to_allv", 2) / 1e9 == pytest.approx(9.437, abs=1e-3)
    assert [algbw(param_alltoallv_bytes(sent, rank), 1e6) / 1e9 for rank in (0, 1)] == pytest.approx(
        [12.583, 12.583], abs=1e-3
    )


@pytest.mark.parametrize(
    "kind", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "reduce", "send"]
)
def test_expression_and_number_agree(kind):
    table = pl.DataFrame({"kind": [kind] * 4, "members": [2, 3, 8, 1024]})

    found = table.select(busbw_factor(pl.col("kind"), pl.col("members"))).to_series().to_list()

    assert found == pytest.approx([factor(kind, members) for members in (2, 3, 8, 1024)])
