"""Times as tools print them, to unix nanoseconds; without a zone --timezone holds, else UTC is assumed and said."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from diagnose.errors import UsageError

_OFFSET = re.compile(r"^(?:UTC|GMT)?([+-])(\d{1,2}):?(\d{2})?$")
_FORMATS = (
    "%Y/%m/%d %H:%M:%S.%f",
    "%Y/%m/%d %H:%M:%S",
    "%Y-%m-%d %H:%M:%S.%f",
    "%Y-%m-%d %H:%M:%S",
    "%Y-%m-%d %H:%M:%S,%f",
    "%Y-%m-%dT%H:%M:%S.%f",
    "%Y-%m-%dT%H:%M:%S",
    "%a %b %d %H:%M:%S %Y",
    "%m/%d/%Y %H:%M:%S",
    "%Y%m%d %H:%M:%S.%f",
    "%Y%m%d %H:%M:%S",
    "%d/%b/%Y %H:%M:%S",
)
_ZONE_TAIL = re.compile(r"\s*(Z|[+-]\d{2}:?\d{2}|\s(?:UTC|GMT))$")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Stamp(NamedTuple):
    """Unix nanoseconds, and whether the text itself named its zone."""

    t_ns: int
    zoned: bool


class Clock:
    """Reads local times in the zone the user gave.

    Raises:
        UsageError: the zone is unknown.
    """

    def __init__(self, zone: str | None) -> None:
        self.given = zone is not None
        self.zone = _zone(zone) if zone else UTC
        self.assumed = 0
        """Times read without any zone, neither in the text nor given."""

    def parse(self, text: str) -> int | None:
        """Unix nanoseconds of a printed time, None when it is none; counts times whose zone had to be assumed."""
        stamp = parse_time(text, self.zone)
        if stamp is None:
            return None
        if not stamp.zoned and not self.given:
            self.assumed += 1
        return stamp.t_ns


def parse_time(text: str, zone: tzinfo = UTC) -> Stamp | None:
    """A printed time: ISO 8601, nvidia-smi, ctime, glog date; ``zone`` holds where the text names none."""
    cleaned = " ".join(text.strip().strip('"').split())
    if not cleaned or not cleaned[-1].isalnum():
        return None
    tail = _ZONE_TAIL.search(cleaned)
    own = _own_zone(tail.group(1).strip()) if tail else None
    body = cleaned[: tail.start()] if tail and own else cleaned
    for pattern in _FORMATS:
        try:
            moment = datetime.strptime(_clip_fraction(body), pattern)
        except ValueError:
            continue
        return Stamp(to_ns(moment.replace(tzinfo=own or zone)), own is not None)
    return None


def to_ns(moment: datetime) -> int:
    """Unix nanoseconds of an aware time, exact to the microsecond."""
    delta = moment - _EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1_000_000_000 + delta.microseconds * 1_000


def epoch_ns(text: str, *, scale: float = 1e9) -> int | None:
    """Unix nanoseconds of a printed epoch; decimal digits are read exactly, so no float rounding moves a time."""
    whole, _, fraction = text.strip().partition(".")
    try:
        if scale == 1e9 and "e" not in text.lower():
            value = int(whole) * 1_000_000_000 + int(fraction[:9].ljust(9, "0") or "0")
        else:
            value = round(float(text) * scale)
    except ValueError:
        return None
    return value


def _clip_fraction(text: str) -> str:
    match = re.search(r"([.,])(\d{7,})$", text)
    return text[: match.start(2) + 6] if match else text


def _own_zone(text: str) -> tzinfo | None:
    if text in ("Z", "UTC", "GMT"):
        return UTC
    return _fixed(text)


def _fixed(text: str) -> tzinfo | None:
    match = _OFFSET.match(text)
    if match is None:
        return None
    sign = -1 if match.group(1) == "-" else 1
    return timezone(sign * timedelta(hours=int(match.group(2)), minutes=int(match.group(3) or 0)))


def _zone(name: str) -> tzinfo:
    if name.upper() in ("UTC", "GMT", "Z"):
        return UTC
    if fixed := _fixed(name):
        return fixed
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise UsageError(
            f"unknown time zone {name!r}; use a name such as Europe/Berlin or an offset such as +02:00"
        ) from error
