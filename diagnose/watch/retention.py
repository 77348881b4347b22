"""Remove old stores and reports; the row in the history and the run's key stay, so nothing is analysed again."""

from __future__ import annotations

import os
import shutil
import time
from typing import TYPE_CHECKING

from diagnose.watch.outbox import waiting
from diagnose.watch.places import Places, write_whole
from diagnose.watch.record import Record, encode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diagnose.watch.options import Retention
    from diagnose.watch.services import Service

_NS_PER_DAY = 86_400_000_000_000


def retire(
    places: Places,
    records: Sequence[Record],
    rule: Retention,
    services: Sequence[Service],
    *,
    now_ns: int | None = None,
) -> list[Record]:
    """Apply the rule to each job; a run whose alert has not gone out yet stays."""
    for remains in places.work.glob("retired-*"):
        shutil.rmtree(remains, ignore_errors=True)
    moment = time.time_ns() if now_ns is None else now_ns
    gone = []
    for job in sorted({record.job for record in records}):
        kept = [record for record in records if record.job == job and (places.out / record.folder).is_dir()]
        for place, record in enumerate(reversed(kept)):
            many = rule.keep_runs is not None and place >= rule.keep_runs
            old = rule.keep_days is not None and moment - record.analysed_ns > rule.keep_days * _NS_PER_DAY
            if (many or old) and not waiting(places, record, services):
                _remove(places, record)
                gone.append(record)
    return gone


def _remove(places: Places, record: Record) -> None:
    """The record first, then the folder out of sight in one move."""
    write_whole(places.retired / f"{record.key}.json", encode(record))
    trash = places.work / f"retired-{record.key[:12]}.{os.getpid()}"
    try:
        (places.out / record.folder).rename(trash)
    except FileNotFoundError:  # another watcher was faster
        return
    shutil.rmtree(trash, ignore_errors=True)
