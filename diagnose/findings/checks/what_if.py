"""Why no fix, or not every fix, has a price."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diagnose.analysis.cross.what_if import MAX_ERROR
from diagnose.model import NotChecked
from diagnose.units import format_ratio

if TYPE_CHECKING:
    from collections.abc import Iterator

    from diagnose.findings.facts import Facts

_QUESTION = "What would a fix buy?"


def check(facts: Facts) -> Iterator[NotChecked]:
    """Open questions of the replay; none where it did not apply."""
    stat = dict(facts.tables.query("SELECT name, value FROM job_stat WHERE name LIKE 'replay_%'").iter_rows())
    priced = facts.tables.query("SELECT scenario FROM what_if").get_column("scenario").to_list()
    explained, matched = stat.get("replay_explained_ratio"), stat.get("replay_matched_ratio")
    if explained is None and matched is not None:
        yield NotChecked(
            _QUESTION, f"only {format_ratio(matched)} of the communication time is in collectives whose members were all seen",
            "profile all ranks in the same steps and give the folder with all their traces",
        )  # fmt: skip
    elif explained is not None and abs(explained - 1) > MAX_ERROR:
        yield NotChecked(
            _QUESTION, f"the replayed schedule takes {format_ratio(explained)} of the measured time: what it leaves out is too much to price anything",
            "profile several steps with CPU and CUDA activities, so that launches and waiting are in the traces",
        )  # fmt: skip
    elif priced and "bandwidth_x2" not in priced:
        yield NotChecked(
            "What would twice the bandwidth buy?",
            "the collectives that take the time were seen in one size, at which most of it is fixed cost: how much of the rest is bandwidth is open",
            "profile a few steps more with another bucket size, so that the same collective is seen with other sizes",
        )
