"""Alerts from recorded to sent: each to each service once; twice only if a crash falls between sending and marking."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from diagnose.watch import services as services_module
from diagnose.watch.claims import acquire
from diagnose.watch.places import Places, write_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from diagnose.watch.record import Alert, Record
    from diagnose.watch.services import Service


class Delivery(NamedTuple):
    """How many went out, and which could not."""

    sent: int
    unsent: tuple[str, ...]


def deliver(
    places: Places,
    records: Iterable[Record],
    services: Sequence[Service],
    *,
    lease_s: float,
    stopped: Callable[[], bool] = lambda: False,
) -> Delivery:
    """Send what is recorded and not marked as sent. What fails stays and is tried again at the next look."""
    sent = 0
    unsent: list[str] = []
    for record in records:
        if record.alert is None or not record.alert.wanted:
            continue
        for service in services:
            if stopped():
                return Delivery(sent, tuple(unsent))
            if _mark(places, record.alert, service).exists():
                continue
            done = _send_once(places, record, record.alert, service, lease_s)
            if done is True:
                sent += 1
            elif done is False:
                unsent.append(f"{record.alert.title} (to {service.name})")
    return Delivery(sent, tuple(unsent))


def _send_once(places: Places, record: Record, alert: Alert, service: Service, lease_s: float) -> bool | None:
    """None when another watcher is at it, or was."""
    mark = _mark(places, alert, service)
    claim = acquire(places.claims, f"alert-{mark.stem}", lease_s=lease_s)
    if claim is None:
        return None
    with claim:
        if mark.exists():
            return None
        if not services_module.send(service, alert):
            return False
        write_whole(mark, msgspec.json.encode({"alert": alert.id, "run": record.key, "service": service.name}))
    return True


def waiting(places: Places, record: Record, services: Sequence[Service]) -> bool:
    """Whether the record's alert has yet to go to some service."""
    alert = record.alert
    return (
        alert is not None and alert.wanted and any(not _mark(places, alert, service).exists() for service in services)
    )


def _mark(places: Places, alert: Alert, service: Service) -> Path:
    return places.sent / f"{alert.id}.{service.name}.json"
