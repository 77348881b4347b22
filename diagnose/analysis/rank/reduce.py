"""One rank's trace to rows of the store: the whole map step after decoding."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diagnose.analysis.rank.cpu import reduce_cpu
from diagnose.analysis.rank.device import reduce_device
from diagnose.analysis.rank.reduced import Reduced

if TYPE_CHECKING:
    from diagnose.store.rank_trace import RankTrace

__all__ = ["Reduced", "reduce_rank"]


def reduce_rank(trace: RankTrace, *, keep_kernels: bool) -> Reduced:
    """All tables one trace gives. Grain and units as in store/tables/trace.py."""
    if trace.has_device_work:
        return reduce_device(trace, keep_kernels=keep_kernels)
    return reduce_cpu(trace)
