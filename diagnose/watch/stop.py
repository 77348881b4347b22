"""A clean end on SIGTERM and SIGINT: at once between the steps of an analysis, never between publish and record."""

from __future__ import annotations

import multiprocessing
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType


class Stopped(BaseException):
    """Raised out of what can be broken off and done again."""


class Stop:
    """Whether an end was asked for. ``interruptible`` marks work that may be dropped."""

    def __init__(self) -> None:
        self.asked = False
        self._open = False

    def ask(self, number: int, frame: FrameType | None) -> None:
        """The signal handler."""
        del number, frame
        self.asked = True
        if self._open:
            self._open = False
            for child in multiprocessing.active_children():  # the readers of this analysis
                child.terminate()
            raise Stopped

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """Work here ends with `Stopped` when a signal arrives."""
        if self.asked:
            raise Stopped
        self._open = True
        try:
            yield
        finally:
            self._open = False


@contextmanager
def on_signals() -> Iterator[Stop]:
    """Handle SIGTERM and SIGINT while this lasts; the old handlers come back."""
    stop = Stop()
    before = {number: signal.signal(number, stop.ask) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
