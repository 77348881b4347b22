"""Exposed stretches of many calls as flat arrays, and the (rank, step) pairs that own them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Flags = NDArray[np.bool_]

_OWNER = pl.Schema({"rank": pl.Int32(), "step": pl.Int64()})


class Stretches(NamedTuple):
    """One value a stretch: the ``row`` of its call; after the call's start where it begins, ends, and until where the host
    had not launched what ends it (its own beginning where launches are unknown).
    """

    row: Ints
    low: Ints
    high: Ints
    late: Ints
    any_late: bool
    """Whether launches are known of any call."""

    def of(self, calls: Flags) -> Stretches:
        """Those of the calls chosen."""
        return self if calls.all() else self.only(calls[self.row])

    def only(self, chosen: Flags) -> Stretches:
        """The stretches chosen."""
        if chosen.all():
            return self
        return Stretches(self.row[chosen], self.low[chosen], self.high[chosen], self.late[chosen], self.any_late)


class Owners(NamedTuple):
    """``table`` (rank, step) lists the owners; ``number`` is that of each call, -1 for none."""

    table: pl.DataFrame
    number: Ints


def stretches_of(calls: pl.DataFrame) -> Stretches:
    """Stretches of comm_call rows, in their order."""
    since, until, late = (calls.get_column(f"exposed_{name}_ns") for name in ("from", "to", "late"))
    row = np.repeat(np.arange(len(calls)), since.list.len().fill_null(0).to_numpy())
    low, high = _flat(since), _flat(until)
    any_late = late.null_count() < len(late)
    if not any_late:
        return Stretches(row, low, high, low, any_late=False)
    known = (late.list.len().fill_null(0) > 0).to_numpy()[row]
    from_launch = low.copy()
    from_launch[known] = _flat(late)
    return Stretches(row, low, high, from_launch, any_late=True)


def step_owners(calls: pl.DataFrame) -> Owners:
    """Each call belongs to its rank's step, or to none."""
    return _owners(calls, calls.get_column("step"))


def rank_owners(calls: pl.DataFrame) -> Owners:
    """Each call belongs to its rank's whole trace, step -1."""
    return _owners(calls, pl.Series(np.full(len(calls), -1, np.int64)))


def _owners(calls: pl.DataFrame, steps: pl.Series) -> Owners:
    """Runs of equal (rank, step) first: calls come in order of rank and time."""
    rank = calls.get_column("rank").to_numpy()
    known = steps.is_not_null().to_numpy()
    step = steps.fill_null(0).to_numpy()
    if not len(rank):
        return Owners(pl.DataFrame(schema=_OWNER), np.zeros(0, np.int64))
    new = (rank[1:] != rank[:-1]) | (step[1:] != step[:-1]) | (known[1:] != known[:-1])
    first = np.concatenate(([0], np.flatnonzero(new) + 1))
    runs = pl.DataFrame({"rank": rank[first], "step": step[first], "known": known[first]}).with_row_index("run")
    table = runs.filter("known").select("rank", "step").unique(maintain_order=True).with_row_index("owner")
    numbered = runs.join(table, on=["rank", "step"], how="left", maintain_order="left")
    owner = pl.when("known").then(pl.col("owner").cast(pl.Int64)).otherwise(-1)
    number = numbered.select(owner).to_series().fill_null(-1).to_numpy()
    return Owners(table.drop("owner").cast(_OWNER), np.repeat(number, np.diff(np.append(first, len(rank)))))


def _flat(lists: pl.Series) -> Ints:
    """Values of all lists, one after the other."""
    return lists.explode(empty_as_null=False, keep_nulls=False).to_numpy()
