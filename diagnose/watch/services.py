"""Sending through apprise. Addresses are secrets: from the environment or a private file, never shown, never logged."""

from __future__ import annotations

import hashlib
import logging
import os
import stat
import threading
from typing import TYPE_CHECKING, NamedTuple

from diagnose.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from types import ModuleType

    from diagnose.watch.record import Alert

VARIABLE = "DIAGNOSE_NOTIFY_URLS"
TIMEOUT_S = 30.0


class Service(NamedTuple):
    """One address. ``name`` is what may be shown of it: its kind and a hash that tells services apart."""

    address: str
    name: str


def load_services(file: Path | None, environment: Mapping[str, str] | None = None) -> tuple[Service, ...]:
    """Addresses from the file, else from the environment variable, separated by white space.

    Raises:
        ConfigError: the file is missing, or others than its owner may read it.
        UsageError: there is no address, or none that apprise understands, or apprise is not installed.
    """
    known = os.environ if environment is None else environment
    text = _private(file) if file is not None else known.get(VARIABLE, "")
    addresses = [line for raw in text.splitlines() if not raw.lstrip().startswith("#") for line in raw.split()]
    if not addresses:
        raise UsageError(
            f"--notify needs addresses: set {VARIABLE}, or give --notify-file FILE readable by you alone (chmod 600)"
        )
    services = tuple(Service(address, _name(address)) for address in dict.fromkeys(addresses))
    apprise = _apprise()
    for number, service in enumerate(services, 1):
        if not apprise.Apprise().add(service.address):
            raise UsageError(
                f"notification address {number} ({service.name}) is none that apprise understands; see docs/watch.md"
            )
    return services


def send(service: Service, alert: Alert) -> bool:
    """Hand one message to one service; False when it did not take it in time."""
    apprise = _apprise()
    outcome: list[bool] = []

    def work() -> None:
        target = apprise.Apprise()
        if target.add(service.address):
            kind = apprise.NotifyType.WARNING
            outcome.append(
                bool(
                    target.notify(
                        body=alert.body, title=alert.title, notify_type=kind, body_format=apprise.NotifyFormat.TEXT
                    )
                )
            )

    thread = threading.Thread(target=work, daemon=True, name=f"send to {service.name}")
    thread.start()
    thread.join(TIMEOUT_S)
    return bool(outcome and outcome[0])


def describe(services: Sequence[Service]) -> str:
    """The services as far as they may be shown."""
    return ", ".join(service.name for service in services)


def _apprise() -> ModuleType:
    try:
        import apprise
    except ImportError as error:
        raise UsageError("--notify needs apprise: pip install 'diagnose-training[notify]'") from error
    logging.getLogger("apprise").setLevel(logging.CRITICAL + 1)  # its warnings hold addresses
    logging.getLogger("apprise").propagate = False
    return apprise


def _private(file: Path) -> str:
    try:
        mode = file.stat().st_mode
        if stat.S_IMODE(mode) & 0o077:
            raise ConfigError(f"{file} holds secrets and others may read it: chmod 600 {file}")
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from error


def _name(address: str) -> str:
    kind = address.partition("://")[0] if "://" in address else "unknown"
    return f"{kind[:20]}-{hashlib.sha256(address.encode()).hexdigest()[:8]}"
