"""Runs that fail: each try is written down before it begins, so that one which kills the process counts too."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from diagnose.watch.places import Places, write_whole

if TYPE_CHECKING:
    from diagnose.watch.inbox import RunFolder

DEATHS = 6
"""A reboot or a kill is no fault of the run: more of them are forgiven than errors."""
_TEXT = 2000


class Attempts(msgspec.Struct, frozen=True, kw_only=True):
    """The tries of one key."""

    key: str
    job: str
    name: str
    path: str
    begun: int = 0
    errors: tuple[str, ...] = ()


def begin(places: Places, run: RunFolder, key: str) -> Attempts:
    """One more try, written down."""
    known = _read(places, key) or Attempts(key=key, job=run.job, name=run.name, path=str(run.path))
    tried = msgspec.structs.replace(known, begun=known.begun + 1)
    _write(places, tried)
    return tried


def undo(places: Places, tried: Attempts) -> None:
    """The try was broken off by a clean stop: it does not count."""
    before = msgspec.structs.replace(tried, begun=tried.begun - 1)
    if before.begun:
        _write(places, before)
    else:
        succeeded(places, tried.key)


def failed(places: Places, tried: Attempts, error: str, *, most: int) -> bool:
    """Keep the error; True when the run is now set aside."""
    known = msgspec.structs.replace(tried, errors=(*tried.errors, error[:_TEXT]))
    _write(places, known)
    return _judge(places, known, most)


def set_aside(places: Places, key: str, *, most: int) -> bool:
    """Whether the run is or has to be set aside: too many errors, or too many tries that ended the process."""
    if (places.failed / f"{key}.json").is_file():
        return True
    known = _read(places, key)
    return known is not None and _judge(places, known, most)


def succeeded(places: Places, key: str) -> None:
    """Forget the tries."""
    (places.attempts / f"{key}.json").unlink(missing_ok=True)


def _judge(places: Places, known: Attempts, most: int) -> bool:
    deaths = known.begun - len(known.errors)
    if len(known.errors) < most and deaths < DEATHS:
        return False
    if deaths >= DEATHS:
        known = msgspec.structs.replace(
            known, errors=(*known.errors, f"the analysis ended the process {deaths} times (out of memory?)")
        )
    write_whole(places.failed / f"{known.key}.json", msgspec.json.format(msgspec.json.encode(known), indent=1) + b"\n")
    succeeded(places, known.key)
    return True


def _read(places: Places, key: str) -> Attempts | None:
    try:
        return msgspec.json.decode((places.attempts / f"{key}.json").read_bytes(), type=Attempts)
    except (OSError, msgspec.DecodeError):
        return None


def _write(places: Places, known: Attempts) -> None:
    write_whole(places.attempts / f"{known.key}.json", msgspec.json.encode(known))
